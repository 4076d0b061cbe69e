"""Refuses casts that would spread one key's state over several tasks.

**Idea.** The state's key must determine the partition of a row. A store's key has the columns of the topic's key, cast
to declared types. If the cast merges two values ("7" and "07" as an integer), their rows are in different tasks, and
each task has a part of the state. Also, topics that share a store must be hashed by the same types.

Properties: types are checked, not values. The driver checks sources before the stream starts. The types of a
repartition are known only when rows come, so a task checks them before it writes anything. The type by which a topic
was split is compared with the type in which the store keeps the column of that name, whatever nodes are in between. A
column without a type (pandas makes one from only nulls) is not checked: nulls of any type go to one partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.state.casts import keeps_apart
from taskplace.spark.worker.hashing import hashed_as


@dataclass(frozen=True, slots=True)
class Split:
    """A node that keeps state by the key of a topic. `columns`: the key's columns in order, with the store's types."""

    node: str
    store: str
    topic: str
    columns: tuple[tuple[str, pa.DataType], ...]


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
        for name, kept in split.columns:
            if name in known and not keeps_apart(known[name], kept):
                raise InputError(
                    f"node {split.node!r}, column {name!r}",
                    found=f"a state key of type {kept}, but {split.topic!r} is partitioned by {known[name]}",
                    expected=f"a type with a distinct value for every value of {known[name]}; otherwise the rows of "
                    "one key reach several tasks",
                    hint=f"use the type {known[name]}; or cast the column to {kept} in the source, or in a processor "
                    "followed by a repartition by it; a column with new values needs a new name",
                )
        names = tuple(name for name, _ in split.columns)
        if all(name in known for name in names):
            hashed = met.setdefault((split.store, names), {})
            hashed[split.topic] = [hashed_as(known[name]) for name in names]
            if any(other != hashed[split.topic] for other in hashed.values()):
                raise InputError(
                    f"node {split.node!r}",
                    found=f"one state key from topics whose keys have different types: {hashed}",
                    expected="equal types; otherwise equal keys reach different tasks",
                    hint="cast the keys before the topics are partitioned",
                )
