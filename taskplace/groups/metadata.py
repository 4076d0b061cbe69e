"""What a consumer knows and says: its view of the topics, its subscription, its assignment, and their bytes.

    metadata    [version, newest known, packed fields of `Subscription`]
    state       fields of `Assignment`

Each version of the metadata adds fields at the end of the previous one. Old versions are still written and read:

    0   topics, pattern, metadata hash, the strategy's own bytes        (the proposal's format)
    1   + rack, owned partitions with their generation, subscription hash
    2   + followed partitions (standbys); a member that writes it reads states with standbys

A reader raises `UnknownVersion` for a newer version. A leader answers newer metadata with a `probe`, which has the
newest version that it can read. The member then joins again with that version.

A hash is the first 16 bytes of the SHA-256 of an unambiguous encoding.

Source: "Consumer Embedded Protocol", "Metadata" and "Dropping Topic Lists" in the client-side assignment proposal;
KIP-268 (version probing).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import re2
from msgspec import Struct, msgpack
from msgspec.structs import astuple, replace

from taskplace.errors import InputError
from taskplace.groups.messages import (
    Generation,
    Int32,
    Number,
    ProtocolError,
    UnknownVersion,
    pack,
    read,
    unpack,
)

NEWEST = 2
MOST_LETTERS = 512  # of a pattern
_FIELDS = (4, 8, 9)  # of each version
_MOST_MEMORY = 256 * 1024  # bytes of a compiled pattern
_MOST_BYTES = 16 * 2**20
_HASH_BYTES = 16

Held = Mapping[str, tuple[Int32, ...]]
"""Partition numbers by topic."""


def compiled(pattern: str) -> Any:
    """Return the RE2 pattern of topic names: its `fullmatch` takes time proportional to the name, for any pattern.

    Other members may send patterns, and Python's `re` can take exponential time for a short one. RE2 never backtracks
    (https://github.com/google/re2/wiki/Syntax); Kafka's subscriptions by pattern use it as well (KIP-848).

    Errors: `InputError` with RE2's reason for a bad pattern, one of more than `MOST_LETTERS` letters, and one that
    needs too much memory. RE2 writes nothing to stderr.

    >>> [compiled(r"(orders|users)-\\d{4}").fullmatch(name) is not None for name in ("orders-2026", "orders-20261")]
    [True, False]
    >>> compiled("(a")
    Traceback (most recent call last):
    taskplace.errors.InputError: pattern: found '(a', expected a regular expression in RE2's syntax; missing ): (a
    """
    if len(pattern) > MOST_LETTERS:
        expected = f"a pattern of at most {MOST_LETTERS} letters"
        raise InputError("pattern", found=f"{len(pattern)} letters", expected=expected)
    options = re2.Options()
    options.max_mem = _MOST_MEMORY
    options.log_errors = False
    options.never_capture = True  # faster, and groups are not needed
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        expected, reason = "a regular expression in RE2's syntax", error.args[0].decode(errors="replace")
        raise InputError("pattern", found=pattern, expected=expected, hint=reason[:80]) from None


@dataclass(frozen=True)
class Topics:
    """A view of the cluster: the partition count of each topic, and the racks of the partition leaders, if known.

    >>> view = Topics({"orders": 2, "users": 3}, leaders={"orders": ["zone-a", "zone-b"]})
    >>> view.matching("or.*")
    ['orders']
    >>> view.hash(["orders"]) == Topics({"orders": 2}).hash(["orders"])
    True
    """

    partitions: Mapping[str, int]
    leaders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Copies: a view that changes would still equal itself.
        object.__setattr__(self, "partitions", dict(self.partitions))
        object.__setattr__(self, "leaders", {topic: tuple(racks) for topic, racks in self.leaders.items()})

    def matching(self, pattern: str) -> list[str]:
        """Return the topics whose whole name matches a regular expression (see `compiled`), sorted."""
        expression = compiled(pattern)
        return sorted(topic for topic in self.partitions if expression.fullmatch(topic))

    def of(self, topics: Iterable[str]) -> Topics:
        """Return the view of these topics, sorted, without those that do not exist."""
        known = sorted(set(topics) & self.partitions.keys())
        return Topics(
            {t: self.partitions[t] for t in known}, {t: self.leaders[t] for t in known if t in self.leaders}
        )

    def hash(self, topics: Iterable[str] | None = None, *, leaders: bool = False) -> bytes:
        """Return the hash of the view of `topics`, by default of all topics.

        It covers names and partition counts, with `leaders` also the rack of every leader. A missing topic and a topic
        without partitions give different hashes.
        """
        names = sorted(set(self.partitions if topics is None else topics))
        racks = [self.leaders.get(topic, ()) for topic in names if leaders]
        return _hash((topics is None, names, [self.partitions.get(topic) for topic in names], racks))


def subscription_hash(topics: Iterable[str], pattern: str) -> bytes:
    """Return the hash of a subscription: its topics, in any order, and its pattern.

    >>> subscription_hash(["b", "a"], "") == subscription_hash(["a", "b"], "")
    True
    """
    return _hash((sorted(set(topics)), pattern))


def _hash(value: object) -> bytes:
    return hashlib.sha256(msgpack.encode(value)).digest()[:_HASH_BYTES]


class Subscription(Struct, frozen=True, array_like=True):
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
    generation: Generation = 0
    owned: Held = {}
    subscription_hash: bytes = b""
    standby: Held = {}
    newest: Number = NEWEST

    def encode(self, version: int = NEWEST, *, compress: bool = True) -> bytes:
        """Return the bytes in `version`."""
        body = msgpack.encode(astuple(self)[: _FIELDS[version]])
        return msgpack.encode((version, self.newest, pack(body, compress=compress)))

    @classmethod
    def decode(cls, data: bytes, *, known: int = NEWEST, path: str = "subscription") -> Subscription:
        """Return the subscription. Errors: `UnknownVersion` above `known`, `ProtocolError` for bad bytes."""
        version, newest, packed = read(_HEAD, data, path)
        if version > known:
            raise UnknownVersion(path, version=version, known=known)
        said = read(_SUBSCRIPTION, unpack(packed, path, _MOST_BYTES), path)
        if said.pattern:
            try:
                compiled(said.pattern)
            except InputError as error:
                raise ProtocolError(path, found=f"a bad pattern, {error}", expected="another") from None
        return replace(said, newest=newest)


class Assignment(Struct, frozen=True, array_like=True):
    """A consumer's state, as its leader sends it.

    - `partitions`: the consumer's partitions, by topic
    - `newest`: the newest metadata version that the leader knows
    - `standby`: partitions to follow, by topic
    - `followup`: whether to assign again when the standbys have caught up
    - `probe`: whether there is no assignment, because the leader could not read the consumer's metadata

    >>> Assignment.decode(Assignment({"orders": (3,)}).encode()).partitions
    {'orders': (3,)}
    """

    partitions: Held = {}
    newest: Number = NEWEST
    standby: Held = {}
    followup: bool = False
    probe: bool = False

    def encode(self) -> bytes:
        """Return the bytes of the state."""
        return msgpack.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Assignment:
        """Return the state in `data`. Empty bytes are an empty assignment."""
        return read(_ASSIGNMENT, data, "assignment") if data else cls()


_HEAD = msgpack.Decoder(tuple[Number, Number, bytes])
_SUBSCRIPTION = msgpack.Decoder(Subscription)
_ASSIGNMENT = msgpack.Decoder(Assignment)
