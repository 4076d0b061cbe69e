"""Checks that all rows of one state key reach the same task, and lists what only tasks can compare.

**Idea.** The key columns of a topic decide a row's task, and nothing but a repartition moves a row to another one. If a
processor keeps state by other columns, the rows of one state key lie in several tasks, each with its own state, and
every count is split. So what rows were split by must be a function of the state's key: the key of a store must contain
all key columns of every topic that reaches its node. Behind a topic keyed by tailnum, state by (tailnum) or by
(tailnum, day) is right. State by (tailnum) behind a topic keyed by (tailnum, day), or by origin, is wrong.

**Routes.** Each topic has a route to each node that its rows reach: the columns that have the values of the topic's key
there (`Route`). Sources, merges, and processors that answer with `routes` give the names for certain. Behind any other
processor the names are assumed to be unchanged, and the route is unsure: the task has to check the values. Such a
processor may pass on rows of all its inputs.

Checked at the start, whatever lies between the topic and the node:
- the key of every store, unless its processor states that its entries belong to something else (`State`);
- topics that meet in a merge, a join or a shared store: they must be split by the same columns in the same order, into
  the same number of partitions;
- topics without a key before any of these: their rows are spread over all tasks.

Compared elsewhere:
- the values, behind a node that may have changed them: in the task (`owned` lists the stores,
  `taskplace.spark.worker.partition_checks` checks them);
- the types: `splits` lists the comparisons within a task, `taskplace.spark.worker.partition_checks` makes them;
  `KeyTypes` compares the topics of `alike` over all tasks and batches.

Not checked: the start of a window, which the processor computes; a subtopology with one task.

Errors: `TopologyError` with the node, both lists of columns, and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from taskplace.errors import InputError, listed
from taskplace.spark.processors.facts import Facts, Route, State
from taskplace.spark.types import UNTYPED, TypeReader, TypeTextError
from taskplace.spark.worker.hashing import hashed_as
from taskplace.spark.worker.partition_checks import KeyColumn, Owned, Split
from topology import BuiltTopology, Node, Subtopology, TopologyError

#: By node, what is known of its output.
FactsOf = Mapping[str, Facts]
#: By store, the schema of its key.
Keys = Mapping[str, pa.Schema]


def _reaching(node: Node, facts: FactsOf) -> list[Route]:
    """Return the routes to a node's inputs, sorted."""
    return sorted({route for parent in node.parents for route in facts[parent].routes})


# ------------------------------------------------------------------------------------------- at the start


def check_keys(sub: Subtopology, partitions: Mapping[str, int | None], keys: Keys, facts: FactsOf) -> None:
    """Refuse state whose key does not contain what its input is split by. O(nodes x topics).

    `partitions`: the number of each topic. `facts`: of all nodes of the subtopology.
    """
    if sub.partitions == 1:
        return
    by_store: dict[str, list[Node]] = {}
    for node in sub.nodes:
        for store, state in _states(node, facts):
            if state.of == "key":
                _check_columns(node, store, _of_rows(state, keys[store]), facts)
            by_store.setdefault(store, []).append(node)
    for store, nodes in by_store.items():
        by = _of_rows(facts[nodes[-1].name].states.get(store, State()), keys[store])
        _check_topics(nodes, ", ".join(by), partitions, facts)


def _states(node: Node, facts: FactsOf) -> Iterator[tuple[str, State]]:
    """Yield the stores whose entries belong to keys of the input, or to ids of such a key."""
    for store in node.stores:
        state = facts[node.name].states.get(store, State())
        if state.of != "task":
            yield store, state


def _of_rows(state: State, key: pa.Schema) -> tuple[str, ...]:
    """Return the columns of a store's key that the rows have, without those that the processor computes."""
    return tuple(name for name in key.names if name not in state.made)


def answers_itself(processor: object) -> bool:
    """Return whether what a processor says of its keys is believed: a function, or a class with an `infer` of its own.

    The methods of a derived class may give keys other values, whatever its base says.
    """
    answers = callable(getattr(processor, "infer", None))
    return answers and (not hasattr(processor, "process") or "infer" in vars(type(processor)))


