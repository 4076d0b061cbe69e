"""What a consumer knows and says: its view of the topics, its subscription, its assignment, and their bytes.

    metadata    version  newest known  compressed?  fields of `Subscription`
    state       version  newest known of the leader  kind  fields of `Assignment`

Each version adds fields at the end of the previous one. Old versions are still written and read:

    0   topics, pattern, metadata hash, the strategy's own bytes        (the proposal's format)
    1   + rack, owned partitions with their generation, subscription hash
    2   + followed partitions (standbys); a member that writes it reads states of version 1

    state 0   the partitions; or a probe
          1   + partitions to follow as standbys, and whether to assign again when they have caught up

A reader raises `UnknownVersion` for a newer version. A leader answers newer metadata with a `Probe`, which has the
newest version that it can read. The member then joins again with that version.

A hash is the first 16 bytes of the SHA-256 of an unambiguous encoding: sorted topics, with length-prefixed names.

Source: "Consumer Embedded Protocol", "Metadata" and "Dropping Topic Lists" in the client-side assignment proposal;
KIP-268 (version probing).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby, islice
from operator import itemgetter
from typing import Annotated

import re2

from taskplace import validation
from taskplace.errors import InputError
from taskplace.groups.messages import (
    Blob,
    Generation,
    ProtocolError,
    Reader,
    Text,
    UnknownVersion,
    Wire,
    Writer,
    inflate,
    pack,
    wires,
)
from taskplace.groups.subscriptions import check_counts
from topology.node import TopicPartition

NEWEST = 2
MOST_LETTERS = 512  # of a pattern
_STATE = 1  # the newest version of a state
_MOST_MEMORY = 256 * 1024  # bytes of a compiled pattern
_MOST_BYTES = 16 * 2**20
_HASH_BYTES = 16


class Pattern:
    """A pattern of topic names, which other members may send. It matches whole names.

    RE2 compiles and matches it (https://github.com/google/re2/wiki/Syntax), as for Kafka's subscriptions by pattern
    (KIP-848). It never backtracks: matching takes time proportional to the length of the name, for any pattern.
    Python's `re` can take exponential time for a short one. `\\d`, `\\w` and `\\s` mean ASCII.

    Errors: `InputError` with RE2's reason for a bad pattern, one of more than `MOST_LETTERS` letters, and one that
    needs too much memory. RE2 writes nothing to stderr.

    >>> dated = Pattern(r"(orders|users)-\\d{4}")
    >>> dated.matches("orders-2026"), dated.matches("orders-20261")
    (True, False)
    >>> Pattern("(a")
    Traceback (most recent call last):
    taskplace.errors.InputError: pattern: found '(a', expected a regular expression in RE2's syntax; missing ): (a
    """

    def __init__(self, pattern: str, path: str = "pattern") -> None:
        if pattern != "":  # an empty pattern is valid: it matches only the empty name
            validation.text(pattern, path)
        if len(pattern) > MOST_LETTERS:
            raise InputError(
                path, found=f"{len(pattern)} letters", expected=f"a pattern of at most {MOST_LETTERS} letters"
            )
        options = re2.Options()
        options.max_mem = _MOST_MEMORY
        options.log_errors = False
        options.never_capture = True  # faster, and groups are not needed
        try:
            self._regexp = re2.compile(pattern, options)
        except re2.error as error:
            expected, reason = "a regular expression in RE2's syntax", error.args[0].decode(errors="replace")
            raise InputError(path, found=pattern, expected=expected, hint=reason[:80]) from None

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        return self._regexp.fullmatch(name) is not None


@dataclass(frozen=True)
class Topics:
    """A view of the cluster: the partition count of each topic, and the racks of the partition leaders, if known.

    Errors: `InputError` for a bad count or name, and for a number of racks that differs from the count.

    >>> view = Topics({"orders": 2, "users": 3}, leaders={"orders": ["zone-a", "zone-b"]})
    >>> view.matching("or.*")
    ['orders']
    >>> view.hash(["orders"]) == Topics({"orders": 2}).hash(["orders"])
    True
    >>> Topics({"orders": 2}, leaders={"orders": ["zone-a"]})
    Traceback (most recent call last):
    taskplace.errors.InputError: leaders.orders: found 1, expected 2 racks, one for each partition
    """

    partitions: Mapping[str, int]
    leaders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_counts(self.partitions, "partitions")
        for topic, racks in self.leaders.items():
            count = self.partitions.get(topic, 0)
            if len(racks) != count:
                expected = f"{count} racks, one for each partition"
                raise InputError(f"leaders.{topic}", found=len(racks), expected=expected)
        object.__setattr__(self, "partitions", dict(self.partitions))
        object.__setattr__(self, "leaders", {topic: tuple(racks) for topic, racks in self.leaders.items()})

    def matching(self, pattern: str) -> list[str]:
        """Return the topics whose whole name matches a regular expression (see `Pattern`), sorted."""
        compiled = Pattern(pattern)
        return sorted(topic for topic in self.partitions if compiled.matches(topic))

    def hash(self, topics: Iterable[str] | None = None, *, leaders: bool = False) -> bytes:
        """Return the hash of the view of `topics`, by default of all topics.

        It covers names and partition counts, with `leaders` also the rack of every leader. A missing topic and a topic
        without partitions give different hashes.
        """
        writer = Writer().flag(topics is None)
        for topic in sorted(set(self.partitions if topics is None else topics)):
            count = self.partitions.get(topic)
            writer.text(topic).uint(0 if count is None else count + 1)
            if leaders:
                writer.many(self.leaders.get(topic, ()), writer.text)
        return _hash(writer)


def subscription_hash(topics: Iterable[str], pattern: str) -> bytes:
    """Return the hash of a subscription: its topics, in any order, and its pattern.

    >>> subscription_hash(["b", "a"], "") == subscription_hash(["a", "b"], "")
    True
    """
    writer = Writer()
    return _hash(writer.many(sorted(set(topics)), writer.text).text(pattern))


def _hash(writer: Writer) -> bytes:
    return hashlib.sha256(writer.take()).digest()[:_HASH_BYTES]


def _read_pattern(reader: Reader) -> str:
    pattern = reader.text()
    try:
        Pattern(pattern)
    except InputError as error:
        expected = error.expected + (error.hint and f"; {error.hint}")
        raise ProtocolError("subscription.pattern", found=repr(pattern[:40]), expected=expected) from None
    return pattern


PatternText = Annotated[str, Wire(Writer.text, _read_pattern)]
Names = Annotated[
    tuple[str, ...],
    Wire(lambda w, names: w.many(sorted(set(names)), w.text), lambda r: tuple(r.rising(r.text))),
]
Held = Annotated[
    Mapping[str, tuple[int, ...]],
    Wire(
        lambda w, held: w.many(sorted(held.items()), lambda item: w.text(item[0]).ascending(item[1])),
        lambda r: dict(r.rising(lambda: (r.text(), tuple(r.ascending())), key=itemgetter(0))),
    ),
]
"""Partition numbers by topic."""


@dataclass(frozen=True)
class Subscription:
    """A consumer's metadata.

    - `topics`: the subscribed topics, sorted; or `pattern`, a pattern of whole topic names; or neither, only their
      `subscription_hash`
    - `metadata_hash`: the hash of the member's view of these topics
    - `strategy`: the bytes of the strategy's own metadata
    - `rack`: the member's rack, or ""
    - `owned`: topic -> numbers of the partitions that the member owned in `generation`
    - `standby`: topic -> numbers of the partitions that it follows
    - `newest`: the newest version that the writer knows

    >>> said = Subscription(("orders",), metadata_hash=b"16 bytes, really")
    >>> Subscription.decode(said.encode()) == said
    True
    >>> Subscription.decode(Subscription(("orders",), rack="zone-a").encode(version=0)).rack
    ''
    """

    topics: Names = ()
    pattern: PatternText = ""
    metadata_hash: Blob = b""
    strategy: Blob = b""
    rack: Text = ""
    generation: Generation = 0
    owned: Held = field(default_factory=dict)
    subscription_hash: Blob = b""
    standby: Held = field(default_factory=dict)
    newest: int = field(default=NEWEST, compare=False)

    def encode(self, version: int = NEWEST, *, newest: int = NEWEST, compress: bool = True) -> bytes:
        """Return the bytes in `version`. `newest`: the newest version that the writer knows."""
        if not 0 <= version <= NEWEST:
            raise UnknownVersion("subscription", version=version, known=NEWEST)
        w = Writer()
        for name, wire in _fields(version).items():
            wire.write(w, getattr(self, name))
        deflated, body = pack(w.take(), compress=compress)
        return Writer().uint(version).uint(newest).flag(deflated).take() + body

    @classmethod
    def decode(cls, data: bytes, *, known: int = NEWEST) -> Subscription:
        """Return the subscription. Errors: `UnknownVersion` above `known`, `ProtocolError` for bad bytes."""
        head = Reader(data, "subscription")
        version, newest = head.uint(), head.uint()
        if version > known:
            raise UnknownVersion("subscription", version=version, known=known)
        deflated, body = head.flag(), head.rest()
        r = Reader(inflate(body, "subscription", _MOST_BYTES) if deflated else body, "subscription")
        read = {name: wire.read(r) for name, wire in _fields(version).items()}
        r.end()
        return cls(**read, newest=newest)


def _fields(version: int) -> dict[str, Wire]:
    """Return the fields that a version of the metadata has, in order."""
    return dict(islice(wires(Subscription).items(), (4, 8, 9)[version]))


class _Kind(IntEnum):
    """What a leader sends to a member: its assignment, or a `Probe`."""

    ASSIGNED = 0
    PROBE = 1


@dataclass(frozen=True)
class Assignment:
    """A consumer's state, as its leader sends it.

    - `partitions`: the consumer's partitions
    - `newest`: the newest metadata version that the leader knows
    - `standby`: partitions to follow
    - `followup`: whether to assign again when the standbys have caught up
    """

    partitions: tuple[TopicPartition, ...] = ()
    newest: int = NEWEST
    standby: tuple[TopicPartition, ...] = ()
    followup: bool = False

    def encode(self) -> bytes:
        """Return the bytes of the state, in the oldest version that has all its fields.

        >>> Assignment.decode(Assignment((TopicPartition("orders", 3),)).encode()).partitions
        (TopicPartition(topic='orders', partition=3),)
        """
        version = 1 if self.standby or self.followup else 0
        w = Writer().uint(version).uint(self.newest).uint(_Kind.ASSIGNED)
        _HELD.write(w, by_topic(self.partitions))
        if version >= 1:
            _HELD.write(w, by_topic(self.standby))
            w.flag(self.followup)
        return w.take()

    @classmethod
    def decode(cls, data: bytes) -> Assignment | Probe:
        """Return the state in `data`. Empty bytes are an empty assignment."""
        if not data:
            return cls()
        r = Reader(data, "assignment")
        version = r.uint()
        if version > _STATE:
            raise UnknownVersion("assignment", version=version, known=_STATE)
        newest, kind = r.uint(), r.uint(_Kind.PROBE)
        if kind == _Kind.PROBE:
            r.end()
            return Probe(newest)
        held = pairs(_HELD.read(r))
        standby, followup = (pairs(_HELD.read(r)), r.flag()) if version >= 1 else ((), False)
        r.end()
        return cls(held, newest, standby, followup)


@dataclass(frozen=True)
class Probe:
    """The answer to metadata of a newer, unknown version: the newest version that the leader can read."""

    newest: int

    def encode(self) -> bytes:
        """Return the bytes of the state.

        >>> Assignment.decode(Probe(1).encode())
        Probe(newest=1)
        """
        return Writer().uint(0).uint(self.newest).uint(_Kind.PROBE).take()


_HELD = wires(Subscription)["owned"]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    """Return partition numbers by topic, each sorted."""
    return {
        topic: tuple(number for _, number in held)
        for topic, held in groupby(sorted(partitions), key=itemgetter(0))
    }


def pairs(held: Mapping[str, Iterable[int]]) -> tuple[TopicPartition, ...]:
    """Return the partitions of `by_topic`, sorted by topic."""
    return tuple(TopicPartition(topic, p) for topic, numbers in sorted(held.items()) for p in numbers)
