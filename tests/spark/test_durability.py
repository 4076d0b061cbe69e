"""Hosts that crash: what was promised by then is there when they come back, whatever the disk had not got to yet."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskplace.spark.checkpoint import compaction
from taskplace.spark.checkpoint import journal as journal_module
from taskplace.spark.checkpoint.files import write_file
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.driver.publishing import Publisher
from taskplace.spark.driver.staging import SCHEMAS, SinkSchemas
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.worker import bin_context as segments
from tests.support.attempt_files import check_part
from tests.support.disk import Disk
from tests.support.placed_harness import rows_in
from tests.support.sparkless import Sparkless
from topology import TaskId

#: The second task of the first subtopology first has rows in batch 2.
BATCHES = [
    [("N1", 5), ("N3", -1), ("N1", 2)],
    [("N1", 1), ("N2", 1)],
    [("N7", 7), ("N4", 3), (None, 0)],
    [],
    [("N1", 30), ("N3", -1), ("N8", 5)],
    [("N2", 2), ("N7", 2)],
    [("N1", 3), ("N4", 4)],
    [("N3", 8), ("N8", 1), ("N2", 30)],
]
TASKS = (TaskId(0, 0), TaskId(0, 1), TaskId(1, 0), TaskId(1, 1), TaskId(1, 2))


@pytest.fixture
def disk(monkeypatch) -> Iterator[Disk]:
    made = Disk(monkeypatch)
    yield made
    made.close()


class Stream:
    """A driver with a journal and two sinks in a folder, which goes on from what is there."""

    def __init__(self, runtime) -> None:
        self.runtime = runtime
        self.sparkless = Sparkless(runtime)
        self.journal = Journal(runtime.checkpoint, {})
        self.sinks = {
            "out": ParquetSink(runtime.checkpoint.parent / "sinks" / "of" / "flights"),
            "days-out": ParquetSink(runtime.checkpoint.parent / "elsewhere" / "days"),
        }
        nodes = [SimpleNamespace(name=name, target=target, options={}) for name, target in self.sinks.items()]
        built = SimpleNamespace(subtopologies=[SimpleNamespace(sinks=nodes)])
        self.publisher = Publisher(runtime.checkpoint, built)
        self.schemas = SinkSchemas(built)
        self.publisher.bind("this checkpoint")

    def run_batch(self, after: Callable[[str], None] = lambda what: None) -> None:
        """Run the next batch; `after` is told how far it is."""
        runtime, journal = self.runtime, self.journal
        runtime.epoch, runtime.batch, runtime.history = journal.epoch, journal.last_batch + 1, journal.history
        reports = self.sparkless.stage(0, BATCHES[runtime.batch])
        reports |= self.sparkless.stage(1, reports=list(reports.values()))
        changes = {task: report.change for task, report in reports.items() if report.change}
        sinks, schemas = self.schemas.settle(runtime.checkpoint, reports, journal.identity)
        journal.identity = {**journal.identity, SCHEMAS: schemas}
        manifest = journal.commit(runtime.batch, 1, changes, sinks, {})
        after("commit")
        self.publisher.publish(None, manifest)
        after("publish")
        journal.prune()
        after("prune")

    def snapshot(self) -> None:
        """Make snapshots of all tasks, as visits do."""
        done = self.runtime.follow(snapshot=self.journal.history)
        assert not done.errors
        self.journal.add_snapshots(done.snapshots)

    def check(self) -> None:
        """All files are there, state is the truth, and each batch's output was published; the last one's again."""
        journal, runtime, last = self.journal, self.runtime, self.journal.last_batch
        for history in journal.history.values():
            for part in (*history.changes, *history.snapshots):
                if part.file:
                    check_part(runtime.checkpoint, part)
        runtime.history = journal.history
        flights, days = self.truth(last)
        rows = [row for task in TASKS[:2] for row in runtime.contents(task)["totals"]]
        assert {row["tailnum"]: row["flights"] for row in rows} == flights
        rows = [row for task in TASKS[2:] for row in runtime.contents(task)["days"]]
        assert {row["delay"]: row["count"] for row in rows} == days
        self.check_output(last - 1)
        if journal.last is not None:
            self.publisher.publish(None, journal.last)
        self.check_output(last)

    def check_output(self, last: int) -> None:
        """All batches up to `last` are in the sinks, and none but the one after that, which may be there."""
        for sink, key, value in (("out", "tailnum", "flights"), ("days-out", "delay", "count")):
            folders = set(self.sinks[sink].path.glob("batch_id=*"))
            for batch in range(last + 2):
                folder = self.sinks[sink].path / f"batch_id={batch}"
                truth = self.truth(batch)[sink == "days-out"]
                touched = {row[sink == "days-out"] for row in BATCHES[batch]} if batch < len(BATCHES) else ()
                rows = rows_in(folder)
                if batch <= last or folder in folders:
                    assert Counter({row[key]: row[value] for row in rows}) == {k: truth[k] for k in touched}
                folders.discard(folder)
            assert not folders

    @staticmethod
    def truth(last: int) -> tuple[Counter, Counter]:
        rows = [row for rows in BATCHES[: last + 1] for row in rows]
        return Counter(tail for tail, _ in rows), Counter(delay for _, delay in rows)


@pytest.fixture
def refuse_links(monkeypatch) -> None:
    """Makes the second sink's folder one of another file system, to which nothing can be linked."""
    link = os.link

    def refuse(source, target, **how):
        if "elsewhere" in Path(target).parts and Path(target).suffix == ".parquet":
            raise OSError(18, "Invalid cross-device link")
        link(source, target, **how)

    monkeypatch.setattr(os, "link", refuse)