def _check_columns(node: Node, store: str, by: Sequence[str], facts: FactsOf) -> None:
    """Refuse a state key that lacks a column by which one of the node's inputs is split."""
    for route in _reaching(node, facts):
        lacking = [column for column in route.columns if column not in by]
        if not lacking:
            continue
        own = store in facts[node.name].states
        parent = next(parent for parent in node.parents if route in facts[parent].routes)
        remedy = "" if own else "; or say in `infer` what its entries belong to, if not to keys of the input"
        if route.unsure:
            remedy += (
                f"; or, if {route.unsure!r} only renames the columns, declare that with `passes_keys_on`"
            )
        key, add = "`by`" if own else f"the key of store {store!r}", ", ".join(map(repr, lacking))
        raise TopologyError(
            f"node {node.name!r}: keeps state by ({', '.join(by)}), but its input {parent!r} is partitioned by "
            f"({', '.join(route.columns)}), so rows of one key reach several tasks; repartition the input by "
            f"({', '.join(by)}), or add {add} to {key}{remedy}",
            node=node.name,
        )


def _check_topics(
    nodes: Sequence[Node], by: str, partitions: Mapping[str, int | None], facts: FactsOf
) -> None:
    """Refuse topics before one state that have no key, different keys, or different numbers of partitions.

    What lies between a topic and the node does not matter: nothing but a repartition moves rows to another task.
    """
    reaching = [(route, node) for node in nodes for route in _reaching(node, facts)]
    node, found = nodes[-1], ""
    who = f"node {node.name!r}: keeps state by key"
    if len(nodes) > 1:
        who = f"nodes {', '.join(repr(node.name) for node in nodes)}: share a store that is kept by key"
    if without := {route.source: one for route, one in reaching if not route.columns}:
        source, node = min(without.items())
        who = f"node {node.name!r}: keeps state by key"
        found = f"the rows of {source!r} are partitioned without a key"
        remedy = f"give it a key, or repartition its rows by ({by})"
    elif len(split := {route.columns for route, _ in reaching}) > 1:
        keys = " and ".join(f"({', '.join(columns)})" for columns in sorted(split))
        found = f"{'its' if len(nodes) == 1 else 'their'} input topics are partitioned by {keys}"
        remedy = "repartition them by the same columns in the same order"
    else:
        counts = {route.source: partitions[route.topic] or 0 for route, _ in reaching}
        if len(set(counts.values())) > 1:
            has = ", ".join(f"{name!r} has {count}" for name, count in sorted(counts.items()))
            found = f"its input topics have different numbers of partitions ({has})"
            remedy = "give the topics equal numbers, or repartition the input first"
    if found:
        raise TopologyError(
            f"{who}, but {found}, so rows of one key reach several tasks; {remedy}", node=node.name
        )


# ------------------------------------------------------------------------------------------- for the task


def _kept(sub: Subtopology, keys: Keys, facts: FactsOf) -> Iterator[tuple[Node, str, Route]]:
    """Yield each store with the routes to its nodes whose columns the store's key has. O(nodes x topics).

    Nothing in a subtopology with one task.
    """
    for node in sub.nodes if sub.partitions != 1 else ():
        for store, state in _states(node, facts):
            own = set(_of_rows(state, keys[store])) if state.of == "key" else set()
            for route in _reaching(node, facts):
                if route.columns and set(route.columns) <= own:
                    yield node, store, route


def splits(sub: Subtopology, keys: Keys, facts: FactsOf) -> tuple[Split, ...]:
    """Return the stores whose key contains a topic's key, with the names and types of these columns."""
    found = (
        Split(
            node.name,
            store,
            route.topic,
            tuple(
                KeyColumn(in_topic, name, keys[store].field(name).type)
                for in_topic, name in zip(route.key, route.columns, strict=True)
            ),
            not route.unsure,
        )
        for node, store, route in _kept(sub, keys, facts)
    )
    return tuple(dict.fromkeys(found))


def owned(
    sub: Subtopology, keys: Keys, partitions: Mapping[str, int | None], facts: FactsOf
) -> tuple[Owned, ...]:
    """Return the stores whose keys a task has to check, because a node may have changed the columns.

    A class that does not say itself what its entries belong to is checked as well: it may take keys from anywhere.
    """
    groups: dict[tuple[str, str, tuple[str, ...]], list[Route]] = {}
    for node, store, route in _kept(sub, keys, facts):
        groups.setdefault((node.name, store, route.columns), []).append(route)
    sure = {
        (node.name, store)
        for node in sub.nodes
        if answers_itself(node.processor)
        for store in facts[node.name].states
    }
    return tuple(
        Owned(
            node=node,
            store=store,
            columns=tuple((name, keys[store].field(name).type) for name in columns),
            topics=tuple(dict.fromkeys(route.topic for route in reaching)),
            partitions=max(partitions[route.topic] or 0 for route in reaching),
            changed_by=next((route.unsure for route in reaching if route.unsure), node),
        )
        for (node, store, columns), reaching in groups.items()
        if (node, store) not in sure or any(route.unsure for route in reaching)
    )


