"""The protocol of a reader: what a task needs to read a topic's rows itself, instead of getting them from Spark.

**Idea.** Spark brings a task only the ranges that it has to read, as rows of `RANGES`. The task reads them, wherever it
runs and however often it is repeated: a range has the same records each time. Spark's own checkpoint has the offsets
between two batches, as the JSON of a `StreamOffset`.

Spark writes the offsets of a batch before the batch runs, so a task cannot ask for fewer rows. Rows above a limit go to
a file of Arrow, which is mapped into memory (`CollectedRows`): the system reads what is used, and drops it again when
memory is short.
"""

from __future__ import annotations

import logging
import mmap
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Protocol

import msgspec
import pyarrow as pa

from taskplace.errors import InputError
from taskplace.logs import RepeatedWarnings
from taskplace.spark.codec import decoded, read_file
from taskplace.spark.messages import TopicRead

#: A range of a partition: the offsets from `start` to before `end`. `topic_id`: the broker's id of the topic.
#: `backlog`: the topic's partitions with records behind the ranges of the batch; the same in all its rows.
RANGES = pa.schema(
    [
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("backlog", pa.list_(pa.int32())),
    ]
)


class StreamOffset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a batch: the topic's id, and by partition the offset that comes next.

    `begins`: where the batch begins, if not where the one before has ended: records there were gone
    """

    topic_id: str
    offsets: Mapping[int, int]
    begins: Mapping[int, int] = {}


def stream_offsets(path: Path) -> list[StreamOffset]:
    """Return the offsets of streams of ranges in a file of Spark's log, which has a line for each source."""
    found = []
    with suppress(OSError, ValueError):
        for line in read_file(path).decode(errors="replace").splitlines():
            with suppress(ValueError):
                found.append(decoded(StreamOffset, line))
    return found


