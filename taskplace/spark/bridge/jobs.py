"""Jobs of a session: they run in threads of their own, can be watched, and end as gently as they can.

PySpark brings an exception of an executor to the driver as text: a `PythonException` that ends with the traceback.
`own_error` reads the exception's line there. It makes the same exception again if a caller may want to act on it:
`DiskFull`, `CheckpointError`, `Fenced`. All others stay a `PythonException`, with the whole traceback in it. A worker
whose Python has no taskplace cannot raise an error of it: `own_error` says so in one line, and does the same for a
module of the user's that the driver has and the worker lacks.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import RDD, InheritableThread, SparkContext

from taskplace.errors import CheckpointError, Fenced, InputError, TaskplaceError
from taskplace.spark.sending import Sending
from taskplace.spark.versions import python_error
from taskplace.spark.worker.guard import DiskFull

log = logging.getLogger(__name__)
POLL_SECONDS = 0.1
#: How long the tasks of a lost job may take to end by themselves. If it is cancelled, Spark ends its Python workers
#: after two seconds and more (`spark.python.task.killTimeout`), and the next job has to start new ones.
END_BY_THEMSELVES_SECONDS = 2.0
#: How far Spark's status of a job may be behind: twice its default of `spark.ui.liveUpdate.period`.
STATUS_SECONDS = 0.2
#: A job that is older is cancelled at once: its tasks may wait for blocks of an executor that does not answer.
YOUNG_SECONDS = 5.0
#: A task that runs for so long after the cancellation waits for such blocks. It holds its slot, so it is interrupted.
#: Spark could interrupt all tasks at once, but that also ends those that are just starting, with their Python daemon.
HANGING_SECONDS = 0.5
#: A round begins so long after the cancellation of the one before, at the latest. By then Spark has ended its workers.
END_OF_TASKS_SECONDS = 3.0
#: The most tasks of a stage that are looked at.
MOST_TASKS = 10_000
_OWN: dict[str, type[TaskplaceError]] = {
    f"{kind.__module__}.{kind.__qualname__}": kind for kind in (CheckpointError, DiskFull, Fenced)
}
#: What a worker says that has another Python than the driver: it lacks taskplace, or what comes with it.
_ELSEWHERE = re.compile(
    r"^ModuleNotFoundError: No module named '(?P<name>taskplace|topology|msgspec|lmdb|pyarrow|numpy|psutil)'",
    re.MULTILINE,
)
_LACKING = re.compile(r"^ModuleNotFoundError: No module named '(?P<name>\w+)", re.MULTILINE)
_BEGIN = "Traceback (most recent call last):\n"
#: The exception of a traceback: its first line that is not indented. Its message ends at an empty line.
_RAISED = re.compile(r"^(?P<kind>[\w.]+): (?P<message>\S.*(?:\n(?!SQLSTATE).+)*)", re.MULTILINE)


@dataclass(frozen=True)
class Pinned:
    """The description of a job: an RDD, the function that maps it, and the partition of each element.

    `partitions` None: the RDD has one partition per element, in order.
    """

    rdd: RDD[Any]
    function: Callable[[Iterator[Any]], Iterable[Any]]
    partitions: tuple[int, ...] | None = None

    def of(self, elements: Iterable[int]) -> list[int]:
        """Return the partitions of some elements, given by their positions."""
        return [element if self.partitions is None else self.partitions[element] for element in elements]


class Job:
    """A result job that runs in its own thread, so that it can be watched and cancelled.

    - `tag`: marks its Spark jobs; `pool`: its scheduler pool; `on_done` is called in its thread, at its end
    - `done` is set at its end; then `error` is the exception that it ended with, or None
    """

    def __init__(
        self,
        sc: SparkContext,
        sending: Sending,
        pinned: Pinned,
        partitions: Sequence[int],
        *,
        tag: str,
        pool: str | None = None,
        on_done: Callable[[], None] | None = None,
    ) -> None:
        self.tag = tag
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._found: list[Any] = []
        self._cancelled = self._status_failed = False
        self._began = time.monotonic()
        self._sc, self._sending = sc, sending
        self._pinned, self._partitions = pinned, list(partitions)
        self._pool, self._on_done = pool, on_done
        self._thread = InheritableThread(target=self._run, name=f"taskplace-job-{tag}", daemon=True)

    def start(self) -> None:
        """Start the job, and wait for nothing."""
        self._thread.start()

    def result(self) -> list[Any]:
        """Return the elements of the ended job. Errors: the exception of a task, as `Bridge.run` raises it."""
        if self.error is None:
            return self._found
        if (own := own_error(self.error)) is not None:
            raise own from self.error
        raise self.error

    def cancel(self) -> None:
        """Cancel the job, and wait for nothing."""
        self._cancelled = True  # Spark may not have the job yet
        self._sc.cancelJobsWithTag(self.tag)

    def end_lost(self, on_lost: Callable[[], None] | None) -> None:
        """End a job that has lost an executor, unless it has failed already, and wait for its tasks.

        `on_lost` asks the tasks to end. The job is cancelled if they do not, or if it is not young any more. Whether
        its tasks run, and what hangs, is Spark's status of them. An error of that is logged, and the time limits hold.
        """
        try:
            if on_lost is not None:
                on_lost()
                self._let_tasks_end(
                    min(time.monotonic() + END_BY_THEMSELVES_SECONDS, self._began + YOUNG_SECONDS)
                )
        finally:  # no job goes on, even if its mark could not be written
            if not self.done.is_set():
                self.cancel()
                self.done.wait()
            self._wait_for_tasks()

    def _let_tasks_end(self, deadline: float) -> None:
        """Wait until the job has ended or none of its tasks runs. Lost tasks do not: Spark looks for their executor."""
        self.done.wait(STATUS_SECONDS)
        while not self.done.is_set() and time.monotonic() < deadline and self._tasks_run():
            self.done.wait(POLL_SECONDS)

    def _wait_for_tasks(self) -> None:
        """Wait until no task of the job runs, at most `END_OF_TASKS_SECONDS`. Those that hang are interrupted."""
        now = time.monotonic()
        deadline, hanging = now + END_OF_TASKS_SECONDS, now + HANGING_SECONDS
        while self._tasks_run() and time.monotonic() < deadline:
            if time.monotonic() >= hanging:
                self._interrupt()
                hanging = deadline
            time.sleep(POLL_SECONDS)

    def _tasks_run(self) -> bool:
        """Return whether tasks of the job ran a moment ago (`STATUS_SECONDS`); True if Spark does not say."""
        with self._logging_errors():
            tracker = self._sc._jsc.sc().statusTracker()
            stages = [tracker.getStageInfo(stage_id) for stage_id in self._stages(tracker)]
            return any(stage.get().numActiveTasks() for stage in stages if stage.isDefined())
        return True

    def _interrupt(self) -> None:
        """Interrupt the tasks of the job that still run, as far as Spark knows them."""
        with self._logging_errors():
            context = self._sc._jsc.sc()
            for stage_id in self._stages(context.statusTracker()):
                with self._logging_errors():  # Spark may have forgotten one stage, and still have another
                    self._interrupt_stage(context, stage_id)

    def _interrupt_stage(self, context: Any, stage_id: int) -> None:
        store = context.statusStore()
        tasks = store.taskList(stage_id, store.lastStageAttempt(stage_id).attemptId(), MOST_TASKS)
        for task in (tasks.apply(i) for i in range(tasks.size())):
            if task.status() == "RUNNING":
                context.killTaskAttempt(task.taskId(), True, f"{self.tag} was cancelled")

    @contextmanager
    def _logging_errors(self) -> Iterator[None]:
        """Go on after an error of a call to Spark. The first one of the job is logged."""
        try:
            yield
        except Exception as error:
            if not self._status_failed:
                self._status_failed = True
                log.warning(
                    "%s: Spark does not tell what its tasks do, the loss is handled without: %s",
                    self.tag,
                    error,
                )

    def _stages(self, tracker: Any) -> list[int]:
        """Return the stages of the job."""
        jobs = [tracker.getJobInfo(job_id) for job_id in tracker.getJobIdsForTag(self.tag)]
        return [stage_id for job in jobs if job.isDefined() for stage_id in job.get().stageIds()]

    def _run(self) -> None:
        sc, sent = self._sc, None
        try:
            sc.addJobTag(self.tag)
            if self._pool:
                sc.setLocalProperty("spark.scheduler.pool", self._pool)
            function, sent = self._sending.lighten(self._pinned.function)
            if self._cancelled:
                raise RuntimeError(f"{self.tag}: cancelled before it began")
            self._found = list(sc.runJob(self._pinned.rdd, function, self._pinned.of(self._partitions)))
        except BaseException as error:
            self.error = python_error(error)
        finally:
            if sent is not None:
                sent.destroy()
            self.done.set()
            if self._on_done is not None:
                self._on_done()


def own_error(error: BaseException) -> TaskplaceError | None:
    """Return the error of taskplace that an executor raised, made again from the text of a job's error; else None.

    >>> class PythonException(Exception): pass
    >>> text = "Traceback (most recent call last):\\n  File ...\\ntaskplace.errors.Fenced: by driver 2\\n"
    >>> own_error(PythonException(text))
    Fenced('by driver 2')
    >>> own_error(PythonException(text.replace("taskplace.errors.Fenced", "ValueError"))) is None
    True
    """
    if type(error).__name__ != "PythonException":
        return None
    if (lacks := _ELSEWHERE.search(str(error))) is not None:
        return InputError(
            "Python of the executors",
            found=f"no module {lacks['name']!r}",
            expected="an environment with taskplace",
            hint=f"activate it before the start, or set PYSPARK_PYTHON to its Python; the driver has {sys.executable}",
        )
    if (lacking := _of_the_driver(str(error))) is not None:
        return lacking
    _, begin, traceback = str(error).rpartition(_BEGIN)
    raised = _RAISED.search(traceback) if begin else None
    kind = _OWN.get(raised["kind"]) if raised else None
    return kind(raised["message"]) if raised and kind else None


def _of_the_driver(text: str) -> InputError | None:
    """Return the error about a module that the driver has and a worker lacks; None if the text has none."""
    lacks = _LACKING.search(text)
    spec = importlib.util.find_spec(lacks["name"]) if lacks is not None else None
    if lacks is None or spec is None or spec.origin is None:
        return None
    file = Path(spec.origin)
    send = f"send it with spark.sparkContext.addPyFile({str(file)!r})"
    if spec.submodule_search_locations:
        send, file = "send it as a zip file with spark.sparkContext.addPyFile", file.parent
    return InputError(
        "Python of the executors",
        found=f"no module {lacks['name']!r}",
        expected="the modules of your processors",
        hint=f"the driver has it in {file.parent}: {send} before the start, or set PYTHONPATH before Spark starts",
    )
