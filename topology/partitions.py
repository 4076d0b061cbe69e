"""How many partitions each topic has, and whether the topology can run with that.

**Idea.** External topics bring their counts (declared, or reported by metadata); repartition topics are given
theirs: the declared one, else their group's, else the partitions of the subtopology that writes them.

Properties:
- counts are settled in one pass, subtopologies in running order, so that writers come before readers;
- everything wrong is a `Reason`, never an exception: `assemble` raises the reasons that show in the
  description alone, later metadata only changes the state;
- a count that changes under a store is a reason, because the store's keys would be split anew; what counts is the
  count when the topology was first ready.

Source: Kafka Streams' handling of repartition topics and of co-partitioned topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from topology.copartition import Group
from topology.graph import Shape
from topology.node import Node


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a topology cannot run (yet).

    `missing`: an external topic has no known count; `unequal`: co-partitioned topics differ; `changed`: a
    count is not the one that a store was built with; `internal`: an internal topic exists with another count.
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
        """All reasons in one line; empty when ready."""
        return "; ".join(r.text for r in self.reasons)

    def __str__(self) -> str:
        return self.reason or "ready"


def settle(
    shape: Shape, groups: Iterable[Group], external: Mapping[str, int | None]
) -> tuple[dict[str, int | None], list[Reason]]:
    """Return the count of every topic, and the reasons why they do not fit together.

    `external` are the counts of external topics, None where unknown. An internal topic whose count hangs on
    an unknown one is unknown itself, and gets no reason of its own.
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
        # Upstream subtopologies are settled, so every topic read here that has no count can be given one.
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
    """Return the count that a group's open topics take: of a topic that has one, else of the widest writer."""
    fixed = [counts[t] for t in together if t in counts]  # external, declared
    if fixed:
        return next((count for count in fixed if count is not None), None)
    widths = [width(shape.members[shape.home[shape.writers[t].name]], counts) for t in together]
    return None if None in widths else max(w for w in widths if w is not None)


def width(members: Iterable[Node], counts: Mapping[str, int | None]) -> int | None:
    """Return a subtopology's number of tasks: the largest count among its sources, None if one is unknown."""
    found = [counts[n.topic] for n in members if n.kind == "source" and n.topic is not None]
    return None if None in found else max(c for c in found if c is not None)


def _unequal(group: Group, counts: Mapping[str, int | None], shape: Shape) -> Reason:
    listed = ", ".join(f"{t}={'?' if counts[t] is None else counts[t]}" for t in group.topics)
    nodes = (
        "node " + repr(group.joins[0])
        if len(group.joins) == 1
        else f"nodes {', '.join(map(repr, group.joins))}"
    )
    remedy = (
        "give the repartition its group's count, or none"
        if any(t in shape.writers for t in group.topics)
        else "create the topics with equal counts, or repartition one side"
    )
    return Reason(
        "unequal",
        group.topics,
        f"{nodes}: joined topics need equal partition counts, found {listed}; {remedy}",
    )


def changed(shape: Shape, baseline: Mapping[str, int], counts: Mapping[str, int | None]) -> list[Reason]:
    """Return a reason for each topic whose count is not the one its subtopology's stores were built with."""
    reasons = []
    for members in shape.members:
        stores = sorted({store for node in members for store in node.stores})
        if not stores:
            continue
        for node in members:
            topic = node.topic
            if node.kind != "source" or topic is None:
                continue
            before, now = baseline.get(topic), counts[topic]
            if before is None or now is None or now == before:
                continue
            what = f"store {stores[0]!r}" if len(stores) == 1 else f"stores {', '.join(map(repr, stores))}"
            remedy = f"; give its repartition partitions={before} to keep it" if node.internal else ""
            reasons.append(
                Reason(
                    "changed",
                    (topic,),
                    f"topic {topic!r}: {before} -> {now} partitions under {what}, whose keys are split by "
                    f"{before}; go back to {before}, or start from a new checkpoint{remedy}",
                )
            )
    return reasons