class Host:
    """A host on which a stream runs, and the power is cut."""

    def __init__(self, folder: Path, disk: Disk, runtime, be_executor) -> None:
        self.folder, self.disk = folder / "host", disk
        self.folder.mkdir(parents=True)
        self._after = (folder / f"after-{number}" for number in itertools.count())
        self._runtime = partial(type(runtime), be_executor=be_executor)
        self.cuts = 0

    def stream(self) -> Stream:
        return Stream(self._runtime(self.folder))

    def power_cut(self, last: int, luck: Path | None = None) -> None:
        """Cut the power, in a copy, and have another driver go on: `last` is what was committed."""
        after = next(self._after)
        self.cuts += 1
        with self.disk.unwatched():
            self.disk.cut(self.folder, after, luck)
            stream = Stream(self._runtime(after))
            assert stream.journal.last_batch == last
            stream.check()
            if last + 1 < len(BATCHES):
                stream.run_batch()
                stream.check()
            shutil.rmtree(after)


@pytest.fixture
def host(tmp_path, disk, runtime, be_executor) -> Host:
    return Host(tmp_path, disk, runtime, be_executor)


@pytest.mark.usefixtures("refuse_links")
def test_a_crashed_host_keeps_what_is_committed_and_published(host, disk, monkeypatch):
    """The power is cut after every step, and when a manifest has just appeared, in both ways that this may end."""
    monkeypatch.setattr(journal_module, "FULL_EVERY", 3)
    monkeypatch.setattr(segments, "BATCHES", 1)
    monkeypatch.setattr(compaction, "MOST_NEEDED", 1.0)  # every section moves
    link = os.link

    def cut_at_manifests(source, target, **how):
        link(source, target, **how)
        path = Path(target)
        if disk.watching and path.parent.name == "manifests":
            host.power_cut(int(path.stem) - 1)
            host.power_cut(int(path.stem), luck=path)

    monkeypatch.setattr(os, "link", cut_at_manifests)
    stream = host.stream()
    for batch in range(len(BATCHES)):
        stream.run_batch(lambda what, batch=batch: host.power_cut(batch))
        if batch % 2:
            stream.snapshot()
    assert host.cuts == 5 * len(BATCHES)
    assert all(len(history.snapshots) == 2 for history in stream.journal.history.values())
    assert stream.journal.last.needs > 0
    files = {change.file for history in stream.journal.history.values() for change in history.changes}
    moved = {file for file in files if int(Path(file).name.split("-")[0]) % 3 == 0}
    assert moved, "the sections of a full manifest are in a segment of its number"


