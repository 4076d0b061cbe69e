"""The rows that pass from one subtopology to the next: files that the attempts of a bin write, and readers of them.

**Writing.** The attempts of a bin write one file for each topic, one after the other. Each attempt writes one slice for
each partition: it hashes the rows as Spark would, and writes the partitions one after the other. The rows are files,
not an RDD, so nothing downstream can make Spark run a stateful task again. A slice is an Arrow stream without its
schema, which is the same for all slices of an attempt.

**Listing.** A stage with N writers and P readers has up to N * P slices. As messages, a million of them would cost each
worker half a second and 200 MB. So the driver writes one file: the length of its head (8 bytes, little-endian), the
head as JSON (a `ListingHead` for each topic), and the slices of each topic as an array (`SLICE`), sorted by partition
and then by writer.

**Reading.** The reader of a partition reads its slice of every *winning* attempt. Each file is opened once for all
tasks of a bin. In memory, the slices of a task follow the schema of their writers, one after the other. So they form
one Arrow stream, which is decoded in one call. If the writers have several schemas, neighbouring writers of one schema
share a stream, because the rows must stay in the order of the writers.

Memory: the rows of the bin, and the listing of the stage. `driver/bins.py` limits the rows of several tasks together,
and a task checks its own before they are read (`size_of`).
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from taskplace.errors import CheckpointError, InputError, TaskplaceError
from taskplace.groups.partitioner import PartitionerConfig, UniformStickyPartitioner
from taskplace.spark.casts import conformed, united
from taskplace.spark.checkpoint.files import READ, SectionFile, read_sealed, write_file, write_options
from taskplace.spark.codec import checksum_of, decoded, encoded
from taskplace.spark.messages import Boundary, ListingFile, ListingHead, Setting, Slice
from taskplace.spark.state.keys import crc32
from taskplace.spark.worker.hashing import hashed_as, partition_of

TURNS = 16

#: One slice, with the position of its writer in `ListingHead.writers`.
SLICE = np.dtype(
    [
        ("partition", "<i4"),
        ("writer", "<i4"),
        ("offset", "<i8"),
        ("length", "<i8"),
        ("rows", "<i8"),
        ("crc", "<u4"),
    ]
)


def write(
    file: SectionFile,
    rows: pa.Table,
    key: Sequence[str],
    partitions: int,
    *,
    seed: int = 0,
    topic: str = "",
    task: str = "",
) -> Boundary:
    """Append `rows` by partition of their key to `file`; write nothing without rows. O(bytes).

    Without a key, rows are spread evenly in runs; `seed` decides the order. `topic` and `task` are for errors.
    Errors: `InputError` for a missing key column, or one of a type that cannot be hashed.
    """
    where = f"repartition {topic!r}" if topic else "repartition"
    if rows.num_rows and (missing := set(key) - set(rows.column_names)):
        raise InputError(where, found=f"no column {sorted(missing)}", expected=f"one of {rows.column_names}")
    rows = rows.combine_chunks()
    schema = rows.schema.serialize().to_pybytes()
    if not rows.num_rows:
        return Boundary("", schema, {}, task=task)
    if key:
        columns, paths = [_hashable(rows[name]) for name in key], [f"{where}, key {name!r}" for name in key]
    numbers = partition_of(columns, partitions, paths) if key else _spread(rows, partitions, seed)
    order = np.argsort(numbers, kind="stable")  # stable: rows of a partition keep their order
    rows = rows.take(pa.array(order))
    edges = np.searchsorted(numbers[order], np.arange(partitions + 1))
    data, slices = _encoded(rows, edges.tolist(), len(schema))
    # Not synced: it is needed only until this batch is committed, and made again after a crash.
    start = file.append(data)
    return Boundary(
        file=file.name,
        schema=schema,
        slices={
            partition: replace(piece, offset=start + piece.offset) for partition, piece in slices.items()
        },
        key=tuple(hashed_as(rows.schema.field(name).type) for name in key),
        task=task,
    )


def _encoded(rows: pa.Table, edges: Sequence[int], schema: int) -> tuple[pa.Buffer, dict[int, Slice]]:
    """Return the bytes of an attempt, and the slices in them. `schema` is the length of the encoded schema."""
    out = pa.BufferOutputStream()
    places: dict[int, tuple[int, int, int]] = {}
    stream = None
    for partition, (start, end) in enumerate(pairwise(edges)):
        if start == end:
            continue
        at = out.tell()
        # Each slice needs the dictionaries of its columns. A stream has them once, so each slice gets its own stream.
        if stream is None or stream.stats.num_dictionary_batches:
            stream = pa.ipc.new_stream(out, rows.schema, options=write_options(None))
            at += schema
        stream.write_table(rows.slice(start, end - start))
        places[partition] = (at, out.tell() - at, end - start)
    data = out.getvalue()
    view = memoryview(data)
    return data, {
        p: Slice(at, size, count, crc32(view[at : at + size])) for p, (at, size, count) in places.items()
    }


def _hashable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a key column in a type that can be hashed. A column without a type has only nulls, so any type will do."""
    return column.cast(pa.int32()) if pa.types.is_null(column.type) else column


