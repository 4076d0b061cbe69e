"""Derives tasks without a topology: topics with equal partition counts form a group.

**Idea.** If it is unknown which topics will be joined, every join must be possible. So topics with equal partition
counts form a group, and partition `p` of all of them is one task.

Properties:
- any two topics that can be co-partitioned are co-partitioned;
- a group's number is its partition count. So a topic that comes or goes at run time renumbers no other group and no
  other task;
- every partition is in exactly one task. The order of the input does not matter.

Errors: `TopologyError` for a wrong count, for a changelog that is not among the topics, and for a changelog with a
count that no input topic has.

Non-goals: repartitioning topics so that they can be joined; checking that they have the same key.

Source: Faust's partition assignor (PartitionGrouper).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.errors import TopologyError, nearest, shown
from topology.names import check_count, check_name
from topology.stores import listed

if TYPE_CHECKING:
    from topology.tasks import Task


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
        from topology.tasks import group_partitions

        counted = [(topic, self.partitions) for topic in self.topics]
        return group_partitions(
            self.id, counted, self.changelogs, partitions=self.partitions, stateful=bool(self.changelogs)
        )


def group_topics(counts: Mapping[str, int], changelogs: Collection[str] | str = ()) -> tuple[TopicGroup, ...]:
    """Return the groups, sorted by partition count. O(topics log topics).

    `changelogs`: the topics that are changelogs. A single one may be a string.

    >>> groups = group_topics({"orders": 4, "users": 4, "clicks": 8, "totals": 4}, changelogs=["totals"])
    >>> [(g.partitions, g.topics, g.changelogs) for g in groups]
    [(4, ('orders', 'users'), ('totals',)), (8, ('clicks',), ())]
    >>> task = groups[0].tasks()[3]
    >>> str(task.id), [str(tp.topic) for tp in task.topic_partitions], task.changelog_partitions[0].partition
    ('4_3', ['orders', 'users'], 3)
    """
    if not isinstance(counts, Mapping):
        raise TopologyError(f"topics: found {shown(counts)}, expected a mapping of topics to counts")
    changelogs = listed(
        [changelogs] if isinstance(changelogs, str) else changelogs, "changelogs", "a list of topics"
    )
    for name in changelogs:
        check_name(name, "changelogs")
        if name not in counts:
            raise TopologyError(f"changelogs: unknown topic {name!r}; {nearest(name, counts)}", node=name)
    by_count: dict[int, list[str]] = {}
    for topic in sorted(counts, key=str):  # sorted, so the order of the input does not matter
        check_name(topic, "topic")
        by_count.setdefault(check_count(counts[topic], f"topic {topic!r}", topic), []).append(topic)
    logs = frozenset(changelogs)
    for count, topics in by_count.items():
        if logs.issuperset(topics):  # the group's tasks would read nothing
            known = ", ".join(f"{c}" for c in sorted(by_count) if not logs.issuperset(by_count[c])) or "none"
            raise TopologyError(
                f"changelogs: {topics[0]!r} has {count} partitions, but no input topic has that number; "
                f"partition counts of input topics: {known}",
                node=topics[0],
            )
    return tuple(
        TopicGroup(
            topics=tuple(t for t in topics if t not in logs),
            changelogs=tuple(t for t in topics if t in logs),
            partitions=count,
        )
        for count, topics in sorted(by_count.items())
    )
