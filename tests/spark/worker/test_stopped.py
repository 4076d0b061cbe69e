"""Workers that are stopped (SIGSTOP) in an attempt, and go on (SIGCONT) when their task has long been replaced."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskplace.spark import faults
from taskplace.spark.checkpoint.files import read_sealed
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.messages import Report
from taskplace.spark.state.copy import Copy
from taskplace.spark.worker.hashing import partition_of
from tests.support.copies import peek
from topology import TaskId

POINTS = [name for name in faults.POINTS if name.startswith("attempt.")]
#: At these an attempt holds the write transaction of its copy.
HOLDING = ["attempt.positioned", "attempt.processed", "attempt.sealed"]
TASK = TaskId(0, 0)

#: N1, N2, N3 belong to task 0_0; N4, N7, N8 to 0_1.
BATCHES = [
    [("N1", 5), ("N7", 7), ("N3", 1), ("N1", 2)],
    [("N1", 9), ("N4", 1), ("N2", 1), ("N3", 4)],
    [("N1", 30), ("N8", 5)],
    [("N3", 2), ("N7", 2), ("N2", 8)],
    [("N1", 1), ("N2", 2), ("N3", 3), ("N4", 4)],
]


def tell_and_stop(tell: Callable[[str], None], point: str) -> None:
    """Have this process tell when it comes by a point, and when it wants a copy; and stop it at `point`."""
    really_open = Copy._open

    def passing(name: str) -> None:
        tell(name)
        if name == point:
            os.kill(os.getpid(), signal.SIGSTOP)

    def opening(copy: Copy) -> None:
        tell("wants the copy")
        really_open(copy)

    faults.point = passing
    Copy._open = opening  # type: ignore[method-assign]


@pytest.fixture
def worker(runtime) -> Iterator[Callable[..., Worker]]:
    """Starts attempts in processes of their own, and leaves none behind."""
    started = []

    def start(**attempt: Any) -> Worker:
        started.append(Worker(runtime, **attempt))
        return started[-1]

    yield start
    for one in started:
        one.end()


class Worker:
    """One attempt in a forked process, which tells where it is, and stops itself at `point`."""

    def __init__(self, runtime, rows, *, executor: str, point: str = "") -> None:
        self._here, there = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            failed = 1
            try:
                tell_and_stop(there.send, point)
                report = runtime.attempt(TASK, rows, executor=executor)
                there.send(report.encode())
                failed = 0
            finally:
                os._exit(failed)
        there.close()
        self.passed: list[str] = []
        self.report: Report | None = None
        self.running = True

    def waits_at(self, point: str) -> None:
        """Wait until it is stopped there."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"it ended with {status}"
        self.tells(point)

    def tells(self, point: str, seconds: float = 30.0) -> bool:
        """Wait until it has come by a point; return whether it has in time."""
        while point not in self.passed:
            if not self._here.poll(seconds):
                return False
            self.passed.append(self._here.recv())
        return True

    def goes_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def has_ended(self) -> Report:
        """Wait for its end, by itself, and return what it reports."""
        _, status = os.waitpid(self.pid, 0)
        self.running = False
        assert os.waitstatus_to_exitcode(status) == 0
        self.tells(POINTS[-1])
        return Report.decode(self._here.recv())

    def end(self) -> None:
        self._here.close()
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


class Stream:
    """A driver with a journal, which runs batches on an executor; the truth is counted beside it."""

    def __init__(self, runtime) -> None:
        self.runtime = runtime
        self.journal = Journal(runtime.checkpoint, {})
        assert self.journal.epoch == runtime.epoch

    @property
    def rows(self) -> list[tuple[str, int]]:
        """Those of the batch that comes next."""
        return BATCHES[self.runtime.batch]

    def run(self, executor: str, first: Report | None = None) -> list[Report]:
        """Run and commit the next batch; `first`: the attempt of `TASK` that has been made of it."""
        runtime = self.runtime
        reports = [first or runtime.attempt(TASK, self.rows, executor=executor)]
        reports.append(runtime.attempt(TaskId(0, 1), self.rows, executor=executor))
        reports += [runtime.attempt(TaskId(1, p), reports=reports[:2], executor=executor) for p in range(3)]
        changes = {report.task: report.change for report in reports if report.change}
        sinks: dict[str, list] = {}
        for report in reports:
            for sink, staged in report.sinks.items():
                sinks.setdefault(sink, []).append(staged)
        manifest = self.journal.commit(runtime.batch, 1, changes, sinks, {})
        assert self.output(manifest) == truth(runtime.batch, touched_only=True)
        runtime.commit(*reports)
        self.journal.prune()
        return reports

    def output(self, manifest) -> Counter[str]:
        """Return what a batch has brought to the sink of the first subtopology: key -> flights so far."""
        found: Counter[str] = Counter()
        for staged in manifest.sinks["out"]:
            read_sealed(self.runtime.checkpoint / staged.file, staged.size, staged.checksum)
            for row in pq.read_table(self.runtime.checkpoint / staged.file, use_threads=False).to_pylist():
                assert row["tailnum"] not in found
                found[row["tailnum"]] = row["flights"]
        return found

    def check(self, executors: list[str]) -> None:
        """What is committed is what this driver has committed; and each copy, brought to the end, is the truth."""
        last = self.runtime.batch - 1
        again = Journal(self.runtime.checkpoint, {})
        assert again.history == self.journal.history == self.runtime.history
        assert again.last is not None
        assert self.output(again.last) == truth(last, touched_only=True)
        for executor in executors:
            stored = [r for t in (TASK, TaskId(0, 1)) for r in self.runtime.contents(t, executor)["totals"]]
            assert {row["tailnum"]: row["flights"] for row in stored} == truth(last), executor
            stored = [r for p in range(3) for r in self.runtime.contents(TaskId(1, p), executor)["days"]]
            delays = Counter(delay for rows in BATCHES[: last + 1] for _, delay in rows)
            assert {row["delay"]: row["count"] for row in stored} == delays, executor


