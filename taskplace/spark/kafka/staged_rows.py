"""Reads the staged rows of a sink, and makes records of them, in pieces of a few MiB, whatever the size of a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from taskplace.spark.kafka.record_format import CHUNK, CHUNK_BYTES, Record, RecordFormat
from taskplace.spark.worker.schemas import left_out

#: The rows that are read first: they say how large a row is. A file says less, because it keeps equal values once.
FIRST = 16
#: What is read of a column at a time, instead of all of it.
BUFFER_BYTES = 1 << 20


def tables(file: Path) -> Iterator[pa.Table]:
    """Yield the rows of a staged file, with the columns that it leaves out because they have only nulls.

    A table has at most `CHUNK` rows. It is read in steps of about `CHUNK_BYTES`; one row may be larger.
    """
    opened = pq.ParquetFile(file, buffer_size=BUFFER_BYTES)
    missing = list(left_out(opened.metadata.metadata))
    for batch in _batches(opened):
        rows = pa.Table.from_batches([batch])
        for place, name in missing:
            rows = rows.add_column(place, name, pa.nulls(rows.num_rows))
        yield rows


def records(form: RecordFormat, sink: str, files: Iterable[Path]) -> Iterator[Record]:
    """Yield the records of staged files, in their order."""
    for file in files:
        for rows in tables(file):
            yield from form.records(sink, rows)


def _batches(opened: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows; after the first ones, in steps that go by the size of a row in the file and in memory."""
    whole = opened.metadata
    if not whole.num_rows:
        return
    in_file = sum(whole.row_group(group).total_byte_size for group in range(whole.num_row_groups))
    first = next(opened.iter_batches(batch_size=FIRST))
    size = max(in_file / whole.num_rows, first.nbytes / first.num_rows, 1.0)
    yield from opened.iter_batches(batch_size=max(1, min(CHUNK, int(CHUNK_BYTES / size))))
