"""What the assignors of consumer groups share, whatever client runs them: names, user data, the assignment.

Nothing here imports a client.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from taskplace.errors import InputError
from taskplace.groups.partitions import ALIASES, NAMES, assign_partitions
from taskplace.groups.subscriptions import NO_GENERATION, Member, RackPriority, Subscriptions, by_topic
from taskplace.validation import one_of
from topology.node import TopicPartition

KAFKAS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""Protocols in which assignors of others may lead."""
MARK = b"taskplace"
"""The user data of our assignments begins so in all other protocols. Without it, the broker has assigned (KIP-848)."""

#: The partitions of a member, as messages have them: topics and numbers.
Held = list[tuple[str, list[int]]]
#: Existing partition numbers, by topic.
Numbers = dict[str, list[int]]
#: For each topic and partition number, the racks with a replica.
Racks = dict[str, list[list[str]]]


class Consumer:
    """The part of one consumer's assignor that all clients share: the mode, and the consumer's partitions.

    Errors: `InputError` for an unknown mode.
    """

    def __init__(self, mode: str, name: str | None, *, cooperative: bool = False) -> None:
        self.mode, staged = ALIASES.get(one_of(mode, "mode", NAMES), (mode, False))
        self.cooperative = cooperative or staged
        _load(self.mode)
        self._name = name or protocol_name(self.mode, cooperative=self.cooperative)
        self._owned: tuple[TopicPartition, ...] | None = None  # nothing was assigned yet
        self._generation = NO_GENERATION

    @property
    def name(self) -> str:
        """The name of the protocol."""
        return self._name

    def _remember(self, partitions: Iterable[tuple[str, int]], generation: int, user_data: object) -> None:
        """Remember an assignment, unless only our assignors know the protocol, and none of them has made it."""
        ours = isinstance(user_data, bytes) and user_data.startswith(MARK)
        if self.name not in KAFKAS and not ours:
            raise InputError(
                "assignment",
                found="an assignment that no TaskplaceAssignor has made",
                expected=f"one of a leader with the protocol {self.name!r}",
                hint="a consumer with group.protocol=consumer (KIP-848) has the broker assign: restart it with "
                "group.protocol=classic, or give it another group",
            )
        self._owned = tuple(sorted(TopicPartition(*tp) for tp in partitions))
        self._generation = max(generation, NO_GENERATION)

    def _held(self) -> Held:
        return [(topic, list(numbers)) for topic, numbers in by_topic(self._owned or ()).items()]

    def _user_data(self) -> bytes | None:
        """Return what a sticky consumer sends of its partitions, in the form of Kafka's Java client."""
        if self._owned is None:
            return None
        held = by_topic(self._owned)
        out = struct.pack(">i", len(held))
        for topic, numbers in held.items():
            name = topic.encode()
            out += struct.pack(f">h{len(name)}si{len(numbers)}i", len(name), name, len(numbers), *numbers)
        return out + struct.pack(">i", self._generation)


def recalled(data: bytes | None) -> tuple[list[tuple[str, int]], int] | None:
    """Return the partitions and their generation in the user data of a sticky consumer; None if it is unreadable.

    Kafka's Java client writes only the fields; kafka-python 3 writes the version before them. Version 0 has no
    generation, as before Kafka 2.3.
    """
    data = bytes(data or b"")
    for version, begin in ((1, 2), (0, 2), (1, 0), (0, 0)):
        if begin and data[:2] != struct.pack(">h", version):
            continue
        try:
            owned, at = _partitions(data, begin)
            generation = struct.unpack_from(">i", data, at)[0] if version else NO_GENERATION
        except (struct.error, ValueError):
            continue
        if at + 4 * version == len(data):
            return owned, max(generation, NO_GENERATION)
    return None


def _partitions(data: bytes, at: int) -> tuple[list[tuple[str, int]], int]:
    """Return the partitions that are encoded at a place, and the place after them."""
    (topics,) = struct.unpack_from(">i", data, at)
    owned: list[tuple[str, int]] = []
    at += 4
    for _ in range(_size(topics)):
        (length,) = struct.unpack_from(">h", data, at)
        name, count = struct.unpack_from(f">{_size(length)}si", data, at + 2)
        numbers = struct.unpack_from(f">{_size(count)}i", data, at + 6 + length)
        owned += [(name.decode(), number) for number in numbers]
        at += 6 + length + 4 * count
    return owned, at


def _size(value: int) -> int:
    if value < 0:
        raise ValueError("null")
    return value


def protocol_name(mode: str, *, cooperative: bool = False) -> str:
    """Return the default name of the protocol for a mode of assignment.

    >>> protocol_name("fair_sticky"), protocol_name("fair", cooperative=True)
    ('sticky', 'taskplace-cooperative-fair')
    """
    if mode == "fair_sticky":
        return "cooperative-sticky" if cooperative else "sticky"
    return f"taskplace-{'cooperative-' if cooperative else ''}{mode}"


@functools.cache
def _load(mode: str) -> None:
    """Assign once, so that solvers are loaded. A client may lose an assignment that takes longer than a poll."""
    # Equal members without racks need no solver, so these differ.
    members = {"a": Member(["t"], rack="x"), "b": Member(["t", "u"], rack="y")}
    assign_partitions(Subscriptions({"t": 2, "u": 2}, members, racks={"t": [["x"], ["y"]]}), mode)


def assigned(
    cluster: Any,
    joining: Mapping[str, Member],
    mode: str,
    *,
    cooperative: bool = False,
    rack_priority: RackPriority | None = None,
    racks_of: Callable[[Numbers], Racks] = lambda numbers: {},
) -> dict[str, Held]:
    """Return the partitions of each member, sorted by topic.

    `cluster`: a client's metadata, with `partitions_for_topic`. `racks_of` is asked if a member has a rack.

    Errors: as for `assign_partitions`.
    """
    topics = sorted({topic for member in joining.values() for topic in member.topics})
    # The assignor needs partition numbers without gaps; `numbers` maps them back to Kafka's.
    numbers = {t: sorted(known) for t in topics if (known := cluster.partitions_for_topic(t))}
    place = {(t, p): k for t, of_topic in numbers.items() for k, p in enumerate(of_topic)}
    asked = {
        name: replace(member, owned=[(t, place[t, p]) for t, p in member.owned if (t, p) in place])
        for name, member in joining.items()
    }
    s = Subscriptions(
        {t: len(of_topic) for t, of_topic in numbers.items()},
        asked,
        racks_of(numbers) if any(member.rack for member in asked.values()) else {},
        rack_priority=rack_priority,
    )
    made = assign_partitions(s, mode, cooperative=cooperative)
    return {
        name: [(t, [numbers[t][k] for k in places]) for t, places in by_topic(held).items()]
        for name, held in made.assignment.items()
    }
