"""Writes boundary files: the rows that pass from one subtopology to the next.

The attempts of a bin write one file for each topic, one after the other. Each attempt writes one slice for each
partition. The files implement the repartition topic. The writer hashes the rows as Spark would, and writes the
partitions one after the other. The reader of a partition reads its slice of every *winning* attempt
(`taskplace.spark.worker.boundary`). The rows are files, not an RDD, so nothing downstream can make Spark run a stateful
task again.

A slice is an Arrow stream without its schema, which is the same for all slices of an attempt. So a reader can append
the slices of several attempts to one schema, and decode them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from taskplace.errors import InputError
from taskplace.groups.partitioner import PartitionerConfig, UniformStickyPartitioner
from taskplace.spark.checkpoint.files import SectionFile, write_options
from taskplace.spark.messages import Boundary, Slice
from taskplace.spark.state.keys import crc32
from taskplace.spark.worker.hashing import hashed_as, partition_of

TURNS = 16


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
    numbers = _by_key(rows, key, partitions, where) if key else _spread(rows, partitions, seed)
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
