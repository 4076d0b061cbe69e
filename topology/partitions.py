"""Determines which topics need equal partition counts, the count of each topic, and whether these counts fit.

**Idea.** A join finds matching records only if both sides are partitioned by the same key into the same number of
partitions. So every join puts all topics of its inputs into one co-partition group. External topics have counts
(declared, or from metadata). The count of a repartition topic is the declared count, else that of its co-partition
group, else the number of tasks of the subtopology that writes it.

Properties:
- a topic is in at most one group. Groups that share a topic are one group. After a repartition, only the repartition's
  topic counts. A merge without a join groups nothing;
- counts are determined in one pass over the subtopologies in running order, so that writers come before readers;
- a problem with counts is a `Reason`, not an exception. `assemble` raises those that follow from the description alone;
- a changed count of a store's topic is a reason, because the store's keys would be split differently. It is compared
  with the count when the topology was first ready.

Errors: `TopologyError` for a join whose inputs have no key, keys with unequal numbers of columns, or the same columns
in another order, which is another key.

Source: Kafka Streams' co-partitioning requirements, and its handling of repartition topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from topology.errors import TopologyError
from topology.graph import Shape
from topology.node import Node, Reason


@dataclass(frozen=True, slots=True)
class Group:
    """Topics that need equal partition counts, and the joins that require it, both in declared order."""

    topics: tuple[str, ...]
    joins: tuple[str, ...]


def with_keys(shape: Shape) -> Shape:
    """Return the shape with the `key` of every node.

    A source or repartition has its own key. Any other node has the common key of its inputs, or `()` if they differ. A
    join has the key of its first input (the stream), and is refused if its inputs cannot be joined by key.
    """
    keys: dict[str, tuple[str, ...]] = {}
    done = []
    for members in shape.members:
        keyed = []
        for node in members:
            if node.kind == "join":
                _check_join(node, keys)
            key = node.key if node.topic is not None else _inherited(node, keys)
            keys[node.name] = key
            keyed.append(node if key == node.key else replace(node, key=key))
        done.append(tuple(keyed))
    return replace(shape, members=tuple(done))


def _inherited(node: Node, keys: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    first = keys[node.parents[0]]
    return first if node.kind == "join" or all(keys[p] == first for p in node.parents) else ()


def _check_join(node: Node, keys: Mapping[str, tuple[str, ...]]) -> None:
    left, right = (keys[parent] for parent in node.parents)
    one, two = (f"{parent!r} by ({', '.join(keys[parent])})" for parent in node.parents)
    if not left or not right:
        keyless = node.parents[0 if not left else 1]
        wrong = (
            f"{keyless!r}, which has no (common) key; declare a key of its source, or repartition it by one"
        )
    elif left != right and sorted(left) == sorted(right):  # a hash of several columns depends on their order
        wrong = (
            f"{one} with {two}: equal keys would lie in different partitions; declare the columns in the same order, "
            "or repartition one of them"
        )
    elif len(left) != len(right):
        wrong = f"{one} with {two}; repartition one of them, so that both are partitioned by the same columns"
    else:
        return
    raise TopologyError(f"node {node.name!r}: cannot join {wrong}", node=node.name)


def copartition_groups(shape: Shape, topics: Iterable[str]) -> tuple[Group, ...]:
    """Return the groups of at least two topics, in the order of `topics`. Nearly linear in nodes and edges."""
    from networkx.utils import UnionFind

    group_of = UnionFind()  # topic -> the topic that stands for its group
    asked: list[tuple[str, str]] = []  # (a topic of the group, join)
    for members in shape.members:
        reach: dict[str, frozenset[str]] = {}  # node -> topics its records come from, one per group
        for node in members:
            if node.kind == "source" and node.topic is not None:
                reach[node.name] = frozenset((node.topic,))
                continue
            read = frozenset(group_of[topic] for parent in node.parents for topic in reach[parent])
            if node.kind == "join":
                group_of.union(*read)
                first = min(read)
                asked.append((first, node.name))
                read = frozenset((group_of[first],))
            reach[node.name] = read
    groups: dict[str, list[str]] = {}
    for topic in topics:
        groups.setdefault(group_of[topic], []).append(topic)
    joins: dict[str, list[str]] = {}
    for topic, name in asked:
        joins.setdefault(group_of[topic], []).append(name)
    return tuple(
        Group(tuple(members), tuple(joins[root])) for root, members in groups.items() if len(members) > 1
    )


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
    for number in shape.order:  # upstream counts are known, so every topic read here can get its count
        for node in shape.members[number]:
            if node.internal and node.topic is not None and node.topic not in counts:
                together = group_of[node.topic].topics if node.topic in group_of else (node.topic,)
                count = _group_count(together, counts, shape)
                counts.update((topic, count) for topic in together if topic not in counts)
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
    return _tasks([n.topic for n in members if n.kind == "source" and n.topic is not None], counts)


def _unequal(group: Group, counts: Mapping[str, int | None], shape: Shape) -> Reason:
    found = ", ".join(f"{t}={'?' if counts[t] is None else counts[t]}" for t in group.topics)
    # The counts of external topics cannot be set here. Those of repartitions can, if all external topics agree.
    outside = {counts[t] for t in group.topics if t not in shape.writers and counts[t] is not None}
    remedy = "create the topics with equal counts, or repartition one side"
    if len(outside) < 2:
        remedy = "set the count of the group on the repartition, or no count"
    text = f"{named('node', group.joins)}: joined topics need equal partition counts, found {found}; {remedy}"
    return Reason("unequal", group.topics, text)


def changed(
    shape: Shape, groups: Sequence[Group], baseline: Mapping[str, int], counts: Mapping[str, int | None]
) -> list[Reason]:
    """Return a reason for each topic whose count differs from the one with which stores were built.

    As in `evolution.compare`, a store depends on the topics of the inputs of its nodes, and on the number of tasks.
    """
    reasons = []
    for members in shape.members:
        sources = {n.topic: n for n in members if n.kind == "source" and n.topic is not None}
        now = {
            t: counts[t] for t in sources if counts[t] is not None and counts[t] != baseline.get(t, counts[t])
        }
        reads = _reads(members) if now else {}
        for topic, new in now.items():
            if not (held := sorted(store for store, topics in reads.items() if topic in topics)):
                continue
            before, remedy = baseline[topic], ""
            if sources[topic].internal and _takes_any_count(topic, groups, shape):
                remedy = f"; set partitions={before} on its repartition to keep it"
            text = (
                f"topic {topic!r}: {before} -> {new} partitions, but the keys of {named('store', held)} are split "
                f"into {before} partitions; go back to {before}, or start a new checkpoint{remedy}"
            )
            reasons.append(Reason("changed", (topic,), text))
        # Stores that depend on no changed topic, but whose number of tasks has changed.
        kept = sorted(store for store, topics in reads.items() if topics.isdisjoint(now))
        width_was, width_is = (_tasks(sources, known) for known in (baseline, counts))
        if kept and width_was and width_is and width_was != width_is:
            listed = ", ".join(f"{topic!r}: {baseline[topic]} -> {new}" for topic, new in now.items())
            text = (
                f"topic{'s' * (len(now) > 1)} {listed} partitions: {named('store', kept)} would be split over "
                f"{width_is} tasks instead of {width_was}; go back to {width_was}, or start a new checkpoint"
            )
            reasons.append(Reason("changed", tuple(now), text))
    return reasons


def _tasks(topics: Iterable[str], counts: Mapping[str, int | None]) -> int | None:
    """Return the largest count of some topics; None if one is unknown."""
    known = [counts.get(topic) for topic in topics]
    return None if None in known else max(count for count in known if count is not None)


def _reads(members: Iterable[Node]) -> dict[str, frozenset[str]]:
    """Return, for each store, the topics of the inputs of its nodes."""
    reach: dict[str, frozenset[str]] = {}
    reads: dict[str, frozenset[str]] = {}
    for node in members:  # in topological order
        inputs = [reach[parent] for parent in node.parents]
        own = frozenset((node.topic,)) if node.kind == "source" and node.topic is not None else frozenset()
        reach[node.name] = inputs[0] if len(inputs) == 1 else own.union(*inputs)
        for store in node.stores:
            reads[store] = reads.get(store, frozenset()) | reach[node.name]
    return reads


def _takes_any_count(topic: str, groups: Iterable[Group], shape: Shape) -> bool:
    """Return whether a repartition topic may have any count, because no other topic determines that of its group."""
    together = next((group.topics for group in groups if topic in group.topics), ())
    return all(t == topic or (t in shape.writers and shape.writers[t].partitions is None) for t in together)


def named(word: str, names: Sequence[str]) -> str:
    """Return names behind the word for them, such as "stores 'a', 'b'"."""
    return f"{word}{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"
