"""What there is to place, and where: tasks and instances, as a problem states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from taskplace.errors import InputError
from topology.ids import TaskId


class Task(NamedTuple):
    """A task to place.

    `end_offset` is the length of its changelog in records; None if it is not known, so that nobody without a
    copy can be caught up. An empty changelog (0) makes every instance caught up, and so does `logged=False`:
    a store without a changelog has no lag (KIP-441). `racks` holds, for each of its input partitions, the
    racks that serve it, and `changelog_racks` the same for each partition that its standbys read (KIP-925): those
    of its changelogs, an input topic that serves as a changelog among them. `weight` is its share of the load, in
    units of your choice.

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
    """A place that runs tasks, with what it runs and holds now.

    `active`, `standby`, `warmup`: the roles it has in the assignment in force.
    `lags`: records behind, for every copy it holds, also for copies without a role (left over). A task that
    is not in here has no copy here, even if a role says so: it has not started yet.
    `parked`: tasks whose warm-up made no progress here; they are planned elsewhere
    (`taskplace.refine.parking`).
    `slots`: the active tasks of each slot, if that is known; a plan changes as few of them as it can.
    `restore_rate`: records per second that a copy catches up here; used with `acceptable.recovery.seconds`.
    A `draining` instance keeps what it must until it is caught up elsewhere, and gets nothing new.

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
        if not hasattr(self.capacity, "__index__"):  # None would be taken for unknown, and 2.5 for 2
            path = f"instances[{self.id}].capacity"
            raise InputError(path, found=self.capacity, expected="an integer of at least 1")
        for name in ("active", "standby", "warmup", "parked"):
            try:
                object.__setattr__(self, name, tuple(sorted(getattr(self, name))))
            except TypeError:
                path, expected = f"instances[{self.id}].{name}", "a list of TaskIds"
                raise InputError(path, found=getattr(self, name), expected=expected) from None
