"""The flow behind co-partitioned groups: its estimate of its own size, on which the range of its costs depends."""

from __future__ import annotations

import numpy as np
import pytest

from taskplace.groups import copartitioned as together
from taskplace.model.flow import Network


@pytest.mark.parametrize("topics", [1, 2, 9])
def test_a_home_of_topics_placed_already_outweighs_all_owners_together(topics: int) -> None:
    owner, followed = {0: np.zeros((topics, 1), np.int64)}, {0: np.zeros((2, 1), bool)}
    assert together.settle(owner, followed, {0: [np.array([1])]}, 2)[0].tolist() == [1]
    assert together.settle(owner, followed, {0: [np.array([-1])]}, 2)[0].tolist() == [0]


def test_where_costs_have_no_room_for_all_levels_the_upper_ones_still_hold() -> None:
    """So many topics, numbers and members that the cost of the last level, the spread of topics, is left out."""
    topics, size, half = 300, 2_000, 1_000
    own = np.arange(size)
    placed = np.where(
        own < half, (own + 1) % half, -1
    )  # one half has another home, with topics placed already
    owner, followed = {0: np.tile(own, (topics, 1))}, {0: np.zeros((size, size), bool)}
    home = together.settle(owner, followed, {0: [placed]}, size)
    assert home[0].tolist() == np.where(placed >= 0, placed, own).tolist()


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
