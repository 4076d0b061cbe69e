"""Minimum-cost flow with lower bounds, on OR-tools' `SimpleMinCostFlow` and its bulk arcs.

Lower bounds are removed in advance: the flow that an arc must carry becomes supply and demand of its ends, and the
solver gets the rest. So lower bounds need no large negative costs, and costs may use the whole range below 2^63.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from taskplace.errors import TaskplaceError
from taskplace.model.problem_columns import Ints


class Network:
    """A network that is built from arrays of arcs and solved once.

    The same arcs in the same order give the same flow. Arcs keep the order in which they were added. After `solve`,
    `cost` is the cost of the flow, 0 if there is none.

    >>> net = Network()
    >>> source, a, b, sink = (int(net.nodes(1)[0]) for _ in range(4))
    >>> first = net.arcs([source, source], [a, b], 5, [1, 2])
    >>> second = net.arcs([a, b], [sink, sink], 5, 0, low=[0, 2])
    >>> net.supply([source, sink], [3, -3])
    >>> flow = net.solve()
    >>> flow[first].tolist(), net.cost
    ([1, 2], 5)
    """

    def __init__(self) -> None:
        self.cost = 0
        self._nodes = 0
        self._count = 0
        self._tails: list[Ints] = []
        self._heads: list[Ints] = []
        self._high: list[Ints] = []
        self._low: list[Ints] = []
        self._costs: list[Ints] = []
        self._supplies: list[tuple[Ints, Ints]] = []

    def nodes(self, count: int) -> Ints:
        """Add `count` nodes. Return their numbers."""
        self._nodes += count
        return np.arange(self._nodes - count, self._nodes, dtype=np.int64)

    def arcs(
        self,
        tails: npt.ArrayLike,
        heads: npt.ArrayLike,
        high: npt.ArrayLike,
        cost: npt.ArrayLike,
        low: npt.ArrayLike = 0,
    ) -> slice:
        """Add arcs that carry `low` to `high` units at `cost` each. Return the positions of their flows."""
        tail = np.asarray(tails, np.int64).ravel()
        start = self._count
        self._tails.append(tail)
        for store, values in (
            (self._heads, heads), (self._high, high), (self._costs, cost), (self._low, low)
        ):  # fmt: skip
            flat = np.asarray(values, np.int64).ravel()
            store.append(np.broadcast_to(flat, tail.shape) if flat.size == 1 else flat)
        self._count += len(tail)
        return slice(start, self._count)

    def supply(self, nodes: npt.ArrayLike, amounts: npt.ArrayLike) -> None:
        """Add supply to nodes. Negative amounts are demand."""
        at = np.asarray(nodes, np.int64).ravel()
        self._supplies.append((at, np.broadcast_to(np.asarray(amounts, np.int64), at.shape)))

    def solve(self) -> Ints | None:
        """Return the flow of every arc at minimum cost, or None if no flow meets all bounds."""
        from ortools.graph.python import min_cost_flow  # slow to import, so imported late

        solver: Any = min_cost_flow.SimpleMinCostFlow()
        tail, head = np.concatenate(self._tails), np.concatenate(self._heads)
        high, low = np.concatenate(self._high), np.concatenate(self._low)
        cost = np.concatenate(self._costs)
        balance = np.zeros(self._nodes, np.int64)
        for at, amounts in self._supplies:
            np.add.at(balance, at, amounts)
        np.add.at(balance, head, low)
        np.subtract.at(balance, tail, low)
        solver.add_arcs_with_capacity_and_unit_cost(tail, head, high - low, cost)
        solver.set_nodes_supplies(np.arange(self._nodes), balance)
        status = solver.solve()
        if status == solver.INFEASIBLE:
            return None
        if status != solver.OPTIMAL:
            raise TaskplaceError(f"the flow solver stopped with status {status}: {self._describe(cost)}")
        flow: Ints = np.asarray(solver.flows(np.arange(len(tail))), np.int64) + low
        high_part, low_part = np.divmod(cost, 1 << 31)  # a sum of products can pass 2^63
        self.cost = int((flow * high_part).sum()) * (1 << 31) + int((flow * low_part).sum())
        return flow

    def _describe(self, cost: Ints) -> str:
        return f"{self._nodes} nodes, {self._count} arcs, costs up to {int(abs(cost).max(initial=0))}"


def cost_budget(nodes: int) -> int:
    """Return the largest safe cost of an arc in a network of that many nodes.

    The solver multiplies costs by nodes + 1, and the result must stay below 2^63. A factor of 4 is kept in reserve.

    >>> cost_budget(9) == 2**61 // 10
    True
    """
    return 2**61 // (nodes + 1)
