"""Tasks over the slots (threads) of one instance: sticky and even.

The same question as for instances, so the same answer: every slot has the floor or the ceiling of its share of all
tasks and of each subtopology's, and as few tasks as possible change their slot. State is shared by the slots of an
instance, so nothing has to catch up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from taskplace.assign.active import place_actives
from taskplace.errors import InputError
from taskplace.model.placement import bases
from taskplace.model.problem import Instance, Problem, Task
from topology.ids import TaskId


def over_slots(
    tasks: Iterable[TaskId], slots: int, previous: Sequence[Iterable[TaskId]] = ()
) -> tuple[tuple[TaskId, ...], ...]:
    """Return the tasks of each slot, sorted; `previous` is what each slot had, and may have more or fewer slots.

    >>> a, b, c = TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)
    >>> now = over_slots([a, b, c], 2)
    >>> sorted(len(slot) for slot in now)
    [1, 2]
    >>> over_slots([a, b, c], 2, now) == now
    True
    """
    if slots < 1:
        raise InputError("slots", found=slots, expected="an integer of at least 1")
    mine = set(tasks)
    had: list[tuple[TaskId, ...]] = [tuple(t for t in slot if t in mine) for slot in previous[:slots]]
    had += [()] * (slots - len(had))
    problem = Problem(
        tuple(Task(t) for t in mine),
        tuple(Instance(f"{k:09}", active=slot) for k, slot in enumerate(had)),
    )
    c = problem.columns
    place = place_actives(c, bases(c)).place
    out: list[list[TaskId]] = [[] for _ in range(slots)]
    for t, k in zip(c.ids, place.tolist(), strict=True):
        out[k].append(t)
    return tuple(tuple(slot) for slot in out)