def _spread(rows: pa.Table, partitions: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the partitions of rows without a key, in turns measured in bytes (KIP-794).

    A turn is Kafka's `batch.size`, or less, so that each partition gets several turns of these rows.
    """
    sizes = _bytes(rows)
    turn = min(PartitionerConfig().turn, max(1, int(sizes.sum()) // (TURNS * partitions)))
    partitioner = UniformStickyPartitioner(partitions, PartitionerConfig(sticky_batch_size=turn), seed=seed)
    return partitioner.assign(sizes)


def _bytes(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Return the size of each row in bytes: its texts and binaries, and the average of the other columns."""
    total = np.full(rows.num_rows, 1, np.int64)
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            total += pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
        else:
            total += column.nbytes // rows.num_rows
    return total


@dataclass(frozen=True)
class TopicListing:
    """The slices of one internal topic: the driver lists them, and the bins of a stage choose theirs.

    `slices` is an array of `SLICE`, sorted by partition and then by writer.
    """

    head: ListingHead
    slices: npt.NDArray[Any]

    def of(self, partitions: Iterable[int]) -> npt.NDArray[Any]:
        """Return the slices of some partitions, in their order. O(partitions + their slices)."""
        known = range(len(self._starts) - 1)
        parts = [
            self.slices[self._starts[one] : self._starts[one + 1]]
            for one in sorted(partitions)
            if one in known
        ]
        return np.concatenate(parts) if parts else self.slices[:0]

    @cached_property
    def _starts(self) -> list[int]:
        """By partition, where its slices begin; at the end, where those of the last one end."""
        partitions = np.ascontiguousarray(self.slices["partition"])
        edges = np.arange(partitions[-1] + 2 if len(partitions) else 1, dtype=partitions.dtype)
        return np.searchsorted(partitions, edges).tolist()


def write_listing(root: Path, file: str, topics: Mapping[str, Sequence[Boundary]]) -> ListingFile:
    """Write the list of boundaries that a stage reads, by topic. O(n log n) for n slices."""
    listed = {topic: _listed(boundaries) for topic, boundaries in topics.items()}
    heads = encoded({topic: one.head for topic, one in listed.items()})
    data = b"".join(
        [len(heads).to_bytes(8, "little"), heads, *(one.slices.tobytes() for one in listed.values())]
    )
    write_file(root / file, data, sync=False)  # not synced, like the files that it lists
    return ListingFile(file, len(data), checksum_of(data))


@lru_cache(maxsize=1)  # all bins of a stage that a worker runs read the same list
def read_listing(root: Path, listing: ListingFile) -> Mapping[str, TopicListing]:
    """Return the slices by topic. Errors: `CheckpointError` for a missing or damaged file."""
    data = memoryview(read_sealed(root / listing.file, listing.size, listing.checksum))
    at = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for topic, head in decoded(dict[str, ListingHead], bytes(data[8:at])).items():
        found[topic] = TopicListing(head, np.frombuffer(data, SLICE, head.slices, at))
        at += found[topic].slices.nbytes
    return found


def _listed(boundaries: Sequence[Boundary]) -> TopicListing:
    # Only writers with rows count: an empty table may lack columns, or have wrong types.
    some = [boundary for boundary in boundaries if boundary.slices] or list(boundaries[:1])
    schemas = {schema: number for number, schema in enumerate(dict.fromkeys(one.schema for one in some))}
    files = {file: number for number, file in enumerate(dict.fromkeys(one.file for one in some))}
    slices = np.fromiter(
        (
            (partition, writer, piece.offset, piece.length, piece.rows, piece.crc)
            for writer, boundary in enumerate(some)
            for partition, piece in boundary.slices.items()
        ),
        SLICE,
    )
    head = ListingHead(
        writers=tuple(one.task for one in some),
        files=tuple(files),
        schemas=tuple(schemas),
        written_to=tuple(files[one.file] for one in some),
        written_as=tuple(schemas[one.schema] for one in some),
        slices=len(slices),
    )
    return TopicListing(head, slices[np.argsort(slices["partition"], kind="stable")])


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
            root = Path(self._setting.checkpoint)
            self._rows = {t: _TopicRows(root, t, self._listed(t), self.partitions) for t in self._topics}
        return {topic: rows.of(partition) for topic, rows in self._rows.items()}

    @property
    def nbytes(self) -> int:
        """The bytes of the rows as they were written; 0 before they are read."""
        return sum(rows.nbytes for rows in self._rows.values())

    def _listed(self, topic: str) -> TopicListing:
        root, listing = Path(self._setting.checkpoint), self._setting.inputs
        listed = read_listing(root, listing).get(topic) if listing is not None else None
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
        """The bytes of the rows as they were written."""
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
