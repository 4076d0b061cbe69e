"""Subscriptions as numpy columns, on which the assignors compute.

Topics and members are numbered in sorted order, and partitions topic by topic. This module also decides which of
several claims on a partition counts, and who was the previous owner, so that all assignors agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from taskplace.errors import InputError

if TYPE_CHECKING:
    from taskplace.groups.subscriptions import Member, Pair

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The columns: T topics, n partitions, m members, S different sets of racks."""

    topics: tuple[str, ...]
    start: Ints
    """[T + 1] partitions start[t]:start[t + 1] are those of topic t."""
    topic: Ints
    """[n] the topic of each partition."""
    members: tuple[str, ...]
    subscribed: Bools
    """[T, m]"""
    owner: Ints
    """[n] the member whose claim counts, or -1. It may have unsubscribed since."""
    previous: Ints
    """[n] the subscriber with the next older claim, or -1. Never the owner."""
    claimed: Ints
    claimant: Ints
    """All claims (partition, member) on existing partitions, sorted. Claims that do not count are included."""
    rack_set: Ints
    """[n] which set of racks has replicas of the partition."""
    misses: Bools
    """[S, m] whether the member's rack is known, the set is not empty, and the rack is not in the set."""
    racks_matter: bool
    """Whether the choice of members can affect rack misses: see `racks_matter`."""
    order: Ints
    """[m] members in Kafka's order for `range` and `round_robin`: static members first, by instance id, then by name.
    """
    missing: tuple[str, ...]
    """Subscribed topics that do not exist."""
    racked: Bools
    """[m] whether the member's rack is known."""

    @property
    def n(self) -> int:
        """The number of partitions."""
        return len(self.topic)

    @property
    def m(self) -> int:
        """The number of members."""
        return len(self.members)

    @property
    def keeper(self) -> Ints:
        """[n] the owner if it still subscribes, so it may keep the partition; else -1."""
        allowed = self.subscribed[self.topic, self.owner] & (self.owner >= 0)
        return np.where(allowed, self.owner, -1)


Racks = Mapping[str, Sequence[Sequence[str]]]


def build(counts_of: Mapping[str, int], members_of: Mapping[str, Member], racks_of: Racks) -> Columns:
    """Return the columns of topics with their partition counts, of members, and of racks; all sorted by name."""
    topics, members = tuple(counts_of), tuple(members_of)  # both are sorted
    counts = np.fromiter(counts_of.values(), np.int64, len(topics))
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    number = {topic: k for k, topic in enumerate(topics)}
    subscribed = np.zeros((len(topics), len(members)), np.bool_)
    missing: set[str] = set()
    for k, member in enumerate(members_of.values()):
        at = [number.get(topic, -1) for topic in member.topics]
        if -1 in at:
            missing.update(topic for topic in member.topics if topic not in number)
        subscribed[[t for t in at if t >= 0], k] = True
    claimed, claimant = locate([m.owned for m in members_of.values()], number, start)
    generation = np.fromiter((m.generation for m in members_of.values()), np.int64, len(members))
    topic = np.repeat(np.arange(len(topics)), counts)
    may_have = subscribed[topic[claimed], claimant]
    owner, previous = resolve(claimed, claimant, generation, may_have, int(start[-1]))
    rack_set, racks, misses = _racks(counts_of, members_of, racks_of, start)
    static = [
        (m.instance_id is None, name if m.instance_id is None else m.instance_id, name)
        for name, m in members_of.items()
    ]
    return Columns(
        topics=topics,
        start=start,
        topic=topic,
        members=members,
        subscribed=subscribed,
        owner=owner,
        previous=previous,
        claimed=claimed,
        claimant=claimant,
        rack_set=rack_set,
        misses=misses,
        racks_matter=racks_matter(
            [racks[k] for k in np.unique(rack_set[np.asarray(subscribed.any(axis=1))[topic]]).tolist()],
            {m.rack for m in members_of.values() if m.rack is not None},
        ),
        order=np.array(sorted(range(len(members)), key=static.__getitem__), np.int64),
        missing=tuple(sorted(missing)),
        racked=np.array([m.rack is not None for m in members_of.values()], np.bool_),
    )


