"""ParquetSink: a batch appears whole, once, and stays as it is."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from taskplace.errors import CheckpointError, InputError
from taskplace.spark import sinks
from taskplace.spark.driver.publishing import Publisher
from taskplace.spark.sinks import COMMIT, ForeachBatch, ParquetSink
from taskplace.spark.targets import Commit
from topology import Topology

FUNCTION = ForeachBatch(print)


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


def read(path: Path, column: str = "n") -> list[int]:
    return sorted(ds.dataset(path, format="parquet", partitioning="hive").to_table()[column].to_pylist())


def names(sink: ParquetSink) -> list[str]:
    return sorted(path.name for path in sink.path.iterdir())


@pytest.fixture
def sink(tmp_path) -> ParquetSink:
    return ParquetSink(str(tmp_path / "out"))


def test_a_batch_is_a_directory_and_one_without_rows_has_none(sink, staged):
    publish(sink, 11, [])
    assert not sink.path.exists()
    publish(sink, 12, staged)
    publish(sink, 14, staged[1:])
    assert names(sink) == ["batch_id=12", "batch_id=14"]
    assert read(sink.path / "batch_id=12") == list(range(10))
    assert read(sink.path, "batch_id") == [12] * 10 + [14] * 5


def test_the_same_batch_again_changes_nothing_also_if_it_was_compacted(sink, staged):
    publish(sink, 0, staged)
    before = {path: path.stat().st_ino for path in sink.path.rglob("*")}
    publish(sink, 0, staged)
    assert {path: path.stat().st_ino for path in sink.path.rglob("*")} == before
    whole = ds.dataset(sink.path / "batch_id=0").to_table()
    for file in (sink.path / "batch_id=0").iterdir():
        file.unlink()
    pq.write_table(whole, sink.path / "batch_id=0" / "compacted.parquet")
    publish(sink, 0, staged)
    assert read(sink.path) == list(range(10))


def test_a_batch_that_is_there_with_other_rows_is_an_error(sink, staged):
    """A backup of the checkpoint was put back, and the stream comes by a batch that it had published before."""
    publish(sink, 5, staged)
    for files, rows in ((staged[:1], 5), ([], 0)):
        with pytest.raises(CheckpointError, match=f"batch_id=5: found 10 rows, expected the {rows}"):
            publish(sink, 5, files)
    assert read(sink.path) == list(range(10))


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (ParquetSink("out"), ParquetSink("in/../out"), "found .*out, also the target of sink 'a'"),
        (FUNCTION, FUNCTION, "found .*also the target of sink 'a'"),
        (ParquetSink("out"), "a path", "found 'a path', expected an object with publish"),
    ],
)
def test_each_sink_has_a_target_of_its_own(tmp_path, one, other, message):
    """By batch id, the rows of one sink would pass for those of the other."""
    topo = Topology("t")
    source = topo.source("events", key=["id"], partitions=1)
    source.sink("a", target=one)
    source.sink("b", target=other)
    with pytest.raises(InputError, match=rf"sinks\.b\.target: {message}"):
        Publisher(tmp_path, topo.build())


@pytest.mark.parametrize("linked", [0, 1, 2])
def test_killed_before_the_rename_it_is_published_whole_the_next_time(sink, staged, monkeypatch, linked):
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
    assert read(sink.path) == list(range(10))
    publish(sink, 4, staged)
    assert names(sink) == ["batch_id=3", "batch_id=4"]


def refuse(*_):
    raise OSError(18, "Invalid cross-device link")


def test_foreach_batch_is_called_for_batches_with_rows(staged):
    calls = []
    sink = ForeachBatch(lambda df, batch_id: calls.append((df, batch_id)))
    session = SimpleNamespace(read=SimpleNamespace(parquet=lambda *paths: paths))
    sink.publish(session, 4, staged)
    sink.publish(session, 5, [])
    assert calls == [(tuple(map(str, staged)), 4)]


def test_of_two_drivers_that_publish_one_batch_each_stages_apart(sink, staged, monkeypatch):
    """The first is stopped before its rename; the second has linked one file when the first goes on."""
    link, sync = sinks._link_or_copy, sinks.sync_directory

    def stopped(folder):
        sync(folder)
        monkeypatch.setattr(sinks, "sync_directory", sync)
        monkeypatch.setattr(sinks, "_link_or_copy", linked)
        with pytest.raises(InterruptedError):
            publish(sink, 12, staged)
        monkeypatch.setattr(sinks, "_link_or_copy", link)

    def linked(source, target):
        link(source, target)
        raise InterruptedError

    monkeypatch.setattr(sinks, "sync_directory", stopped)
    publish(sink, 12, staged)
    publish(sink, 12, staged)
    assert read(sink.path / "batch_id=12") == list(range(10))
    publish(sink, 13, staged)
    assert names(sink) == ["batch_id=12", "batch_id=13"]


def test_who_comes_second_with_a_batch_leaves_what_is_there(sink, staged, monkeypatch):
    sync = sinks.sync_directory

    def other_first(folder):
        sync(folder)
        monkeypatch.undo()
        publish(sink, 12, staged)

    monkeypatch.setattr(sinks, "sync_directory", other_first)
    publish(sink, 12, staged[:1])
    assert read(sink.path) == list(range(10))
    assert names(sink) == ["batch_id=12"]


def test_a_mark_that_a_crash_left_empty_is_made_again(sink, staged):
    sink.path.mkdir()
    (sink.path / ".checkpoint").touch()
    sink.bind("one")
    sink.bind("one")
    with pytest.raises(CheckpointError, match="the directory has output of another checkpoint"):
        sink.check("two")
    publish(sink, 0, staged)
    (sink.path / ".checkpoint").write_text("")
    with pytest.raises(CheckpointError, match="the directory has output of another program"):
        sink.bind("one")


@pytest.mark.parametrize("crashed", [True, False])
def test_a_mark_that_another_checkpoint_makes_just_now_stays(tmp_path, staged, monkeypatch, crashed):
    """One looks whether the directory is free, then another takes it, then the first goes on."""
    one, other, make = ParquetSink(tmp_path / "out"), ParquetSink(tmp_path / "out"), sinks.lasting_directory
    if crashed:
        one.path.mkdir()
        (one.path / ".checkpoint").touch()

    def overtaken(path):
        make(path)
        monkeypatch.undo()
        other.bind("other")

    monkeypatch.setattr(sinks, "lasting_directory", overtaken)
    with pytest.raises(CheckpointError, match="the directory has output of another checkpoint"):
        one.bind("one")
    assert (one.path / ".checkpoint").read_text() == "other"
    other.bind("other")
    publish(other, 0, staged)
    assert names(one) == [".checkpoint", "batch_id=0"]


@pytest.mark.parametrize("links", [True, False])
def test_files_have_the_permissions_that_new_files_get(tmp_path, be_executor, monkeypatch, links):
    from taskplace.spark.checkpoint.files import write_file

    mask = os.umask(0o027)
    try:
        file = tmp_path / "checkpoint" / "staged.parquet"
        write_file(file, b"rows", sync=False, mode=0o666)
        if not links:
            monkeypatch.setattr(os, "link", refuse)
        publish(ParquetSink(tmp_path / "out"), 0, [file])
    finally:
        os.umask(mask)
    found = tmp_path / "out" / "batch_id=0"
    assert [path.stat().st_mode & 0o777 for path in (found / "part-00000.parquet", found)] == [0o640, 0o750]
    assert (found / "part-00000.parquet").read_bytes() == b"rows"


PLACES = ["x.parquet", "part/x.parquet", "notes.txt", "batch_id=x/y.parquet", "batch_id=1"]


@pytest.mark.parametrize("place", PLACES)
def test_a_file_that_is_no_batch_is_refused_at_the_start(sink, place):
    sink.bind("mine")
    foreign = sink.path / place
    foreign.parent.mkdir(exist_ok=True)
    foreign.symlink_to("nowhere") if place == "batch_id=1" else foreign.write_bytes(b"")
    with pytest.raises(CheckpointError, match=rf"^{foreign}: found in the directory of a ParquetSink.* move"):
        sink.check("mine")


def test_what_readers_leave_out_may_lie_beside_the_batches(sink, staged):
    sink.bind("mine")
    publish(sink, 0, staged)
    for name in ("_SUCCESS", ".x.crc", "_temporary/x.parquet", ".hidden/x.parquet", "empty/_x"):
        (sink.path / name).parent.mkdir(exist_ok=True)
        (sink.path / name).write_bytes(b"")
    sink.check("mine")
    assert read(sink.path / "batch_id=0") == list(range(10))


# -- whose batch it is


def commit(number: int, files: list[Path], nonce: str) -> Commit:
    given = {"batch_id": number, "files": files, "nonce": nonce, "check_epoch": lambda: None}
    return Commit(spark=None, checkpoint_id="c", sink="out", read_checksum=str, **given)


@pytest.mark.parametrize("mine", [True, False])
@pytest.mark.parametrize(
    "there", ["this commit", "another commit", "an older version", "a file", "a dangling link"]
)
def test_what_lies_there_under_the_number_of_a_batch_is_its_output_or_refused(sink, staged, there, mine):
    """`mine`: the batch's manifest has a nonce. Those of older versions have none, and count rows."""
    batch = sink.path / "batch_id=1"
    sink.path.mkdir()
    if there == "a file":
        batch.touch()
    elif there == "a dangling link":
        batch.symlink_to("nowhere")
    else:
        nonce = {"this commit": "n", "another commit": "other"}.get(there, "")
        sink.publish_commit(commit(1, staged, nonce))
        assert (batch / COMMIT).exists() == bool(nonce)
    if there == "this commit" or (batch.is_dir() and not mine):
        sink.publish_commit(commit(1, staged, "n" if mine else ""))
        assert read(sink.path) == list(range(10))
    else:
        with pytest.raises(CheckpointError, match=r"batch_id=1: found .*the 10 committed rows; .*remove"):
            sink.publish_commit(commit(1, staged, "n" if mine else ""))
        sink.publish_commit(commit(2, staged, "n"))  # a batch of its own


@pytest.mark.parametrize("name", [".batch_id=x.y", ".batch_id=.", ".batch_id=²0.a", ".batch_id=0.killed"])
def test_a_hidden_directory_stops_no_batch(sink, staged, name):
    """That of a killed driver goes; another one's stays."""
    (sink.path / name).mkdir(parents=True)
    publish(sink, 1, staged)
    assert (sink.path / name).exists() == ("killed" not in name)
    assert read(sink.path) == list(range(10))


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_mark_that_is_no_file_is_refused_at_the_start(tmp_path, make):
    sink = ParquetSink(tmp_path)
    make(tmp_path / ".checkpoint")
    with pytest.raises(CheckpointError, match=r"\.checkpoint: it is not a file, expected the id of the"):
        sink.check("c")
