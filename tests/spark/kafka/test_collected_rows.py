"""Rows that are collected in memory up to a limit, and in a file beyond it."""

from __future__ import annotations

import gc
from pathlib import Path

import pyarrow as pa
import pytest

from taskplace.spark.kafka.collected_rows import CollectedRows

COLUMNS = pa.schema([("n", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.string()))])


def rows(first: int, count: int = 10) -> pa.Table:
    of = range(first, first + count)
    return pa.table({"n": of, "text": map(str, of), "list": [["a"] * (n % 3) for n in of]}, COLUMNS)


def collected(folder, most: int, count: int) -> CollectedRows:
    found = CollectedRows(COLUMNS, most=most, folder=folder, what="topic 't'")
    for number in range(count):
        found.add(rows(10 * number))
    return found


@pytest.mark.parametrize("most", [0, 1, 500, 1 << 20])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_all_rows_come_back_in_their_order(tmp_path, most, count):
    found = collected(tmp_path, most, count).table()
    assert found.schema == COLUMNS
    assert found.to_pylist() == rows(0, 10 * count).to_pylist()


def test_what_fits_makes_no_file(tmp_path, caplog):
    found = collected(tmp_path / "none", 1 << 20, 7)
    found.table()
    assert found.in_file == 0 and not (tmp_path / "none").exists() and not caplog.text


def test_memory_holds_at_most_the_limit(tmp_path, caplog):
    before = pa.total_allocated_bytes()
    found = collected(tmp_path, 1000, 200)
    table = found.table()
    assert table.num_rows == 2000 and found.in_file > table.nbytes - 1000 - rows(0).nbytes
    assert pa.total_allocated_bytes() - before < 3000
    assert "topic 't': " in caplog.text and f"{found.in_file} are in a file in {tmp_path}" in caplog.text


def test_the_file_has_no_name_and_ends_with_the_rows(tmp_path):
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(f"{tmp_path}/")

    table = collected(tmp_path, 0, 7).table()
    assert list(tmp_path.iterdir()) == []
    part = table.slice(3, 2)
    del table
    gc.collect()
    assert part["n"].to_pylist() == [3, 4]  # a part of the rows keeps them
    assert mapped() == 1
    del part
    gc.collect()
    assert mapped() == 0


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        collected(tmp_path / "file", 0, 1)
