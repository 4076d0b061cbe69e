"""A member's view of the topics, and hashes with which members detect that their views differ.

A hash is the first 16 bytes of the SHA-256 of an unambiguous encoding: sorted topics, with length-prefixed names.

Source: "Metadata" and "Dropping Topic Lists" in the client-side assignment proposal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from taskplace.errors import InputError
from taskplace.groups.messages import Writer
from taskplace.groups.metadata import Pattern
from taskplace.validation import text

HASH_BYTES = 16
MOST_PARTITIONS = 10_000_000  # assignments list every partition


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
    taskplace.errors.InputError: leaders['orders']: found 1 racks, expected 2, one for each partition
    """

    partitions: Mapping[str, int]
    leaders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for topic, count in self.partitions.items():
            if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**31:
                raise InputError(f"partitions[{topic!r}]", found=count, expected="a number of partitions")
            text(topic, "partitions")
        total = sum(self.partitions.values())
        if total > MOST_PARTITIONS:
            raise InputError(
                "partitions", found=total, expected=f"at most {MOST_PARTITIONS:,} partitions in all"
            )
        for topic, racks in self.leaders.items():
            count = self.partitions.get(topic, 0)
            if len(racks) != count:
                error = InputError(f"leaders[{topic!r}]", found=len(racks), expected=f"{count}")
                error.args = (
                    f"{error.path}: found {len(racks)} racks, expected {count}, one for each partition",
                )
                raise error
        object.__setattr__(self, "partitions", dict(self.partitions))
        object.__setattr__(self, "leaders", {topic: tuple(racks) for topic, racks in self.leaders.items()})

    def matching(self, pattern: str) -> list[str]:
        """Return the topics whose whole name matches a regular expression (`taskplace.groups.metadata`), sorted."""
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
        return hashlib.sha256(writer.take()).digest()[:HASH_BYTES]


def subscription_hash(topics: Iterable[str], pattern: str) -> bytes:
    """Return the hash of a subscription: its topics, in any order, and its pattern.

    >>> subscription_hash(["b", "a"], "") == subscription_hash(["a", "b"], "")
    True
    """
    ordered = sorted(set(topics))
    writer = Writer()
    writer.many(ordered, writer.text).text(pattern)
    return hashlib.sha256(writer.take()).digest()[:HASH_BYTES]
