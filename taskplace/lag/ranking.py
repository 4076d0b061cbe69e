"""Ranks the copies of a task: which are caught up, which are most caught up, which is best, and when one catches up.

**Idea.** The *rank* of an instance for a task is the number of records that it has to read before it can take the task
over. It is 0 if its copy is caught up, else the copy's lag, and the whole changelog without a copy. The most-caught-up
copies are those of the lowest rank. The engine, the explanations, the triggers and the driver all use these functions.

**Special cases.** A task without a changelog, or with an empty one, needs no copy: every instance has rank 0. The same
holds for every task if any lag is acceptable (`Acceptable.unbounded`). A copy that lacks more records than the
changelog has is a copy of an earlier changelog, which was reset. It counts as no copy.

**Shapes.** Each function takes numbers, or columns with one row for each copy, or both (numpy broadcasts). Lags and end
offsets are in records. `NO_COPY` is the lag of a missing copy, and `UNKNOWN` an unknown end offset.

Source: KIP-441, "Computing the most-caught-up instances". Two things differ: the acceptable lag may depend on the
instance (`acceptable.recovery.seconds`), and an owner stays among the best while no other copy is far ahead
(`most_caught_up`).

>>> lags, end = np.array([40, 900, NO_COPY]), 5_000
>>> rank(lags, end, 100, False).tolist()
[0, 900, 5000]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from taskplace.validation import MOST
from topology.tasks import TaskId

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NO_COPY = -1
"""The lag of an instance without a usable copy."""

UNKNOWN = -1
"""The end offset of a changelog of unknown length."""

MOST_IN_TIME = 2**62
"""The largest acceptable lag that `acceptable.recovery.seconds` can give. It is below MOST, which means unbounded."""

TENTH = 10
"""A copy whose lead is at most 1 / TENTH of the owner's lag does not take the task over."""


@dataclass(frozen=True, slots=True)
class Acceptable:
    """The lag up to which a copy is caught up.

    - `lag`: `acceptable.recovery.lag`, in records
    - `seconds`: `acceptable.recovery.seconds`. If it is set and an instance's restore rate is known, the records that
      the instance reads in this time replace `lag`

    >>> Acceptable(lag=10_000, seconds=2.0).at(restore_rate=700.0)
    1400
    >>> Acceptable(lag=10_000, seconds=2.0).at(restore_rate=None)
    10000
    """

    lag: int = 10_000
    seconds: float | None = None

    @property
    def unbounded(self) -> bool:
        """Whether any lag is acceptable: `lag` is 2^63 - 1. Then `seconds` is ignored."""
        return self.lag == MOST

    def at(self, restore_rate: float | None) -> int:
        """Return the acceptable lag in records on an instance that restores `restore_rate` records per second."""
        if self.unbounded or self.seconds is None or restore_rate is None:
            return self.lag
        return int(min(restore_rate * self.seconds, MOST_IN_TIME))


def lag_of(end: int, applied: int) -> int:
    """Return the lag of a copy: the records of a changelog up to `end` that it has not applied.

    >>> lag_of(5_000, 4_960), lag_of(5_000, 5_001)
    (40, 0)
    """
    return max(0, end - applied)


def needs_no_copy(end: Ints | int, unlogged: Bools | bool) -> Bools:
    """Return whether every instance is caught up without a copy: the changelog is empty, or there is none.

    >>> needs_no_copy(np.array([0, 500, UNKNOWN]), False).tolist()
    [True, False, False]
    """
    return np.logical_or(np.equal(end, 0), unlogged)


def usable_lag(lag: Ints | int, end: Ints | int, exempt: Bools | bool) -> Ints:
    """Return the lags, with `NO_COPY` for copies that lack more records than the changelog has, because it was reset.

    `exempt`: tasks that need no copy. Their lags stay unchanged, because the length of their changelog has no meaning.

    >>> usable_lag(np.array([500, 501]), 500, False).tolist()
    [500, -1]
    """
    reset = np.greater_equal(end, 0) & np.greater(lag, end) & np.logical_not(exempt)
    return np.where(reset, NO_COPY, lag)


def whole(end: Ints | int) -> Ints:
    """Return the lengths of changelogs. An unknown length counts as the largest possible one."""
    return np.where(np.greater_equal(end, 0), end, MOST)


def lacking(lag: Ints | int, length: Ints | int) -> Ints:
    """Return how many records have yet to be read: the lag, or `length` without a copy.

    >>> lacking(np.array([40, NO_COPY]), 5_000).tolist()
    [40, 5000]
    """
    return np.where(np.less(lag, 0), length, lag)


