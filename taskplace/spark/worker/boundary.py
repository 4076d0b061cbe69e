"""Boundary files: the rows that pass from one subtopology to the next, one file per attempt, one slice per partition.

A boundary file implements the repartition topic. The writer hashes the rows as Spark would, and writes the partitions
one after the other. The reader of a partition reads its slice of every *winning* attempt's file. The rows are files,
not an RDD, so nothing downstream can make Spark run a stateful task again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import CheckpointError, InputError
from taskplace.partitioner import PartitionerConfig, UniformStickyPartitioner
from taskplace.spark.codec import checksum_of, decoded, encoded
from taskplace.spark.messages import Boundary, Listing, Slice
from taskplace.spark.state.files import READ, read_sealed, write_file, write_options
from taskplace.spark.worker.hashing import hashed_as, partition_of
from taskplace.spark.worker.unify import conformed, united

TURNS = 16


def write_listing(root: Path, file: str, topics: Mapping[str, Sequence[Boundary]]) -> Listing:
    """Write the list of boundaries that a stage reads; it has a slice for each pair of writer and reader."""
    data = encoded(topics)
    write_file(root / file, data, sync=False)  # not synced, like the files that it lists
    return Listing(file, len(data), checksum_of(data))


@lru_cache(maxsize=1)  # all tasks of a stage read the same list
def read_listing(root: Path, listing: Listing) -> Mapping[str, Sequence[Boundary]]:
    """Return the boundaries of a list. Errors: `CheckpointError` for a missing or damaged file."""
    data = read_sealed(root / listing.file, listing.size, listing.checksum).to_pybytes()
    return decoded(dict[str, tuple[Boundary, ...]], data)


def write(
    root: Path,
    file: str,
    rows: pa.Table,
    key: Sequence[str],
    partitions: int,
    seed: int = 0,
    topic: str = "",
) -> Boundary:
    """Write `rows` by partition of their key into `root/file`; write no file without rows. O(bytes).

    Without a key, rows are spread evenly in runs; `seed` decides the order. `topic` is for errors.
    Errors: `InputError` for a missing key column, or one of a type that cannot be hashed.
    """
    where = f"repartition {topic!r}" if topic else "repartition"
    if rows.num_rows and (missing := set(key) - set(rows.column_names)):
        raise InputError(where, found=f"no column {sorted(missing)}", expected=f"one of {rows.column_names}")
    rows = rows.combine_chunks()
    schema = rows.schema.serialize().to_pybytes()
    if not rows.num_rows:
        return Boundary("", schema, {})
    numbers = _by_key(rows, key, partitions, where) if key else _spread(rows, partitions, seed)
    order = np.argsort(numbers, kind="stable")  # stable: rows of a partition keep their order
    rows = rows.take(pa.array(order))
    edges = np.searchsorted(numbers[order], np.arange(partitions + 1))
    out = pa.BufferOutputStream()
    places: dict[int, tuple[int, int, int]] = {}
    for partition in range(partitions):
        count = int(edges[partition + 1] - edges[partition])
        if count:
            start = out.tell()
            with pa.ipc.new_stream(out, rows.schema, options=write_options(None)) as stream:
                stream.write_table(rows.slice(int(edges[partition]), count))
            places[partition] = (start, out.tell() - start, count)
    data = out.getvalue()
    view = memoryview(data)
    write_file(
        root / file, data, sync=False
    )  # not synced: it is needed only until this batch is committed, and made again after a crash
    slices = {
        p: Slice(at, size, count, zlib.crc32(view[at : at + size])) for p, (at, size, count) in places.items()
    }
    return Boundary(file, schema, slices, tuple(hashed_as(rows.schema.field(name).type) for name in key))


def _by_key(rows: pa.Table, key: Sequence[str], partitions: int, where: str) -> npt.NDArray[np.int32]:
    """Return the partition of each row. Errors: `InputError` with the column whose type cannot be hashed."""
    for name in key:
        try:
            partition_of([_hashable(rows[name].slice(0, 0))], partitions)
        except InputError as error:
            path = f"{where}, key {name!r}"
            raise InputError(path, found=error.found, expected=error.expected, hint=error.hint) from None
    return partition_of([_hashable(rows[name]) for name in key], partitions)


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


def read(root: Path, boundaries: Iterable[Boundary], partition: int, topic: str = "") -> pa.Table:
    """Return one partition's rows of all `boundaries`, in their order.

    All partitions get the same schema, which holds the rows of every writer (`taskplace.spark.worker.unify`).
    Errors: `CheckpointError` for a missing or damaged file; `InputError` if the writers' columns cannot be united.
    """
    boundaries = list(boundaries)
    if not boundaries:
        raise CheckpointError("an internal topic has no boundary file")
    # Only writers with rows count: an empty table may lack columns, or have wrong types.
    writers = [boundary for boundary in boundaries if boundary.slices] or boundaries[:1]
    where = f"repartition {topic!r}" if topic else "repartition"
    schema = united([(_writer(boundary.file), _schema(boundary.schema)) for boundary in writers], where)
    tables = [
        conformed(
            pa.ipc.open_stream(_slice(root / boundary.file, piece, partition), options=READ).read_all(),
            schema,
            where,
        )
        for boundary in writers
        if (piece := boundary.slices.get(partition)) is not None
    ]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _schema(written: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(written))


def _writer(file: str) -> str:
    return f"task {Path(file).name.partition('-')[0]}"


def _slice(path: Path, piece: Slice, partition: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(piece.offset)
            data = file.read(piece.length)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: the file is missing; it has {piece.rows} rows of partition {partition}"
        ) from None
    if len(data) != piece.length or zlib.crc32(data) != piece.crc:
        raise CheckpointError(f"{path}: the slice of partition {partition} is damaged")
    return data
