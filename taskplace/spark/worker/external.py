"""The rows of external topics that Spark brings to a bin, by task and by topic.

**Idea.** Spark brings the rows of a bin's tasks together, those of all topics united: the column `PARTITION` has the
partition of a row, and `TAG` its topic. Each task gets its own rows, in the order in which Spark brought them.

Spark sends pairs of byte strings (`with_batches`): the bin's element, which is the same in all of them, and one Arrow
batch of its rows. A bin without rows has one pair, with an empty batch. Pairs of byte strings go to Python as they are.
A list of batches would be pickled in the executor's JVM, which holds it several times over while it does.

Memory: the rows of the bin, and those of one task; twice the rows of the bin while they are decoded. Once a task of the
bin has more than `runtime.bytes.per.task`, no rows are kept any more. The other batches are only counted, so that the
error says how large the limit would have to be. Splitting is O(n log n) for n rows.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import CheckpointError, InputError, TaskplaceError
from taskplace.spark.messages import Setting
from topology import TaskId

#: The column of the united input that names the source of a row.
TAG = "__topic"
#: The column of the input with the partition of a row.
PARTITION = "__partition"

#: The column with the dead letter of a bad record.
DEAD_LETTER = "dead_letter"
#: The fields of a dead letter: the reason, and the record as it was.
LETTER_FIELDS = ("reason", "key", "value", "topic", "partition", "offset", "timestamp", "headers")
Pairs = Iterable[tuple[bytes, bytes]]


class ExternalRows:
    """The rows of a bin. They are read and decoded when the first task asks for its own.

    - `partitions`: of the tasks of `subtopology` that are in the bin
    - `batches`: what Spark brings; read once
    - `skipped`: partitions of other tasks, whose rows are dropped
    """

    def __init__(
        self,
        setting: Setting,
        subtopology: int,
        partitions: Collection[int],
        batches: Iterable[bytes],
        *,
        skipped: Collection[int] = (),
    ) -> None:
        if setting.schema is None:
            raise CheckpointError("the schema of the external input is missing")
        self._schema = pa.ipc.read_schema(pa.py_buffer(setting.schema))
        self._at = self._schema.get_field_index(PARTITION)
        self._setting, self._subtopology, self.partitions = setting, subtopology, frozenset(partitions)
        self._skipped = np.array(sorted(skipped), np.int32)
        self._batches: Iterable[bytes] | None = batches
        self._rows: pa.Table
        self._order: npt.NDArray[np.int64]
        self._ranges: dict[int, tuple[int, int]] = {}  # by partition, its part of `_order`

    def of(self, partition: int, beside: int = 0) -> pa.Table:
        """Return the rows of one partition, in the order in which Spark brought them.

        `beside`: the bytes of other input that this partition has.
        Errors, when the first task asks: `TaskplaceError` for rows of partitions that are not in the bin; `InputError`
        for a task with more than `runtime.bytes.per.task`.
        """
        if self._batches is not None:
            batches, self._batches = self._batches, None
            self._read(self._gathered(batches, Counter({partition: beside})))
        if len(self.partitions) == 1:
            return self._rows
        start, end = self._ranges[partition]
        return self._rows.take(pa.array(self._order[start:end]))

    @property
    def nbytes(self) -> int:
        """The bytes of the decoded rows; 0 before they are decoded."""
        return self._rows.nbytes if self._batches is None else 0

    def _gathered(self, batches: Iterable[bytes], sizes: Counter[int]) -> list[pa.RecordBatch]:
        """Return the decoded batches. `sizes`: the bytes that tasks have already.

        Errors: `InputError` for a task that has too much then; by that time it has all its bytes counted.
        """
        most = self._setting.bytes_per_task
        left, parts, measured = iter(batches), list[pa.RecordBatch](), 0
        together = sizes.total()
        for batch in left:
            parts.append(self._decoded(batch))
            together += parts[-1].nbytes
            if together <= most:
                continue
            while measured < len(parts):
                sizes.update(self._sizes_in(parts[measured]))
                measured += 1
            if large := sorted(one for one in self.partitions if sizes[one] > most):
                parts.clear()
                for rest in left:
                    sizes.update(self._sizes_in(self._decoded(rest)))
                check_size(sizes[large[0]], str(TaskId(self._subtopology, large[0])), most)
        return parts

    def _decoded(self, batch: bytes) -> pa.RecordBatch:
        """Decode a batch, without the rows that are dropped."""
        rows = pa.ipc.read_record_batch(pa.py_buffer(batch), self._schema)
        if not len(self._skipped):
            return rows
        dropped = np.isin(rows.column(self._at).to_numpy(), self._skipped)
        return rows.filter(pa.array(~dropped)) if dropped.any() else rows

    def _sizes_in(self, batch: pa.RecordBatch) -> dict[int, int]:
        """Return the bytes of each partition's rows in a batch."""
        numbers, rows = batch.column(self._at).to_numpy(), batch.remove_column(self._at)
        found = np.unique(numbers).tolist()
        if len(found) == 1:
            return {found[0]: rows.nbytes}
        return {one: rows.take(pa.array(np.flatnonzero(numbers == one))).nbytes for one in found}

    def _read(self, parts: list[pa.RecordBatch]) -> None:
        united = pa.Table.from_batches(parts, self._schema)
        numbers = united.column(self._at).to_numpy()
        mine = np.array(sorted(self.partitions), numbers.dtype)
        if len(numbers) and not mine[0] <= numbers.min() <= numbers.max() <= mine[-1]:
            raise self._others(numbers)
        self._rows = united.remove_column(self._at)
        if len(mine) > 1:
            self._rows = self._rows.combine_chunks()
            # NumPy sorts numbers of 8 and 16 bits in a fraction of the time that larger ones take.
            small = np.min_scalar_type(mine[-1])
            numbers, mine = numbers.astype(small), mine.astype(small)
            self._order = np.argsort(numbers, kind="stable")  # stable: a task's rows keep their order
            sides = (np.searchsorted(numbers, mine, side, sorter=self._order) for side in ("left", "right"))
            self._ranges = dict(
                zip(mine.tolist(), zip(*(side.tolist() for side in sides), strict=True), strict=True)
            )
            if sum(end - start for start, end in self._ranges.values()) < len(numbers):
                raise self._others(numbers)

    def _others(self, numbers: npt.NDArray[np.int32]) -> TaskplaceError:
        """Return the error for rows of partitions that are not in the bin."""
        others = set(np.unique(numbers).tolist()) - self.partitions
        return TaskplaceError(
            f"batch {self._setting.batch}: a bin of partitions {sorted(self.partitions)} got rows of {sorted(others)}"
        )


