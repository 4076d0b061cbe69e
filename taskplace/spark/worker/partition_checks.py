"""Checks in a task that all rows of a state key reach it: by types, by the keys of its state, by sampled records.

**Types** (`check_splits`). A store's key has the columns of the topic's key, cast to declared types. If the cast merges
two values ("7" and "07" as an integer), their rows are in different tasks, and each task has a part of the state. The
driver checks sources before the stream starts. The types of a repartition are known only when rows come, so a task
checks them before it writes anything. The type by which a topic was split is compared with the type in which the store
keeps that column, whatever nodes are in between. A column without a type (pandas makes one from only nulls) is not
checked: nulls of any type go to one partition. The driver compares the types of different topics
(`taskplace.spark.compile.keys.KeyTypes`).

**Keys** (`Owned`). If a node without a declaration lies between the topic and a store, the columns may have got
other values on the way. So the task hashes the key columns of each key that is read or written, as the shuffle did: in
the type of the topic, after the cast to the store's type. Each hash has to fall on the task's own partition. The check
comes before the access, and costs nothing where all nodes declare what they pass on.

**Samples** (`PartitionedTopic`). Kafka's producers choose the partition. A producer with another partitioner, and a
topic that got more partitions, put one key into several partitions. So a task computes the partition of some of its
keys, and compares: at most `SAMPLED` keys for each task, topic and batch, spread over its rows. Keys that decide no
partition, such as null, are not compared. A topic that tasks read themselves is checked before its records are decoded.

Errors: `InputError` with the place, what differs, and the remedy. They show no keys: an offset leads to one; rows
without offsets have the number of the key's bytes and the first digits of its SHA-256 in the error instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError
from taskplace.spark.casts import cast, keeps_apart
from taskplace.spark.state.rows import codec_of
from taskplace.spark.types import UNTYPED
from taskplace.spark.worker.external import DEAD_LETTER
from taskplace.spark.worker.hashing import ANY, HASHED_TYPES, hashed_as, partition_of, partitions_of

SAMPLED = 64
#: Kafka's column with the number of a record in its partition. Errors name it if the rows have it.
OFFSET = "offset"
#: The digits of a key's hash in an error: enough to find the key among those of a partition.
DIGITS = 8


class KeyColumn(NamedTuple):
    """Names a key column of a topic and the column of a store's key with its values; nodes in between may rename it.

    - `in_topic`: its name in the topic
    - `name`: its name at the node, and in the store
    - `kept`: the type in which the store keeps it
    """

    in_topic: str
    name: str
    kept: pa.DataType


@dataclass(frozen=True, slots=True)
class Split:
    """A node that keeps state by the key of a topic.

    - `columns`: the key's columns, in the key's order
    - `sure`: whether all nodes in between are known to keep the values of these columns
    """

    node: str
    store: str
    topic: str
    columns: tuple[KeyColumn, ...]
    sure: bool = True


def check_splits(splits: Iterable[Split], types: Mapping[str, Mapping[str, pa.DataType]]) -> None:
    """Check that no store merges keys of different tasks. `types`: by topic, the types of its known columns.

    A topic that is not in `types` is not checked. O(splits x columns). Errors: `InputError` with node, column, both
    types, and the remedy.
    """
    for split in splits:
        known = types.get(split.topic, {})
        for in_topic, name, kept in split.columns:
            kind = known.get(in_topic, pa.null())
            if pa.types.is_null(kind) or keeps_apart(kind, kept):
                continue  # a column without a type has only nulls, which have the same hash in every type
            renamed = f" (its column {in_topic!r})" if in_topic != name else ""
            raise InputError(
                f"node {split.node!r}, column {name!r}",
                found=f"a state key of type {kept}, but {split.topic!r} is partitioned by {kind}{renamed}",
                expected=f"a type with a distinct value for every value of {kind}; otherwise the rows of one key "
                "reach several tasks",
                hint="columns of keys are flat: select a part of it, or cast it to string, in the source"
                if pa.types.is_nested(kind)
                else f"use the type {kind}; or cast the column to {kept} under a new name, in the source, or in a "
                "processor followed by a repartition by it",
            )


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

    def check(
        self, rows: pa.Table | pa.RecordBatch, *, hashed: Mapping[str, Sequence[str]], partition: int
    ) -> None:
        """Raise `InputError` unless all rows have keys of this partition. O(bytes of the key columns).

        `hashed`: by topic, the types as which its key columns are hashed (`hashed_as`), as far as they are known.
        """
        if not rows.num_rows:
            return
        known = [hashed[topic] for topic in self.topics if topic in hashed]
        kept = codec_of(pa.schema(list(self.columns)), f"stores.{self.store}.key").canonical(rows)
        columns = []
        for place, (name, kind) in enumerate(self.columns):
            # Only nulls have come so far for a column without a type: any one type will do for all tasks.
            wanted = next((kinds[place] for kinds in known if kinds[place] != UNTYPED), hashed_as(kind))
            split_as = HASHED_TYPES.get(wanted.removeprefix("large_"))
            if split_as is None:
                raise self._refused(
                    name,
                    f"a topic's key of type {wanted}, which a task cannot hash, so it cannot check the values",
                    f"declare that {self.changed_by!r} passes the column on (`passes_keys_on`, or `routes` in "
                    "its `infer`), or cast the column in the source",
                )
            try:
                columns.append(kept[name] if kind == split_as else _back(kept[name], split_as))
            except (pa.ArrowException, OverflowError):
                found = f"values of type {rows[name].type} that {wanted} does not have, by which the rows were split"
                raise self._refused(name, found) from None
        other = np.flatnonzero(partition_of(columns, self.partitions) != partition)
        if len(other):
            types = ", ".join(str(rows[name].type) for name in kept.schema.names)
            raise self._refused(
                self._names,
                f"{len(other)} of {rows.num_rows} keys ({types}) "
                f"that belong to other tasks than {partition} of {self.partitions}",
            )

    @property
    def _names(self) -> str:
        return ", ".join(name for name, _ in self.columns)

    def _refused(self, column: str, found: str, hint: str = "") -> InputError:
        remedy = f"repartition the rows by ({self._names}) before the node"
        if self.changed_by == self.node:
            remedy += "; or say in `infer` what its entries belong to"
        else:
            remedy = (
                f"{self.changed_by!r}, or a node behind it, has changed the column: give new values a new name, or "
                f"{remedy}"
            )
        return InputError(
            f"node {self.node!r}, column {column!r}",
            found=found,
            expected=f"the values by which {' and '.join(map(repr, self.topics))} is partitioned",
            hint=hint or remedy,
        )


def _back(column: pa.ChunkedArray, hashed: pa.DataType) -> pa.ChunkedArray:
    """Cast a key column from the store's type to the type in which it was hashed. Errors: Arrow's."""
    try:
        return cast(column, hashed)
    except pa.ArrowInvalid:
        if not pa.types.is_timestamp(hashed):
            raise
        return cast(column, pa.timestamp("us"))  # texts of times without a zone


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedTopic:
    """A topic whose rows are split by a partition column.

    - `partitioner`: the partitioner of its producers
    - `key_bytes`: the column of the rows with the serialized key; "" if `check` compares no keys
    - `checks_records`: whether the keys of records are compared that tasks read themselves
    - `key`: the key columns, if state is kept by them: then a row without a key is refused, because it belongs to no
      task. Where tasks read the records themselves (`is_read`), the reader does that
    """

    topic: str
    partitions: int
    partitioner: str
    key_bytes: str = ""
    checks_records: bool = False
    key: tuple[str, ...] = ()
    is_read: bool = False

    def check(self, rows: pa.Table, partition: int) -> None:
        """Raise `InputError` if a sampled key of these rows belongs to another partition than this one, or is none."""
        if self.key and not self.is_read and rows.num_rows:
            self._check_nulls(rows, partition)
        if not self.key_bytes or not rows.num_rows:
            return
        every = -(-rows.num_rows // SAMPLED)
        sampled = rows.take(pa.array(np.arange(0, rows.num_rows, every)))
        self._compare(sampled[self.key_bytes], sampled, partition)

    def _check_nulls(self, rows: pa.Table, partition: int) -> None:
        names = [self.key_bytes] if self.key_bytes else self.key
        without = reduce(pc.and_, (pc.is_null(rows[name]) for name in names))
        if DEAD_LETTER in rows.column_names:  # the row of a bad record
            without = pc.and_(without, pc.is_null(rows[DEAD_LETTER]))
        if (at := pc.index(without, True).as_py()) < 0:
            return
        place = f", offset {rows[OFFSET][at].as_py()}" if OFFSET in rows.column_names else ""
        raise InputError(
            f"topic {self.topic!r}, partition {partition}{place}",
            found=f"a null in {' and '.join(names)} ({pc.sum(without).as_py()} such rows)",
            expected="a key, because state is kept by it: producers put records without one into any partition",
            hint="drop such rows before, or repartition them by another column; with check_keys: false, each "
            "partition has a state of its own for them",
        )

    def of_records(self, partition: int, start: int, end: int) -> Callable[[pa.Table], None]:
        """Return the check of a range of records, which gets them in parts: tables with `key` and `offset`.

        The range is cut into `SAMPLED` equal parts by offset, and the first record of each is compared.
        """
        every = max(1, -(-(end - start) // SAMPLED))
        last = -1

        def check(records: pa.Table) -> None:
            nonlocal last
            if not records.num_rows:
                return
            of = (records[OFFSET].to_numpy() - start) // every
            chosen = np.flatnonzero(np.diff(of, prepend=last))
            last = int(of[-1])
            sampled = records.select(["key", OFFSET]).take(pa.array(chosen))
            self._compare(sampled["key"], sampled, partition)

        return check

    def _compare(self, keys: pa.ChunkedArray, sampled: pa.Table, partition: int) -> None:
        keys = keys.cast(pa.binary())
        found = partitions_of(keys, self.partitioner, self.partitions)
        wrong = np.flatnonzero((found != partition) & (found != ANY))
        if not len(wrong):
            return
        at = int(wrong[0])
        place, which = "", f" {_described(keys[at].as_py())}"
        if OFFSET in sampled.column_names:
            place, which = f", offset {sampled[OFFSET][at].as_py()}", ""
        raise InputError(
            f"topic {self.topic!r}, partition {partition}{place}",
            found=f"a key{which} that belongs to partition {found[at]} of {self.partitions} by {self.partitioner} "
            f"({len(wrong)} of {len(found)} sampled keys belong elsewhere)",
            expected=f"keys that their producers put into the partition of the key by {self.partitioner}",
            hint="name the partitioner of the producers as key_partitioner; if they use several, or the topic got "
            "more partitions, repartition the rows by the key; if equal keys meet all the same, set check_keys to "
            "false",
        )


def _described(key: bytes) -> str:
    """Return what tells a key from others without showing it.

    >>> _described(b"N14228")
    'of 6 bytes, whose SHA-256 begins with b54635a3,'
    """
    return f"of {len(key)} bytes, whose SHA-256 begins with {hashlib.sha256(key).hexdigest()[:DIGITS]},"
