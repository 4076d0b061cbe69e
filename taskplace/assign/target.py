"""Finds the target: where every task belongs in the current cluster. Selects the assignor, and joins its parts.

**The `sticky` assignor** places tasks as Kafka Streams did before KIP-441.

- Actives: each task goes to the instance that had it active. If that instance is gone or full, it goes to the least
  loaded instance with state of the task, else to the least loaded instance. "Full" and "least loaded" are relative to
  capacity.
- Standbys: first the warm-ups and standbys in force, then the former owner. Other standbys go to the instance that
  shares the fewest tasks with the instances of the existing copies. So two instances seldom have the same two tasks,
  and the copies of a lost instance's tasks are spread over many instances. With `rack.aware.assignment.tags`,
  `rack_standbys` places the standbys. It keeps those in force unless others share fewer tag values.
- Every instance has the floor or the ceiling of its share of the stateful tasks. Subtopologies, lag and racks of the
  input are ignored. Parked pairs (see `taskplace.refine.parking`) are not used as long as a task has another place,
  even on a full instance.
- The reported lower bound of moves is that of the flow with both balances. `sticky` keeps only one of them, so it may
  have fewer moves than the bound.

Source: Kafka Streams' sticky task assignor (its documented behaviour). O(tasks * instances) in numpy, and instances^2
in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from taskplace.assign import registry, weights
from taskplace.assign.active import ActiveTarget, place_actives
from taskplace.assign.rack_actives import place_near_input, place_stateless_near_input
from taskplace.assign.rack_standbys import place_rack_standbys, shared_values, sharing_notes
from taskplace.assign.standby import StandbyTarget, Traffic, place_standbys, replicas_possible
from taskplace.assign.stateless import place_stateless
from taskplace.model.config import PlacementConfig
from taskplace.model.placement import FIXED, RACK_TAG, Target, bases, moved
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import ACTIVE, STANDBY, WARMUP, Columns, Ints, Role
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


def place_sticky(
    c: Columns, base: Ints, wanted: int, tags: Sequence[str] = ()
) -> tuple[ActiveTarget, StandbyTarget, tuple[str, ...]]:
    """Return the actives and standbys of all stateful tasks, and the warnings. `base` is only used to count moves."""
    tasks = np.flatnonzero(c.stateful)
    seats = _Seats(c, *floors_and_ceilings(len(tasks), c.open_slots), len(tasks))
    seats.park(c.barred)
    place = np.full(c.n, -1, np.int64)
    waiting = []
    kept = frozenset(c.kept.tolist())
    held = frozenset(pair // c.m for pair in kept)  # the tasks that have one place come first
    for t in sorted(tasks.tolist(), key=lambda t: t not in held):
        owner = int(c.owner[t])
        if owner >= 0 and t * c.m + owner not in kept and seats.is_open(owner):
            place[t] = seats.take(owner)
        else:
            waiting.append(t)
    for holders_only in (True, False):
        rest = []
        for t in waiting:
            options = seats.options(t, _holders(c, t) if holders_only else None)
            if not len(options) and not holders_only:
                options = seats.beyond_shares(t, ())
            if len(options):
                place[t] = seats.take(seats.choose(options, ()))
            else:
                rest.append(t)
        waiting = rest
    moves = int(moved(c, base, place).sum())
    actives = ActiveTarget(place, base, moves=moves, lower_bound=place_actives(c, base).lower_bound)
    seats.park(c.parked)
    replicas = replicas_possible(c, wanted)
    if tags and replicas and len(tasks):
        task, inst = place_rack_standbys(c, place, replicas, shared_values(c.tags, tags))
        standbys = StandbyTarget(task=task, inst=inst, replicas=replicas)
        return actives, standbys, tuple(sharing_notes(c, place, task, inst, tags))
    return actives, _standbys(c, seats, tasks, place, replicas), ()


def _standbys(c: Columns, seats: _Seats, tasks: Ints, place: Ints, replicas: int) -> StandbyTarget:
    actives = np.bincount(place[tasks], minlength=c.m)
    low, high = level_loads(len(tasks) * (1 + replicas), len(tasks), actives, c.open_slots)
    seats.limits(low, high, len(tasks) * (1 + replicas))
    copies: dict[int, list[int]] = {t: [int(place[t])] for t in tasks.tolist()}
    for role in (Role.WARMUP, Role.STANDBY, Role.ACTIVE, None) if replicas else ():
        for t, mine in copies.items():
            former = None if role is None else _holders(c, t, role)
            while len(mine) <= replicas:
                options = seats.options(t, former, mine)
                if not len(options) and role is None:
                    if _exchange(c, seats, copies, t):
                        continue
                    options = seats.beyond_shares(t, mine)
                    there = np.intersect1d(options, _holders(c, t, Role.STANDBY))
                    options = there if len(there) else options
                if not len(options):
                    break
                i = seats.take(seats.choose(options, mine))
                seats.together(i, mine)
                mine.append(i)
    pairs = sorted((t, i) for t, mine in copies.items() for i in mine[1:])
    columns = np.array(pairs, np.int64).reshape(-1, 2)
    return StandbyTarget(task=columns[:, 0], inst=columns[:, 1], replicas=replicas)


def _exchange(c: Columns, seats: _Seats, copies: dict[int, list[int]], t: int) -> bool:
    """Place a standby of `t` when only instances with a copy of `t` have room; return whether that was possible.

    A standby of another task moves to such an instance, and `t` takes its place.
    """
    mine, barred = copies[t], seats.parked.get(t, [])
    free = [i for i in np.flatnonzero(c.open_slots > 0).tolist() if seats.is_open(i)]
    for u, theirs in reversed(copies.items()):
        for j in theirs[1:] if u != t else ():
            if j in mine or j in barred:
                continue
            for i in free:
                if i not in theirs and i not in seats.parked.get(u, ()):
                    seats.apart(j, [k for k in theirs if k != j])
                    theirs.remove(j)
                    seats.together(seats.take(i), theirs)
                    theirs.append(i)
                    seats.together(j, mine)
                    mine.append(j)
                    return True
    return False


def _holders(c: Columns, t: int, role: Role | None = None) -> Ints:
    rows = slice(int(c.start[t]), int(c.start[t + 1]))
    keep = (c.lag[rows] >= 0) | (c.role[rows] == STANDBY) if role is None else c.role[rows] == role.value
    holders: Ints = c.inst[rows][keep]
    return holders


class _Seats:
    """The remaining capacity of each instance, and for each pair of instances the number of tasks that both hold."""

    def __init__(self, c: Columns, low: Ints, high: Ints, count: int) -> None:
        self.c = c
        self.load = np.zeros(c.m, np.int64)
        self.both = np.zeros((c.m, c.m), np.int32)
        self.limits(low, high, count)

    def park(self, pairs: Ints) -> None:
        """Set the pairs that no task may go to, in place of those before."""
        self.parked: dict[int, list[int]] = {}
        for pair in pairs.tolist():
            self.parked.setdefault(pair // self.c.m, []).append(pair % self.c.m)

    def limits(self, low: Ints, high: Ints, count: int) -> None:
        """Set the bounds of loads. An instance may exceed `low` only if the `low` of all others can still be met."""
        self.low, self.high = low, high
        self.beyond = count - int(np.maximum(low, self.load).sum())

    def is_open(self, i: int) -> bool:
        """Return whether instance `i` can take one more copy."""
        return bool(self.load[i] < self.low[i] or (self.load[i] < self.high[i] and self.beyond > 0))

    def options(self, t: int, among: Ints | None = None, mine: Sequence[int] = ()) -> Ints:
        """Return the instances that can take `t`, of all or of `among`, without `mine`."""
        if among is not None:
            barred = {*mine, *self.parked.get(t, ())}
            return np.array([i for i in among.tolist() if i not in barred and self.is_open(i)], np.int64)
        free = self.load < (self.high if self.beyond > 0 else self.low)
        free[[*mine, *self.parked.get(t, ())]] = False
        return np.flatnonzero(free)

    def beyond_shares(self, t: int, mine: Sequence[int]) -> Ints:
        """Return instances for `t` regardless of bounds: those where it is not parked, or else all with open slots."""
        fits = self.c.open_slots > 0
        fits[list(mine)] = False
        unparked = fits.copy()
        unparked[self.parked.get(t, [])] = False
        return np.flatnonzero(unparked if unparked.any() else fits)

    def choose(self, options: Ints, copies: Sequence[int]) -> int:
        """Return the option that shares the fewest tasks with the instances in `copies`. Ties: the least loaded one."""
        shared = self.both[list(copies)][:, options].sum(axis=0) if copies else np.zeros(len(options))
        load = self.load[options] / self.c.open_slots[options]
        return int(options[np.lexsort((options, load, shared))[0]])

    def take(self, i: int) -> int:
        """Give instance `i` one more copy, and return `i`."""
        self.beyond -= int(self.load[i] >= self.low[i])
        self.load[i] += 1
        return i

    def together(self, i: int, others: Sequence[int]) -> None:
        """Record that `i` and each of `others` have copies of the same task."""
        for j in others:
            self.both[i, j] += 1
            self.both[j, i] += 1

    def apart(self, i: int, others: Sequence[int]) -> None:
        """Undo `together`."""
        for j in others:
            self.both[i, j] -= 1
            self.both[j, i] -= 1