def truth(batch: int, *, touched_only: bool = False) -> Counter[str]:
    counts = Counter(tail for rows in BATCHES[: batch + 1] for tail, _ in rows)
    touched = {tail for tail, _ in BATCHES[batch]}
    return Counter({t: n for t, n in counts.items() if t in touched or not touched_only})


def stopped_while_replaced(stream: Stream, worker, point: str, *, batches: int) -> Report:
    """After a batch on executor 1, stop an attempt there, run batches on executor 2, and let it go on to its end."""
    stream.run("1")
    zombie = worker(rows=stream.rows, executor="1", point=point)
    zombie.waits_at(point)
    for _ in range(batches):
        stream.run("2")
    zombie.goes_on()
    return zombie.has_ended()


@pytest.mark.parametrize("point", POINTS)
def test_an_attempt_that_goes_on_after_its_task_was_replaced_changes_nothing(runtime, worker, point):
    stream = Stream(runtime)
    late = stopped_while_replaced(stream, worker, point, batches=3)
    assert late.change is not None
    assert late.change.version == 1
    assert late.attempt not in {change.attempt for change in runtime.history[TASK].changes}
    assert peek(runtime.copy(TASK)).version == 0, "of its copy, what is committed is what was there before"

    report, *_ = stream.run("1")  # on the copy that the zombie has left
    assert report.recovery.rolled_back
    assert not report.recovery.scratch
    assert report.recovery.replayed == sum(change.records for change in runtime.history[TASK].changes[1:4])
    assert not [name for name in runtime.files() if late.attempt in name], "what it left is pruned"
    stream.check(["1", "2", "3"])


@pytest.mark.parametrize("point", POINTS)
def test_an_attempt_that_goes_on_leaves_its_copy_as_whoever_replays_it_needs_it(runtime, worker, point):
    """As before, but the copy of the stopped attempt becomes a standby: it is only brought to the end."""
    stream = Stream(runtime)
    late = stopped_while_replaced(stream, worker, point, batches=2)
    with Copy(runtime.copy(TASK), runtime.first.databases) as copy:
        assert copy.position().attempt == late.attempt
        recovery = copy.follow(runtime.history[TASK], runtime.checkpoint)
        assert recovery is not None
        assert recovery.rolled_back
        assert copy.position() == runtime.history[TASK].end
    stream.check(["1", "2"])


@pytest.mark.parametrize("point", HOLDING)
def test_a_second_attempt_waits_for_the_copy_that_a_stopped_one_holds(runtime, worker, point):
    stream = Stream(runtime)
    stream.run("1")
    zombie = worker(rows=stream.rows, executor="1", point=point)
    zombie.waits_at(point)
    second = worker(rows=stream.rows, executor="1")
    assert second.tells("wants the copy")
    assert not second.tells("attempt.positioned", seconds=0.3), "both have the copy"
    zombie.goes_on()
    late = zombie.has_ended()
    report = second.has_ended()
    assert report.recovery.rolled_back, "it starts from what is committed, not from what the other left"
    assert report.attempt != late.attempt

    stream.run("1", report)
    stream.run("1")
    stream.check(["1", "2"])


@pytest.mark.parametrize("point", [name for name in POINTS if name not in HOLDING])
def test_a_second_attempt_does_not_wait_for_one_that_was_stopped_after_its_commit(runtime, worker, point):
    """It lets go of the copy with its local commit. What it does when it goes on, batches later, changes nothing."""
    stream = Stream(runtime)
    stream.run("1")
    zombie = worker(rows=stream.rows, executor="1", point=point)
    zombie.waits_at(point)
    report, *_ = stream.run("1")
    assert report.recovery.rolled_back
    stream.run("1")
    zombie.goes_on()
    assert zombie.has_ended().attempt != report.attempt
    assert peek(runtime.copy(TASK)).version == 1, "the last batch is only known to be committed with the next"
    stream.run("1")
    stream.check(["1", "2"])


@pytest.mark.parametrize("point", HOLDING)
def test_the_attempt_that_waited_may_also_be_the_one_that_loses(runtime, worker, point):
    """The stopped one's batch is committed with its own result; the second one's copy is taken back."""
    stream = Stream(runtime)
    stream.run("1")
    zombie = worker(rows=stream.rows, executor="1", point=point)
    zombie.waits_at(point)
    second = worker(rows=stream.rows, executor="1")
    zombie.goes_on()
    winner = zombie.has_ended()
    second.has_ended()
    stream.run("1", winner)
    report, *_ = stream.run("1")
    assert report.recovery.rolled_back
    assert not report.recovery.scratch
    stream.check(["1", "2"])


def test_the_stopped_task_has_rows_in_every_batch():
    """So that counting one twice shows."""
    assert list(partition_of([pa.array(["N1", "N2", "N3", "N4", "N7", "N8"])], 2)) == [0, 0, 0, 1, 1, 1]
    assert all({tail for tail, _ in rows} & {"N1", "N2", "N3"} for rows in BATCHES)