def by_topic(rows: pa.Table, topics: Mapping[str, int]) -> dict[str, pa.Table]:
    """Return a task's rows by topic. `topics` has the tag of each; the rows of a single source have no tag."""
    if TAG not in rows.column_names:
        return dict.fromkeys(topics, rows)
    return {topic: _untagged(rows, tag, topic) for topic, tag in topics.items()}


def check_size(size: int, task: str, most: int) -> None:
    """Check the bytes of a task's input. Errors: `InputError` for more than `most`."""
    if size > most:
        raise InputError(
            f"task {task}",
            found=f"{size} bytes of input in one batch",
            expected=f"at most runtime.bytes.per.task = {most}",
            hint="raise the limit, because Spark repeats this batch unchanged; then make batches smaller",
        )


def _untagged(united: pa.Table, tag: int, topic: str) -> pa.Table:
    rows = united.filter(pc.equal(united[TAG], tag)) if united.num_rows else united
    struct = rows[topic]
    fields = struct.type.fields
    if not rows.num_rows:
        return pa.schema(fields).empty_table()
    return pa.Table.from_batches(
        [pa.RecordBatch.from_struct_array(chunk) for chunk in struct.chunks], pa.schema(fields)
    )


def bad_records(rows: Mapping[str, pa.Table]) -> dict[str, int]:
    """Return the number of bad records of each topic that has any.

    >>> letter = pa.array([None, {"reason": "JSON"}], pa.struct([(name, pa.string()) for name in LETTER_FIELDS]))
    >>> bad_records({"a": pa.table({"dead_letter": letter}), "b": pa.table({"dead_letter": ["a user's own"]})})
    {'a': 1}
    """
    found = {}
    for topic, table in rows.items():
        if DEAD_LETTER not in table.column_names:
            continue
        letters = table[DEAD_LETTER]
        if pa.types.is_struct(letters.type) and tuple(letters.type.names) == LETTER_FIELDS:
            found[topic] = len(letters) - letters.null_count
    return {topic: number for topic, number in found.items() if number}


def with_batches(function: Callable[[Iterator[Any]], Iterable[Any]], pairs: Pairs) -> Iterator[Any]:
    """Call `function` with one element: a pair of the bin and its batches, which can be read once.

    Errors: `TaskplaceError` if Spark sends nothing, although its statistics say that there are rows.

    >>> list(with_batches(lambda bins: [(bin_, list(rows)) for bin_, rows in bins], [(b"bin", b"1"), (b"bin", b"2")]))
    [(b'bin', [b'1', b'2'])]
    >>> list(with_batches(lambda bins: [(bin_, list(rows)) for bin_, rows in bins], [(b"bin", b"")]))
    [(b'bin', [])]
    """
    left = iter(pairs)
    first = next(left, None)
    if first is None:
        raise TaskplaceError(
            "a bin: found no rows in its range of the shuffle, expected some by Spark's statistics"
        )
    element, read = first[0], chain((first,), left)
    del first  # its batch is held only until it is read
    batches = (batch for _, batch in read if batch)
    yield from function(iter([(element, batches)]))
    deque(batches, maxlen=0)  # Spark ends a worker that has not read all of its input
