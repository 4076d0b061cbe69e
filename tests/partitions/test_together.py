"""The flow behind co-partitioned groups: its estimate of its own size, on which the range of its costs depends."""

from __future__ import annotations

import numpy as np
import pytest

from taskplace.model.flow import Network
from taskplace.partitions import together


@pytest.mark.parametrize(("groups", "size", "members"), [(1, 1, 1), (1, 4, 2), (3, 2, 5), (7, 1, 9)])
def test_costs_are_limited_for_at_least_as_many_nodes_as_the_network_has(
    groups: int, size: int, members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    limited: list[int] = []

    class Counting(Network):
        def nodes(self, count: int) -> np.typing.NDArray[np.int64]:
            made = super().nodes(count)
            built.append(len(made))
            return made

    def budget(nodes: int) -> int:
        limited.append(nodes)
        return 2**61 // (nodes + 1)

    monkeypatch.setattr(together, "Network", Counting)
    monkeypatch.setattr(together, "cost_budget", budget)
    owner = {g: np.zeros((2, size), np.int64) for g in range(groups)}
    followed = {g: np.zeros((members, size), bool) for g in range(groups)}
    home = together.settle(owner, followed, {g: [] for g in range(groups)}, members)
    assert all(len(home[g]) == size for g in range(groups))
    assert sum(built) <= min(limited)
