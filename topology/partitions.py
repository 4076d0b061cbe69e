"""Determines the partition count of each topic, and whether the topology can run with these counts.

**Idea.** External topics have counts (declared, or from metadata). The count of a repartition topic is the declared
count, else that of its co-partition group, else the number of tasks of the subtopology that writes it.

Properties:
- counts are determined in one pass over the subtopologies in running order, so that writers come before readers;
- every problem is a `Reason`, not an exception. `assemble` raises the reasons that follow from the description alone;
- a changed count of a store's topic is a reason, because the store's keys would be split differently. It is compared
  with the count when the topology was first ready.

Source: Kafka Streams' handling of repartition topics and of co-partitioned topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from topology.graph import Shape
from topology.node import Node
from topology.partitions import Group


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why a topology cannot run (yet).

    - `missing`: an external topic has no known count
    - `unequal`: co-partitioned topics have different counts
    - `changed`: a count is not the one that a store was built with
    - `internal`: an internal topic exists with another count
    """

    kind: Literal["missing", "unequal", "changed", "internal"]
    topics: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a topology can run: true if there is no reason against it.

    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> _ = topo.source("flights").process(name="clean")
    >>> state = topo.build().readiness()
    >>> bool(state), state.reason
    (False, "topic 'flights': missing, its partition count is not known")
    """

    reasons: tuple[Reason, ...] = ()

    def __bool__(self) -> bool:
        return not self.reasons

    @property
    def ready(self) -> bool:
        """The same as `bool(self)`."""
        return not self.reasons

    @property
    def reason(self) -> str:
        """All reasons in one line; "" if the topology is ready."""
        return "; ".join(r.text for r in self.reasons)

    def __str__(self) -> str:
        return self.reason or "ready"


def settle(
    shape: Shape, groups: Iterable[Group], external: Mapping[str, int | None]
) -> tuple[dict[str, int | None], list[Reason]]:
    """Return the count of every topic, and the reasons why counts are missing or do not fit together.

    `external`: the counts of external topics, None if unknown. The count of an internal topic that depends on an
    unknown count is unknown too, without a separate reason.
    """
    counts: dict[str, int | None] = dict(external)
    reasons = [
        Reason("missing", (topic,), f"topic {topic!r}: missing, its partition count is not known")
        for topic, count in external.items()
        if count is None
    ]
    for topic, node in shape.writers.items():
        if node.partitions is not None:
            counts[topic] = node.partitions
    group_of = {topic: group for group in groups for topic in group.topics}
    for number in shape.order:
        # Upstream counts are known, so every topic read here can get its count.
        open_topics = [
            n.topic
            for n in shape.members[number]
            if n.internal and n.topic is not None and n.topic not in counts
        ]
        for topic in open_topics:
            if topic not in counts:
                together = group_of[topic].topics if topic in group_of else (topic,)
                count = _group_count(together, counts, shape)
                counts.update((t, count) for t in together if t not in counts)
    for group in groups:
        if len({counts[t] for t in group.topics if counts[t] is not None}) > 1:
            reasons.append(_unequal(group, counts, shape))
    return counts, reasons


def _group_count(together: Sequence[str], counts: Mapping[str, int | None], shape: Shape) -> int | None:
    """Return the count for a group's topics without one: that of its other topics, else the most tasks of a writer."""
    fixed = [counts[t] for t in together if t in counts]  # external, declared
    if fixed:
        return next((count for count in fixed if count is not None), None)
    widths = [width(shape.members[shape.home[shape.writers[t].name]], counts) for t in together]
    return None if None in widths else max(w for w in widths if w is not None)


def width(members: Iterable[Node], counts: Mapping[str, int | None]) -> int | None:
    """Return a subtopology's number of tasks: the largest count among its sources, None if one is unknown."""
    read = [counts[n.topic] for n in members if n.kind == "source" and n.topic is not None]
    return None if None in read else max(count for count in read if count is not None)


def _unequal(group: Group, counts: Mapping[str, int | None], shape: Shape) -> Reason:
    listed = ", ".join(f"{t}={'?' if counts[t] is None else counts[t]}" for t in group.topics)
    nodes = (
        "node " + repr(group.joins[0])
        if len(group.joins) == 1
        else f"nodes {', '.join(map(repr, group.joins))}"
    )
    # The counts of external topics cannot be set here. Those of repartitions can, if all external topics agree.
    outside = {counts[t] for t in group.topics if t not in shape.writers and counts[t] is not None}
    remedy = (
        "set the count of the group on the repartition, or no count"
        if len(outside) < 2
        else "create the topics with equal counts, or repartition one side"
    )
    return Reason(
        "unequal",
        group.topics,
        f"{nodes}: joined topics need equal partition counts, found {listed}; {remedy}",
    )


