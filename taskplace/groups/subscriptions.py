"""The input of a partition assignor: topics, and members with their subscriptions and owned partitions.

`Subscriptions` is what users write. `Columns` is the same as numpy columns, on which the assignors compute: topics and
members are numbered in sorted order, and partitions topic by topic. The columns also decide which of several claims on
a partition counts, and who was the previous owner, so that all assignors agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from operator import itemgetter
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from taskplace import validation
from taskplace.errors import InputError
from taskplace.model.keys import Count, about, read_struct

SCHEMA = "taskplace.subscriptions/1"
NO_GENERATION = -1
MOST_PARTITIONS = 10_000_000
"""The most partitions of all topics together: a hundred times the largest benchmark."""

Pair = tuple[str, int]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

Pairs = Annotated[Sequence[Pair], about("", words="a list of [topic, partition]")]
Names = Annotated[Collection[str], about("", words="a list of strings")]
RackPriority = Literal["stickiness", "racks"]
Partitions = Annotated[int, Meta(ge=0, le=MOST_PARTITIONS)]


def by_topic(held: Iterable[Pair]) -> dict[str, tuple[int, ...]]:
    """Return the partition numbers by topic, sorted.

    >>> by_topic([("u", 0), ("t", 2), ("t", 1)])
    {'t': (1, 2), 'u': (0,)}
    """
    out: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(held):
        out[topic].append(partition)
    return {topic: tuple(numbers) for topic, numbers in out.items()}


class Member(Struct, frozen=True):
    """The metadata that a member sends when it joins. Any leader, even a new one, can assign stickily with it.

    - `topics`: the subscribed topics
    - `owned`: the (topic, partition) pairs that the member owned in its `generation`
    - `generation`: the generation of the member's last assignment; -1 if unknown, which counts as the oldest
    - `rack`: the member's rack
    - `instance_id`: the id of a static member. It orders members in `range` and `round_robin`, as in Kafka
    - `standby`: the partitions that the member follows as a replica (`copartitioned` only)
    - `url`: where other members reach it. The assignment contains it (see `PartitionAssignment.of`)
    - `metadata`: what its strategy says (`taskplace.groups.strategies` only)

    >>> Member(["t1", "t0"], [("t0", 0)]).topics
    ('t0', 't1')
    """

    topics: Names = ()
    owned: Pairs = ()
    generation: Annotated[int, Meta(ge=NO_GENERATION, le=validation.MOST)] = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None
    standby: Pairs = ()
    url: str | None = None
    metadata: Any = None

    def __post_init__(self) -> None:
        force_setattr(self, "topics", tuple(sorted(set(self.topics))))
        force_setattr(self, "owned", tuple(self.owned))
        force_setattr(self, "standby", tuple(self.standby))


class _Topic(Struct):
    partitions: Partitions
    racks: list[Annotated[list[str], about("", words="a list of racks")]] | None = None


class Subscriptions(Struct, frozen=True, dict=True):
    """The members of a group, and the topics with their partition counts.

    - `topics`: the partition count of each topic
    - `members`: the `Member` of each name
    - `racks`: per topic and partition, the racks of the replicas (optional)
    - `assignor`, `cooperative`: the mode, unless the caller of `assign_partitions` overrides it
    - `replicas`, `seed`: standbys per partition, and the seed of their spread. Only `copartitioned` uses them
    - `rack_priority`: the criterion of `fair_sticky` after balance. With "stickiness", no partition moves because of
      its rack. With "racks", partitions move to members in a rack of their replicas. None means "racks" if the assignor
      has Kafka's name, "sticky" or "cooperative-sticky", as in Kafka; otherwise it means "stickiness"
    - `global_topics`: topics of which every subscriber holds all partitions, active or standby, regardless of
      `replicas` (Faust's global tables). Only `copartitioned` uses it

    Properties: a subscribed topic need not exist; the assignment then has a warning. Owned partitions that no longer
    exist are ignored. The order of members, topics and partitions does not matter.

    Errors: `InputError` if there are no members, two of them have one `instance_id`, there are more than
    `MOST_PARTITIONS` partitions, racks do not match a count, or a global topic does not exist.

    >>> s = Subscriptions.from_dict({"topics": {"t0": 2}, "members": {"C0": {"topics": ["t0"], "owned": [["t0", 0]]}}})
    >>> s.members["C0"].owned
    (('t0', 0),)
    """

    topics: Mapping[str, Partitions]
    members: Mapping[str, Member]
    racks: Mapping[str, Sequence[Sequence[str]]] = {}
    assignor: str = "fair_sticky"
    cooperative: bool = False
    replicas: Count = 0
    seed: Count = 0
    rack_priority: RackPriority | None = None
    global_topics: Names = ()

    def __post_init__(self) -> None:
        total = sum(self.topics.values())
        if total > MOST_PARTITIONS:
            raise InputError("topics", found=total, expected=f"at most {MOST_PARTITIONS} partitions in all")
        if not self.members:
            raise InputError("members", found="no member", expected="at least one")
        static: dict[str, str] = {}
        for name, member in self.members.items():
            instance = member.instance_id
            if instance is not None and (other := static.setdefault(instance, name)) != name:
                where = f"members.{name}.instance_id"
                raise InputError(
                    where, found=f"{instance}, also that of member {other!r}", expected="another id"
                )
        for topic in (*self.racks, *self.global_topics):
            if topic not in self.topics:
                hint = validation.nearest(topic, self.topics)
                expected = "a topic with a partition count"
                raise InputError("topics", found=topic, expected=expected, hint=hint)
        for topic, racks in self.racks.items():
            if len(racks) != self.topics[topic]:
                expected = f"one for each of the {self.topics[topic]} partitions"
                raise InputError(f"topics.{topic}.racks", found=f"{len(racks)} lists", expected=expected)
        racks_ = {t: [sorted(set(each)) for each in racks] for t, racks in sorted(self.racks.items())}
        force_setattr(self, "topics", dict(sorted(self.topics.items())))
        force_setattr(self, "members", dict(sorted(self.members.items())))
        force_setattr(self, "racks", racks_)
        force_setattr(self, "global_topics", tuple(sorted(set(self.global_topics))))

    @cached_property
    def columns(self) -> Columns:
        """The subscriptions as numpy columns; computed once."""
        return _columns(self)

    def owning(
        self,
        assignment: Mapping[str, Iterable[Pair]],
        *,
        standby: Mapping[str, Iterable[Pair]] | None = None,
        generation: int = NO_GENERATION,
    ) -> Subscriptions:
        """Return the input for the next assignment: the same subscriptions, in which members own their `assignment`.

        >>> s = Subscriptions({"t": 1}, {"C0": Member(["t"])})
        >>> s.owning({"C0": [("t", 0)]}).members["C0"].owned
        (('t', 0),)
        """
        follows = standby or {}
        members = {
            name: replace(
                m,
                owned=tuple(assignment.get(name, ())),
                standby=tuple(follows.get(name, ())),
                generation=generation,
            )
            for name, m in self.members.items()
        }
        return replace(self, members=members)

    @classmethod
    def from_dict(cls, value: Any) -> Subscriptions:
        """Return the subscriptions that a "taskplace.subscriptions/1" dict describes.

        >>> Subscriptions.from_dict({"topics": {"t0": 2}, "members": {"C0": {"topic": ["t0"]}}})
        Traceback (most recent call last):
        taskplace.errors.ConfigError: subscriptions.members.C0.topic: found an unknown key, expected one of 8 known \
keys; did you mean 'topics'?
        """
        document = read_schema(value, "subscriptions", SCHEMA)
        if "racks" in document:
            expected = "the racks of a topic beside its partitions: topics.NAME.racks"
            raise InputError("subscriptions.racks", found="racks", expected=expected)
        specs = {
            topic: read_struct(
                _Topic,
                spec if isinstance(spec, Mapping) else {"partitions": spec},
                f"subscriptions.topics.{topic}",
            )
            for topic, spec in validation.mapping(document.get("topics"), "subscriptions.topics").items()
        }
        document["topics"] = {topic: spec.partitions for topic, spec in specs.items()}
        document["racks"] = {topic: spec.racks for topic, spec in specs.items() if spec.racks is not None}
        return read_struct(cls, document, "subscriptions")


def read_schema(value: Any, path: str, schema: str) -> dict[str, Any]:
    """Return the keys of a document without its `schema`. Errors: `InputError` for another schema."""
    document = dict(validation.mapping(value, path))
    if document.pop("schema", schema) != schema:
        raise InputError(f"{path}.schema", found=value["schema"], expected=f"'{schema}'")
    try:
        msgspec.json.encode(document)
    except (UnicodeEncodeError, TypeError):  # JSON can spell halves of characters
        raise InputError(path, found="values that are no text", expected="a JSON document") from None
    return document


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The columns: T topics, n partitions, m members, S different sets of racks.

    - `start`: [T + 1] partitions start[t]:start[t + 1] are those of topic t
    - `topic`: [n] the topic of each partition
    - `subscribed`: [T, m] whether the member subscribes to the topic
    - `owner`: [n] the member whose claim counts, or -1. It may have unsubscribed since
    - `previous`: [n] the subscriber with the next older claim, or -1. Never the owner
    - `claimed`, `claimant`: all claims (partition, member) on existing partitions, sorted. Claims that do not count are
      included
    - `rack_set`: [n] which set of racks has replicas of the partition
    - `misses`: [S, m] whether the member's rack is known, the set is not empty, and the rack is not in the set
    - `racks_matter`: whether the choice of members can affect rack misses: see `racks_matter`
    - `order`: [m] members in Kafka's order for `range` and `round_robin`: static members first, by instance id, then by
      name
    - `missing`: subscribed topics that do not exist
    - `racked`: [m] whether the member's rack is known
    """

    topics: tuple[str, ...]
    start: Ints
    topic: Ints
    members: tuple[str, ...]
    subscribed: Bools
    owner: Ints
    previous: Ints
    claimed: Ints
    claimant: Ints
    rack_set: Ints
    misses: Bools
    racks_matter: bool
    order: Ints
    missing: tuple[str, ...]
    racked: Bools

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


def _columns(s: Subscriptions) -> Columns:
    topics, members, members_of = tuple(s.topics), tuple(s.members), s.members  # sorted by name
    counts = np.fromiter(s.topics.values(), np.int64, len(topics))
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    number = {topic: k for k, topic in enumerate(topics)}
    subscribed = np.zeros((len(topics), len(members)), np.bool_)
    missing: set[str] = set()
    for k, member in enumerate(members_of.values()):
        subscribed[[number[topic] for topic in member.topics if topic in number], k] = True
        missing.update(topic for topic in member.topics if topic not in number)
    claimed, claimant = locate([m.owned for m in members_of.values()], number, start)
    generation = np.fromiter((m.generation for m in members_of.values()), np.int64, len(members))
    topic = np.repeat(np.arange(len(topics)), counts)
    may_have = subscribed[topic[claimed], claimant]
    owner, previous = resolve(claimed, claimant, generation, may_have, int(start[-1]))
    rack_set, racks, misses = _racks(s, start)
    seen = [racks[k] for k in np.unique(rack_set[np.asarray(subscribed.any(axis=1))[topic]]).tolist()]
    static = [(m.instance_id is None, m.instance_id or name, name) for name, m in members_of.items()]
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
        racks_matter=racks_matter(seen, {m.rack for m in members_of.values() if m.rack is not None}),
        order=np.array(sorted(range(len(members)), key=static.__getitem__), np.int64),
        missing=tuple(sorted(missing)),
        racked=np.array([m.rack is not None for m in members_of.values()], np.bool_),
    )