#: Gets records with the columns `key` and `offset`, part by part. Raises `InputError` for what is wrong with them.
Check = Callable[[pa.Table], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSetting:
    """How a task reads a topic.

    - `most`: the bytes of rows that may be in memory; `folder`: a directory of the executor, for rows above that
    - `check`: by partition, start and end of a range, what looks at its records before they are decoded
    - `times`: filled by the reader: by partition, the timestamp of the last record in milliseconds, if it has one
    - `needs_key`: whether a record without a key is a bad one, because state is kept by the key
    """

    most: int
    folder: Path
    check: Callable[[int, int, int], Check] | None = None
    times: dict[int, int] = field(default_factory=dict)
    needs_key: bool = False


class TopicReader(Protocol):
    """Reads ranges of a topic."""

    @property
    def goes_on(self) -> bool:
        """Whether the stream goes on without records that are gone."""
        ...

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows."""
        ...

    def read(self, ranges: pa.Table, setting: ReadSetting) -> pa.Table:
        """Return the rows of ranges. Errors: `InputError`, also those of `setting.check`."""
        ...

    def check_id(self, topic_id: str) -> None:
        """Refuse a topic that does not have this id now. The driver asks this after a batch was read.

        Errors: `InputError` for another id, and for a topic that is missing.
        """
        ...

    # The driver asks these beside the batches, from one thread.

    def ends(self) -> tuple[str, Mapping[int, int]]:
        """Return the topic's id, and by partition the offset behind what may be read now. Errors: `InputError`."""
        ...

    def first_newer(self, times: Mapping[int, int]) -> Mapping[int, tuple[int, int]]:
        """Return by partition the first record that is newer than so many milliseconds, as offset and timestamp.

        A partition without one is left out. Errors: `InputError`.
        """
        ...

    def commit(self, positions: Mapping[int, int]) -> None:
        """Commit by partition the offset that comes next, if the reader is to do so. Errors: `InputError`."""
        ...


def read_of(
    topic: str, ranges: pa.Table, rows: int, times: Mapping[int, int] | None = None
) -> dict[str, TopicRead]:
    """Return what was read of a topic, by the topic; nothing without a range. `rows`: the number of records.

    Several ranges of a partition have to follow each other. Errors: `InputError` for ranges with a gap between them,
    ranges that overlap, and ranges of two topics.

    >>> ranges = pa.Table.from_pylist(
    ...     [{"topic_id": "x", "partition": 3, "start": 5, "end": 9},
    ...      {"topic_id": "x", "partition": 3, "start": 0, "end": 5}], RANGES)
    >>> read_of("t", ranges, 8)["t"].ends
    {3: 9}
    """
    by_partition: dict[int, list[tuple[int, int]]] = {}
    for each in ranges.to_pylist():
        by_partition.setdefault(each["partition"], []).append((each["start"], each["end"]))
    for partition, of in by_partition.items():
        of.sort()
        if any(before[1] != after[0] for before, after in pairwise(of)):
            raise InputError(
                f"topic {topic!r}, partition {partition}",
                found=f"the ranges {of} in one batch",
                expected="ranges that follow each other",
                hint="use the data frame of the topic as it is, and only once",
            )
    ids = sorted(set(ranges["topic_id"].to_pylist()))
    if len(ids) > 1:
        raise InputError(
            f"topic {topic!r}", found=f"ranges of the topic ids {ids}", expected="those of one topic"
        )
    starts = {partition: of[0][0] for partition, of in by_partition.items()}
    ends = {partition: of[-1][1] for partition, of in by_partition.items()}
    backlog = tuple(sorted({p for each in ranges["backlog"].to_pylist() for p in each or ()}))
    return {topic: TopicRead(ids[0], starts, ends, rows, times=times or {}, backlog=backlog)} if ids else {}


log = logging.getLogger(__name__)

#: By what is read, and the folder. A worker process reads many batches.
_REPEATED = RepeatedWarnings()


class CollectedRows:
    """Rows of one schema.

    - `columns`: the schema; `most`: the bytes of rows in memory; `folder`: where a file is made, if one is needed
    - `what`: what is read, for the log

    >>> rows = CollectedRows(pa.schema([("n", pa.int64())]), most=100, folder=Path("."), what="topic 'numbers'")
    >>> for first in (0, 10, 20):
    ...     rows.add(pa.table({"n": range(first, first + 10)}))
    >>> rows.table()["n"].to_pylist() == list(range(30)), rows.in_file
    (True, 160)
    """

    def __init__(self, columns: pa.Schema, *, most: int, folder: Path, what: str) -> None:
        self._columns, self._most, self._folder, self._what = columns, most, folder, what
        self._kept: list[pa.Table] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        #: The bytes of the rows that are in the file.
        self.in_file = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows behind the others. O(bytes)."""
        if self._writer is None and self._bytes + rows.nbytes <= self._most:
            self._bytes += rows.nbytes
            self._kept.append(rows)
            return
        if self._writer is None:
            self._writer = self._opened()
        self._writer.write_table(rows)
        self.in_file += rows.nbytes

    def table(self) -> pa.Table:
        """Return all rows. Nothing can be added then."""
        if self._writer is None or self._file is None:
            return pa.concat_tables([self._columns.empty_table(), *self._kept])
        self._writer.close()
        self._file.flush()
        size = (
            f"{self._bytes + self.in_file} bytes of rows in one batch, of which {self.in_file} are in a file"
        )
        _REPEATED.warn(
            log,
            "%s: %s in %s; a task keeps at most runtime.bytes.per.task = %d in memory. Make batches smaller with "
            "most_records, or use more partitions",
            self._what, size, self._folder, self._most, key=(self._what, self._folder),
        )  # fmt: skip
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._file.close()  # the mapping keeps the file
        return pa.concat_tables([*self._kept, pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()])

    def _opened(self) -> pa.RecordBatchStreamWriter:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  closed when it is mapped
        return pa.ipc.new_stream(self._file, self._columns)
