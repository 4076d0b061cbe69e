"""Checks sampled keys of a topic that is split by a partition column: each has to be in the partition of its key.

**Idea.** Kafka's producers choose the partition, and topics that are joined have to be split by one partitioner. A
producer with another partitioner, and a topic that got more partitions, put one key into several partitions: each task
then has a part of the key's state. So a task computes the partition of some of its keys, and compares.

Two forms: the rows of a topic may have a column with the serialized key (`PartitionedTopic.check`); a topic that tasks
read themselves is checked before its records are decoded (`PartitionedTopic.of_records`).

Properties: at most `SAMPLED` keys for each task, topic and batch, spread over its rows. Keys that decide no partition,
such as null, are not compared. Nothing is written before the check.

Errors: `InputError` with the topic, the offset and both partitions. It shows no key: the offset leads to it. Rows
without offsets have the number of the key's bytes and the first digits of its SHA-256 in the error instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError
from taskplace.spark.worker.external import DEAD_LETTER
from taskplace.spark.worker.hashing import ANY, partitions_of

SAMPLED = 64
#: Kafka's column with the number of a record in its partition. Errors name it if the rows have it.
OFFSET = "offset"
#: The digits of a key's hash in an error: enough to find the key among those of a partition.
DIGITS = 8


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
            hint="drop such rows before; or repartition the rows by another column before the state; or set "
            "check_keys to false, and each partition has a state of its own for them",
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
        if OFFSET in sampled.column_names:
            place, which = f", offset {sampled[OFFSET][at].as_py()}", ""
        else:
            place, which = "", f" {_described(keys[at].as_py())}"
        raise InputError(
            f"topic {self.topic!r}, partition {partition}{place}",
            found=f"a key{which} that belongs to partition {found[at]} of {self.partitions} by {self.partitioner} "
            f"({len(wrong)} of {len(found)} sampled keys belong elsewhere)",
            expected=f"keys that their producers put into the partition of the key by {self.partitioner}; otherwise "
            "the rows of one key reach several tasks",
            hint="name the partitioner of the producers as key_partitioner; if they use several, or the topic got "
            "more partitions, repartition the rows by the key instead of using partition_column; if the producers "
            "choose partitions in another way, and equal keys meet all the same, set check_keys to false",
        )


def _described(key: bytes) -> str:
    """Return what tells a key from others without showing it.

    >>> _described(b"N14228")
    'of 6 bytes, whose SHA-256 begins with b54635a3,'
    """
    return f"of {len(key)} bytes, whose SHA-256 begins with {hashlib.sha256(key).hexdigest()[:DIGITS]},"
