"""Jobs of the bridge: of one session with several streams, and on executors that are about to go; without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from taskplace.spark.bridge import Bridge, JobLostError, Pinned, jobs


class Context:
    """Stands for a SparkContext: a job lasts until it is told to end, or is cancelled by its tag."""

    def __init__(self) -> None:
        self.jobs: dict[str, threading.Event] = {}
        self.begun = threading.Semaphore(0)
        self.cancelled: list[str] = []
        self._mine = threading.local()
        no_jobs = SimpleNamespace(getJobIdsForTag=lambda tag: [])
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: no_jobs))

    def addJobTag(self, tag: str) -> None:
        self._mine.tag = tag

    def runJob(self, *_: Any) -> list[str]:
        assert self._mine.tag not in self.jobs
        end = self.jobs[self._mine.tag] = threading.Event()
        self.begun.release()
        assert end.wait(30)
        if self._mine.tag in self.cancelled:
            raise RuntimeError("[SPARK_JOB_CANCELLED]")
        return ["done"]

    def cancelJobsWithTag(self, tag: str) -> None:
        self.cancelled.append(tag)
        self.jobs[tag].set()


@pytest.fixture
def context(monkeypatch):
    monkeypatch.setattr(jobs, "InheritableThread", threading.Thread)
    return Context()


#: A job of which the context asks nothing.
NOTHING = Pinned(None, iter)


def bridged(context: Context, alive: set[str], going: set[str] | None = None) -> Bridge:
    """Return the bridge of a session with these executors; those that are `going` get no tasks any more."""
    made = object.__new__(Bridge)
    made.sc = context
    made.alive = lambda: frozenset(alive)
    made.usable = lambda: frozenset(alive - (going or set()))
    made._sending = SimpleNamespace(lighten=lambda function: (function, None))
    return made


def test_who_cancels_its_job_leaves_those_of_other_streams_alone_whatever_they_are_called(context):
    alive, found = {"1", "2"}, {}

    def run(on: str) -> None:
        try:
            bridge = bridged(context, alive)
            found[on] = bridge.run(NOTHING, [0], tag="taskplace-1-5-0-0", watch=frozenset(on))
        except Exception as error:
            found[on] = error

    threads = [threading.Thread(target=run, args=(on,)) for on in "12"]
    for thread in threads:
        thread.start()
        assert context.begun.acquire(timeout=30)
    one, two = context.jobs
    assert one != two
    assert one.startswith("taskplace-1-5-0-0-")
    assert two.startswith("taskplace-1-5-0-0-")
    alive.discard("1")
    threads[0].join(30)
    assert isinstance(found["1"], JobLostError)
    assert context.cancelled == [one]
    context.jobs[two].set()
    threads[1].join(30)
    assert found["2"] == ["done"]


@pytest.mark.parametrize("going", [{"1"}, set()])
def test_a_job_that_fails_because_an_executor_is_about_to_go_is_lost(context, going):
    """What such a one does to its tasks shows in the job before anybody has asked."""

    def fail(*_: Any) -> list[str]:
        raise RuntimeError("Connection reset")

    context.runJob = fail
    error, says = (JobLostError, r"^executors were lost: 1$") if going else (RuntimeError, "reset")
    with pytest.raises(error, match=says):
        bridged(context, {"1"}, going).run(NOTHING, [0], tag="t", watch=frozenset("1"))


@pytest.mark.parametrize("shows", ["in the list of executors", "in the job"])
def test_wherever_a_loss_shows_first_the_round_is_called_off_before_its_tasks_are_waited_for(
    context, monkeypatch, shows
):
    """A worker that Spark ends while no mark says so counts against the copy that it had open."""
    alive, done = {"1"}, []
    if shows == "in the job":

        def fail(*_: Any) -> list[str]:
            alive.clear()
            raise RuntimeError("Connection reset")

        context.runJob = fail
    else:
        alive.clear()
    made = bridged(context, alive)
    monkeypatch.setattr(jobs.Job, "_wait_for_tasks", lambda job: done.append("tasks have ended"))
    monkeypatch.setattr(jobs, "END_BY_THEMSELVES_SECONDS", 0.0)
    with pytest.raises(JobLostError, match=r"^executors were lost: 1$"):
        made.run(NOTHING, [0], tag="t", watch=frozenset("1"), on_lost=lambda: done.append("called off"))
    assert done == ["called off", "tasks have ended"]
    assert len(context.cancelled) == (shows != "in the job"), "a job that has failed is not cancelled"


def lose(context: Context, on_lost: Callable[[], None] = lambda: None) -> None:
    """Run a job on executor 1, which is lost."""
    with pytest.raises(JobLostError, match=r"^executors were lost: 1$"):
        bridged(context, set()).run(NOTHING, [0], tag="t", watch=frozenset("1"), on_lost=on_lost)


def test_a_job_that_ends_by_itself_once_it_is_called_off_is_not_cancelled(context):
    """Spark would end its Python workers, and the next job would have to start new ones."""

    def call_off() -> None:
        assert context.begun.acquire(timeout=30)
        for ended in context.jobs.values():
            ended.set()

    lose(context, call_off)
    assert context.cancelled == []


def running(context: Context, numbers: list[int], status: Sequence[str] = ()) -> list[int]:
    """Have Spark's status say, look for look, that so many tasks of a job run; then the last number for ever.

    `status`: of each task of the job's stage, by its number. Returns the tasks that are killed.
    """
    killed: list[int] = []

    def some(value: Any) -> Any:
        return SimpleNamespace(isDefined=lambda: True, get=lambda: value)

    stage = SimpleNamespace(numActiveTasks=lambda: numbers.pop(0) if numbers[1:] else numbers[0])
    tracker = SimpleNamespace(
        getJobIdsForTag=lambda tag: [1],
        getJobInfo=lambda id_: some(SimpleNamespace(stageIds=lambda: [1])),
        getStageInfo=lambda id_: some(stage),
    )

    def task(number: int) -> Any:
        return SimpleNamespace(taskId=lambda: number, status=lambda: status[number])

    tasks = list(map(task, range(len(status))))
    store = SimpleNamespace(
        lastStageAttempt=lambda stage_id: SimpleNamespace(attemptId=lambda: 0),
        taskList=lambda *_: SimpleNamespace(size=lambda: len(tasks), apply=tasks.__getitem__),
    )

    def kill(task: int, interrupt: bool, why: str) -> None:
        assert interrupt
        assert "was cancelled" in why
        killed.append(task)

    jvm = SimpleNamespace(statusTracker=lambda: tracker, statusStore=lambda: store, killTaskAttempt=kill)
    context._jsc = SimpleNamespace(sc=lambda: jvm)
    return killed


AT_ONCE = {"END_BY_THEMSELVES_SECONDS": 0.0, "END_OF_TASKS_SECONDS": 0.5, "HANGING_SECONDS": 0.1}
OLD = {"YOUNG_SECONDS": 0.0, "END_BY_THEMSELVES_SECONDS": 3600.0, "END_OF_TASKS_SECONDS": 0.0}
SOON = {"END_BY_THEMSELVES_SECONDS": 0.3, "END_OF_TASKS_SECONDS": 0.3}


@pytest.fixture
def within(monkeypatch):
    """Sets how many seconds each step may take."""

    def set_seconds(seconds: dict[str, float]) -> None:
        for name, value in seconds.items():
            monkeypatch.setattr(jobs, name, value)

    return set_seconds


@pytest.mark.parametrize(
    ("numbers", "status", "seconds", "killed"),
    [
        # Spark looks for the lost executor for seconds before it runs the lost tasks elsewhere.
        ([2, 1, 0], [], {"END_BY_THEMSELVES_SECONDS": 3600.0, "YOUNG_SECONDS": 3600.0}, []),
        ([1], [], SOON, []),
        # Tasks may wait for blocks of the lost executor, and would not end by themselves.
        ([1], [], OLD, []),
        # They are interrupted once: they would hold their slots.
        ([1], ["SUCCESS", "RUNNING", "FAILED", "RUNNING"], AT_ONCE, [1, 3]),
        # Spark ends the Python worker of an interrupted task.
        ([3, 2, 1, 0], ["RUNNING"], {"END_BY_THEMSELVES_SECONDS": 0.0, "HANGING_SECONDS": 3600.0}, []),
    ],
    ids=["tasks end", "they do not end", "it has run for long", "they hang", "they end soon"],
)
def test_a_job_is_cancelled_and_its_tasks_interrupted(context, within, numbers, status, seconds, killed):
    within(seconds)
    numbers = list(numbers)
    found = running(context, numbers, status=status)
    lose(context)
    assert found == killed
    assert len(context.cancelled) == 1
    assert len(numbers) == 1


@pytest.mark.parametrize("fails", ["getJobIdsForTag", "getJobInfo", "getStageInfo"])
def test_a_loss_goes_on_if_spark_does_not_tell_what_the_tasks_do(context, within, caplog, fails):
    within(SOON | {"HANGING_SECONDS": 0.1})
    running(context, [1])
    looks = failing(context._jsc.sc().statusTracker(), fails)
    lose(context)
    assert len(context.cancelled) == 1
    assert len(looks) > 2
    (logged,) = caplog.records
    assert "does not tell what its tasks do" in logged.getMessage()
    assert f"{fails} failed" in logged.getMessage()


@pytest.mark.parametrize("fails", ["lastStageAttempt", "taskList"])
def test_a_loss_goes_on_if_its_tasks_cannot_be_interrupted(context, within, caplog, fails):
    within(AT_ONCE)
    killed = running(context, [1], status=["RUNNING"])
    tried = failing(context._jsc.sc().statusStore(), fails)
    lose(context)
    assert killed == []
    assert len(tried) == 1
    assert len(caplog.records) == 1


def test_a_stage_that_spark_has_forgotten_does_not_keep_the_tasks_of_another_one(context, within):
    within(AT_ONCE)
    killed = running(context, [1], status=["RUNNING"])
    jvm = context._jsc.sc()
    of_job = jvm.statusTracker().getJobInfo(1).get()
    of_job.stageIds = lambda: [0, 1]
    jvm.statusTracker().getJobInfo = lambda id_: SimpleNamespace(isDefined=lambda: True, get=lambda: of_job)
    found = jvm.statusStore().lastStageAttempt

    def last_attempt(stage_id: int) -> Any:
        if stage_id == 0:
            raise RuntimeError("java.util.NoSuchElementException")
        return found(stage_id)

    jvm.statusStore().lastStageAttempt = last_attempt
    lose(context)
    assert killed == [0]


def failing(of: Any, name: str) -> list[str]:
    """Have one call of a JVM object fail each time. Return the list to which each of them is added."""
    calls: list[str] = []

    def fail(*_: Any) -> None:
        calls.append(name)
        raise RuntimeError(f"{name} failed")

    setattr(of, name, fail)
    return calls


def test_a_started_job_is_waited_for_by_nobody_and_tells_when_it_has_ended(context):
    bridge, told = bridged(context, {"1"}), threading.Semaphore(0)
    both = [bridge.start(NOTHING, [0], tag="t", on_done=told.release) for _ in range(2)]
    for _ in both:
        assert context.begun.acquire(timeout=30)
    assert not any(job.done.is_set() for job in both)
    context.jobs[both[0].tag].set()
    assert told.acquire(timeout=30)
    assert both[0].done.is_set()
    assert both[0].result() == ["done"]
    both[1].cancel()
    assert told.acquire(timeout=30)
    with pytest.raises(RuntimeError, match="CANCELLED"):
        both[1].result()


def test_a_job_that_is_cancelled_before_spark_has_it_does_not_run(context):
    bridge, going = bridged(context, {"1"}), threading.Event()
    bridge._sending = SimpleNamespace(lighten=lambda function: (function, going.wait(30) and None))
    context.cancelJobsWithTag = lambda tag: None  # Spark does not know the tag yet
    job = bridge.start(NOTHING, [0], tag="t")
    job.cancel()
    going.set()
    assert job.done.wait(30)
    with pytest.raises(RuntimeError, match="cancelled before it began"):
        job.result()
    assert not context.jobs
