"""The partition grouper: derives tasks from subtopologies.

**Idea.** Task `s_p` is partition `p` of subtopology `s`. It reads partition `p` of every topic of the subtopology that
has one, and owns partition `p` of each changelog.

Properties: a subtopology has as many tasks as its largest source has partitions. Partitions p of co-partitioned topics
are in the same task. Every topic partition is read by exactly one task. Tasks are sorted by id.

Source: Kafka Streams' partition grouper.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise, repeat
from typing import NamedTuple

from topology.errors import TopologyError
from topology.node import TopicPartition
from topology.tasks import TaskId


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
    subtopology: int,
    topics: Iterable[tuple[str, int]],
    changelogs: Iterable[str] = (),
    *,
    partitions: int | None = None,
    stateful: bool,
) -> tuple[Task, ...]:
    """Return the tasks of one subtopology, O(partitions).

    `topics`: (topic, partition count) pairs. `partitions`: the number of tasks, by default the largest count.

    Errors: `TopologyError` for fewer tasks than the largest count, because some partitions would have no task.

    >>> tasks = group_partitions(0, [("flights", 2), ("planes", 1)], ["stats-changelog"], stateful=True)
    >>> [(str(t.id), [tp.topic for tp in t.topic_partitions]) for t in tasks]
    [('0_0', ['flights', 'planes']), ('0_1', ['flights'])]
    """
    counted, logs = list(topics), list(changelogs)
    topic, widest = max(counted, key=lambda pair: pair[1], default=("", 0))
    if partitions is None:
        partitions = widest
    if partitions < widest:
        raise TopologyError(
            f"subtopology {subtopology}: found {partitions} tasks, expected at least {widest}, "
            f"the partitions of topic {topic!r}",
            node=topic,
        )
    numbers = map(TaskId, repeat(subtopology), range(partitions))
    owned = _columns([(log, partitions) for log in logs], partitions)
    return tuple(map(Task, numbers, _columns(counted, partitions), owned, repeat(stateful)))


def _columns(counted: list[tuple[str, int]], partitions: int) -> Iterator[tuple[TopicPartition, ...]]:
    """Yield, for partitions 0, 1, ..., that partition of every topic that has it.

    Between two successive counts the topics are the same, so whole columns are zipped at once.
    """
    for start, end in pairwise(sorted({0, partitions, *(count for _, count in counted)})):
        columns = [map(TopicPartition, repeat(t), range(start, end)) for t, count in counted if count >= end]
        yield from zip(*columns, strict=True) if columns else repeat((), end - start)