def changed(
    shape: Shape, groups: Iterable[Group], baseline: Mapping[str, int], counts: Mapping[str, int | None]
) -> list[Reason]:
    """Return a reason for each topic whose count differs from the one with which stores were built.

    As in `evolution.compare`, a store depends on the topics of the inputs of its nodes, and on the number of tasks.
    """
    groups = tuple(groups)
    reasons = []
    for members in shape.members:
        sources = {n.topic: n for n in members if n.kind == "source" and n.topic is not None}
        now = {
            topic: count
            for topic in sources
            if (count := counts[topic]) is not None and count != baseline.get(topic, count)
        }
        if not now:
            continue
        reads = _reads(members)
        for topic, count in now.items():
            before = baseline[topic]
            held = sorted(store for store, topics in reads.items() if topic in topics)
            if not held:
                continue
            remedy = f"; set partitions={before} on its repartition to keep it"
            can = sources[topic].internal and takes_any_count(topic, groups, shape)
            reasons.append(
                Reason(
                    "changed",
                    (topic,),
                    f"topic {topic!r}: {before} -> {count} partitions, but the keys of {_stores(held)} are split into "
                    f"{before} partitions; go back to {before}, or start a new checkpoint{remedy if can else ''}",
                )
            )
        reasons += _other_tasks(members, reads, tuple(now), baseline, counts)
    return reasons


def _other_tasks(
    members: Iterable[Node],
    reads: Mapping[str, frozenset[str]],
    topics: tuple[str, ...],
    baseline: Mapping[str, int],
    counts: Mapping[str, int | None],
) -> list[Reason]:
    """Return the reason for stores that depend on no changed topic, but whose number of tasks has changed."""
    kept = sorted(store for store, read in reads.items() if read.isdisjoint(topics))
    before, now = (
        width(members, {n.topic: known.get(n.topic) for n in members if n.topic is not None})
        for known in (baseline, counts)
    )
    if not kept or before is None or now is None or before == now:
        return []
    listed = ", ".join(f"{topic!r}: {baseline[topic]} -> {counts[topic]}" for topic in topics)
    return [
        Reason(
            "changed",
            topics,
            f"topic{'s' * (len(topics) > 1)} {listed} partitions: {_stores(kept)} would be split over {now} tasks "
            f"instead of {before}; go back to {before}, or start a new checkpoint",
        )
    ]


def _reads(members: Iterable[Node]) -> dict[str, frozenset[str]]:
    """Return, for each store, the topics of the inputs of its nodes."""
    reach: dict[str, frozenset[str]] = {}
    reads: dict[str, frozenset[str]] = {}
    for node in members:  # in topological order
        if node.kind == "source" and node.topic is not None:
            reach[node.name] = frozenset((node.topic,))
            continue
        inputs = [reach[parent] for parent in node.parents]
        reach[node.name] = inputs[0] if len(inputs) == 1 else frozenset().union(*inputs)
        for store in node.stores:
            reads[store] = reads.get(store, frozenset()) | reach[node.name]
    return reads


def _stores(names: Sequence[str]) -> str:
    return f"store{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"


def takes_any_count(topic: str, groups: Iterable[Group], shape: Shape) -> bool:
    """Return whether a repartition topic may have any count, because no other topic determines that of its group."""
    together = next((group.topics for group in groups if topic in group.topics), ())
    return all(t == topic or (t in shape.writers and shape.writers[t].partitions is None) for t in together)


def differing(
    shape: Shape,
    groups: Iterable[Group],
    *,
    changelogs: Mapping[str, int],
    baseline: Mapping[str, int],
    counts: Mapping[str, int | None],
    existing: Mapping[str, int],
) -> list[Reason]:
    """Return a reason for each internal topic that exists with a wrong count.

    `existing`: the counts of the existing internal topics. `changelogs`: changelog -> number of its subtopology.
    """
    groups = tuple(groups)
    reasons = []
    for topic, count in existing.items():
        log = topic in changelogs
        needed = width(shape.members[changelogs[topic]], counts) if log else counts[topic]
        if needed is None or needed == count:
            continue
        if log:
            remedy = "one per task; delete the topic with its records"
        elif topic not in baseline and takes_any_count(topic, groups, shape):
            remedy = f"delete it, or set partitions={count} on its repartition"
        else:
            remedy = "delete it"
        mark = "," if log else ";"
        reasons.append(
            Reason(
                "internal",
                (topic,),
                f"topic {topic!r}: exists with {count} partitions, expected {needed}{mark} {remedy}",
            )
        )
    return reasons
