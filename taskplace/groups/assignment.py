"""The result of a partition assignment: who has which partition, how good it is, and what changed for a consumer.

A request has a key, and must reach the member with the state of that key. The producers' function maps the key to a
partition, the assignment maps the partition to a member, and the member has a URL (`Holders`).

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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import index
from typing import Any, NamedTuple

import numpy as np

from taskplace import validation
from taskplace.errors import InputError
from taskplace.groups.sticky import balance_score
from taskplace.groups.subscriptions import Columns, Ints, Pair, topic_partitions
from topology.node import TopicPartition

SCHEMA = "taskplace.partition_assignment/1"


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


class Holders:
    """Maps partitions to members and URLs, for one assignment, so that a worker can forward a request.

    Properties:
    - every partition of a topic with a subscriber is known; its standbys are sorted by name;
    - a withheld partition (`cooperative`) has no active member until the next assignment. Its standbys hold state up to
      the last record that they have read;
    - a member that reported no URL has the URL None;
    - a function of the assignment alone: `Holders.from_dict` gives the same result from the JSON document.

    Errors: `InputError` for an unknown topic or partition (it names the nearest topic), for a document without an
    assignment, and for a function that does not return a partition number.

    Non-goals: sending the request. The assignment is right only after all members follow it. A member must refuse a
    request that it gets too early or too late.

    >>> holders = Holders({"a": [("t", 0)], "b": [("t", 1)]}, {"b": [("t", 0)]}, urls={"b": "http://b:6066"})
    >>> holders.of("t", 1).url
    'http://b:6066'
    >>> holders.of_key("t", b"k", lambda key, partitions: len(key) % partitions).active
    'b'
    >>> [(location.active, location.standby) for location in holders.of_topic("t")]
    [('a', ('b',)), ('b', ())]
    """

    def __init__(
        self,
        assignment: Mapping[str, Iterable[Pair]],
        standby: Mapping[str, Iterable[Pair]] | None = None,
        withheld: Mapping[str, Iterable[Pair]] | None = None,
        urls: Mapping[str, str] | None = None,
    ) -> None:
        self._urls = dict(urls or {})
        self._active: dict[Pair, str | None] = {}
        for name, pairs in assignment.items():
            for topic, partition in pairs:
                if (topic, partition) in self._active:
                    other = self._active[topic, partition]
                    both = f"{topic}[{partition}] on {other} and on {name}"
                    raise InputError("assignment", found=both, expected="each partition on one member")
                self._active[topic, partition] = name
        for pairs in (withheld or {}).values():
            for topic, partition in pairs:
                self._active.setdefault((topic, partition), None)
        self._standby: dict[Pair, list[str]] = {}
        for name in sorted(standby or {}):
            for topic, partition in sorted(set((standby or {})[name])):
                self._standby.setdefault((topic, partition), []).append(name)
        self._counts: dict[str, int] = {}
        for topic, partition in self._active:
            self._counts[topic] = max(self._counts.get(topic, 0), partition + 1)

    @classmethod
    def from_dict(cls, value: Any) -> Holders:
        """Return the holders that a "taskplace.partition_assignment/1" dict describes.

        >>> Holders.from_dict({"assignment": {"a": [["t", 0]]}, "urls": {"a": "http://a"}}).of("t", 0).url
        'http://a'
        """
        top = validation.mapping(value, "assignment")
        if top.get("schema", SCHEMA) != SCHEMA:
            raise InputError("schema", found=top["schema"], expected=f"'{SCHEMA}'")
        assignment, standby, withheld = (
            {
                validation.text(name, part): topic_partitions(pairs, f"{part}.{name}")
                for name, pairs in validation.mapping(top.get(part, {}), part).items()
            }
            for part in ("assignment", "standby", "withheld")
        )
        urls = validation.mapping(top.get("urls", {}), "urls")
        for name, url in urls.items():
            validation.text(url, f"urls.{validation.text(name, 'urls')}")
        if "assignment" not in top:
            hint = validation.nearest("assignment", top)
            raise InputError("assignment", found=None, expected="an object", hint=hint)
        return cls(assignment, standby, withheld, urls)

    @property
    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by name."""
        return dict(sorted(self._counts.items()))

    def of(self, topic: str, partition: int) -> Location:
        """Return the holders of a partition; O(standbys)."""
        count = self._count(topic)
        validation.integer(partition, f"{topic}.partition", most=count - 1)
        pair = (topic, partition)
        active = self._active.get(pair)
        standby = tuple(self._standby.get(pair, ()))
        return Location(
            TopicPartition(topic, partition),
            active,
            standby,
            None if active is None else self._urls.get(active),
            tuple(map(self._urls.get, standby)),
        )

    def of_key(self, topic: str, key: bytes, partition_for: Callable[[bytes, int], int]) -> Location:
        """Return the holders of a key's partition; O(key).

        `partition_for(key, partitions)`: the producers' function from a key to a partition number. For Kafka's own
        producers, it is `taskplace.groups.partitioner.partition_for_key`.
        """
        chosen = partition_for(key, self._count(topic))
        try:
            number = index(chosen)  # accepts numpy integers too
        except TypeError:
            raise InputError("partition_for", found=chosen, expected="the number of a partition") from None
        return self.of(topic, number)

    def of_topic(self, topic: str) -> tuple[Location, ...]:
        """Return the holders of each partition of a topic, by number; O(partitions)."""
        return tuple(self.of(topic, partition) for partition in range(self._count(topic)))

    def _count(self, topic: str) -> int:
        count = self._counts.get(topic)
        if count is None:
            hint = validation.nearest(topic, self._counts)
            raise InputError("topic", found=topic, expected="an assigned topic", hint=hint)
        return count


