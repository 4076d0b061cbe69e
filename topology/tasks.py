"""Tasks, the units to place: their ids, and how they are derived from subtopologies or from topics alone.

**Idea.** Task `s_p` is partition `p` of subtopology `s`. It reads partition `p` of every topic of the subtopology that
has one, and owns partition `p` of each changelog.

Without a topology it is unknown which topics will be joined, so every join must be possible. Then topics with equal
partition counts form a group, and partition `p` of all of them is one task. A group's number is its partition count. So
a topic that comes or goes at run time renumbers no other group and no other task.

Properties: a subtopology has as many tasks as its largest source has partitions. Partitions p of co-partitioned topics
are in the same task. Every topic partition is read by exactly one task. Tasks are sorted by id.

Non-goals of groups: repartitioning topics so that they can be joined; checking that they have the same key.

Source: the partition groupers of Kafka Streams and of Faust.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import NamedTuple

from topology.errors import TopologyError, nearest, shown
from topology.names import check_count, check_name, listed
from topology.node import TopicPartition


class TaskId(NamedTuple):
    """The unit that is placed: one partition of one subtopology.

    Immutable, hashable, ordered by subtopology and then by partition, as numbers: "0_10" comes after "0_9".

    >>> TaskId(0, 3), str(TaskId(0, 3))
    (TaskId(subtopology=0, partition=3), '0_3')
    >>> sorted([TaskId(1, 0), TaskId(0, 10), TaskId(0, 9)]) == [TaskId(0, 9), TaskId(0, 10), TaskId(1, 0)]
    True
    """

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self[0]}_{self[1]}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Return the id that `text` names. Errors: `ValueError` for any text but "s_p" in decimal digits.

        >>> TaskId.parse("0_3")
        TaskId(subtopology=0, partition=3)
        >>> TaskId.parse("0-3")
        Traceback (most recent call last):
        ValueError: found '0-3', expected a task id like '0_3'
        """
        if isinstance(text, str) and text.isascii():
            left, _, right = text.partition("_")
            if left.isdigit() and right.isdigit():
                task = cls(int(left), int(right))
                if str(task) == text:  # only one spelling is valid: "00_3" is not an id
                    return task
        raise ValueError(f"found {text!r}, expected a task id like '0_3'")


class Task(NamedTuple):
    """A task: the inputs and the state of one partition of a subtopology.

    `stateful` is true if the subtopology has stores, logged or not; only logged ones have changelogs.
    """

    id: TaskId
    topic_partitions: tuple[TopicPartition, ...]
    changelog_partitions: tuple[TopicPartition, ...]
    stateful: bool


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause Python's garbage collector, if it is on.

    The caller creates many small objects without cycles, and the collector would scan them again and again. With
    100,000 partitions, that takes several times as long as creating them.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def group_partitions(
    subtopology: int, topics: Iterable[tuple[str, int]], changelogs: Iterable[str] = (), *, stateful: bool
) -> tuple[Task, ...]:
    """Return the tasks of one subtopology, O(partitions): as many as its largest topic has partitions.

    `topics`: (topic, partition count) pairs.

    >>> tasks = group_partitions(0, [("flights", 2), ("planes", 1)], ["stats-changelog"], stateful=True)
    >>> [(str(t.id), [tp.topic for tp in t.topic_partitions]) for t in tasks]
    [('0_0', ['flights', 'planes']), ('0_1', ['flights'])]
    """
    counted = list(topics)
    partitions = max((count for _, count in counted), default=0)
    numbers = map(TaskId, repeat(subtopology), range(partitions))
    owned = _columns([(log, partitions) for log in changelogs], partitions)
    return tuple(map(Task, numbers, _columns(counted, partitions), owned, repeat(stateful)))


def _columns(counted: list[tuple[str, int]], partitions: int) -> Iterator[tuple[TopicPartition, ...]]:
    """Yield, for partitions 0, 1, ..., that partition of every topic that has it.

    Between two successive counts the topics are the same, so whole columns are zipped at once.
    """
    for start, end in pairwise(sorted({0, partitions, *(count for _, count in counted)})):
        columns = [map(TopicPartition, repeat(t), range(start, end)) for t, count in counted if count >= end]
        yield from zip(*columns, strict=True) if columns else repeat((), end - start)


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """Topics with equal partition counts, sorted by name; `id` is that count."""

    topics: tuple[str, ...]
    changelogs: tuple[str, ...]
    partitions: int

    @property
    def id(self) -> int:
        """The group's number in task ids: its partition count, which no other group has."""
        return self.partitions

    def tasks(self) -> tuple[Task, ...]:
        """Return one task per partition. The tasks of a group without changelogs are stateless."""
        counted = [(topic, self.partitions) for topic in self.topics]
        return group_partitions(self.id, counted, self.changelogs, stateful=bool(self.changelogs))


def group_topics(counts: Mapping[str, int], changelogs: Collection[str] | str = ()) -> tuple[TopicGroup, ...]:
    """Return the groups, sorted by partition count. O(topics log topics). The order of the input does not matter.

    `changelogs`: the topics that are changelogs. A single one may be a string.

    Errors: `TopologyError` for a wrong count, for a changelog that is not among the topics, and for a changelog with a
    count that no input topic has.

    >>> groups = group_topics({"orders": 4, "users": 4, "clicks": 8, "totals": 4}, changelogs=["totals"])
    >>> [(g.partitions, g.topics, g.changelogs) for g in groups]
    [(4, ('orders', 'users'), ('totals',)), (8, ('clicks',), ())]
    >>> task = groups[0].tasks()[3]
    >>> str(task.id), [str(tp.topic) for tp in task.topic_partitions], task.changelog_partitions[0].partition
    ('4_3', ['orders', 'users'], 3)
    """
    if not isinstance(counts, Mapping):
        raise TopologyError(f"topics: found {shown(counts)}, expected a mapping of topics to counts")
    given = [changelogs] if isinstance(changelogs, str) else changelogs
    changelogs = listed(given, "changelogs", "a list of topics")
    for name in changelogs:
        check_name(name, "changelogs")
        if name not in counts:
            raise TopologyError(f"changelogs: unknown topic {name!r}; {nearest(name, counts)}", node=name)
    logs, by_count = frozenset(changelogs), dict[int, list[str]]()
    for topic in sorted(counts, key=str):  # sorted, so the order of the input does not matter
        check_name(topic, "topic")
        by_count.setdefault(check_count(counts[topic], f"topic {topic!r}", topic), []).append(topic)
    for count, topics in by_count.items():
        if logs.issuperset(topics):  # the group's tasks would read nothing
            known = ", ".join(f"{c}" for c in sorted(by_count) if not logs.issuperset(by_count[c])) or "none"
            text = (
                f"{topics[0]!r} has {count} partitions, but no input topic has that number; theirs: {known}"
            )
            raise TopologyError(f"changelogs: {text}", node=topics[0])
    return tuple(
        TopicGroup(
            topics=tuple(t for t in topics if t not in logs),
            changelogs=tuple(t for t in topics if t in logs),
            partitions=count,
        )
        for count, topics in sorted(by_count.items())
    )
