"""The input of a partition assignor: topics, and members with their subscriptions and owned partitions.

`Subscriptions` is what users write. `Columns` is the same as numpy columns, on which the assignors compute: topics and
members are numbered in sorted order, and partitions topic by topic. The columns also decide which of several claims on
a partition counts, and who was the previous owner, so that all assignors agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from taskplace import validation
from taskplace.errors import InputError
from topology.node import TopicPartition

SCHEMA = "taskplace.subscriptions/1"
NO_GENERATION = -1
RACK_PRIORITIES = ("stickiness", "racks")
MOST_PARTITIONS = 10_000_000
"""The most partitions of all topics together: a hundred times the largest benchmark."""

Pair = tuple[str, int]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Member:
    """The metadata that a member sends when it joins. Any leader, even a new one, can assign stickily with it.

    - `topics`: the subscribed topics
    - `owned`: the (topic, partition) pairs that the member owned in its `generation`
    - `generation`: the generation of the member's last assignment; -1 if unknown, which counts as the oldest
    - `rack`: the member's rack
    - `instance_id`: the id of a static member. It orders members in `range` and `round_robin`, as in Kafka
    - `standby`: the partitions that the member follows as a replica (`copartitioned` only)
    - `url`: where other members reach it. The assignment contains it (see `Holders`)

    Errors: `InputError` for bad topics, partitions, generations, racks, ids or URLs.

    >>> Member(["t0"], [("t0", 0)]).owned
    (TopicPartition(topic='t0', partition=0),)
    """

    topics: Sequence[str] = ()
    owned: Sequence[Pair] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None
    standby: Sequence[Pair] = ()
    url: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", topic_names(self.topics, "topics"))
        for name in ("owned", "standby"):
            object.__setattr__(self, name, topic_partitions(getattr(self, name), name))
        validation.integer(self.generation, "generation", NO_GENERATION)
        for name in ("rack", "instance_id", "url"):
            if getattr(self, name) is not None:
                validation.text(getattr(self, name), name)

    def to_dict(self) -> dict[str, Any]:
        """Return the member as in a "taskplace.subscriptions/1" dict. Default values are left out."""
        out = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        out |= {name: [list(pair) for pair in sorted(getattr(self, name))] for name in ("owned", "standby")}
        if not self.standby:
            del out["standby"]
        return {**out, "topics": list(self.topics)}


@dataclass(frozen=True)
class Subscriptions:
    """The members of a group, and the topics with their partition counts.

    - `topics`: the partition count of each topic
    - `members`: the `Member` of each name
    - `global_topics`: topics of which every subscriber holds all partitions, active or standby, regardless of
      `replicas` (Faust's global tables). Only `copartitioned` uses it
    - `racks`: per topic and partition, the racks of the replicas (optional)
    - `assignor`, `cooperative`: the mode, unless the caller of `assign_partitions` overrides it
    - `replicas`, `seed`: standbys per partition, and the seed of their spread. Only `copartitioned` uses them
    - `rack_priority`: the criterion of `fair_sticky` after balance. With "stickiness", no partition moves because of
      its rack. With "racks", partitions move to members in a rack of their replicas. None means "racks" if the assignor
      has Kafka's name, "sticky" or "cooperative-sticky", as in Kafka; otherwise it means "stickiness"

    Properties: a subscribed topic need not exist; the assignment then has a warning. Owned partitions that no longer
    exist are ignored. The order of members, topics and partitions does not matter.

    Errors: `InputError` if there are no members, two of them have one `instance_id`, a count is bad, there are more
    than `MOST_PARTITIONS` partitions, racks do not match a count, or a global topic does not exist. An owned partition
    that is not a pair is reported when it is used.

    >>> s = Subscriptions.from_dict({"topics": {"t0": 2}, "members": {"C0": {"topics": ["t0"], "owned": [["t0", 0]]}}})
    >>> s.members["C0"].topics
    ('t0',)
    >>> Subscriptions.from_dict(s.to_dict()) == s
    True
    """

    topics: Mapping[str, int]
    members: Mapping[str, Member]
    global_topics: Sequence[str] = field(default=(), kw_only=True)
    racks: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    assignor: str = "fair_sticky"
    cooperative: bool = False
    replicas: int = 0
    seed: int = 0
    rack_priority: str | None = None

    def __post_init__(self) -> None:
        check_counts(self.topics, "topics")
        self._check_members()
        for topic, racks in validation.mapping(self.racks, "racks").items():
            self._check_topic(topic, f"racks.{topic}")
            if len(racks) != self.topics[topic]:
                expected = f"one for each of the {self.topics[topic]} partitions"
                raise InputError(f"topics.{topic}.racks", found=f"{len(racks)} lists", expected=expected)
        validation.text(self.assignor, "assignor")
        validation.boolean(self.cooperative, "cooperative")
        validation.integer(self.replicas, "replicas")
        validation.integer(self.seed, "seed")
        check_rack_priority(self.rack_priority)
        if isinstance(self.global_topics, str) or not isinstance(self.global_topics, Iterable):
            raise InputError("global_topics", found=self.global_topics, expected="a list of topics")
        for k, topic in enumerate(self.global_topics):
            self._check_topic(validation.text(topic, f"global_topics[{k}]"), f"global_topics[{k}]")
        set_ = object.__setattr__
        set_(self, "topics", dict(sorted(self.topics.items())))
        set_(self, "members", dict(sorted(self.members.items())))
        racks_ = {t: tuple(tuple(sorted(set(r))) for r in rs) for t, rs in sorted(self.racks.items())}
        set_(self, "racks", racks_)
        set_(self, "global_topics", tuple(sorted(set(self.global_topics))))

    def _check_members(self) -> None:
        if not validation.mapping(self.members, "members"):
            raise InputError("members", found="no member", expected="at least one")
        static: dict[str, str] = {}
        for name, member in self.members.items():
            validation.of_type(member, Member, f"members.{validation.text(name, 'members')}")
            instance = member.instance_id
            if instance is not None and (other := static.setdefault(instance, name)) != name:
                raise InputError(
                    f"members.{name}.instance_id",
                    found=f"{instance}, also that of member {other!r}",
                    expected="another id: a group fences the earlier of two members with one (FENCED_INSTANCE_ID)",
                )

    def _check_topic(self, topic: str, path: str) -> None:
        if topic not in self.topics:
            hint = validation.nearest(topic, self.topics)
            raise InputError(path, found=topic, expected="a topic with a partition count", hint=hint)

    @cached_property
    def columns(self) -> Columns:
        """The subscriptions as numpy columns; computed once."""
        return _columns(self)

    @property
    def urls(self) -> dict[str, str]:
        """The URL of every member that reported one."""
        return {name: m.url for name, m in self.members.items() if m.url is not None}

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
        (TopicPartition(topic='t', partition=0),)
        """
        held, copies = dict(assignment), standby or {}
        members = {
            name: replace(
                m, owned=tuple(held.get(name, ())), standby=tuple(copies.get(name, ())), generation=generation
            )
            for name, m in self.members.items()
        }
        return replace(self, members=members)

    def to_dict(self) -> dict[str, Any]:
        """Return the subscriptions as a "taskplace.subscriptions/1" dict. Default values are left out."""
        topics = {
            t: {"partitions": n, "racks": [list(r) for r in self.racks[t]]} if t in self.racks else n
            for t, n in self.topics.items()
        }
        options = {
            name: getattr(self, name) for name in _OPTIONS if getattr(self, name) not in ((), None, 0, False)
        }
        if self.global_topics:
            options["global_topics"] = list(self.global_topics)
        members = {name: member.to_dict() for name, member in self.members.items()}
        return {"schema": SCHEMA, **options, "topics": topics, "members": members}

    @classmethod
    def from_dict(cls, value: Any) -> Subscriptions:
        """Return the subscriptions that a "taskplace.subscriptions/1" dict describes.

        >>> Subscriptions.from_dict({"topics": {"t0": 2}, "members": {"C0": {"topic": ["t0"]}}})
        Traceback (most recent call last):
        taskplace.errors.InputError: members.C0.topic: found 'topic', expected one of topics, owned, generation, \
rack, instance_id, standby, url; did you mean 'topics'?
        """
        top = validation.mapping(value, "subscriptions", ("schema", "topics", "members", *_OPTIONS))
        if top.get("schema", SCHEMA) != SCHEMA:
            raise InputError("schema", found=top["schema"], expected=f"'{SCHEMA}'")
        counts, racks = {}, {}
        for topic, spec in validation.mapping(top.get("topics"), "topics").items():
            path = f"topics.{topic}"
            if not isinstance(spec, Mapping):
                counts[topic] = spec
                continue
            inner = validation.mapping(spec, path, ("partitions", "racks"))
            counts[topic] = validation.integer(
                inner.get("partitions"), f"{path}.partitions", most=MOST_PARTITIONS
            )
            if "racks" in inner:
                racks[topic] = _read_racks(inner["racks"], f"{path}.racks")
        members = {}
        for name, member in validation.mapping(top.get("members"), "members").items():
            said = validation.mapping(member, f"members.{name}", [f.name for f in fields(Member)])
            with _under(f"members.{name}"):
                members[name] = Member(**said)
        return cls(counts, members, racks=racks, **{name: top[name] for name in _OPTIONS if name in top})

    @classmethod
    def from_json(cls, text: str) -> Subscriptions:
        """Return the subscriptions that a JSON text describes."""
        validation.text(text, "subscriptions")
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            where = f"subscriptions:{error.lineno}:{error.colno}"
            raise InputError(where, found=error.msg, expected="a JSON document") from None


_OPTIONS = tuple(f.name for f in fields(Subscriptions) if f.name not in ("topics", "members", "racks"))


@contextmanager
def _under(path: str) -> Iterator[None]:
    """Put the path of a part before the paths of its errors."""
    try:
        yield
    except InputError as error:
        where = f"{path}.{error.path}"
        raise InputError(where, found=error.found, expected=error.expected, hint=error.hint) from None


def _read_racks(value: Any, path: str) -> list[list[str]]:
    return [
        [validation.text(rack, f"{path}[{k}]") for rack in validation.listing(racks, f"{path}[{k}]")]
        for k, racks in enumerate(validation.listing(value, path))
    ]


def check_known(value: Any, path: str, known: Sequence[str]) -> None:
    """Raise `InputError` for a value that is not among the known ones.

    >>> check_known("rack", "rack_priority", RACK_PRIORITIES)
    Traceback (most recent call last):
    taskplace.errors.InputError: rack_priority: found 'rack', expected one of stickiness, racks; did you mean 'racks'?
    """
    if value not in known:
        hint = validation.nearest(value, known)
        raise InputError(path, found=value, expected="one of " + ", ".join(known), hint=hint)


def check_rack_priority(value: str | None) -> str | None:
    """Return the value if it is a rack priority, or None."""
    if value is not None:
        check_known(value, "rack_priority", RACK_PRIORITIES)
    return value


def check_counts(counts: Mapping[str, int], path: str) -> None:
    """Raise `InputError` for a bad name or partition count of a topic, and for too many partitions in all."""
    for topic, count in validation.mapping(counts, path).items():
        validation.text(topic, path)
        validation.integer(count, f"{path}.{topic}", most=MOST_PARTITIONS)
    total = sum(counts.values())
    if total > MOST_PARTITIONS:
        raise InputError(path, found=total, expected=f"at most {MOST_PARTITIONS} partitions in all")


def topic_names(topics: Iterable[str], path: str) -> tuple[str, ...]:
    """Return the names of topics, sorted, each once."""
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        raise InputError(
            path, found=topics, expected="a list of topics"
        )  # a string would be a list of letters
    return tuple(sorted({validation.text(topic, f"{path}[{k}]") for k, topic in enumerate(topics)}))


def topic_partitions(pairs: Iterable[Pair], name: str) -> tuple[TopicPartition, ...]:
    """Return the pairs as topic partitions, in their order. Those that are topic partitions already are not copied."""
    if isinstance(pairs, str | Mapping) or not isinstance(pairs, Iterable):
        raise InputError(name, found=pairs, expected="a list of (topic, partition)")
    given = tuple(pairs)
    if all(type(pair) is TopicPartition for pair in given):
        return given  # type: ignore[return-value]
    made = []
    for k, pair in enumerate(given):
        path = f"{name}[{k}]"
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise InputError(path, found=pair, expected="a topic and a partition number")
        topic, partition = pair
        made.append(TopicPartition(validation.text(topic, path), validation.integer(partition, path) or 0))
    return tuple(made)


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