def locate(owned: Sequence[Sequence[Pair]], number: Mapping[str, int], start: Ints) -> tuple[Ints, Ints]:
    """Return (partition, position of its list in `owned`) of all pairs that exist, sorted, each once."""
    sizes = [len(pairs) for pairs in owned]
    flat = list(chain.from_iterable(owned))
    topic = np.fromiter(map(number.get, map(itemgetter(0), flat), repeat(-1)), np.int64, len(flat))
    part = np.fromiter(map(itemgetter(1), flat), np.int64, len(flat))
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


def _racks(s: Subscriptions, start: Ints) -> tuple[Ints, list[tuple[str, ...]], Bools]:
    """Return [n] the set of racks of each partition, the sets, and [S, m] the misses."""
    rack_set = np.zeros(int(start[-1]), np.int64)
    sets: dict[tuple[str, ...], int] = {(): 0}
    known = [m.rack for m in s.members.values()]
    if any(rack is not None for rack in known):
        for t, topic in enumerate(s.topics):
            if topic in s.racks:
                numbers = [sets.setdefault(tuple(racks), len(sets)) for racks in s.racks[topic]]
                rack_set[start[t] : start[t + 1]] = numbers
    misses = [[bool(racks) and rack is not None and rack not in racks for rack in known] for racks in sets]
    return rack_set, list(sets), np.array(misses, np.bool_)
