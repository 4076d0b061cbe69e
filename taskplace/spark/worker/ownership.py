"""Checks that the keys of a task's state belong to its partition.

**Idea.** Rows are split by the key columns of a topic. If a node without a declaration lies between the topic and a
store, the columns may have got other values on the way: then the rows of one state key lie in several tasks, and each
has a part of the state. So the task hashes the key columns of each key that is read or written, as the shuffle did.
Each hash has to fall on the task's own partition.

Properties:
- the key is hashed in the type of the topic, after the cast to the store's type. So the partition is a function of the
  state's key, whatever types the rows have in between;
- nothing is written: the check comes before the access, and a batch's writes stay in memory until all nodes have run;
- it costs nothing where all nodes declare what they pass on, because then there is no such store.

Errors: `InputError` with the node, the columns, the types, the node that may have changed them, and the remedy. It
shows no values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.casts import cast
from taskplace.spark.state.rows import codec_of
from taskplace.spark.worker.hashing import HASHED_TYPES, UNTYPED, hashed_as, partition_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A store of a node whose keys are checked.

    - `columns`: those that rows are split by, in the order of the topics' key, with the store's types
    - `topics`: where the rows come from; their keys have equal types
    - `partitions`: how many each of these topics has, 0 if it is not known; another topic of the subtopology may have
      more
    - `changed_by`: the node that may have changed the columns
    """

    node: str
    store: str
    columns: tuple[tuple[str, pa.DataType], ...]
    topics: tuple[str, ...]
    partitions: int
    changed_by: str


class Ownership:
    """Checks keys of one store of one node, in one task. Calling it with a table of keys raises for a foreign key.

    `hashed`: by topic, the types as which its key columns are hashed (`hashed_as`), as far as they are known.
    """

    def __init__(self, owned: Owned, hashed: Mapping[str, Sequence[str]], partition: int) -> None:
        self._owned, self._partition = owned, partition
        known = [hashed[topic] for topic in owned.topics if topic in hashed]
        schema = pa.schema(list(owned.columns))
        self._codec = codec_of(schema, f"stores.{owned.store}.key")
        # Only nulls have come so far for a column without a type: any one type will do for all tasks.
        self._types = [
            next((kinds[place] for kinds in known if kinds[place] != UNTYPED), hashed_as(field.type))
            for place, field in enumerate(schema)
        ]

    def __call__(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Raise `InputError` unless all rows have keys of this partition. O(bytes of the key columns)."""
        if not rows.num_rows:
            return
        kept = self._codec.canonical(rows)
        columns = []
        for (name, kind), wanted in zip(self._owned.columns, self._types, strict=True):
            hashed = HASHED_TYPES.get(wanted.removeprefix("large_"))
            if hashed is None:
                raise self._refused(
                    name,
                    f"a topic's key of type {wanted}, which a task cannot hash, so it cannot check the values",
                    f"declare that {self._owned.changed_by!r} passes the column on (`passes_keys_on`, or `traits` of "
                    "its class), or cast the column in the source",
                )
            try:
                columns.append(kept[name] if kind == hashed else _back(kept[name], hashed))
            except (pa.ArrowException, OverflowError):
                raise self._refused(
                    name,
                    f"values of type {rows[name].type} that {wanted} does not have, by which the rows were split",
                ) from None
        other = np.flatnonzero(partition_of(columns, self._owned.partitions) != self._partition)
        if len(other):
            names = ", ".join(name for name, _ in self._owned.columns)
            types = ", ".join(str(rows[name].type) for name, _ in self._owned.columns)
            raise self._refused(
                names,
                f"{len(other)} of {rows.num_rows} keys ({types}) that belong to other tasks than {self._partition} of "
                f"{self._owned.partitions}, so the rows of one key reach several tasks",
            )

    def _refused(self, column: str, found: str, hint: str = "") -> InputError:
        owned = self._owned
        expected = f"the values by which {' and '.join(map(repr, owned.topics))} is partitioned"
        return InputError(
            f"node {owned.node!r}, column {column!r}",
            found=found,
            expected=expected,
            hint=hint or self._remedy(),
        )

    def _remedy(self) -> str:
        owned = self._owned
        by = ", ".join(name for name, _ in owned.columns)
        if owned.changed_by == owned.node:
            return f"repartition the rows by ({by}) before the node; or state `traits` of its class"
        return (
            f"{owned.changed_by!r}, or a node behind it, has changed the column: give new values a new name, or "
            f"repartition the rows by ({by}) before the node"
        )


def _back(column: pa.ChunkedArray, hashed: pa.DataType) -> pa.ChunkedArray:
    """Cast a key column from the store's type to the type in which it was hashed. Errors: Arrow's."""
    try:
        return cast(column, hashed)
    except pa.ArrowInvalid:
        if not pa.types.is_timestamp(hashed):
            raise
        return cast(column, pa.timestamp("us"))  # texts of times without a zone
