"""What the assignors of consumer groups share, whatever client runs them: names, members that join, the assignment.

Nothing here imports a client.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from taskplace import validation
from taskplace.errors import InputError
from taskplace.groups.partitions import assign_partitions
from taskplace.groups.subscriptions import NO_GENERATION, Member, Subscriptions
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


class Joining(NamedTuple):
    """The metadata that a member sends when it joins. Its partitions need not exist."""

    topics: list[str]
    owned: list[tuple[str, int]]
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


def protocol_name(mode: str, *, cooperative: bool = False) -> str:
    """Return the name of the protocol for a mode, where none is given.

    >>> protocol_name("fair_sticky"), protocol_name("fair", cooperative=True)
    ('sticky', 'taskplace-cooperative-fair')
    """
    if mode == "fair_sticky":
        return "cooperative-sticky" if cooperative else "sticky"
    return f"taskplace-{'cooperative-' if cooperative else ''}{mode}"


def check_known(value: object, path: str, known: Sequence[str]) -> None:
    """Raise `InputError` for a value that is not among the known ones."""
    if value not in known:
        hint = validation.nearest(value, known)
        raise InputError(path, found=value, expected="one of " + ", ".join(known), hint=hint)


def check_leader(protocol: str, user_data: object) -> None:
    """Raise `InputError` if no assignor of ours has made an assignment, though only they know the protocol."""
    ours = isinstance(user_data, bytes) and user_data.startswith(MARK)
    if protocol not in KAFKAS and not ours:
        raise InputError(
            "assignment",
            found="an assignment that no TaskplaceAssignor has made",
            expected=f"one of a leader with the protocol {protocol!r}",
            hint="a consumer with group.protocol=consumer (KIP-848) has the broker assign: restart it with "
            "group.protocol=classic, or give it another group",
        )


@functools.cache
def load(mode: str) -> None:
    """Assign once, so that solvers are loaded. A client may lose an assignment that takes longer than a poll."""
    # Equal members without racks need no solver, so these differ.
    members = {"a": Member(["t"], rack="x"), "b": Member(["t", "u"], rack="y")}
    assign_partitions(Subscriptions({"t": 2, "u": 2}, members, racks={"t": [["x"], ["y"]]}), mode)


def by_topic(held: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers by topic, in the order in which they come."""
    out: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in held:
        out[topic].append(partition)
    return dict(out)


def assigned(
    cluster: Any,
    joining: Mapping[str, Joining],
    mode: str,
    *,
    cooperative: bool = False,
    rack_priority: str | None = None,
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
        name: Member(
            member.topics,
            [(t, place[t, p]) for t, p in member.owned if (t, p) in place],
            member.generation,
            member.rack,
            member.instance_id,
        )
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
        name: [(t, [numbers[t][k] for k in places]) for t, places in sorted(by_topic(held).items())]
        for name, held in made.assignment.items()
    }
