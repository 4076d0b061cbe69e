"""The protocol of a reader: what a task needs to read a topic's rows itself, instead of getting them from Spark.

**Idea.** Spark brings a task only the ranges that it has to read, as rows of `RANGES`. The task reads them, wherever it
runs and however often it is repeated: a range has the same records each time. Spark's own checkpoint has the offsets
between two batches, as the JSON of a `StreamOffset`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa

from taskplace.errors import InputError
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

#: Gets records with the columns `key` and `offset`, part by part. Raises `InputError` for what is wrong with them.
Check = Callable[[pa.Table], None]


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
