"""A problem as numpy columns, on which the engine computes.

All tasks and all instances are known by their position in canonical (sorted) order. A *copy row* is one pair
(task, instance) for which there is a role, a lag, or both; rows are sorted by task, then by instance.

Reading order: `columns` (this value); `column_reading` (reads tasks and instances); `copies` (joins lags with roles);
`column_building` (ranks the copies by `taskplace.lag.ranking`, and puts it all together).
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
from topology.ids import TaskId


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
    """The columns; n tasks, m instances, k copy rows.

    `caught` and `best` are the result of ranking (`taskplace.lag.ranking`). For a `universal` task no copy is needed:
    every instance is caught up. For an `at_once` task every instance counts as caught up, though a copy may still be
    useful.
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
    """[n] the instance that has the task active, or -1."""
    start: Ints
    """[n + 1] rows start[t]:start[t + 1] are those of task t."""
    task: Ints
    inst: Ints
    lag: Ints
    """[k] lag in records, or NO_COPY: the row has a role, but no usable copy."""
    role: npt.NDArray[np.int8]
    """[k] the `Role` of each row."""
    caught: Bools
    """[k] the instance is caught up on the task: its rank is 0."""
    best: Bools
    """[k] most caught up: no instance has a better copy (`taskplace.lag.ranking.most_caught_up`)."""
    parked: Ints
    """Parked pairs as task * m + instance, sorted."""
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
        """[n] stateful, and free to run anywhere at once: `universal`, or all of them where `unbounded`."""
        return self.stateful if self.unbounded else self.universal

    @property
    def n(self) -> int:
        """The number of tasks."""
        return len(self.ids)

    @property
    def m(self) -> int:
        """The number of instances."""
        return len(self.names)
