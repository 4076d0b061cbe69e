"""Finds the members that hold a partition, active and standby, and their URLs, so that a worker can forward a request.

**Idea.** An assignment lists partitions by member. A request has a key, and must reach the member with the state of
that key. The producers' function maps the key to a partition, the assignment maps the partition to a member, and the
member has a URL. A member needs only the document of the assignment for this.

Properties:
- every partition of a topic with a subscriber is known; its standbys are sorted by name;
- a withheld partition (`cooperative`) has no active member until the next assignment. Its standbys hold state up to the
  last record that they have read;
- a member that reported no URL has the URL None;
- a function of the assignment alone: `Holders.from_dict` gives the same result from the JSON document.

Errors: `InputError` for an unknown topic or partition (it names the nearest topic), for a document without an
assignment, and for a function that does not return a partition number.

Non-goals: sending the request. The assignment is right only after all members follow it. A member must refuse a request
that it gets too early or too late.

Source: Faust's partition assignor (`key_store`, `table_metadata`), Kafka Streams' `KeyQueryMetadata`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import index
from typing import Any, NamedTuple

from taskplace import validation
from taskplace.errors import InputError
from taskplace.groups.subscriptions import Pair, topic_partitions
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
    """Maps partitions to members and URLs, for one assignment.

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
                validation.text(name, part): topic_partitions(
                    validation.listing(pairs, f"{part}.{name}"), f"{part}.{name}"
                )
                for name, pairs in validation.mapping(top.get(part, {}), part).items()
            }
            for part in ("assignment", "standby", "withheld")
        )
        urls = validation.mapping(top.get("urls", {}), "urls")
        url_of = {
            validation.text(name, "urls"): validation.text(url, f"urls.{name}") for name, url in urls.items()
        }
        if "assignment" not in top:
            hint = validation.nearest("assignment", top)
            raise InputError("assignment", found=None, expected="an object", hint=hint)
        return cls(assignment, standby, withheld, url_of)

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
