"""The topics that a topology needs for itself: repartitions and changelogs, as a plan.

**Idea.** What has to exist is computed, not created: the plan can be printed, and compared with what exists.

Properties: a changelog has one partition per task of its subtopology; a repartition topic has its settled
count; clean-up is "delete" for repartitions, "compact" for changelogs, "compact,delete" for those of stores
that forget by themselves (`retention_ms`), as in Kafka Streams.

Non-goals: creating topics.

Source: Kafka Streams' internal topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from topology.errors import TopologyNotReady

if TYPE_CHECKING:
    from topology.built import BuiltTopology


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """One internal topic: its name, what it is for, how many partitions, and how it is cleaned up.

    `owner` is the repartition node or the store; `retention_ms` is None when records are kept.
    """

    name: str
    kind: Literal["repartition", "changelog"]
    owner: str
    partitions: int
    cleanup_policy: Literal["delete", "compact", "compact,delete"]
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class InternalTopics:
    """All internal topics of a topology, sorted by name; prints as a table.

    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> by_tail = topo.source("flights", partitions=2).repartition("tailnum", name="by-tail")
    >>> _ = by_tail.process(name="stats", stores=[{"name": "delays", "retention_ms": 1000}])
    >>> plan = topo.build().internal_topics()
    >>> print(plan)
    topic                partitions  cleanup.policy  retention.ms
    by-tail-repartition           2  delete          -1
    delays-changelog              2  compact,delete  1000
    >>> print(plan.compare({"by-tail-repartition": 3, "old-changelog": 2, "flights": 2}))
    create: delays-changelog (2 partitions)
    differs: by-tail-repartition (3 partitions, needed are 2)
    unneeded: old-changelog
    """

    topics: tuple[InternalTopic, ...]

    def __iter__(self) -> Iterator[InternalTopic]:
        return iter(self.topics)

    def __len__(self) -> int:
        return len(self.topics)

    def __str__(self) -> str:
        wide = max([len("topic"), *(len(t.name) for t in self.topics)])
        lines = [f"{'topic':<{wide}}  partitions  cleanup.policy  retention.ms"]
        for t in self.topics:
            kept = -1 if t.retention_ms is None else t.retention_ms
            lines.append(f"{t.name:<{wide}}  {t.partitions:>10}  {t.cleanup_policy:<14}  {kept}")
        return "\n".join(lines)

    def compare(self, existing: Mapping[str, int]) -> TopicChanges:
        """Return what has to happen to the topics that exist (name to partition count).

        Only names that end as internal ones do are called unneeded; other topics are not this topology's.
        """
        needed = {t.name: t for t in self.topics}
        return TopicChanges(
            create=tuple(t for t in self.topics if t.name not in existing),
            differ=tuple(
                (t, existing[t.name])
                for t in self.topics
                if t.name in existing and existing[t.name] != t.partitions
            ),
            unneeded=tuple(
                sorted(
                    name
                    for name in existing
                    if name.endswith(("-repartition", "-changelog")) and name not in needed
                )
            ),
        )


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """The difference between a plan and the topics that exist; empty when they agree."""

    create: tuple[InternalTopic, ...]
    differ: tuple[tuple[InternalTopic, int], ...]
    unneeded: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.create or self.differ or self.unneeded)

    def __str__(self) -> str:
        lines = [f"create: {t.name} ({t.partitions} partitions)" for t in self.create]
        lines += [
            f"differs: {t.name} ({found} partitions, needed are {t.partitions})" for t, found in self.differ
        ]
        lines += [f"unneeded: {name}" for name in self.unneeded]
        return "\n".join(lines) or "internal topics are as planned"


def plan_internal_topics(built: BuiltTopology) -> InternalTopics:
    """Return the internal topics of a topology that is ready; `TopologyNotReady` otherwise.

    A repartition topic found with another count (`internal`) does not stand against planning: the plan is
    what says how it has to be.
    """
    against = [r.text for r in built.readiness().reasons if r.kind != "internal"]
    if against:
        raise TopologyNotReady(f"topology {built.name!r} is not ready: {'; '.join(against)}")
    found = [
        InternalTopic(n.topic, "repartition", n.name, n.partitions, "delete")
        for n in built.nodes
        if n.kind == "repartition" and n.topic is not None and n.partitions is not None
    ]
    for sub in built.subtopologies:
        for store in sub.stores:
            if store.changelog is not None:
                policy: Literal["compact", "compact,delete"] = (
                    "compact" if store.retention_ms is None else "compact,delete"
                )
                found.append(
                    InternalTopic(
                        store.changelog, "changelog", store.name, sub.partitions, policy, store.retention_ms
                    )
                )
    return InternalTopics(tuple(sorted(found, key=lambda t: t.name)))
