"""The rows of external topics that Spark brings to a bin, by task and by topic.

**Idea.** Spark brings the rows of a bin's tasks together, those of all topics united: the column `PARTITION` has the
partition of a row, and `TAG` its topic. Each task gets its own rows, in the order in which Spark brought them.

Memory: the rows of the bin, and those of one task; twice the rows of the bin while they are decoded. Splitting is
O(n log n) for n rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import CheckpointError, InputError, TaskplaceError
from taskplace.spark.messages import Setting

#: The column of the united input that names the source of a row.
TAG = "__topic"
#: The column of the input with the partition of a row.
PARTITION = "__partition"


class ExternalRows:
    """The rows of a bin. They are read and decoded when the first task asks for its own.

    Errors: `TaskplaceError` for rows of partitions that are not in the bin.
    """

    def __init__(self, setting: Setting, partitions: set[int], batches: Iterable[bytes]) -> None:
        if setting.schema is None:
            raise CheckpointError("the schema of the external input is missing")
        self._schema = pa.ipc.read_schema(pa.py_buffer(setting.schema))
        self._setting, self.partitions = setting, partitions
        self._batches: Iterable[bytes] | None = batches
        self._rows: pa.Table
        self._order: npt.NDArray[np.int64]
        self._numbers: npt.NDArray[np.int32]

    def of(self, partition: int) -> pa.Table:
        """Return the rows of one partition, in the order in which Spark brought them."""
        if self._batches is not None:
            self._read(self._batches)
            self._batches = None
        if len(self.partitions) == 1:
            return self._rows
        start, end = np.searchsorted(self._numbers, [partition, partition + 1])
        return self._rows.take(pa.array(self._order[start:end]))

    @property
    def nbytes(self) -> int:
        """The bytes of the decoded rows; 0 before they are decoded."""
        return self._rows.nbytes if self._batches is None else 0

    def _read(self, batches: Iterable[bytes]) -> None:
        parts = [pa.ipc.read_record_batch(pa.py_buffer(batch), self._schema) for batch in batches]
        united = pa.Table.from_batches(parts, self._schema)
        at = self._schema.get_field_index(PARTITION)
        numbers = united.column(at).to_numpy()
        if others := set(np.unique(numbers).tolist()) - self.partitions:
            raise TaskplaceError(
                f"batch {self._setting.batch}: a bin of partitions {sorted(self.partitions)} got rows of "
                f"{sorted(others)}"
            )
        self._rows = united.remove_column(at)
        if len(self.partitions) > 1:
            self._rows = self._rows.combine_chunks()
            self._order = np.argsort(numbers, kind="stable")  # stable: a task's rows keep their order
            self._numbers = numbers[self._order]


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
