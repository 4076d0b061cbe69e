"""The tasks and the instances of a problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from topology.tasks import TaskId


class Task(NamedTuple):
    """A task to place.

    - `stateful`: whether it has state
    - `end_offset`: the length of its changelog in records; None if unknown. With an empty changelog (0), every instance
      is caught up
    - `logged`: False for a store without a changelog, which has no lag: every instance is caught up (KIP-441)
    - `racks`: for each input partition, the racks that serve it
    - `changelog_racks`: for each partition that its standbys read, the racks that serve it (KIP-925). These are its
      changelogs, including an input topic that serves as a changelog
    - `weight`: its share of the load, in any unit

    >>> Task(TaskId(0, 3)).stateful
    True
    """

    id: TaskId
    stateful: bool = True
    end_offset: int | None = 0
    weight: float = 1.0
    logged: bool = True
    racks: tuple[tuple[str, ...], ...] = ()
    changelog_racks: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Instance:
    """A place that runs tasks, with its current roles and copies.

    - `capacity`: the number of its slots
    - `tags`: values of tags such as a zone; `rack.aware.assignment.tags` names those that spread standbys
    - `draining`: it keeps its tasks only until they are caught up elsewhere, and gets no new tasks
    - `active`, `standby`, `warmup`: its roles in the assignment in force
    - `lags`: the lag of each copy that it holds, in records, including copies without a role. A task without an entry
      has no copy here. It may have a role, if the copy has not started yet
    - `parked`: tasks whose copy made no progress here; they are planned elsewhere (`taskplace.refine.parking`)
    - `keeps`: tasks with state that only the copy here has, because it is not logged. Unless this instance drains, they
      are active nowhere else; loads are level as far as they allow it
    - `restore_rate`: the records per second that copies here restore; used with `acceptable.recovery.seconds`
    - `slots`: the active tasks of each slot, if known. A plan changes as few of them as possible

    A `Problem` checks the values.

    >>> Instance("executor-1", capacity=4, active=[TaskId(0, 1)], lags={TaskId(0, 1): 0}).active
    (TaskId(subtopology=0, partition=1),)
    """

    id: str
    capacity: int = 1
    tags: Mapping[str, str] = field(default_factory=dict)
    draining: bool = False
    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    warmup: tuple[TaskId, ...] = ()
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    parked: tuple[TaskId, ...] = ()
    keeps: tuple[TaskId, ...] = ()
    restore_rate: float | None = None
    slots: tuple[tuple[TaskId, ...], ...] = ()

    def __post_init__(self) -> None:
        for name in ("active", "standby", "warmup", "parked", "keeps"):
            object.__setattr__(self, name, tuple(sorted(getattr(self, name))))
