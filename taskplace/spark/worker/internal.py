"""The rows of internal topics that a bin reads from boundary files, by task and by topic.

**Idea.** Each file is opened once for all tasks of a bin. In memory, the slices of a task follow the schema of their
writers, one after the other. So they form one Arrow stream, which is decoded in one call. If the writers have several
schemas, neighbouring writers of one schema share a stream, because the rows must stay in the order of the writers.

Memory: the rows of the bin. `driver/bins.py` limits those of several tasks together, and a task checks its own before
they are read (`size_of`). Beside them, the listing of the stage.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from taskplace.errors import CheckpointError, TaskplaceError
from taskplace.spark.casts import conformed, united
from taskplace.spark.checkpoint.files import READ
from taskplace.spark.messages import ListingHead, Setting
from taskplace.spark.state.keys import crc32
from taskplace.spark.worker.boundary import TopicListing, read_listing


class InternalRows:
    """The rows of a bin. They are read when the first task asks for its own.

    `partitions`: of the tasks that will ask.
    Errors: `CheckpointError` for a missing or damaged file; `InputError` if the writers' columns cannot be united;
    `TaskplaceError` for a partition that is not in the bin.
    """

    def __init__(self, setting: Setting, topics: Sequence[str], partitions: Collection[int]) -> None:
        self._setting, self._topics, self.partitions = setting, topics, frozenset(partitions)
        self._rows: dict[str, _TopicRows] = {}

    def size_of(self, partition: int) -> int:
        """Return the bytes of a partition's rows, as they were written, before they are read."""
        return sum(int(self._listed(topic).of((partition,))["length"].sum()) for topic in self._topics)

    def of(self, partition: int) -> dict[str, pa.Table]:
        """Return the rows of one partition by topic, in the order of their writers."""
        if partition not in self.partitions:
            raise TaskplaceError(
                f"batch {self._setting.batch}: partition {partition} is not in the bin of "
                f"{sorted(self.partitions)}"
            )
        if not self._rows:
            self._rows = {topic: self._read(topic) for topic in self._topics}
        return {topic: rows.of(partition) for topic, rows in self._rows.items()}

    @property
    def nbytes(self) -> int:
        """The bytes of the rows as they were written; 0 before they are read."""
        return sum(rows.nbytes for rows in self._rows.values())

    def _read(self, topic: str) -> _TopicRows:
        return _TopicRows(Path(self._setting.checkpoint), topic, self._listed(topic), self.partitions)

    def _listed(self, topic: str) -> TopicListing:
        listing = self._setting.inputs
        listed = (
            read_listing(Path(self._setting.checkpoint), listing).get(topic) if listing is not None else None
        )
        if listed is None or not listed.head.writers:
            raise CheckpointError(f"internal topic {topic!r} has no boundary file")
        return listed


class _TopicRows:
    """The rows of one topic for the partitions of a bin."""

    def __init__(self, root: Path, topic: str, listed: TopicListing, partitions: Collection[int]) -> None:
        head = listed.head
        self._where = f"repartition {topic!r}"
        # Writers of one schema need no uniting among themselves, so the first one stands for them.
        first = [head.writers[head.written_as.index(number)] for number in range(len(head.schemas))]
        schemas = [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in head.schemas]
        names = [f"task {task}" for task in first]
        self._schema = united(list(zip(names, schemas, strict=True)), self._where)
        self._streams: dict[int, list[pa.Buffer]] = {}
        mine = listed.of(partitions)
        if len(mine):
            self._read(root, head, mine)

    def of(self, partition: int) -> pa.Table:
        """Return the rows of a partition, under the schema that holds the rows of every writer."""
        tables = [
            conformed(pa.ipc.open_stream(stream, options=READ).read_all(), self._schema, self._where)
            for stream in self._streams.get(partition, ())
        ]
        return pa.concat_tables(tables) if tables else self._schema.empty_table()

    @property
    def nbytes(self) -> int:
        """The bytes that are held."""
        return sum(stream.size for streams in self._streams.values() for stream in streams)

    def _read(self, root: Path, head: ListingHead, mine: npt.NDArray[Any]) -> None:
        """Read slices, which are sorted by partition and then by writer, into streams.

        A stream has a schema, and behind it the slices of neighbouring writers with this schema for one partition.
        """
        written_as = np.array(head.written_as)
        # By slice: the run of writers with one schema that its writer is in. A new stream begins with each new run.
        run = np.cumsum(np.diff(written_as, prepend=written_as[0]) != 0)[mine["writer"]]
        begins = np.ones(len(mine), bool)
        begins[1:] = (np.diff(mine["partition"]) != 0) | (np.diff(run) != 0)
        firsts = np.flatnonzero(begins)
        stream = np.cumsum(begins) - 1
        # By slice: its place in its stream, in bytes behind the schema.
        before = np.cumsum(mine["length"]) - mine["length"]
        at = before - before[firsts][stream]
        views = []
        for first, size in zip(firsts, np.add.reduceat(mine["length"], firsts).tolist(), strict=True):
            schema = head.schemas[written_as[mine["writer"][first]]]
            buffer = pa.allocate_buffer(len(schema) + size)
            view = memoryview(buffer).cast("B")
            view[: len(schema)] = schema
            views.append(view[len(schema) :])
            self._streams.setdefault(int(mine["partition"][first]), []).append(buffer)
        # Each file is read once, from its beginning to its end.
        file = np.array(head.written_to)[mine["writer"]]
        order = np.lexsort((mine["offset"], file))
        columns = (stream, at, *(mine[name] for name in ("partition", "offset", "length", "rows", "crc")))
        slices = zip(*(column[order].tolist() for column in (file, *columns)), strict=True)
        _read_slices(root, head.files, slices, views)


def _read_slices(
    root: Path, files: Sequence[str], slices: Iterator[tuple[int, ...]], streams: Sequence[memoryview]
) -> None:
    """Read slices to their places in the streams. They are sorted by file and then by offset.

    A slice: the file, the stream, the place in it, the partition, the offset in the file, the length, rows, and CRC.
    """
    for number, of_one in groupby(slices, itemgetter(0)):
        path = root / files[number]
        pieces = list(of_one)
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # a pipe would block its reader
                raise CheckpointError(f"{path}: it is not a file")
            file = path.open("rb")
        except FileNotFoundError:
            partition, rows = pieces[0][3], pieces[0][6]
            raise CheckpointError(
                f"{path}: the file is missing; it has {rows} rows of partition {partition}"
            ) from None
        with file:
            for _, stream, at, partition, offset, length, _, crc in pieces:
                place = streams[stream][at : at + length]
                file.seek(offset)
                if file.readinto(place) != length or crc32(place) != crc:
                    raise CheckpointError(f"{path}: the slice of partition {partition} is damaged")
