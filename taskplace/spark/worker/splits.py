"""Refuses casts that would spread one key's state over several tasks.

**Idea.** The state's key must determine the partition of a row. A store's key has the columns of the topic's key, cast
to declared types. If the cast merges two values ("7" and "07" as an integer), their rows are in different tasks, and
each task has a part of the state. Also, topics that share a store must be hashed by the same types.

Properties: types are checked, not values. The driver checks sources before the stream starts. The types of a
repartition are known only when rows come, so a task checks them before it writes anything. The type by which a topic
was split is compared with the type in which the store keeps that column, whatever nodes are in between. Where a node
has declared a new name, the column is looked up among the topic's under the old one. A column without a type (pandas
makes one from only nulls) is not checked: nulls of any type go to one partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from taskplace.errors import InputError, listed
from taskplace.spark.casts import keeps_apart
from taskplace.spark.worker.hashing import hashed_as


class KeyColumn(NamedTuple):
    """A key column of a topic, in the key of a store. Nodes in between may have given it a new name.

    - `in_topic`: its name in the topic
    - `name`: its name at the node, and in the store
    - `kept`: the type in which the store keeps it
    """

    in_topic: str
    name: str
    kept: pa.DataType


@dataclass(frozen=True, slots=True)
class Split:
    """A node that keeps state by the key of a topic. `columns`: the key's columns, in the key's order."""

    node: str
    store: str
    topic: str
    columns: tuple[KeyColumn, ...]


def check_splits(splits: Iterable[Split], types: Mapping[str, Mapping[str, pa.DataType]]) -> None:
    """Check that the rows of each state key are in one task. `types`: by topic, the types of its known columns.

    A topic that is not in `types` is not checked. O(splits x columns). Errors: `InputError` with node, column, both
    types, and the remedy.
    """
    met: dict[tuple[str, tuple[str, ...]], dict[str, list[str]]] = {}
    for split in splits:
        # A column without a type has only nulls, which have the same hash in every type.
        known = {
            name: kind for name, kind in types.get(split.topic, {}).items() if not pa.types.is_null(kind)
        }
        for in_topic, name, kept in split.columns:
            if in_topic in known and not keeps_apart(known[in_topic], kept):
                kind, renamed = known[in_topic], f" (its column {in_topic!r})" if in_topic != name else ""
                hint = (
                    "columns of keys are flat: select a part of it, or cast it to string, in the source"
                    if pa.types.is_nested(kind)
                    else f"use the type {kind}; or cast the column to {kept} in the source, or in a processor "
                    "followed by a repartition by it"
                )
                raise InputError(
                    f"node {split.node!r}, column {name!r}",
                    found=f"a state key of type {kept}, but {split.topic!r} is partitioned by {kind}{renamed}",
                    expected=f"a type with a distinct value for every value of {kind}; otherwise the rows of "
                    "one key reach several tasks",
                    hint=f"{hint}; a column with new values needs a new name",
                )
        if all(column.in_topic in known for column in split.columns):
            names = tuple(column.name for column in split.columns)
            hashed = met.setdefault((split.store, names), {})
            hashed[split.topic] = [hashed_as(known[column.in_topic]) for column in split.columns]
            if any(other != hashed[split.topic] for other in hashed.values()):
                raise InputError(
                    f"node {split.node!r}",
                    found=f"one state key from topics whose keys have different types ({listed(hashed)})",
                    expected="equal types; otherwise equal keys reach different tasks",
                    hint="cast the keys before the topics are partitioned",
                )
