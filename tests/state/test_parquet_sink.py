"""ParquetSink: a batch appears whole, once, and stays as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from taskplace.spark import sinks
from taskplace.spark.sinks import ForeachBatch, ParquetSink


@pytest.fixture
def staged(tmp_path):
    """Staged files as attempts leave them: two, with rows 0 to 4 and 5 to 9."""
    files = []
    for i in range(2):
        files.append(tmp_path / "checkpoint" / f"0_{i}-1-abc.parquet")
        files[-1].parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"n": list(range(5 * i, 5 * i + 5))}), files[-1])
    return files


def publish(sink, batch, files):
    sink.publish(None, batch, files)


def read(path: Path) -> list[int]:
    return sorted(ds.dataset(path, format="parquet", partitioning="hive").to_table()["n"].to_pylist())


def test_a_batch_is_a_directory(tmp_path, staged):
    sink = ParquetSink(str(tmp_path / "out"))
    publish(sink, 12, staged)
    assert [path.name for path in sink.path.iterdir()] == ["batch_id=12"]
    assert read(sink.path) == list(range(10))


def test_the_same_batch_again_changes_nothing(tmp_path, staged):
    sink = ParquetSink(tmp_path / "out")
    publish(sink, 0, staged)
    before = {path: path.stat().st_ino for path in sink.path.rglob("*")}
    publish(sink, 0, staged)
    publish(sink, 0, staged[:1])
    assert {path: path.stat().st_ino for path in sink.path.rglob("*")} == before
    assert read(sink.path) == list(range(10))


def test_a_batch_without_rows_has_no_directory(tmp_path):
    sink = ParquetSink(tmp_path / "out")
    publish(sink, 0, [])
    assert not sink.path.exists()


def test_several_batches_add_up(tmp_path, staged):
    sink = ParquetSink(tmp_path / "out")
    publish(sink, 0, staged[:1])
    publish(sink, 2, staged[1:])
    assert (
        ds.dataset(sink.path, format="parquet", partitioning="hive").to_table()["batch_id"].to_pylist()
        == [0] * 5 + [2] * 5
    )


@pytest.mark.parametrize("linked", [0, 1, 2])
def test_killed_before_the_rename_it_is_published_whole_the_next_time(tmp_path, staged, monkeypatch, linked):
    sink = ParquetSink(tmp_path / "out")
    with monkeypatch.context() as patch:
        left = iter(range(linked))
        really_link = sinks._link_or_copy

        def link(source, target):
            if next(left, None) is None:
                raise KeyboardInterrupt
            really_link(source, target)

        def die(*_):
            raise KeyboardInterrupt

        patch.setattr(sinks, "_link_or_copy", link)
        patch.setattr(Path, "rename", die)
        with pytest.raises(KeyboardInterrupt):
            publish(sink, 3, staged)
    assert not (sink.path / "batch_id=3").exists(), "whole or not at all"
    # Half of a batch is not seen by those who read the sink.
    assert not sink.path.exists() or ds.dataset(sink.path, format="parquet").count_rows() == 0
    publish(sink, 3, staged)
    assert [path.name for path in sink.path.iterdir()] == ["batch_id=3"]
    assert read(sink.path) == list(range(10))


def test_what_is_published_outlives_the_stage(tmp_path, staged):
    sink = ParquetSink(tmp_path / "out")
    publish(sink, 0, staged)
    for file in staged:
        file.unlink()
    assert read(sink.path) == list(range(10))


def test_across_file_systems_it_copies(tmp_path, staged, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    sink = ParquetSink(tmp_path / "out")
    publish(sink, 0, staged)
    assert read(sink.path) == list(range(10))


def test_foreach_batch_is_called_for_batches_with_rows(staged):
    class Session:
        @property
        def read(self):
            return self

        def parquet(self, *paths):
            return paths

    calls = []
    sink = ForeachBatch(lambda df, batch_id: calls.append((df, batch_id)))
    sink.publish(Session(), 4, staged)
    sink.publish(Session(), 5, [])
    assert calls == [(tuple(map(str, staged)), 4)]
