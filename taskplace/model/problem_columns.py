"""A problem as numpy columns, on which the engine computes.

Tasks and instances are numbered by their position in sorted order. A *copy row* is one (task, instance) pair with a
role, a lag, or both. Rows are sorted by task, then by instance.

Reading order: `problem_columns` (this module); `column_reading` (reads tasks and instances); `copies` (joins lags with
roles); `column_building` (ranks the copies by `taskplace.lag.ranking`, and combines everything).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from taskplace.lag.ranking import NO_COPY as NO_COPY
from taskplace.lag.ranking import UNKNOWN as UNKNOWN
from taskplace.lag.ranking import Bools as Bools
from taskplace.lag.ranking import Ints as Ints
from topology.tasks import TaskId


class Role(IntEnum):
    """The role of a task's copy on an instance: none, active, standby, or warm-up."""

    NONE = 0
    ACTIVE = 1
    STANDBY = 2
    WARMUP = 3


# Plain integers: numpy compares a column with an enum member ten times more slowly.
NONE, ACTIVE, STANDBY, WARMUP = map(int, Role)
ROLE_NAMES = tuple(role.name.lower() for role in Role)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The columns of a problem: n tasks, m instances, k copy rows.

    `caught` and `best` are results of the ranking (`taskplace.lag.ranking`). A `universal` task needs no copy: every
    instance is caught up. For an `at_once` task, every instance counts as caught up, although a copy may save work.
    """

    ids: tuple[TaskId, ...]
    names: tuple[str, ...]
    sub: Ints
    """[n] position of the task's subtopology in `subtopologies`."""
    subtopologies: Ints
    stateful: Bools
    end: Ints
    """[n] end offset in records, or UNKNOWN."""
    universal: Bools
    """[n] stateful, and every instance counts as caught up: empty changelog, or not logged."""
    weight: npt.NDArray[np.float64]
    open_slots: Ints
    """[m] capacity; 0 while draining."""
    draining: Bools
    owner: Ints
    """[n] the instance where the task is active, or -1."""
    start: Ints
    """[n + 1] the copy rows of task t are start[t]:start[t + 1]."""
    task: Ints
    inst: Ints
    lag: Ints
    """[k] lag in records, or NO_COPY if the row has a role but no usable copy."""
    role: npt.NDArray[np.int8]
    """[k] the `Role` of each row."""
    caught: Bools
    """[k] whether the instance is caught up on the task: its rank is 0."""
    best: Bools
    """[k] whether the copy is most caught up (`taskplace.lag.ranking.most_caught_up`)."""
    parked: Ints
    """Parked pairs as task * m + instance, sorted."""
    kept: Ints
    """The pairs on which a task may not be active, because another instance keeps it."""
    barred: Ints
    """Where no task may become active: `parked` and `kept`, sorted."""
    unknown: tuple[tuple[str, TaskId], ...]
    """Copies of tasks that are not in the problem: (instance, task)."""
    tags: tuple[Mapping[str, str], ...]
    racks: tuple[tuple[tuple[str, ...], ...], ...]
    changelog_racks: tuple[tuple[tuple[str, ...], ...], ...]
    fingerprint: str
    notes: tuple[str, ...] = field(default=())
    unbounded: bool = False
    """Whether `acceptable.recovery.lag` is unbounded: every instance counts as caught up on every task."""

    @property
    def at_once(self) -> Bools:
        """[n] whether a stateful task may run anywhere at once: it is `universal`, or any lag is acceptable."""
        return self.stateful if self.unbounded else self.universal

    @property
    def n(self) -> int:
        """The number of tasks."""
        return len(self.ids)

    @property
    def m(self) -> int:
        """The number of instances."""
        return len(self.names)