class Killed(BaseException):
    """A process comes to its end."""


def killed_at(monkeypatch: pytest.MonkeyPatch, at: int, work: Callable[[], None]) -> bool:
    """Do `work`, and die instead of its step `at` on files; return whether it has so many."""
    steps, dead = itertools.count(1), False

    def step(really, *args, **kwargs):
        nonlocal dead
        dead = dead or next(steps) == at
        if dead:
            raise Killed
        return really(*args, **kwargs)

    with monkeypatch.context() as patch:
        for name in ("mkdir", "open", "fsync", "link", "rename", "unlink"):
            patch.setattr(os, name, partial(step, getattr(os, name)))
        with suppress(Killed):
            work()
    return dead


@pytest.mark.parametrize("where", ["out", "elsewhere"])
@pytest.mark.usefixtures("refuse_links")
def test_a_publisher_that_was_killed_has_left_nothing_that_the_next_one_takes_for_safe(
    tmp_path, disk, monkeypatch, where
):
    """One is killed at each of its steps, another one publishes the same batch, and then the power is cut."""
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": [1, 2]}), out)
    rows = out.getvalue().to_pybytes()
    for at in itertools.count(1):
        folder = tmp_path / f"host-{at}"
        write_file(folder / "staged", rows, sync=True)

        def publish(path: Path = folder) -> None:
            sink = ParquetSink(path / where / "of" / "flights")
            sink.bind("this checkpoint")
            sink.publish(None, 0, [path / "staged"])

        killed = killed_at(monkeypatch, at, publish)
        publish()
        after = tmp_path / f"after-{at}"
        disk.cut(folder, after)
        sink = ParquetSink(after / where / "of" / "flights")
        sink.check("this checkpoint")
        assert [file.read_bytes() for file in (sink.path / "batch_id=0").iterdir()] == [rows]
        if not killed:
            break
    assert at > 20, "binding and publishing take more steps than that"


@pytest.mark.parametrize("part", range(8))
@pytest.mark.slow
@pytest.mark.usefixtures("refuse_links")
def test_a_driver_that_was_killed_has_left_nothing_that_the_next_one_takes_for_safe(
    tmp_path, disk, monkeypatch, runtime, be_executor, part
):
    """One is killed at each of its steps, with its attempts and visits; another goes on, and the power is cut."""
    for at in itertools.count(1 + part, 8):
        folder = tmp_path / f"try-{at}"
        host = Host(folder, disk, runtime, be_executor)

        def work(host: Host = host) -> None:
            stream = host.stream()
            stream.run_batch()
            stream.snapshot()
            stream.run_batch()

        killed = killed_at(monkeypatch, at, work)
        stream = host.stream()
        host.power_cut(stream.journal.last_batch)
        if stream.journal.last is not None:
            stream.publisher.publish(None, stream.journal.last)
        stream.snapshot()
        stream.run_batch(lambda what, host=host, stream=stream: host.power_cut(stream.journal.last_batch))
        shutil.rmtree(folder)
        if not killed:
            break
    assert at > 300, "what a driver does takes more steps than that"


def test_a_driver_that_was_killed_while_it_made_the_checkpoint_does_not_make_the_next_one_lose_it(
    tmp_path, disk, monkeypatch
):
    for at in itertools.count(1):
        host, after = tmp_path / f"host-{at}", tmp_path / f"after-{at}"
        (host / "other").mkdir(parents=True)
        where = Path("new", "of", "checkpoint")

        def begin(root: Path = host / where) -> None:
            Journal(root, {}).commit(0, 1, {}, {}, {})

        killed = killed_at(monkeypatch, at, begin)
        if Journal(host / where, {}).last_batch < 0:
            begin()
        disk.cut(host, after)
        assert Journal(after / where, {}).last_batch == 0
        if not killed:
            break
    assert at > 15, "making a checkpoint takes more steps than that"
