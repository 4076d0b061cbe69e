"""The exact modes at the limits of their solver: costs are coarser, or refused with the numbers."""

from __future__ import annotations

import pytest
from taskplace.groups import sticky as optimal
from taskplace.groups.partitions import Member, Subscriptions, assign_partitions

from taskplace.errors import TaskplaceError

S = Subscriptions({"t": 4, "u": 3}, {"a": Member(["t"], [("t", 0)]), "b": Member(["t", "u"])})


def test_more_than_the_solver_takes_is_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimal, "cost_budget", lambda nodes: 0)
    with pytest.raises(TaskplaceError) as error:
        assign_partitions(S, "fair_sticky")
    assert str(error.value) == (
        "7 partitions and 2 members are more than the exact modes can take; use 'range' or 'round_robin'"
    )