def locate(owned: Sequence[Sequence[Pair]], number: Mapping[str, int], start: Ints) -> tuple[Ints, Ints]:
    """Return (partition, position of its list in `owned`) of all pairs that exist, sorted, each once."""
    sizes = [len(pairs) for pairs in owned]
    flat = list(chain.from_iterable(owned))
    topic = np.fromiter(map(number.get, map(itemgetter(0), flat), repeat(-1)), np.int64, len(flat))
    try:
        part = np.fromiter(map(itemgetter(1), flat), np.int64, len(flat))
    except (TypeError, ValueError, OverflowError):
        bad = next(pair for pair in flat if type(pair[1]) is not int or not 0 <= pair[1] < 2**63)
        raise InputError("owned", found=bad, expected="pairs of a topic and a partition number") from None
    holder = np.repeat(np.arange(len(owned)), sizes)
    real = topic >= 0
    real[real] = (part[real] >= 0) & (part[real] < (start[1:] - start[:-1])[topic[real]])
    pair = np.unique((start[topic[real]] + part[real]) * len(owned) + holder[real])
    return pair // len(owned), pair % len(owned)


def resolve(claimed: Ints, claimant: Ints, generation: Ints, may_have: Bools, n: int) -> tuple[Ints, Ints]:
    """Return, per partition, its owner and its previous owner; -1 for none.

    The claim of the newest generation wins. If two claims have that generation, they contradict each other, and neither
    counts. The older claims of members that may have the partition (`may_have`, per claim) determine the previous owner
    by the same rule. It is never the owner.

    >>> claims = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 2, 1])
    >>> resolve(*claims, np.array([5, 4, 5]), np.ones(5, bool), 3)
    (array([ 0, -1, -1]), array([ 1,  1, -1]))
    """
    owner, newest = _newest(claimed, claimant, generation, n)
    older = may_have & (generation[claimant] < newest[claimed])
    return owner, _newest(claimed[older], claimant[older], generation, n)[0]


def _newest(claimed: Ints, claimant: Ints, generation: Ints, n: int) -> tuple[Ints, Ints]:
    """Return, per partition, the only claimant of the newest generation (-1 if several), and that generation."""
    owner = np.full(n, -1, np.int64)
    newest = np.full(n, np.iinfo(np.int64).min)
    if len(claimed) == 0:
        return owner, newest
    np.maximum.at(newest, claimed, generation[claimant])
    top = generation[claimant] == newest[claimed]
    rivals = np.bincount(claimed[top], minlength=n)
    alone = top.copy()
    alone[top] = rivals[claimed[top]] == 1
    owner[claimed[alone]] = claimant[alone]
    return owner, newest


def racks_matter(partitions: Sequence[tuple[str, ...]], members: Set[str]) -> bool:
    """Return whether racks can make a difference to the assignment.

    They do if some member is in a rack of some partition, and the partitions' racks differ. A partition with unknown
    racks, (), counts as one with other racks, but is never a miss.

    - `partitions`: the racks of the replicas of each partition
    - `members`: the racks of the members

    Source: KIP-881, which otherwise ignores racks.

    >>> racks_matter([("a", "b")], {"a", "c"}), racks_matter([("a",), ("b",)], {"c"})
    (False, False)
    >>> racks_matter([("a", "b"), ("b",)], {"a"}), racks_matter([("a",), ()], {"a"})
    (True, True)
    """
    different = set(partitions)
    return len(different) > 1 and not members.isdisjoint(chain.from_iterable(different))


def _racks(
    counts_of: Mapping[str, int], members_of: Mapping[str, Member], racks_of: Racks, start: Ints
) -> tuple[Ints, list[tuple[str, ...]], Bools]:
    rack_set = np.zeros(int(start[-1]), np.int64)
    sets: dict[tuple[str, ...], int] = {(): 0}
    if any(m.rack is not None for m in members_of.values()):
        for t, topic in enumerate(counts_of):
            if topic in racks_of:
                rack_set[start[t] : start[t + 1]] = [
                    sets.setdefault(tuple(r), len(sets)) for r in racks_of[topic]
                ]
    misses = np.array(
        [
            [bool(racks) and m.rack is not None and m.rack not in racks for m in members_of.values()]
            for racks in sets
        ],
        np.bool_,
    )
    return rack_set, list(sets), misses