def rank_without_copy(end: Ints | int, acceptable: Ints | int) -> Ints:
    """Return the rank of an instance without a copy, for a task that needs one.

    It is the length of the changelog, and at least one more than the acceptable lag. So the instance is never caught
    up.
    """
    length: Ints = np.maximum(whole(end), np.minimum(acceptable, MOST - 1) + 1)
    return length


def rank(lag: Ints | int, end: Ints | int, acceptable: Ints | int, at_once: Bools | bool) -> Ints:
    """Return the ranks of instances. Rank 0 is caught up.

    - `lag`: from `usable_lag`
    - `acceptable`: the largest lag that counts as caught up on the instance
    - `at_once`: tasks for which every instance counts as caught up, with or without a copy
    """
    ready = np.logical_or(at_once, np.greater_equal(lag, 0) & np.less_equal(lag, acceptable))
    return np.where(ready, 0, lacking(lag, rank_without_copy(end, acceptable)))


def most_caught_up(task: Ints, ranks: Ints, end: Ints, acceptable: Ints, owns: Bools) -> Bools:
    """Return the rows of the most-caught-up copies: those of the lowest rank of each task.

    A copy that has read nothing ranks like a missing one and is not included. If no copy of a task is caught up, the
    owner's copy is included, unless another copy leads by more than the owner's acceptable lag *and* by more than a
    tenth of the owner's lag. Otherwise two copies that catch up at the same pace would pass the task back and forth.
    With this rule, the lag shrinks by at least a tenth with each hand-over.

    `task`: the position of each row's task, from 0. `owns`: the rows of owners. O(rows).

    >>> task, ranks, end, acceptable = np.array([[0, 0], [40_000, 39_000], [50_000, 50_000], [100, 100]])
    >>> most_caught_up(task, ranks, end, acceptable, owns=np.array([True, False])).tolist()
    [True, True]
    """
    worth = ranks < rank_without_copy(end, acceptable)
    least = np.full(int(task.max(initial=-1)) + 1, MOST)
    np.minimum.at(least, task[worth], ranks[worth])
    best: Bools = worth & (ranks == least[task])
    mine = np.flatnonzero(worth & owns & ~best & (least[task] > 0))
    lead = ranks[mine] - least[task[mine]]
    best[mine[lead <= np.maximum(acceptable[mine], ranks[mine] // TENTH)]] = True
    return best


def best_first(task: Ints, lag: Ints, ranks: Ints, inst: Ints) -> Ints:
    """Return the order of rows in which each task's best copy comes first.

    Caught-up copies come first, then copies with less lag, then missing copies. The instance breaks ties.
    """
    return np.lexsort((inst, lacking(lag, MOST), ranks > 0, task))


def to_go(lag: int, acceptable: int) -> int:
    """Return how many records a copy has yet to read until it counts as caught up.

    >>> to_go(12_000, 10_000), to_go(9_000, 10_000)
    (2000, 0)
    """
    return max(0, lag - acceptable)


def seconds_left(
    records: int, *, pace: float | None = None, rate: float | None = None, ahead: int = 0
) -> float | None:
    """Return the seconds until a copy has read `records` more, from `to_go`; None if neither speed is known.

    - `pace`: the records per second by which its lag has shrunk; None: not known
    - `rate`: the records per second that its instance restores, for all its followers together; None: not measured
    - `ahead`: the records that the other followers of the instance lack

    >>> seconds_left(2_000, rate=100.0, ahead=500), seconds_left(2_000, pace=50.0, rate=100.0), seconds_left(2_000)
    (25.0, 40.0, None)
    >>> seconds_left(0)
    0.0
    """
    if records <= 0:
        return 0.0
    if pace:
        return records / pace
    return (records + ahead) / rate if rate else None


#: An instance and a task.
Copy = tuple[str, TaskId]


class Seen(NamedTuple):
    """What the driver of a stream has seen of a copy that catches up, beside its lag.

    - `remaining`: the seconds until it has caught up; None: not known
    - `stalled`: why it makes no progress, as a clause; "" if it does
    - `remedy`: what to do about it, as a clause
    - `unknown`: why `remaining` is not known although it makes progress, as a clause
    - `no_driver`: whether it stalls only because no driver runs
    """

    remaining: float | None = None
    stalled: str = ""
    remedy: str = ""
    unknown: str = ""
    no_driver: bool = False
