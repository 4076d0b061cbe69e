"""Encodes a consumer's subscription and its assignment: versioned metadata in compact binary.

    metadata    version  newest known  compressed?  fields
    state       version  newest known of the leader  kind  fields

Each version adds fields at the end of the previous one. Old versions are still written and read:

    0   topics, pattern, metadata hash, the strategy's own bytes        (the proposal's format)
    1   + rack, owned partitions with their generation, subscription hash
    2   + followed partitions (standbys); a member that writes it reads states of version 1

    state 0   the partitions; or a probe
          1   + partitions to follow as standbys, and whether to assign again when they have caught up

A reader raises `UnknownVersion` for a newer version. A leader answers newer metadata with a `Probe`, which has the
newest version that it can read. The member then joins again with that version.

Source: "Consumer Embedded Protocol" in the client-side assignment proposal; KIP-268 (version probing).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from operator import itemgetter

from taskplace.errors import InputError
from taskplace.groups.messages import (
    GENERATION,
    WORTH_IT,
    ProtocolError,
    Reader,
    UnknownVersion,
    Writer,
    deflate,
    inflate,
)
from taskplace.groups.metadata import Pattern
from topology.node import TopicPartition

NEWEST = 2
_STATE = 1  # the newest version of a state
_MOST_BYTES = 16 * 2**20


class _Kind(IntEnum):
    """The kind of a state."""

    ASSIGNED = 0
    PROBE = 1


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

    topics: tuple[str, ...] = ()
    pattern: str = ""
    metadata_hash: bytes = b""
    strategy: bytes = b""
    rack: str = ""
    owned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    generation: int = 0
    subscription_hash: bytes = b""
    standby: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    newest: int = field(default=NEWEST, compare=False)

    def encode(self, version: int = NEWEST, *, newest: int = NEWEST, compress: bool = True) -> bytes:
        """Return the bytes in `version`. `newest`: the newest version that the writer knows."""
        if not 0 <= version <= NEWEST:
            raise UnknownVersion("subscription", version=version, known=NEWEST)
        w = Writer()
        w.many(sorted(set(self.topics)), w.text).text(self.pattern).blob(self.metadata_hash).blob(
            self.strategy
        )
        if version >= 1:
            w.text(self.rack).uint(self.generation)
            _write_held(w, self.owned)
            w.blob(self.subscription_hash)
        if version >= 2:
            _write_held(w, self.standby)
        body = w.take()
        packed = deflate(body) if compress and len(body) >= WORTH_IT else body
        smaller = len(packed) < len(body)
        head = Writer().uint(version).uint(newest).flag(smaller).take()
        return head + (packed if smaller else body)

    @classmethod
    def decode(cls, data: bytes, *, known: int = NEWEST) -> Subscription:
        """Return the subscription. Errors: `UnknownVersion` above `known`, `ProtocolError` for bad bytes."""
        head = Reader(data, "subscription")
        version, newest = head.uint(), head.uint()
        if version > known:
            raise UnknownVersion("subscription", version=version, known=known)
        packed = head.flag()
        body = data[len(data) - head.left :]
        r = Reader(inflate(body, "subscription", _MOST_BYTES) if packed else body, "subscription")
        topics, pattern = tuple(r.rising(r.text)), r.text()
        _check_pattern(pattern)
        seen, strategy = r.blob(), r.blob()
        if version == 0:
            r.end()
            return cls(topics, pattern, seen, strategy, newest=newest)
        rack, generation = r.text(), r.uint(GENERATION)
        owned, hashed = _read_held(r), r.blob()
        standby = _read_held(r) if version >= 2 else {}
        r.end()
        return cls(
            topics=topics,
            pattern=pattern,
            metadata_hash=seen,
            strategy=strategy,
            rack=rack,
            owned=owned,
            generation=generation,
            subscription_hash=hashed,
            standby=standby,
            newest=newest,
        )


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

    def encode(self, version: int | None = None) -> bytes:
        """Return the bytes of the state, by default in the oldest version that has all its fields.

        >>> Assignment.decode(Assignment((TopicPartition("orders", 3),)).encode()).partitions
        (TopicPartition(topic='orders', partition=3),)
        """
        if version is None:
            version = 1 if self.standby or self.followup else 0
        w = Writer().uint(version).uint(self.newest).uint(_Kind.ASSIGNED)
        _write_held(w, by_topics(self.partitions))
        if version >= 1:
            _write_held(w, by_topics(self.standby))
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
        held = _pairs(_read_held(r))
        standby, followup = (_pairs(_read_held(r)), r.flag()) if version >= 1 else ((), False)
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


def by_topics(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    """Return partition numbers by topic, each sorted."""
    return {
        topic: tuple(number for _, number in pairs)
        for topic, pairs in groupby(sorted(partitions), key=itemgetter(0))
    }


def _write_held(w: Writer, held: Mapping[str, tuple[int, ...]]) -> None:
    w.many(sorted(held.items()), lambda item: w.text(item[0]).ascending(item[1]))


def _read_held(r: Reader) -> dict[str, tuple[int, ...]]:
    return dict(r.rising(lambda: (r.text(), tuple(r.ascending())), least=2, key=itemgetter(0)))


def _pairs(held: Mapping[str, tuple[int, ...]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, p) for topic, numbers in held.items() for p in numbers)


def _check_pattern(pattern: str) -> None:
    """Raise `ProtocolError` unless this is a regular expression within the limits of `taskplace.groups.metadata`."""
    try:
        Pattern(pattern)
    except InputError as error:
        shortened = repr(pattern if len(pattern) <= 40 else pattern[:40] + "...")
        expected = error.expected + (error.hint and f"; {error.hint}")
        raise ProtocolError("subscription.pattern", found=shortened, expected=expected) from None
