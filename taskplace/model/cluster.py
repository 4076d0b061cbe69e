"""Tasks to place, and instances to place them on, as in a problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from taskplace.errors import InputError
from topology.ids import TaskId


class Task(NamedTuple):
    """A task to place.

    - `end_offset`: the length of its changelog in records. None if it is not known; then no instance without a copy can
      be caught up. An empty changelog (0) makes every instance caught up
    - `logged`: False for a store without a changelog, which has no lag: every instance is caught up (KIP-441)
    - `racks`: for each input partition, the racks that serve it
    - `changelog_racks`: the same for each partition that its standbys read (KIP-925): its changelogs, including an
      input topic that serves as a changelog
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

    - `active`, `standby`, `warmup`: its roles in the assignment in force
    - `lags`: the lag of every copy that it holds, in records, including copies without a role. A task without an entry
      has no copy here, even if it has a role: the copy has not started yet
    - `parked`: tasks whose warm-up made no progress here; they are planned elsewhere (`taskplace.refine.parking`)
    - `slots`: the active tasks of each slot, if known; a plan changes as few of them as it can
    - `restore_rate`: records per second that a copy here catches up; used with `acceptable.recovery.seconds`
    - `draining`: it keeps its tasks only until they are caught up elsewhere, and gets no new ones

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
    restore_rate: float | None = None
    slots: tuple[tuple[TaskId, ...], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise InputError("instances.id", found=self.id, expected="a non-empty string")
        if not hasattr(self.capacity, "__index__"):  # None would be read as unknown, and 2.5 as 2
            path = f"instances[{self.id}].capacity"
            raise InputError(path, found=self.capacity, expected="an integer of at least 1")
        for name in ("active", "standby", "warmup", "parked"):
            try:
                object.__setattr__(self, name, tuple(sorted(getattr(self, name))))
            except TypeError:
                path, expected = f"instances[{self.id}].{name}", "a list of TaskIds"
                raise InputError(path, found=getattr(self, name), expected=expected) from None
