"""Plans a problem: finds target and step, verifies the plan, and records the reasons.

Inside an instance, tasks are distributed over its slots (threads) by the same rule as over instances: every slot gets
the floor or the ceiling of its share of all tasks, and of the tasks of each subtopology, with the fewest changes. The
slots of an instance share its state, so no copy has to catch up. Standbys have no slot.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from taskplace import validation
from taskplace.assign.active import place_actives
from taskplace.assign.target import find_target, stateless_for_now
from taskplace.assign.weights import level, load_and_bound, uneven
from taskplace.errors import InputError, InvalidPlan
from taskplace.model.config import PlacementConfig
from taskplace.model.placement import (
    FIXED,
    FORCED,
    RESUME,
    Decision,
    Reason,
    Step,
    Target,
    bases,
    changelog_reads,
    cross_rack_reads,
    handed_over,
)
from taskplace.model.plan import MOVE_ROLES, Move, Optimality, Plan, Roles
from taskplace.model.problem import Instance, Problem, Task
from taskplace.model.problem_columns import Bools, Columns, Ints, Role
from taskplace.model.shares import is_even
from taskplace.refine.step import next_step
from taskplace.verify import violations
from taskplace.wording import count, noun
from topology.tasks import TaskId

#: A list of slots ends here, unless there are more tasks: the slots of a larger instance stay empty.
MOST_EMPTY = 256


_T = TypeVar("_T")


def plan(problem: Problem | Mapping[str, Any]) -> Plan:
    """Return the plan for a problem: the step to put in force now, and the target it leads to.

    The plan is a function of the problem alone: equal problems, in whatever order, give equal plans. It has
    been verified (`taskplace.verify`). Put the step in force, let copies catch up, and plan again while
    `followup` is set.

    Errors: `InputError` for a bad problem; `InvalidPlan` if the plan breaks an invariant (never put in
    force).

    >>> from taskplace.model.problem import Instance, Task, TaskId
    >>> a, b = TaskId(0, 0), TaskId(0, 1)
    >>> ran = Instance("a", active=[a, b], lags={a: 0, b: 0})
    >>> now = plan(Problem([Task(a, end_offset=50_000), Task(b, end_offset=50_000)], [ran, Instance("b")]))
    >>> [str(m) for m in now.moves], now.followup
    (['0_1: warms up on b, to replace a (balance)'], True)
    """
    typed = problem if isinstance(problem, Problem) else Problem.from_dict(problem)
    c, config = typed.columns, typed.config
    target = find_target(typed)
    step = next_step(c, target, config.max_warmup_replicas)
    step = replace(step, active=stateless_for_now(c, config, step.active, target.active))
    forced = int(handed_over(c, target.base).sum())
    optimality = Optimality(target.moves, target.lower_bound, forced)
    decision = Decision(_reasons(c, step, target), step.queue_task, step.queue_inst)
    broken = list(violations(c, config, step, target, optimality))
    if broken:
        raise InvalidPlan("; ".join(str(v) for v in broken))
    assignment, goal = _assignments(typed, step, target)
    return Plan(
        assignment=assignment,
        target=goal,
        followup=step.followup,
        moves=_moves(c, step, target, decision.reason),
        optimality=optimality,
        metrics=_metrics(c, config, step, target),
        warnings=(*c.notes, *target.notes, *_warnings(c, config, target)),
        fingerprint=c.fingerprint,
        slots=slots_of(typed, assignment),
        cleanup=_cleanup(c),
        problem=typed,
        decision=decision,
    )


def _cleanup(c: Columns) -> dict[str, tuple[TaskId, ...]]:
    """Return the copies of unknown tasks, per instance."""
    out: dict[str, list[TaskId]] = {}
    for name, task in c.unknown:
        out.setdefault(name, []).append(task)
    return {name: tuple(tasks) for name, tasks in out.items()}


_EMPTY = (np.zeros(0, np.int64),) * 2


def _assignments(problem: Problem, step: Step, target: Target) -> tuple[dict[str, Roles], dict[str, Roles]]:
    """Return assignment and target as roles per instance."""
    c = problem.columns
    if target.steady and not c.unknown and not c.notes:  # nothing changes: reuse the roles
        now = {i.id: Roles(i.active, i.standby) for i in problem.instances}
        return now, now
    standby, warmup = (step.standby_task, step.standby_inst), (step.warmup_task, step.warmup_inst)
    now = _roles(c, step.active, standby, warmup)
    if not step.followup and not len(step.warmup_task):
        return now, now
    return now, _roles(c, target.active, (target.standby_task, target.standby_inst))


def _roles(
    c: Columns, active: Ints, standby: tuple[Ints, Ints], warmup: tuple[Ints, Ints] = _EMPTY
) -> dict[str, Roles]:
    lists = [_by_instance(c, *pairs) for pairs in ((np.arange(c.n), active), standby, warmup)]
    return dict(zip(c.names, map(Roles, *lists), strict=True))


def _by_instance(c: Columns, task: Ints, inst: Ints) -> list[tuple[Any, ...]]:
    if not len(task):
        return [()] * c.m
    order = np.argsort(inst * c.n + task)
    ids = _named(c.ids, task[order])
    cuts = np.searchsorted(inst[order], np.arange(c.m + 1)).tolist()
    return [tuple(ids[a:b]) for a, b in itertools.pairwise(cuts)]


def _named(names: Sequence[_T], index: Ints) -> list[_T]:
    """Return names[k] for each k."""
    return list(map(names.__getitem__, index.tolist()))


_TEXTS = tuple(reason.text for reason in Reason)
_ACTIVE, _PROMOTION, _STANDBY, _WARMUP = map(MOVE_ROLES.index, ("active", "promotion", "standby", "warmup"))


class _Changes(NamedTuple):
    """Copies that change their instance, as columns of equal length."""

    task: Ints
    role: Ints
    """Positions in MOVE_ROLES."""
    origin: Ints
    """The instance that loses its role, or -1."""
    inst: Ints
    why: Ints


def _moves(c: Columns, step: Step, target: Target, reason: Ints) -> tuple[Move, ...]:
    """Return the changes, sorted by task: actives, standbys, warm-ups."""
    if target.steady:
        return ()
    parts = (_new_actives(c, step, target, reason), _new_standbys(c, step), _new_warmups(c, step, target))
    task, role, origin, inst, why = (np.concatenate(column) for column in zip(*parts, strict=True))
    kind = np.repeat(np.arange(len(parts)), [len(part.task) for part in parts])
    order = np.lexsort((inst, kind, task))
    return tuple(
        map(
            Move,
            _named(c.ids, task[order]),
            _named(MOVE_ROLES, role[order]),
            _named((*c.names, None), origin[order]),  # the last one, -1, is nobody
            _named(c.names, inst[order]),
            _named(_TEXTS, why[order]),
        )
    )


def _reasons(c: Columns, step: Step, target: Target) -> Ints:
    """Return [n] the `Reason` of each task's active."""
    if target.steady:
        return np.full(c.n, Reason.STAYS)
    base, owner = np.where(c.stateful, target.base, FIXED), c.owner
    gone, stays = owner < 0, step.active == owner
    kept = np.isin(np.arange(c.n), c.kept // c.m) & (target.active == owner)
    return np.select(
        [
            base == FORCED,
            base == RESUME,
            gone,
            stays & kept,
            stays & (target.active == owner),
            stays,
            c.open_slots[owner] == 0,
            ~c.stateful & (step.active != target.active),
        ],
        [
            np.where(gone, Reason.GONE, Reason.LAGS),
            np.where(gone, Reason.RESUMES, Reason.LACKS),
            Reason.STARTS,
            Reason.ONLY,
            Reason.STAYS,
            Reason.WAITS,
            Reason.DRAINS,
            Reason.FOR_NOW,
        ],
        Reason.BALANCE,
    )


def _new_actives(c: Columns, step: Step, target: Target, reason: Ints) -> _Changes:
    """Return the tasks that are active on another instance than before."""
    task = np.flatnonzero(step.active != c.owner)
    role = np.where(handed_over(c, target.base)[task], _PROMOTION, _ACTIVE)
    return _Changes(task=task, role=role, origin=c.owner[task], inst=step.active[task], why=reason[task])


def _new_standbys(c: Columns, step: Step) -> _Changes:
    """Return the standbys that were none before."""
    new = _is_new(c, Role.STANDBY, step.standby_task, step.standby_inst)
    task, inst = step.standby_task[new], step.standby_inst[new]
    why = np.where(inst == c.owner[task], Reason.KEEPS, Reason.COPY)
    count = len(task)
    return _Changes(task=task, role=np.full(count, _STANDBY), origin=np.full(count, -1), inst=inst, why=why)


def _new_warmups(c: Columns, step: Step, target: Target) -> _Changes:
    """Return the warm-ups that were none before."""
    new = _is_new(c, Role.WARMUP, step.warmup_task, step.warmup_inst)
    task, inst, origin = step.warmup_task[new], step.warmup_inst[new], step.warmup_from[new]
    why = np.select(
        [inst != target.active[task], c.open_slots[origin] == 0],
        [Reason.STANDBY_MOVES, Reason.DRAINS],
        Reason.BALANCE,
    )
    return _Changes(task=task, role=np.full(len(task), _WARMUP), origin=origin, inst=inst, why=why)


def _is_new(c: Columns, role: Role, task: Ints, inst: Ints) -> Bools:
    """Return which copies do not have this role now."""
    now = c.role == role.value
    return ~np.isin(task * c.m + inst, c.task[now] * c.m + c.inst[now])


def _metrics(c: Columns, config: PlacementConfig, step: Step, target: Target) -> dict[str, float]:
    stateful = np.flatnonzero(c.stateful)
    grid = np.zeros((len(c.subtopologies), c.m), np.int64)
    np.add.at(grid, (c.sub[stateful], target.active[stateful]), 1)
    roomy = grid[:, c.open_slots > 0]
    counts = roomy.sum(axis=0)
    # KIP-441's own figures. Its second, numbers of instances per subtopology, cannot be met by 1 against 48
    # partitions. So both are reported, and the shares of `taskplace.model.shares` are enforced.
    spread = (roomy > 0).sum(axis=1)[roomy.sum(axis=1) > 0]
    tasks_apart = int(counts.max(initial=0) - counts.min()) if len(counts) else 0
    instances_apart = int(spread.max() - spread.min()) if len(spread) else 0
    kept = int((c.stateful & (target.base == FIXED) & (step.active == c.owner)).sum())
    return {
        "tasks": c.n,
        "stateful_tasks": len(stateful),
        "instances": c.m,
        "actives_kept": kept,
        "standbys": len(step.standby_task),
        "warmups": len(step.warmup_task),
        "warmups_waiting": step.waiting,
        "copies_to_warm": step.behind,
        "owners_behind": step.owners_behind,
        "standbys_possible": target.replicas,
        **_weights(c, target),
        **_reads(c, config, target),
        "active_spread": tasks_apart,
        "subtopology_instances_spread": instances_apart,
        "kip441_balanced": int(max(tasks_apart, instances_apart) <= config.balance_factor),
    }


def _reads(c: Columns, config: PlacementConfig, target: Target) -> dict[str, float]:
    """Return the target's reads across racks, of input and changelogs, with a rack strategy and known racks."""
    if config.rack_aware_assignment_strategy == "none":
        return {}
    out: dict[str, float] = {}
    if (known := cross_rack_reads(c)) is not None:
        out["reads_across_racks"] = int(known[1][np.arange(c.n), known[0][target.active]].sum())
    if (known := changelog_reads(c)) is not None:
        reads = known[1][target.standby_task, known[0][target.standby_inst]]
        out["standby_reads_across_racks"] = int(reads.sum())
    return out


def _weights(c: Columns, target: Target) -> dict[str, float]:
    """Return the evenness of the target's weighted load, if weights differ: the bound, and the gap to it."""
    if not uneven(c):
        return {}
    load, bound = load_and_bound(c, target.active)
    return {
        "weighted_load_max": round(load, 9),
        "weighted_load_bound": round(bound, 9),
        "weighted_load_gap": round(load / bound - 1, 9),
    }


def _warnings(c: Columns, config: PlacementConfig, target: Target) -> list[str]:
    out = []
    wanted = config.num_standby_replicas
    stateful = int(c.stateful.sum())
    if target.replicas < wanted and stateful:
        more, able = wanted - target.replicas, int((c.open_slots > 0).sum())
        tasks = f"{stateful:,} of {count(stateful, 'stateful task')} {noun(stateful, 'gets', 'get')}"
        out.append(
            f"{tasks} {target.replicas} of the {wanted} configured standby replicas: {count(able, 'instance')} can "
            f"take work; add {more} to place all of them"
        )
    if len(c.parked):
        pairs = [f"{c.ids[p // c.m]} on {c.names[p % c.m]}" for p in c.parked.tolist()]
        out.append(
            f"{count(len(pairs), 'copy is', 'copies are')} parked without progress: {', '.join(pairs[:5])}; the "
            "tasks are planned elsewhere; check these instances, then call `release` of the loop, or of `Placed`"
        )
    if uneven(c) and config.promises.balanced and not level(c, target.active):
        load, bound = load_and_bound(c, target.active)
        out.append(
            f"weights: the largest load per slot is {load:g}, the lower bound is {bound:g}; the difference exceeds the "
            "heaviest task, and no exchange that keeps both balances reduces it"
        )
    missing = [t for t in config.rack_aware_assignment_tags if not any(t in tags for tags in c.tags)]
    if missing:
        known = sorted({key for tags in c.tags for key in tags})
        near = validation.nearest(missing[0], known) or f"known tags: {', '.join(known) or 'none'}"
        out.append(
            f"rack.aware.assignment.tags: no instance has the tag {', '.join(map(repr, missing))}: "
            f"it has no effect; {near}"
        )
    if not target.balanced:
        out.append(
            "both balances cannot be met because of parked copies, or of tasks with state that is not logged; they are "
            "met as far as possible"
        )
    return out


def slots_of(problem: Problem, assignment: Mapping[str, Roles]) -> dict[str, tuple[tuple[TaskId, ...], ...]]:
    """Return the tasks of each slot, for every instance with more than one slot and at least one active.

    O(tasks) for instances whose `Instance.slots` are unknown or already even; one small flow for every other instance.
    """
    return {
        i.id: over_slots(assignment[i.id].active, i.capacity, i.slots)
        for i in problem.instances
        if i.capacity > 1 and i.id in assignment and assignment[i.id].active
    }


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
