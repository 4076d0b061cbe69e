"""The `sticky` assignor: places tasks as Kafka Streams did before KIP-441.

Actives: each task goes to the instance that had it active. If that instance is gone or full, it goes to the least
loaded instance with state of the task, else to the least loaded instance. "Full" and "least loaded" are relative to
capacity.

Standbys: first the warm-ups and standbys in force, then the former owner. Other standbys go to the instance that shares
the fewest tasks with the instances of the existing copies. So two instances seldom have the same two tasks, and the
copies of a lost instance's tasks are spread over many instances. With `rack.aware.assignment.tags`, `rack_standbys`
places the standbys. It keeps those in force unless others share fewer tag values.

Properties: every instance has the floor or the ceiling of its share of the stateful tasks. Subtopologies and lag are
ignored. Parked pairs (see `taskplace.refine.parking`) are not used as long as a task has another place, even on a full
instance. The refiner decides how to reach the target, as for any assignor, so no task stalls. The reported lower bound
of moves is that of the flow with both balances. `sticky` keeps only one of them, so it may have fewer moves than the
bound.

Non-goals: racks of the input (KIP-925). A configuration with `sticky` and a rack strategy is refused.

Source: Kafka Streams' sticky task assignor (its documented behaviour). O(tasks * instances) in numpy, and instances^2
in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taskplace.assign.active import ActiveTarget, place_actives
from taskplace.assign.rack_standbys import place_rack_standbys, shared_values, sharing_notes
from taskplace.assign.standby import StandbyTarget, replicas_possible
from taskplace.model.placement import moved
from taskplace.model.problem_columns import STANDBY, Columns, Ints, Role
from taskplace.model.shares import floors_and_ceilings, level_loads


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
