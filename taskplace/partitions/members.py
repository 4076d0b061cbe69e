"""The members of a consumer group, as they describe themselves when they join."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from taskplace import validation
from taskplace.errors import InputError
from topology.node import TopicPartition

NO_GENERATION = -1

Pair = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Member:
    """The metadata that a member sends when it joins. Any leader, even a new one, can assign stickily with it.

    - `topics`: the subscribed topics
    - `owned`: the (topic, partition) pairs that the member owned in its `generation`
    - `generation`: the generation of the member's last assignment; -1 if unknown, which counts as the oldest
    - `rack`: the member's rack
    - `instance_id`: the id of a static member. It orders members in `range` and `round_robin`, as in Kafka
    - `standby`: the partitions that the member follows as a replica (`copartitioned` only)
    - `url`: where other members reach it. The assignment contains it (`taskplace.groups.assignment`)

    Errors: `InputError` for bad topics, partitions, generations or URLs.

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
        if isinstance(self.topics, str) or not isinstance(self.topics, Iterable):
            # A string would be read as a list of letters.
            raise InputError("topics", found=self.topics, expected="a list of topics")
        validation.integer(self.generation, "generation", NO_GENERATION)
        if self.url is not None:
            validation.text(self.url, "url")
        for k, topic in enumerate(self.topics):
            validation.text(topic, f"topics[{k}]")
        object.__setattr__(self, "topics", tuple(sorted(set(self.topics))))
        for name in ("owned", "standby"):
            object.__setattr__(self, name, topic_partitions(getattr(self, name), name))


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
