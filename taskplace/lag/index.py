"""Which instances are most caught up on each task: an index of copies by lag.

One sorted list of (task, lag, instance), kept up to date as reports arrive and never rebuilt: a report costs
O(log copies), and the copies of a task come out in order of lag.
"""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedList

from taskplace.errors import InputError
from taskplace.validation import MOST
from topology.ids import TaskId

_Entry = tuple[TaskId, int, str]


class LagIndex:
    """Copies of tasks on instances, by lag.

    The *rank* of an instance on a task is 0 if its copy is caught up (lag <= `acceptable_recovery_lag`), the lag if
    not, and the whole changelog if it has no copy; lower is better. Without a copy nobody is caught up, unless the
    changelog is empty or the task is not logged: then every instance has rank 0. So it has on every task if
    `acceptable_recovery_lag` is unbounded (2^63 - 1).

    Lifetime: one index lives as long as the cluster it watches. `report` what copies say, `forget` an instance that
    is gone, `drop` a copy that was deleted, and tell `end_offset` how long a changelog is.

    Errors: `InputError` for a negative lag or end offset.

    Source: KIP-441, "Computing the most-caught-up instances".

    >>> index = LagIndex(acceptable_recovery_lag=100)
    >>> task = TaskId(0, 3)
    >>> index.end_offset(task, 5_000)
    >>> index.report("a", task, 40)
    >>> index.report("b", task, 900)
    >>> index.most_caught_up(task), index.rank("b", task), index.rank("c", task)
    (('a',), 900, 5000)
    >>> index.report("b", task, 70)
    >>> index.most_caught_up(task), list(index.by_lag(task))
    (('a', 'b'), [('a', 40), ('b', 70)])
    """

    def __init__(self, acceptable_recovery_lag: int = 10_000) -> None:
        self.acceptable_recovery_lag = _least(acceptable_recovery_lag, "acceptable.recovery.lag")
        self._order: SortedList = SortedList()  # of (task, lag, instance)
        self._copies: dict[str, dict[TaskId, int]] = {}
        self._end: dict[TaskId, int] = {}
        self._unlogged: set[TaskId] = set()

    def __len__(self) -> int:
        """Return the number of copies. O(1)."""
        return len(self._order)

    def __contains__(self, copy: tuple[str, TaskId]) -> bool:
        """Return whether (instance, task) is a known copy. O(1)."""
        return copy[1] in self._copies.get(copy[0], ())

    def __iter__(self) -> Iterator[tuple[TaskId, str, int]]:
        """Yield (task, instance, lag): by task, and for each task by lag. O(copies)."""
        for task, lag, instance in self._order:
            yield task, instance, lag

    def report(self, instance: str, task: TaskId, lag: int) -> None:
        """Note that the copy of `task` on `instance` is `lag` records behind. O(log copies)."""
        _least(lag, f"instances[{instance}].lags.{task}")
        copies = self._copies.setdefault(instance, {})
        before = copies.get(task)
        if before == lag:
            return
        if before is not None:
            self._order.remove((task, before, instance))
        copies[task] = lag
        self._order.add((task, lag, instance))

    def drop(self, instance: str, task: TaskId) -> None:
        """Note that `instance` has no copy of `task` any more; nothing if it had none. O(log copies)."""
        lag = self._copies.get(instance, {}).pop(task, None)
        if lag is not None:
            self._order.remove((task, lag, instance))

    def forget(self, instance: str) -> None:
        """Note that `instance` is gone, with all its copies. O(its copies * log copies)."""
        for task, lag in self._copies.pop(instance, {}).items():
            self._order.remove((task, lag, instance))

    def end_offset(self, task: TaskId, end: int, *, logged: bool = True) -> None:
        """Note that the changelog of `task` has `end` records; `logged=False` if it has no changelog. O(1)."""
        self._end[task] = _least(end, f"tasks[{task}].end_offset")
        (self._unlogged.discard if logged else self._unlogged.add)(task)

    def universal(self, task: TaskId) -> bool:
        """Return whether every instance is caught up on `task`. O(1).

        It is where the changelog is empty, the task is not logged, or any lag is acceptable (2^63 - 1).
        """
        unbounded = self.acceptable_recovery_lag == MOST
        return unbounded or task in self._unlogged or self._end.get(task) == 0

    def lag(self, instance: str, task: TaskId) -> int | None:
        """Return how far behind a copy is, None if there is no copy. O(1)."""
        return self._copies.get(instance, {}).get(task)

    def lags(self, instance: str) -> dict[TaskId, int]:
        """Return the lag of every copy on `instance`: what `Instance.lags` wants. O(its copies)."""
        return dict(self._copies.get(instance, ()))

    def rank(self, instance: str, task: TaskId) -> int:
        """Return how far `instance` is from taking `task` over; 0 is caught up. O(1).

        Without a copy this is the whole changelog, and at least one more than any lag that counts as caught up.
        """
        if self.universal(task):
            return 0
        lag = self.lag(instance, task)
        if lag is None:
            return max(self._end.get(task, 0), self.acceptable_recovery_lag + 1)
        return 0 if lag <= self.acceptable_recovery_lag else lag

    def is_caught_up(self, instance: str, task: TaskId) -> bool:
        """Return whether `instance` could take `task` over now. O(1)."""
        return self.rank(instance, task) == 0

    def caught_up(self, task: TaskId) -> tuple[str, ...]:
        """Return the instances whose copies of `task` are caught up, by lag. O(log copies + result)."""
        low, high = (task, -1, ""), (task, self.acceptable_recovery_lag + 1, "")
        return tuple(instance for _, _, instance in self._order.irange(low, high, inclusive=(True, False)))

    def most_caught_up(self, task: TaskId) -> tuple[str, ...]:
        """Return the instances whose copies of `task` have the least rank, by lag. O(log copies + result).

        All that are caught up rank the same. Empty if there is no copy: then all instances are alike.
        """
        ready = self.caught_up(task)
        if ready:
            return ready
        best: list[str] = []
        least = -1
        for instance, lag in self.by_lag(task):
            if best and lag > least:
                break
            best.append(instance)
            least = lag
        return tuple(best)

    def by_lag(self, task: TaskId) -> Iterator[tuple[str, int]]:
        """Yield (instance, lag) of the copies of `task`, least lag first. O(log copies + result)."""
        after = TaskId(task.subtopology, task.partition + 1)
        for _, lag, instance in self._order.irange((task, -1, ""), (after, -1, ""), inclusive=(True, False)):
            yield instance, lag

    def check(self) -> None:
        """Raise `InputError` if the index contradicts itself; used by tests after every random action."""
        listed = sorted((t, lag, i) for i, copies in self._copies.items() for t, lag in copies.items())
        if list(self._order) != listed:
            raise InputError("lag index", found=list(self._order), expected=repr(listed))


def _least(value: int, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(path, found=value, expected="an integer of at least 0")
    return value
