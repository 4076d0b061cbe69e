"""The `sticky` assignor: as Kafka Streams placed tasks before KIP-441.

Each task goes to the instance that had it active; if that is gone or full, to the least loaded one that holds state
for it; if there is none, to the least loaded. "Full" and "least loaded" are in proportion to capacity, and the same
two tasks are not put together on two instances, where that can be avoided: so the instances that share a lost one's
standbys are different ones. Standbys: the same, beside the copies that are there.

Properties: every instance has the floor or the ceiling of its share of the stateful tasks; subtopologies are not
looked at, nor is lag. How to get there is decided by the refiner as for any other assignor: no task stalls.

Source: Kafka Streams' sticky task assignor (its documented behaviour). O(tasks * (instances + tasks per instance)).
"""

from __future__ import annotations

import numpy as np

from taskplace.assign.active import ActiveTarget, place_actives
from taskplace.assign.standby import StandbyTarget, replicas_possible
from taskplace.model.columns import ACTIVE, STANDBY, Columns, Ints
from taskplace.model.placement import moved
from taskplace.model.shares import floors_and_ceilings, level_loads

CANDIDATES = 16
"""So many of the least loaded instances are looked at for one that repeats no pair."""


def place_sticky(c: Columns, base: Ints, wanted: int) -> tuple[ActiveTarget, StandbyTarget]:
    """Return actives and standbys of all stateful tasks; `base` is only used to count moves."""
    tasks = np.flatnonzero(c.stateful)
    seats = _Seats(c, *floors_and_ceilings(len(tasks), c.room), len(tasks))
    place = np.full(c.n, -1, np.int64)
    waiting = []
    for t in tasks.tolist():
        owner = int(c.owner[t])
        if owner >= 0 and len(seats.open(np.array([owner]))):
            seats.take(t, owner)
            place[t] = owner
        else:
            waiting.append(t)
    for holders_only in (True, False):
        rest = []
        for t in waiting:
            options = seats.open(_holders(c, t) if holders_only else None)
            if len(options):
                place[t] = seats.take(t, seats.choose(options, set()))
            else:
                rest.append(t)
        waiting = rest
    replicas = replicas_possible(c, wanted)
    standbys = _standbys(c, seats, tasks, place, replicas)
    moves = int(moved(c, base, place).sum())
    return ActiveTarget(place, base, moves, min(moves, place_actives(c, base).lower_bound)), standbys


def _standbys(c: Columns, seats: _Seats, tasks: Ints, place: Ints, replicas: int) -> StandbyTarget:
    pairs: list[tuple[int, int]] = []
    actives = np.bincount(place[tasks], minlength=c.m)
    low, high = level_loads(len(tasks) * (1 + replicas), len(tasks), actives, c.room)
    seats.limits(low, high, len(tasks) * (1 + replicas))
    taken: dict[int, set[int]] = {t: {int(place[t])} for t in tasks.tolist()}
    missing = dict.fromkeys(tasks.tolist(), replicas)
    for role in (STANDBY, ACTIVE, -1) if replicas else ():
        for t in tasks.tolist():
            former = None if role < 0 else _holders(c, t, role)
            while missing[t]:
                mine = list(taken[t])
                options = np.setdiff1d(seats.open(former), mine)
                if not len(options) and role < 0:  # all are full but its own: one takes more than its share
                    options = np.setdiff1d(np.flatnonzero(c.room > 0), mine)
                if not len(options):
                    break
                i = seats.take(t, seats.choose(options, taken[t]))
                taken[t].add(i)
                missing[t] -= 1
                pairs.append((t, i))
    found = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    return StandbyTarget(found[:, 0], found[:, 1], replicas)


def _holders(c: Columns, t: int, role: int = 0) -> Ints:
    rows = slice(int(c.start[t]), int(c.start[t + 1]))
    keep = (c.role[rows] == role) if role else (c.lag[rows] >= 0) | (c.role[rows] == STANDBY)
    found: Ints = c.inst[rows][keep]
    return found


class _Seats:
    """What every instance can still take, and which tasks are together where."""

    def __init__(self, c: Columns, low: Ints, high: Ints, count: int) -> None:
        self.c = c
        self.load = np.zeros(c.m, np.int64)
        self.on: list[list[int]] = [[] for _ in range(c.m)]
        self.there = np.zeros((c.m, c.n), np.bool_)
        self.limits(low, high, count)

    def limits(self, low: Ints, high: Ints, count: int) -> None:
        """Let every instance take up to `high`, but no more beyond `low` than leaves the others theirs."""
        self.low, self.high = low, high
        self.beyond = count - int(np.maximum(low, self.load).sum())

    def open(self, among: Ints | None = None) -> Ints:
        """Return the instances that can take one more, of all or of `among`."""
        free = (self.load < self.low) | ((self.load < self.high) & (self.beyond > 0))
        return np.flatnonzero(free) if among is None else among[free[among]]

    def choose(self, options: Ints, copies: set[int]) -> int:
        """Return the least loaded option; of the first few, one without a task that `copies` have as well."""
        load = self.load[options] / self.c.room[options]
        options = options[np.lexsort((options, load))[:CANDIDATES]]
        met = np.array([u for i in copies for u in self.on[i]], np.int64)
        repeats = self.there[np.ix_(options, met)].any(axis=1)
        return int(options[int(repeats.argmin())])

    def take(self, t: int, i: int) -> int:
        """Put `t` on instance `i`, and return that."""
        self.on[i].append(t)
        self.there[i, t] = True
        self.beyond -= int(self.load[i] >= self.low[i])
        self.load[i] += 1
        return i
