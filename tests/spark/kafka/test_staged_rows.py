"""The rows of a sink are read and encoded in pieces of some bytes, so records of a megabyte need little memory."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from taskplace.spark.kafka import record_format
from taskplace.spark.kafka import record_format as staged_rows
from taskplace.spark.kafka.sink import KafkaSink
from taskplace.spark.worker import schemas

LIMIT, ROWS, LARGE = 64 << 10, 200, 8 << 10


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Pieces of 64 KiB, in the place of 8 MiB."""
    for module in (record_format, staged_rows):
        monkeypatch.setattr(module, "CHUNK_BYTES", LIMIT)


def rows_of(*sizes: int) -> pa.Table:
    return pa.table(
        {"i": range(len(sizes)), "text": [f"{i:08}".ljust(size, "x") for i, size in enumerate(sizes)]}
    )


def staged(folder, rows: pa.Table):
    file = folder / "staged.parquet"
    file.write_bytes(schemas.parquet(rows, "out"))
    return file


SHAPES = {
    "large": [LARGE] * ROWS,
    "small": [8] * 30_000,
    "small, then large": [8] * 1000 + [LARGE] * ROWS,
    "one that is larger than a piece": [8, 3 * LIMIT, 8],
}


@pytest.mark.parametrize("name", SHAPES)
def test_records_are_encoded_in_pieces(name, monkeypatch):
    pieces: list[pa.Table] = []
    chunk = record_format.RecordFormat._chunk

    def watched(self, sink, rows):
        pieces.append(rows)
        return chunk(self, sink, rows)

    monkeypatch.setattr(record_format.RecordFormat, "_chunk", watched)
    rows = rows_of(*SHAPES[name])
    form = KafkaSink("out", servers="nowhere:9092", key="i").row_check
    assert [record.key for record in form.records("out", rows)] == [str(i).encode() for i in range(len(rows))]
    assert all(piece.nbytes <= LIMIT or piece.num_rows == 1 for piece in pieces)
    assert max(piece.num_rows for piece in pieces) <= record_format.CHUNK


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "small, then large"])
def test_staged_rows_are_read_in_pieces(tmp_path, name):
    rows = rows_of(*SHAPES[name])
    found = list(staged_rows.tables(staged(tmp_path, rows)))
    assert pa.concat_tables(found).equals(rows)
    largest = max(SHAPES[name])
    assert all(table.nbytes <= 2 * LIMIT + largest for table in found)


def test_values_that_a_file_keeps_once_are_large_all_the_same(tmp_path):
    rows = pa.table({"text": ["x" * LARGE] * ROWS})
    file = staged(tmp_path, rows)
    assert file.stat().st_size < 10 * LARGE
    found = list(staged_rows.tables(file))
    assert sum(table.num_rows for table in found) == ROWS
    assert all(table.nbytes <= 2 * LIMIT for table in found)


def test_a_file_without_rows_and_one_with_columns_left_out(tmp_path):
    empty = pa.table({"a": pa.array([], pa.string())})
    assert list(staged_rows.tables(staged(tmp_path, empty))) == []
    rows = pa.table({"a": ["x", "y"], "n": pa.nulls(2)})
    (found,) = staged_rows.tables(staged(tmp_path, rows))
    assert found.equals(rows)


def test_pages_of_large_rows_are_small(tmp_path):
    file = staged(tmp_path, rows_of(*[LARGE] * 2000))  # 16 MiB
    column = pq.ParquetFile(file).metadata.row_group(0).column(1)
    assert column.total_uncompressed_size > 15 << 20
    assert schemas._rows_at_a_time(rows_of(*[LARGE] * 2000)) < 140
    assert schemas._rows_at_a_time(rows_of(*[8] * 2000)) == 1024
    assert schemas._rows_at_a_time(rows_of(8 << 20)) == 1