def keyed(sub: Subtopology, keys: Keys, facts: FactsOf) -> frozenset[str]:
    """Return the topics by whose key state is kept, so that a row without one belongs to no task.

    Only the second input of a join that states what it keeps is kept: rows of the first one look for their key in it.
    """
    return frozenset(
        route.topic
        for node, store, route in _kept(sub, keys, facts)
        for parent in node.parents[node.kind == "join" and store in facts[node.name].states :]
        if route in facts[parent].routes
    )


# ------------------------------------------------------------------------------------------- types of keys


def alike(built: BuiltTopology, facts: FactsOf) -> tuple[tuple[str, ...], ...]:
    """Return the topics whose keys need equal types in all tasks and batches, by join and by store. O(nodes x topics).

    The keys of the topics of one tuple have equally many columns, which correspond by position.
    """
    groups: dict[tuple[str, ...], None] = dict.fromkeys(built.copartition_groups)  # a join's topics have keys
    for sub in built.subtopologies:
        stores: dict[tuple[str, int], set[str]] = {}
        for node in sub.nodes if sub.partitions != 1 else ():
            for store, _ in _states(node, facts):
                for route in _reaching(node, facts):
                    if route.columns:
                        stores.setdefault((store, len(route.columns)), set()).add(route.topic)
        groups |= {tuple(sorted(topics)): None for topics in stores.values()}
    return tuple(group for group in groups if len(group) > 1)


class KeyTypes:
    """Compares the key types of topics that feed one state, over all tasks and batches.

    **Idea.** Equal keys of two topics meet in one task only if both are hashed in the same type: int and bigint of the
    same value have different hashes. A task compares the types of the rows that it has in one batch. Here the driver
    compares the types that the whole checkpoint is bound to (`Journal.bind_keys`): those of its sources, and those that
    attempts have reported for internal topics. It does so when the sources are bound, and after each stage, before the
    commit. A column that had only nulls so far has no type yet and is not compared.

    `groups`: the topics that need equal types (`alike`).
    Errors: `InputError` with the topics, their types, and the remedy.
    """

    def __init__(self, built: BuiltTopology, groups: Sequence[Sequence[str]]) -> None:
        self._groups = groups
        self._internal = frozenset(n.topic for n in built.nodes if n.kind == "repartition")

    def __call__(self, bound: Mapping[str, Sequence[str]]) -> None:
        """Refuse different types within a group. `bound`: by topic, as the checkpoint's identity has them."""
        for group in self._groups:
            check_group({topic: self._hashed(topic, bound[topic]) for topic in group if topic in bound})

    def _hashed(self, topic: str, kinds: Sequence[str]) -> list[str]:
        """Return the types as which a key is hashed. The types of external topics have Spark's names."""
        if topic in self._internal:
            return list(kinds)
        return [hashed_as(_arrow_type(kind)) for kind in kinds]


def _arrow_type(kind: str) -> pa.DataType:
    """Return the type that Spark has this name for; null for one that has no name here."""
    with suppress(TypeTextError):
        return TypeReader(kind).column_type()
    return pa.null()


def check_group(types: Mapping[str, Sequence[str]], path: str = "") -> None:
    """Refuse different types of one group. `types`: by topic, as which its key is hashed. `path`: for the error.

    >>> check_group({"a": ["int64"], "b": ["int32"]})
    Traceback (most recent call last):
    taskplace.errors.InputError: topics a, b: found 'co-partitioned keys of different types (a: int64; \
b: int32)', expected equal types, or equal keys reach different tasks: cast the keys before the topics are partitioned
    """
    if any(len(set(kinds) - {UNTYPED}) > 1 for kinds in zip(*types.values(), strict=True)):
        found = f"co-partitioned keys of different types ({listed(types)})"
        expected = "equal types, or equal keys reach different tasks: cast the keys before the topics are partitioned"
        raise InputError(path or f"topics {', '.join(types)}", found=found, expected=expected)