Held = tuple[TopicPartition, ...]


@dataclass(frozen=True)
class PartitionAssignment:
    """The partitions of each member. Every member is a key, and its partitions are sorted.

    - `assignor`: the mode that was used
    - `unassigned`: topics without a subscriber
    - `balance_score`: KIP-54's score of the loads of all members; 0 is perfect
    - `preserved`, `moved`: the number of owned partitions that stay with their owner, and that do not
    - `rack_misses`: partitions on a member in a rack without a replica, where both racks are known
    - `withheld`: per member, the partitions that it gets after their present owner has released them (`cooperative`).
      Score and moves include them
    - `standby`: the partitions that each member follows (`copartitioned`)
    - `followup`: whether to assign again, because this assignment is not the final one
    - `warnings`: requirements that could not be met, with counts and remedy
    - `urls`: the URLs that members reported; `holders` finds the members of a partition and their URLs

    >>> PartitionAssignment({"C0": (TopicPartition("t0", 0),)}, "fair").to_dict()["assignment"]
    {'C0': [['t0', 0]]}
    """

    assignment: Mapping[str, Held]
    assignor: str
    unassigned: tuple[str, ...] = ()
    balance_score: int = 0
    moved: int = 0
    preserved: int = 0
    rack_misses: int = 0
    withheld: Mapping[str, Held] = field(default_factory=dict)
    standby: Mapping[str, Held] = field(default_factory=dict)
    followup: bool = False
    warnings: tuple[str, ...] = ()
    urls: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def holders(self) -> Holders:
        """The holders of each partition, active and standby, with their URLs; computed once.

        >>> made = PartitionAssignment({"C0": (TopicPartition("t0", 0),)}, "fair", urls={"C0": "http://c0"})
        >>> made.holders.of("t0", 0).url
        'http://c0'
        """
        return Holders(self.assignment, self.standby, self.withheld, self.urls)

    def to_dict(self) -> dict[str, Any]:
        """Return a "taskplace.partition_assignment/1" dict. Equal assignments give equal dicts, in the same order."""
        return {
            "schema": SCHEMA,
            "assignor": self.assignor,
            "assignment": _lists(self.assignment),
            "standby": _lists(self.standby),
            "withheld": _lists(self.withheld),
            "followup": self.followup,
            "unassigned": list(self.unassigned),
            "balance_score": self.balance_score,
            "moved": self.moved,
            "preserved": self.preserved,
            "rack_misses": self.rack_misses,
            "warnings": list(self.warnings),
            "urls": dict(sorted(self.urls.items())),
        }

    def to_json(self) -> str:
        """Return the assignment as JSON text; equal assignments give equal bytes."""
        return json.dumps(self.to_dict(), indent=1) + "\n"


