"""An index of copies by lag, kept up to date as reports arrive.

It is one sorted list of (task, lag, instance), which is never rebuilt. So a report costs O(log copies), and the copies
of a task are sorted by lag. `taskplace.lag.ranking` has the rules.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sortedcontainers import SortedList

from taskplace.errors import InputError
from taskplace.lag import ranking
from taskplace.lag.ranking import NO_COPY, UNKNOWN, Acceptable
from taskplace.validation import positive
from topology.tasks import TaskId


class LagIndex:
    """The copies of tasks on instances, by lag.

    The index ranks instances as the engine does (`taskplace.lag.ranking`). The rank is 0 if the copy is caught up, else
    its lag, and the whole changelog without a copy. A copy is caught up if its lag is at most
    `acceptable_recovery_lag`. With `acceptable_recovery_seconds` and a known `restore_rate` of the instance, it is
    caught up if it can read its lag in that time instead.

    The driver keeps one (`taskplace.spark.driver.cluster_state`): it gives the lags to plan from, answers the events of
    `taskplace.rebalance.triggers`, and says which copies an executor or the clean-up may remove.

    Lifetime: one index lives as long as the cluster it watches. Call `report` for each lag, `drop` for a deleted copy,
    `forget` for a lost instance, `end_offset` for the length of a changelog, and `restore_rate` for a measured rate.

    Errors: `InputError` for a negative lag or end offset, and for seconds or a rate that are not above 0.

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

    def __init__(
        self, acceptable_recovery_lag: int = 10_000, acceptable_recovery_seconds: float | None = None
    ) -> None:
        self.acceptable_recovery_lag = _least(acceptable_recovery_lag, "acceptable.recovery.lag")
        seconds = positive(acceptable_recovery_seconds, "acceptable.recovery.seconds", optional=True)
        self._acceptable = Acceptable(acceptable_recovery_lag, seconds)
        self._order: SortedList = SortedList()  # of (task, lag, instance)
        self._copies: dict[str, dict[TaskId, int]] = {}
        self._rates: dict[str, float] = {}
        self._end: dict[TaskId, int] = {}
        self._unlogged: set[TaskId] = set()

    def __contains__(self, copy: tuple[str, TaskId]) -> bool:
        """Return whether (instance, task) is a known copy. O(1)."""
        return copy[1] in self._copies.get(copy[0], ())

    # -- reports

    def report(self, instance: str, task: TaskId, lag: int) -> None:
        """Record that the copy of `task` on `instance` is `lag` records behind. O(log copies)."""
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
        """Remove the copy of `task` on `instance`, if there is one. O(log copies)."""
        lag = self._copies.get(instance, {}).pop(task, None)
        if lag is not None:
            self._order.remove((task, lag, instance))

    def forget(self, instance: str) -> None:
        """Remove `instance` with all its copies. O(its copies * log copies)."""
        self._rates.pop(instance, None)
        for task, lag in self._copies.pop(instance, {}).items():
            self._order.remove((task, lag, instance))

    def end_offset(self, task: TaskId, end: int | None, *, logged: bool = True) -> None:
        """Record that the changelog of `task` has `end` records; None if unknown. O(1).

        `logged=False`: the task has no changelog.
        """
        if end is None:
            self._end.pop(task, None)
        else:
            self._end[task] = _least(end, f"tasks[{task}].end_offset")
        (self._unlogged.discard if logged else self._unlogged.add)(task)

    def restore_rate(self, instance: str, rate: float | None) -> None:
        """Record how many records per second copies on `instance` restore; None if unknown. O(1)."""
        known = positive(rate, f"instances[{instance}].restore_rate", optional=True)
        if known is None:
            self._rates.pop(instance, None)
        else:
            self._rates[instance] = known

    # -- reported lags

    def lag(self, instance: str, task: TaskId) -> int | None:
        """Return the lag of a copy in records; None if there is no copy. O(1)."""
        return self._copies.get(instance, {}).get(task)

    def lags(self, instance: str) -> dict[TaskId, int]:
        """Return the lag of every copy on `instance`, as for `Instance.lags`. O(its copies)."""
        return dict(self._copies.get(instance, ()))

    def by_lag(self, task: TaskId) -> Iterator[tuple[str, int]]:
        """Yield (instance, lag) of the copies of `task`, least lag first. O(log copies + result)."""
        after = TaskId(task.subtopology, task.partition + 1)
        for _, lag, instance in self._order.irange((task, -1, ""), (after, -1, ""), inclusive=(True, False)):
            yield instance, lag

    # -- ranks

    def universal(self, task: TaskId) -> bool:
        """Return whether every instance is caught up on `task`. O(1).

        True if the changelog is empty, the task is not logged, or any lag is acceptable (2^63 - 1).
        """
        return self._acceptable.unbounded or self._needs_no_copy(task)

    def lacking(self, instance: str, task: TaskId, length: int) -> int:
        """Return how many records `instance` has to read: the lag of its copy, or `length` without a copy. O(1)."""
        lag = self.lag(instance, task)
        return length if lag is None else lag

    def rank(self, instance: str, task: TaskId) -> int:
        """Return the rank of `instance` for `task`: 0 if it is caught up, else the records that it lacks. O(1).

        Without a copy, the rank is the length of the changelog (2^63 - 1 if unknown), and at least one more than the
        acceptable lag.
        """
        lag = self.lag(instance, task)
        return int(self._ranks(task, NO_COPY if lag is None else lag, self._acceptable_on(instance)))

    def is_caught_up(self, instance: str, task: TaskId) -> bool:
        """Return whether `instance` could take `task` over now. O(1)."""
        # A copy that lacks nothing is caught up by any bound; most copies lack nothing.
        return self.lag(instance, task) == 0 or self.rank(instance, task) == 0

    def caught_up(self, task: TaskId) -> tuple[str, ...]:
        """Return the instances whose copies of `task` are caught up, by lag. O(log copies + copies of the task)."""
        names, _, rank = self._ranked(task)
        return tuple(name for name, its_rank in zip(names, rank.tolist(), strict=True) if its_rank == 0)

    def most_caught_up(self, task: TaskId, owner: str | None = None) -> tuple[str, ...]:
        """Return the instances whose copies of `task` have the least rank, by lag.

        All caught-up copies have the same rank. If no copy is caught up, the copy of `owner` is included as well,
        unless another copy is far ahead of it (`taskplace.lag.ranking.most_caught_up`). The result is empty if no copy
        has read any records; then all instances are equal. O(log copies + copies of the task).
        """
        names, acceptable, rank = self._ranked(task)
        same, end = np.zeros(len(names), np.int64), np.full(len(names), self._length(task))
        owns = np.array([name == owner for name in names], np.bool_)
        best = ranking.most_caught_up(same, rank, end, acceptable, owns)
        return tuple(name for name, is_best in zip(names, best.tolist(), strict=True) if is_best)

    def check(self) -> None:
        """Raise `InputError` if the index is inconsistent. Tests call it after every random action."""
        listed = sorted((t, lag, i) for i, copies in self._copies.items() for t, lag in copies.items())
        if list(self._order) != listed:
            raise InputError("lag index", found=list(self._order), expected=repr(listed))

    def _length(self, task: TaskId) -> int:
        return self._end.get(task, UNKNOWN)

    def _needs_no_copy(self, task: TaskId) -> bool:
        return bool(ranking.needs_no_copy(self._length(task), task in self._unlogged))

    def _acceptable_on(self, instance: str) -> int:
        return self._acceptable.at(self._rates.get(instance))

    def _ranks(self, task: TaskId, lags: ranking.Ints | int, acceptable: ranking.Ints | int) -> ranking.Ints:
        """Return the ranks of copies of one task."""
        end = self._length(task)
        usable = ranking.usable_lag(lags, end, self._needs_no_copy(task))
        return ranking.rank(usable, end, acceptable, self.universal(task))

    def _ranked(self, task: TaskId) -> tuple[list[str], ranking.Ints, ranking.Ints]:
        """Return the instances with a copy of `task`, by lag; the acceptable lag of each; and their ranks."""
        copies = list(self.by_lag(task))
        acceptable = np.array([self._acceptable_on(name) for name, _ in copies], np.int64)
        lags = np.array([lag for _, lag in copies], np.int64)
        return [name for name, _ in copies], acceptable, self._ranks(task, lags, acceptable)


def _least(value: int, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(path, found=value, expected="an integer of at least 0")
    return value
