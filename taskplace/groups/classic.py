"""Kafka's `range` and `round_robin`, for comparison and for groups that use them.

Both ignore what members own. Members are in Kafka's order: static members first, by instance id, then the others by
name. `round_robin` ignores racks, as in Kafka. `range` considers known racks, and has the fewest rack misses that its
balance and co-partitioning allow.

**Idea.** Kafka's rule (KIP-881) first gives each consumer the partitions of its rack, and then deals out the rest as
ranges. It never revises a decision, so it can leave misses that an exchange would avoid. Here, the rule's assignment is
kept if it has the fewest possible misses. Otherwise a minimum-cost flow finds an assignment with the fewest misses, and
among these the one that differs from the rule in the fewest partitions.

Properties:
- balanced as `range`: of each topic, every subscriber has the floor or the ceiling of its share, and the same number of
  subscribers have the ceiling. Racks decide which ones, as in Kafka. With equal subscriptions, the balance score is
  never worse than that of `range` without racks, which gives the remainder of every topic to the same first members;
- co-partitioned as `range`: partition p of all topics with the same count and subscribers is on one member;
- the fewest misses: exact, for each set of co-partitioned topics;
- Kafka's own assignment if it has the fewest misses, so that leaders with either implementation decide alike;
- a function of the columns alone.

Shapes: a set of co-partitioned topics has `size` partition numbers. Numbers with the same racks in all topics form a
*class*. Members with equal rack matches and misses form a *kind*. The flow has classes * kinds arcs, and one arc for
each (class, member) pair of the rule's assignment.

Non-goals: misses are not weighed against co-partitioning or balance. Topics with different subscribers are independent,
as in `range`.

Source: KIP-881, "Rack-aware Partition Assignment for Kafka Consumers"; Kafka's RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from taskplace.errors import TaskplaceError
from taskplace.groups.subscriptions import Bools, Columns, Ints
from taskplace.model.flow import Network


def range_(c: Columns) -> Ints:
    """Return [n] the member of each partition, or -1: each subscriber gets a range of the partitions of every topic.

    If the partitions of a topic do not divide evenly, the first members get one more. Topics with equal counts and
    subscribers are split alike, so their partitions p are on one member. Known racks decide which partitions a member
    gets, and which members get one more: the fewest misses, then the fewest differences from Kafka's rule.
    """
    in_force = _in_force(c)
    goal = np.full(c.n, -1, np.int64)
    for s in sets(c):
        home = _rule(c, s, in_force)
        if s.misses[s.of, s.kind[home]].any():
            home = _fewest(s, home)
        goal[c.start[s.topics][:, None] + np.arange(s.size)] = s.members[home]
    return goal


def round_robin(c: Columns) -> Ints:
    """Return the member of each partition: each member in turn, without those that do not subscribe.

    The next topic continues with the next member. O(n + topics * members).
    """
    goal = np.full(c.n, -1, np.int64)
    turn = 0
    for t in range(len(c.topics)):
        places = np.flatnonzero(c.subscribed[t, c.order])
        count = int(c.start[t + 1] - c.start[t])
        if len(places) and count:
            taken = places[(np.searchsorted(places, turn) + np.arange(count)) % len(places)]
            goal[c.start[t] : c.start[t + 1]] = c.order[taken]
            turn = int(taken[-1]) + 1
    return goal


class Together(NamedTuple):
    """A set of co-partitioned topics: `size` partitions each, and the same subscribers. K classes, R kinds.

    - `members`: the subscribers in Kafka's order. Below, members are numbered by their position here
    - `more`: the number of members that get one more than the `floor`
    - `of`: [size] the class of each partition number
    - `kind`: [members] the kind of each member
    - `matches`: [K, R] whether the racks match in all topics, as Kafka defines it. A member without a rack matches
      everything
    - `misses`: [K, R] the number of topics whose partition would have no replica in the member's rack
    """

    topics: Ints
    members: Ints
    size: int
    floor: int
    more: int
    of: Ints
    kind: Ints
    matches: Bools
    misses: Ints


def sets(c: Columns) -> Iterator[Together]:
    """Yield the sets of co-partitioned topics that have partitions and subscribers."""
    counts = np.diff(c.start)
    alike: dict[tuple[int, bytes], list[int]] = {}
    for t in np.flatnonzero((counts > 0) & c.subscribed.any(axis=1)).tolist():
        alike.setdefault((int(counts[t]), c.subscribed[t].tobytes()), []).append(t)
    for (size, _), topics in alike.items():
        members = c.order[c.subscribed[topics[0], c.order]]
        racks = np.stack([c.rack_set[c.start[t] : c.start[t + 1]] for t in topics])
        rows, of = np.unique(racks, axis=1, return_inverse=True)
        looks, kind = np.unique(
            np.vstack([c.misses[:, members], c.racked[members]]), axis=1, return_inverse=True
        )
        misses, racked = looks[:-1], looks[-1]
        # Rack set 0 is empty: it matches no member with a known rack, and is not a miss for any member.
        match = ~racked | (~misses & (np.arange(len(misses)) > 0)[:, None])
        floor, more = divmod(size, len(members))
        yield Together(
            topics=np.array(topics, np.int64),
            members=members,
            size=size,
            floor=floor,
            more=more,
            of=of.reshape(-1),
            kind=kind.reshape(-1),
            matches=match[rows].all(axis=0),
            misses=misses[rows].sum(axis=0),
        )


def _in_force(c: Columns) -> Bools:
    """Return, per topic, whether Kafka considers racks.

    It does if the replica racks differ between partitions, and some consumer is in one of these racks.
    """
    in_force = np.zeros(len(c.topics), np.bool_)
    for t in range(len(c.topics)):
        racks = np.unique(c.rack_set[c.start[t] : c.start[t + 1]])
        known = c.subscribed[t] & c.racked
        in_force[t] = len(racks) > 1 and not c.misses[racks[racks > 0]][:, known].all()
    return in_force


def _rule(c: Columns, s: Together, in_force: Bools) -> Ints:
    """Return the member of each partition number by Kafka's rule.

    A set of several topics considers racks if any topic of the consumer group does; a single topic, if it does itself.
    """
    seats = _Seats(s)
    if in_force.any() and len(s.topics) > 1:
        _match_by_number(s, seats)
    elif in_force[s.topics].any():
        _match_by_member(s, seats)
    rest = np.flatnonzero(seats.home < 0)
    at = 0
    for i in range(len(s.members)):
        count = seats.room(i)
        seats.take(i, rest[at : at + count])
        at += count
    return seats.home


class _Seats:
    """The partition numbers given so far. Each member may have the floor, and `more` members one number above it."""

    def __init__(self, s: Together) -> None:
        self.home = np.full(s.size, -1, np.int64)
        self._floor, self._more = s.floor, s.more
        self._has = [0] * len(s.members)

    def room(self, i: int) -> int:
        """Return how many more numbers member `i` may have. This never grows."""
        return max(0, self._floor + (self._more > 0) - self._has[i])

    def take(self, i: int, numbers: Sequence[int] | Ints) -> None:
        """Give member `i` these partition numbers."""
        self.home[numbers] = i
        self._has[i] += len(numbers)
        if len(numbers) and self._has[i] > self._floor:
            self._more -= 1


def _match_by_number(s: Together, seats: _Seats) -> None:
    """Give each partition number in turn to the first member that has room and whose rack matches in all topics."""
    waiting = [np.flatnonzero(s.kind == k).tolist() for k in range(s.matches.shape[1])]
    first = [0] * len(waiting)  # by kind: all members before this position have no room left
    kinds = [np.flatnonzero(row).tolist() for row in s.matches]
    for p, k in enumerate(s.of.tolist()):
        best = len(s.members)
        for r in kinds[k]:
            queue = waiting[r]
            while first[r] < len(queue) and not seats.room(queue[first[r]]):
                first[r] += 1
            if first[r] < len(queue):
                best = min(best, queue[first[r]])
        if best < len(s.members):
            seats.take(best, [p])


def _match_by_member(s: Together, seats: _Seats) -> None:
    """Give each member in turn the first free partition numbers that match its rack, as many as it may have."""
    near = [np.flatnonzero(column[s.of]).tolist() for column in s.matches.T]
    first = [0] * len(near)  # by kind: all numbers before this position are taken
    for i, r in enumerate(s.kind.tolist()):
        taken: list[int] = []
        count = seats.room(i)
        while len(taken) < count and first[r] < len(near[r]):
            p = near[r][first[r]]
            if seats.home[p] < 0:
                taken.append(p)
            first[r] += 1
        seats.take(i, taken)


def _fewest(s: Together, rule: Ints) -> Ints:
    """Return the member of each partition number: the fewest misses, then the fewest differences from `rule`.

    The numbers of a class go to members that `rule` gives the class to, or to any member of a kind, which costs one
    difference. A miss outweighs all differences. Costs stay below (size + 1) * (topics + 1), so they always fit.
    """
    classes, kinds = s.misses.shape
    m = len(s.members)
    miss = s.size + 1
    net = Network()
    node, hub, member, sink = net.nodes(classes), net.nodes(kinds), net.nodes(m), net.nodes(1)
    pair, count = np.unique(s.of * m + rule, return_counts=True)
    row, column = np.divmod(pair, m)
    keep = net.arcs(node[row], member[column], count, miss * s.misses[row, s.kind[column]])
    supply = np.bincount(s.of, minlength=classes)
    rows, columns = (grid.ravel() for grid in np.indices((classes, kinds)))
    other = net.arcs(node[rows], hub[columns], supply[rows], miss * s.misses[rows, columns] + 1)
    spread = net.arcs(hub[s.kind], member, s.floor + 1, 0)
    net.arcs(member, np.full(m, sink[0]), s.floor + (s.more > 0), 0, low=s.floor)
    net.supply(node, supply)
    net.supply(sink, -s.size)
    flow = net.solve()
    if flow is None:
        raise TaskplaceError(f"{s.size} partition numbers do not fit on {m} members: a defect of this module")
    return _deal(s, rule, (pair, flow[keep]), flow[other].reshape(classes, kinds), flow[spread])


def _deal(s: Together, rule: Ints, kept: tuple[Ints, Ints], other: Ints, spread: Ints) -> Ints:
    """Return the member of each partition number. The lowest numbers stay, and the others are dealt as ranges."""
    home = np.full(s.size, -1, np.int64)
    at = s.of * len(s.members) + rule
    order = np.argsort(at, kind="stable")
    pair, count = kept
    begin = np.searchsorted(at[order], pair)
    stay = np.repeat(begin - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
    home[order[stay]] = rule[order[stay]]
    free = np.flatnonzero(home < 0)
    free = free[np.argsort(s.of[free], kind="stable")]
    # The kind that each free number goes to.
    to = np.repeat(np.tile(np.arange(other.shape[1]), len(other)), other.ravel())
    for r in np.unique(to):
        of_kind = np.flatnonzero(s.kind == r)
        home[np.sort(free[to == r])] = np.repeat(of_kind, spread[of_kind])
    return home