def _lists(held: Mapping[str, Held]) -> dict[str, list[list[Any]]]:
    return {name: [list(pair) for pair in pairs] for name, pairs in sorted(held.items())}


def make(c: Columns, goal: Ints, assignor: str, wait: Ints | None = None) -> PartitionAssignment:
    """Return the assignment that gives partition p to member goal[p], or to no member if that is -1.

    `wait`: the partitions that must be revoked first. They are withheld.
    """
    now = goal
    withheld: dict[str, Held] = {}
    if wait is not None and len(wait):
        now = goal.copy()
        now[wait] = -1
        later = np.full(c.n, -1, np.int64)
        later[wait] = goal[wait]
        withheld = {name: held for name, held in held_by(c, later).items() if held}
    placed = np.flatnonzero(goal >= 0)
    had = c.owner >= 0
    preserved = int((had & (goal == c.owner)).sum())
    warning = (
        f"{len(c.missing)} topics have subscribers but do not exist: {', '.join(c.missing[:5])}; "
        "create them, or unsubscribe"
    )
    return PartitionAssignment(
        assignment=held_by(c, now),
        assignor=assignor,
        unassigned=tuple(c.topics[t] for t in np.flatnonzero(~c.subscribed.any(axis=1)).tolist()),
        balance_score=balance_score(np.bincount(goal[placed], minlength=c.m)),
        moved=int(had.sum()) - preserved,
        preserved=preserved,
        rack_misses=int(c.misses[c.rack_set[placed], goal[placed]].sum()),
        withheld=withheld,
        followup=bool(withheld),
        warnings=(warning,) if c.missing else (),
    )


def held_by(c: Columns, goal: Ints) -> dict[str, Held]:
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


class Change(NamedTuple):
    """The difference of two assignments, as sorted partitions: `lost` (old - new), `gained` (new - old), `kept`."""

    lost: tuple[Pair, ...]
    gained: tuple[Pair, ...]
    kept: tuple[Pair, ...]


def change(old: Iterable[Pair], new: Iterable[Pair]) -> Change:
    """Return the difference from one assignment to the next.

    >>> change([("t", 0), ("t", 1)], [("t", 1), ("t", 2)])
    Change(lost=(('t', 0),), gained=(('t', 2),), kept=(('t', 1),))
    """
    before, after = set(old), set(new)
    return Change(tuple(sorted(before - after)), tuple(sorted(after - before)), tuple(sorted(before & after)))


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
        commit: Action | None = None,
        clean_up: Action | None = None,
        initialise: Action | None = None,
        position: Action | None = None,
        cooperative: bool = False,
    ) -> None:
        self._cooperative = cooperative
        self._commit, self._clean_up = commit, clean_up
        self._initialise, self._position = initialise, position
        self._last: frozenset[Pair] = frozenset()

    @property
    def assigned(self) -> frozenset[Pair]:
        """The last assignment."""
        return self._last

    def on_revoked(self, partitions: Iterable[Pair]) -> None:
        """Commit the partitions. With a cooperative protocol, also clean them up; otherwise most of them come back."""
        going = tuple(partitions)
        _each(self._commit, going)
        if self._cooperative:
            self.on_lost(going)

    def on_lost(self, partitions: Iterable[Pair]) -> None:
        """Clean up partitions that another member may already own. They cannot be committed any more."""
        gone = self._last & set(partitions)
        _each(self._clean_up, gone)
        self._last -= gone

    def on_assigned(self, assignment: Iterable[Pair]) -> None:
        """Clean up lost partitions, initialise new ones, then set the position of all assigned partitions."""
        given = frozenset(assignment)
        new = self._last | given if self._cooperative else given
        difference = change(self._last, new)
        _each(self._clean_up, difference.lost)
        _each(self._initialise, difference.gained)
        _each(self._position, given)
        self._last = new


def _each(action: Action | None, partitions: Iterable[Pair]) -> None:
    if action is not None:
        for partition in sorted(partitions):
            action(partition)
