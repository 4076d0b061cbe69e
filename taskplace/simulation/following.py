"""Says how far a simulation has come: in complete groups of events, and in a part of the group that is being played.

The part is that of the copies that were not where they belong when the group began, and are there now. How many rounds
a group takes is not known before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from taskplace.model.plan import Plan, Roles
from taskplace.model.problem import Problem
from taskplace.model.work import Show, Work

#: Gets every problem and its plan.
Watch = Callable[[Problem, Plan], None]


@contextmanager
def following(show: Show | None, groups: int) -> Iterator[Callable[[], Watch | None]]:
    """Yield a function to call at the begin of each group: it returns what watches the rounds of the group.

    Without `show` it returns None.
    """
    if show is None:
        yield lambda: None
        return
    with Work("simulating", "groups of events", groups, show=show) as work:
        begun = 0

        def begin() -> Watch:
            nonlocal begun
            begun += 1
            return _Group(work, begun - 1).watch

        yield begin
        work.done = begun


class _Group:
    """The rounds of one group, behind `before` complete groups."""

    def __init__(self, work: Work, before: int) -> None:
        self._work, self._before = work, before
        self._rounds = self._most = 0

    def watch(self, problem: Problem, plan: Plan) -> None:
        self._rounds += 1
        missing = _missing(plan)
        self._most = max(self._most, missing)
        part = 1 - missing / self._most if self._most else 0.0
        self._work.to(self._before + part, detail=f"round {self._rounds}")


def _missing(plan: Plan) -> int:
    """Return the number of copies that are not yet where the target has them. O(copies)."""
    nothing = Roles()
    return sum(
        len({*wanted.active, *wanted.standby} - {*held.active, *held.standby})
        for name, wanted in plan.target.items()
        for held in (plan.assignment.get(name, nothing),)
    )
