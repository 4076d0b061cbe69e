"""Finds the target: where every task belongs in the current cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from taskplace.assign import registry, weights
from taskplace.assign.active import ActiveTarget, place_actives
from taskplace.assign.rack_actives import place_near_input, place_stateless_near_input
from taskplace.assign.rack_standbys import place_rack_standbys, shared_values, sharing_notes
from taskplace.assign.standby import StandbyTarget, Traffic, place_standbys, replicas_possible
from taskplace.assign.stateless import place_stateless
from taskplace.assign.target import place_sticky
from taskplace.model.config import PlacementConfig
from taskplace.model.placement import FIXED, RACK_TAG, Target, bases, moved
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import ACTIVE, STANDBY, WARMUP, Columns, Ints
from taskplace.model.shares import floors_and_ceilings, level_loads

UNKNOWN_RACKS = (
    f"standbys are placed without racks: rack.aware.assignment.strategy needs a tag {RACK_TAG!r} on every instance, "
    "and changelog_racks of tasks"
)


def find_target(problem: Problem) -> Target:
    """Return the target that the configured assignor (`task.assignor.class`) wants.

    Errors: `ConfigError` if the assignor is unknown or cannot be loaded.
    """
    c, config = problem.columns, problem.config
    place = PLACES.get(config.task_assignor_class)
    if place is not None:
        return place(c, config)
    replicas = replicas_possible(c, config.num_standby_replicas)
    return registry.answer(problem, bases(c), replicas, lambda: high_availability(c, config))


def high_availability(c: Columns, config: PlacementConfig) -> Target:
    """Return the target of fewest moves under both balances: actives, then standbys, then stateless tasks."""
    base = bases(c)
    racks = config.rack_aware_assignment_strategy != "none"
    tags = config.rack_aware_assignment_tags
    uneven = weights.uneven(c)
    if not racks and not (uneven and not weights.level(c, c.owner)):
        steady = _steady(c, config, base)
        if steady is not None and not (tags and _some_share(c, steady, tags)):
            return steady
    notes: tuple[str, ...] = ()
    if racks:
        actives, notes = place_near_input(c, base, config)
    else:
        actives = place_actives(c, base)
    if uneven:
        place = weights.level_weights(c, actives.place)
        actives = replace(actives, place=place, moves=int(moved(c, base, place).sum()))
    replicas = replicas_possible(c, config.num_standby_replicas)
    traffic = Traffic.of(c, config) if replicas else None
    if racks and replicas and traffic is None and (c.stateful & (c.end != 0)).any():
        notes += (UNKNOWN_RACKS,)
    if tags and replicas and c.stateful.any():
        task, inst = place_rack_standbys(c, actives.place, replicas, shared_values(c.tags, tags), traffic)
        standbys = StandbyTarget(task=task, inst=inst, replicas=replicas)
        notes += tuple(sharing_notes(c, actives.place, standbys.task, standbys.inst, tags))
    else:
        standbys = place_standbys(c, actives.place, config.num_standby_replicas, traffic=traffic)
    near = place_stateless_near_input(c, actives.place, config) if racks else None
    return _joined(c, actives, standbys, notes, near)


def sticky(c: Columns, config: PlacementConfig) -> Target:
    """Return the target of the `sticky` assignor: tasks stay where they are, if the total balance allows it."""
    tags = config.rack_aware_assignment_tags
    actives, standbys, notes = place_sticky(c, bases(c), config.num_standby_replicas, tags)
    return _joined(c, actives, standbys, notes)


#: The function of each built-in assignor (`taskplace.model.assignors`).
PLACES: Mapping[str, Callable[[Columns, PlacementConfig], Target]] = {
    "high_availability": high_availability,
    "sticky": sticky,
}


def stateless_for_now(c: Columns, config: PlacementConfig, step: Ints, target: Ints) -> Ints:
    """Return `step` ([n] instances) with its stateless tasks placed level beside the stateful tasks of the step.

    The rules are those of the target. Where they leave a choice, the instance in the target is preferred. The stateless
    part of `step` is not read. The target's stateless placement is used unchanged in two cases: all stateful actives
    are at their target already, or a custom assignor has placed the stateless tasks.
    """
    loose = ~c.stateful
    if not loose.any():
        return step
    if not config.promises.levels_stateless or not (step != target)[c.stateful].any():
        return np.where(loose, target, step)
    near = None
    if config.rack_aware_assignment_strategy != "none":
        near = place_stateless_near_input(c, step, config)
    return place_stateless(c, step, target) if near is None else near


def _joined(
    c: Columns,
    actives: ActiveTarget,
    standbys: StandbyTarget,
    notes: tuple[str, ...] = (),
    place: Ints | None = None,
) -> Target:
    return Target(
        active=place_stateless(c, actives.place) if place is None else place,
        standby_task=standbys.task,
        standby_inst=standbys.inst,
        replicas=standbys.replicas,
        base=actives.base,
        moves=actives.moves,
        lower_bound=actives.lower_bound,
        balanced=actives.balanced,
        notes=notes,
    )


def _some_share(c: Columns, steady: Target, tags: tuple[str, ...]) -> bool:
    """Return whether two copies of some task share a value of these tags. If not, the spread is optimal."""
    tasks = np.flatnonzero(c.stateful)
    task = np.concatenate([tasks, steady.standby_task])
    inst = np.concatenate([steady.active[tasks], steady.standby_inst])
    for tag in tags:
        values = [t.get(tag) for t in c.tags]
        number = {value: k for k, value in enumerate(sorted({v for v in values if v}))}
        at = np.array([number[v] if v else -1 for v in values], np.int64)[inst]
        pair = np.sort((task * (len(number) + 1) + at)[at >= 0])
        if (pair[1:] == pair[:-1]).any():
            return True
    return False


def _steady(c: Columns, config: PlacementConfig, base: Ints) -> Target | None:
    """Return the assignment in force as the target if it is optimal, else None. Needs only counts, no solver.

    It is optimal if every owner may stay, loads are within both balances, and standbys are complete and level. Then it
    costs nothing, and every other assignment costs more.
    """
    stateful = np.flatnonzero(c.stateful)
    owner = c.owner[stateful]
    if not c.n or (c.owner < 0).any() or (c.open_slots[c.owner] == 0).any():
        return None
    if (base[stateful] != FIXED).any() or len(c.barred) or (c.role == WARMUP).any():
        return None
    actives = np.bincount(owner, minlength=c.m)
    grid = np.bincount(c.sub[stateful] * c.m + owner, minlength=len(c.subtopologies) * c.m).reshape(-1, c.m)
    for counts in (actives, *grid):
        low, high = floors_and_ceilings(int(counts.sum()), c.open_slots)
        if ((counts < low) | (counts > high)).any():
            return None
    replicas = replicas_possible(c, config.num_standby_replicas)
    rows = np.flatnonzero(c.role == STANDBY)
    if not _complete_and_level(c, rows, replicas, actives):
        return None
    if len(stateful) < c.n and (place_stateless(c, np.where(c.stateful, c.owner, -1)) != c.owner).any():
        return None
    if np.count_nonzero(c.role == ACTIVE) != c.n:
        return None
    return Target(
        active=c.owner,
        standby_task=c.task[rows],
        standby_inst=c.inst[rows],
        replicas=replicas,
        base=base,
        moves=0,
        lower_bound=0,
        steady=True,
    )


def _complete_and_level(c: Columns, rows: Ints, replicas: int, actives: Ints) -> bool:
    """Return whether the standbys in `rows` are `replicas` per stateful task, may stay, and make loads level.

    `actives`: [m] number of stateful actives.
    """
    stateful = np.flatnonzero(c.stateful)
    if (~c.stateful[c.task[rows]]).any() or (c.open_slots[c.inst[rows]] == 0).any():
        return False
    if (np.bincount(c.task[rows], minlength=c.n)[stateful] != replicas).any():
        return False
    loads = actives + np.bincount(c.inst[rows], minlength=c.m)
    low, high = level_loads(len(stateful) * (1 + replicas), len(stateful), actives, c.open_slots)
    return not ((loads < low) | (loads > high)).any()
