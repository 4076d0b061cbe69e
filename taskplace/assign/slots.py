"""Distributes the tasks of an instance over its slots (threads): evenly, with the fewest changes.

The rule is the same as for instances. Every slot gets the floor or the ceiling of its share of all tasks, and of the
tasks of each subtopology. As few tasks as possible change their slot. The slots of an instance share its state, so no
copy has to catch up. Standbys have no slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from taskplace.assign.active import place_actives
from taskplace.errors import InputError
from taskplace.model.placement import bases
from taskplace.model.plan import Roles
from taskplace.model.problem import Instance, Problem, Task
from taskplace.model.shares import is_even
from topology.tasks import TaskId

#: A list of slots ends here, unless there are more tasks: the slots of a larger instance stay empty.
MOST_EMPTY = 256


def over_slots(
    tasks: Iterable[TaskId], slots: int, previous: Sequence[Iterable[TaskId]] = ()
) -> tuple[tuple[TaskId, ...], ...]:
    """Return the tasks of each slot, sorted. `previous`: the tasks that each slot had, for any number of slots.

    Slots without tasks are left out at the end, where there are more than `MOST_EMPTY` slots.

    >>> a, b, c = TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)
    >>> now = over_slots([a, b, c], 2)
    >>> sorted(len(slot) for slot in now)
    [1, 2]
    >>> over_slots([a, b, c], 2, now) == now
    True
    """
    if slots < 1:
        raise InputError("slots", found=slots, expected="an integer of at least 1")
    mine = sorted(set(tasks))
    known = set(mine)
    slots = min(slots, max(len(mine), MOST_EMPTY))
    had: list[tuple[TaskId, ...]] = [tuple(t for t in slot if t in known) for slot in previous[:slots]]
    had += [()] * (slots - len(had))
    if not any(had):
        # Sorted ids in turn: tasks of a subtopology follow each other, so both balances are met.
        return tuple(tuple(mine[k::slots]) for k in range(slots))
    if is_even(had, mine):
        return tuple(tuple(sorted(slot)) for slot in had)
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


def slots_of(problem: Problem, assignment: Mapping[str, Roles]) -> dict[str, tuple[tuple[TaskId, ...], ...]]:
    """Return the tasks of each slot, for every instance with more than one slot and at least one active.

    O(tasks) for instances whose `Instance.slots` are unknown or already even; one small flow for every other instance.
    """
    return {
        i.id: over_slots(assignment[i.id].active, i.capacity, i.slots)
        for i in problem.instances
        if i.capacity > 1 and i.id in assignment and assignment[i.id].active
    }
