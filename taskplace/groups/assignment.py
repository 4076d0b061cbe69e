"""The result of a partition assignment: who has which partition, how good it is, and what changed for a consumer.

A request has a key, and must reach the member with the state of that key. The producers' function maps the key to a
partition, the assignment maps the partition to a member, and the member has a URL (`PartitionAssignment.of`).

**Two phases** (`cooperative`, KIP-429). Members keep processing their partitions while they join. The first assignment
*withholds* a partition that moves: it does not give the partition to its new member yet. The present owner sees that
the partition is missing from its assignment, revokes it, and joins again. In the second assignment, the partition has
no owner and goes to its new member. For any stable mode (all modes are): no member gets a partition that it does not
own while another member claims it. All claims count here, also those of old generations and those that contradict each
other. An owner keeps its partitions despite older claims, because taking them away would protect no member. If all
members follow the first assignment, the second withholds nothing.

Source: KIP-429; Faust's partition assignor (`key_store`, `table_metadata`), Kafka Streams' `KeyQueryMetadata`; KIP-54,
the listener contract.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from taskplace import validation
from taskplace.errors import InputError, InvalidPlan
from taskplace.groups.sticky import balance_score
from taskplace.groups.subscriptions import Columns, Ints, Pair, Subscriptions, read_schema
from taskplace.model.keys import read_struct
from topology.node import TopicPartition

SCHEMA = "taskplace.partition_assignment/1"


Held = Mapping[str, Sequence[TopicPartition]]
"""The partitions of each member."""


class Location(NamedTuple):
    """The members that hold one partition: the `active` one (None while the partition is withheld), and the standbys.

    - `url`: the URL of the active member
    - `standby_urls`: the URLs of the standbys, in the same order; None for a member without a URL
    """

    partition: TopicPartition
    active: str | None
    standby: tuple[str, ...]
    url: str | None
    standby_urls: tuple[str | None, ...]


class PartitionAssignment(Struct, frozen=True, dict=True):
    """The partitions of each member. Every member is a key, and its partitions are sorted.

    - `assignor`: the mode that was used
    - `standby`: the partitions that each member follows (`copartitioned`)
    - `withheld`: per member, the partitions that it gets after their present owner has released them (`cooperative`).
      Score and moves include them
    - `followup`: whether to assign again, because this assignment is not the final one
    - `unassigned`: topics without a subscriber
    - `balance_score`: KIP-54's score of the loads of all members; 0 is perfect
    - `moved`, `preserved`: the number of owned partitions that do not stay with their owner, and that do
    - `rack_misses`: partitions on a member in a rack without a replica, where both racks are known
    - `warnings`: requirements that could not be met, with counts and remedy
    - `urls`: the URLs that members reported

    `of`, `of_key` and `of_topic` tell where a partition is, so that a worker can forward a request. A withheld
    partition has no active member; its standbys hold state up to the last record that they have read. The answers are
    right only after all members follow the assignment: a member must refuse a request that it gets too early or late.

    >>> made = PartitionAssignment({"a": [("t", 0)], "b": [("t", 1)]}, standby={"b": [("t", 0)]}, urls={"b": "http://b"})
    >>> made.of("t", 1).url
    'http://b'
    >>> made.of_key("t", b"k", lambda key, partitions: len(key) % partitions).active
    'b'
    >>> [(location.active, location.standby) for location in made.of_topic("t")]
    [('a', ('b',)), ('b', ())]
    """

    assignment: Held
    assignor: str = ""
    standby: Held = {}
    withheld: Held = {}
    followup: bool = False
    unassigned: tuple[str, ...] = ()
    balance_score: int = 0
    moved: int = 0
    preserved: int = 0
    rack_misses: int = 0
    warnings: tuple[str, ...] = ()
    urls: dict[str, str] = {}

    @classmethod
    def from_dict(cls, value: Any) -> PartitionAssignment:
        """Return the assignment that a "taskplace.partition_assignment/1" dict describes.

        >>> PartitionAssignment.from_dict({"assignment": {"a": [["t", 0]]}, "urls": {"a": "http://a"}}).of("t", 0).url
        'http://a'
        """
        return read_struct(cls, read_schema(value, "assignment", SCHEMA), "assignment")

    def to_dict(self) -> dict[str, Any]:
        """Return a "taskplace.partition_assignment/1" dict. Equal assignments give equal dicts, in the same order."""
        written = msgspec.json.decode(msgspec.json.encode(self, order="deterministic"))
        return {"schema": SCHEMA, "assignor": self.assignor, **written}

    def to_json(self) -> str:
        """Return the assignment as JSON text; equal assignments give equal bytes."""
        return json.dumps(self.to_dict(), indent=1) + "\n"

    @cached_property
    def _topics(self) -> dict[str, dict[int, str | None]]:
        """The active member of each partition, by topic and number, in order: None for one that is withheld."""
        held = {(topic, p): name for name, pairs in self.assignment.items() for topic, p in pairs}
        known = {*held, *((topic, p) for pairs in self.withheld.values() for topic, p in pairs)}
        topics: dict[str, dict[int, str | None]] = {}
        for topic, p in sorted(known):
            topics.setdefault(topic, {})[p] = held.get((topic, p))
        return topics

    @cached_property
    def _following(self) -> dict[Pair, list[str]]:
        following: dict[Pair, list[str]] = {}
        for name, pairs in sorted(self.standby.items()):
            for topic, p in pairs:
                following.setdefault((topic, p), []).append(name)
        return following

    def of(self, topic: str, partition: int) -> Location:
        """Return the holders of a partition; O(standbys)."""
        validation.integer(partition, f"{topic}.partition", most=self._count(topic) - 1)
        active = self._topics[topic].get(partition)
        standby = tuple(self._following.get((topic, partition), ()))
        url = None if active is None else self.urls.get(active)
        at = TopicPartition(topic, partition)
        return Location(at, active, standby, url, tuple(map(self.urls.get, standby)))

    def of_key(self, topic: str, key: bytes, partition_for: Callable[[bytes, int], int]) -> Location:
        """Return the holders of a key's partition; O(key).

        `partition_for(key, partitions)`: the producers' function from a key to a partition number. For Kafka's own
        producers, it is `taskplace.groups.partitioner.partition_for_key`.
        """
        return self.of(topic, int(partition_for(key, self._count(topic))))

    def of_topic(self, topic: str) -> tuple[Location, ...]:
        """Return the holders of each partition of a topic, by number; O(partitions)."""
        return tuple(self.of(topic, partition) for partition in range(self._count(topic)))

    def _count(self, topic: str) -> int:
        """Return the number of partitions of a topic, as far as the assignment tells: some may not be written."""
        if topic not in self._topics:
            hint = validation.nearest(topic, self._topics)
            raise InputError("topic", found=topic, expected="an assigned topic", hint=hint)
        return next(reversed(self._topics[topic])) + 1


def make(s: Subscriptions, goal: Ints, assignor: str, wait: Ints | None = None) -> PartitionAssignment:
    """Return the assignment that gives partition p to member goal[p], or to no member if that is -1.

    `wait`: the partitions that must be revoked first. They are withheld.

    Errors: `InvalidPlan` unless partitions with subscribers go to one of these, and all others to no member.
    """
    c = s.columns
    placed = np.flatnonzero(goal >= 0)
    read = np.asarray(c.subscribed.any(axis=1))
    wanted = read[c.topic]
    if (wanted != (goal >= 0)).any() or not c.subscribed[c.topic[placed], goal[placed]].all():
        raise InvalidPlan(f"{assignor}: a partition goes to nobody, or to a member that does not subscribe")
    now = goal
    withheld: Held = {}
    if wait is not None and len(wait):
        now = goal.copy()
        now[wait] = -1
        later = np.full(c.n, -1, np.int64)
        later[wait] = goal[wait]
        withheld = {name: held for name, held in held_by(c, later).items() if held}
    had = c.owner >= 0
    preserved = int((had & (goal == c.owner)).sum())
    warning = (
        f"{len(c.missing)} topics have subscribers but do not exist: {', '.join(c.missing[:5])}; "
        "create them, or unsubscribe"
    )
    return PartitionAssignment(
        held_by(c, now),
        assignor,
        unassigned=tuple(c.topics[t] for t in np.flatnonzero(~read).tolist()),
        balance_score=balance_score(np.bincount(goal[placed], minlength=c.m)),
        moved=int(had.sum()) - preserved,
        preserved=preserved,
        rack_misses=int(c.misses[c.rack_set[placed], goal[placed]].sum()),
        withheld=withheld,
        followup=bool(withheld),
        warnings=(warning,) if c.missing else (),
        urls={name: m.url for name, m in s.members.items() if m.url is not None},
    )


def held_by(c: Columns, goal: Ints) -> Held:
    """Return the partitions of each member in `goal`, sorted."""
    order = np.argsort(goal, kind="stable")
    cuts = np.searchsorted(goal[order], np.arange(c.m + 1)).tolist()
    order = order[cuts[0] :]
    topic = c.topic[order]
    number = (order - c.start[topic]).tolist()
    # The same as TopicPartition(topic, number), without a Python call per partition.
    both = zip(map(c.topics.__getitem__, topic.tolist()), number, strict=True)
    pairs: list[TopicPartition] = list(map(tuple.__new__, itertools.repeat(TopicPartition), both))
    return {
        name: tuple(pairs[a - cuts[0] : b - cuts[0]])
        for name, (a, b) in zip(c.members, itertools.pairwise(cuts), strict=True)
    }


def held_elsewhere(c: Columns, goal: Ints) -> Ints:
    """Return the partitions that would go to a new member while another member still claims them, sorted."""
    meant = goal[c.claimed]
    new = (meant >= 0) & (meant != c.owner[c.claimed])
    return np.unique(c.claimed[new & (meant != c.claimant)])


Action = Callable[[Pair], object]


class StickyListener:
    """Cleans up lost partitions, initialises new ones, and leaves the others unchanged (KIP-54's listener contract).

    An eager protocol revokes all partitions before each rebalance, but a sticky assignor returns most of them. So state
    is not cleaned up when a partition is revoked, but when the new assignment lacks the partition. Each callback gets
    one (topic, partition), in sorted order.

    - `commit`: for revoked partitions
    - `clean_up`: for lost partitions
    - `initialise`: for new partitions
    - `position`: for all assigned partitions

    With a `cooperative` protocol, revoked partitions do not come back, and an assignment has only the new partitions.
    So revoked partitions are cleaned up at once, and other partitions do not change. An error of a callback propagates.
    The next assignment is then compared with the last one whose callbacks all succeeded.

    >>> listener = StickyListener(clean_up=lambda tp: print("lost", tp), initialise=lambda tp: print("new", tp))
    >>> listener.on_assigned([("t", 0), ("t", 1)])
    new ('t', 0)
    new ('t', 1)
    >>> listener.on_revoked([("t", 0), ("t", 1)])
    >>> listener.on_assigned([("t", 1)])
    lost ('t', 0)
    """

    def __init__(
        self,
        *,
        commit: Action = lambda partition: None,
        clean_up: Action = lambda partition: None,
        initialise: Action = lambda partition: None,
        position: Action = lambda partition: None,
        cooperative: bool = False,
    ) -> None:
        self._cooperative = cooperative
        self._commit, self._clean_up = commit, clean_up
        self._initialise, self._position = initialise, position
        self.assigned: frozenset[Pair] = frozenset()

    def on_revoked(self, partitions: Iterable[Pair]) -> None:
        """Commit the partitions. With a cooperative protocol, also clean them up; otherwise most of them come back."""
        going = tuple(partitions)
        _each(self._commit, going)
        if self._cooperative:
            self.on_lost(going)

    def on_lost(self, partitions: Iterable[Pair]) -> None:
        """Clean up partitions that another member may already own. They cannot be committed any more."""
        gone = self.assigned & set(partitions)
        _each(self._clean_up, gone)
        self.assigned -= gone

    def on_assigned(self, assignment: Iterable[Pair]) -> None:
        """Clean up lost partitions, initialise new ones, then set the position of all assigned partitions."""
        given = frozenset(assignment)
        new = self.assigned | given if self._cooperative else given
        _each(self._clean_up, self.assigned - new)
        _each(self._initialise, new - self.assigned)
        _each(self._position, given)
        self.assigned = new


def _each(action: Action, partitions: Iterable[Pair]) -> None:
    for partition in sorted(partitions):
        action(partition)
