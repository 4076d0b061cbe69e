"""Runs an application of the command line: starts Spark, runs its stream, checks the result.

The stream ends when it has read everything that was there at its start. With `spark.trigger.interval` it goes on until
it is stopped, and there is no check.

Non-goals: reading the file (`taskplace.spec.application`) and finding the application (`taskplace.cli.application`).
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import replace
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from taskplace.errors import ConfigError, InputError, TaskplaceError
from taskplace.model.work import Work
from taskplace.record.events import CheckResult, Reporter
from taskplace.redaction import scrubbed
from taskplace.spark.bridge.queries import jvm_running
from taskplace.spark.live_run import RunReport
from taskplace.spark.messages import reports_dir
from taskplace.spark.placed import Placed
from taskplace.spark.session_conf import application_properties
from taskplace.spec.application import MOST_ACTIVE, ChaosSettings, Settings
from topology import Topology

log = logging.getLogger(__name__)

POLL_SECONDS = 0.02


class Application(Protocol):
    """The methods that `taskplace run` calls.

    An application may have two more: `batches()`, the expected number of batches for the progress bar, and
    `check(spark)`, which compares the result and returns a `taskplace.record.events.CheckResult`.
    """

    def topology(self) -> Topology:
        """Return the topology, not yet built. Errors: `TopologyError`, whose path is completed from the file."""
        ...

    def sources(self, spark: SparkSession) -> Mapping[str, DataFrame]:
        """Return a streaming data frame for each external topic, by its name."""
        ...


@jvm_running()
def run(settings: Settings, application: Application, reporter: Reporter) -> int:
    """Run the application until its stream ends; return 0, or 1 if its own check says that the result is wrong.

    A stream that was interrupted goes on after its last committed batch. Spark is stopped at the end, whatever happens.
    Errors: `TaskplaceError` with the batch and the cause, if a batch failed; those of `Placed` and of `Placed.start`.
    """
    with RunReport(settings.report, settings.application.id, reporter) as report:
        return _run(settings, application, report)


def _run(settings: Settings, application: Application, report: RunReport) -> int:
    start, reporter = time.perf_counter(), report.reporter
    with Work("starting Spark", show=reporter.progress):
        spark = session(settings)
    with ended_by(spark.stop):
        sources = application.sources(spark)
        placed = placed_stream(settings, application, spark, reporter)
        if placed.journal.last_batch >= 0:
            reporter.note(f"continuing after batch {placed.journal.last_batch}")
        report.follow(placed.live(report.recorder))
        if (port := settings.report.metrics_port) is not None:
            url = placed.serve_metrics(port=port, host=settings.report.metrics_host).url
            reporter.note(f"metrics for Prometheus: {url}")
        drill = Drill(settings.chaos, placed)
        placed.on_stage = drill.on_stage
        query = placed.start(sources, trigger=trigger_of(settings), name=settings.application.id)
        with ended_by(query.stop):
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                said = of_source(str(error)) if placed.error is None else root_cause(placed.error)
                if said is None:
                    raise
                failed = "failed" if placed.error is not None else "was not planned"
                raise TaskplaceError(
                    f"batch {placed.journal.last_batch + 1} {failed}: {scrubbed(said)}"
                ) from error
        summary = placed.summary()
        if hasattr(application, "check"):
            with Work("comparing the result with a batch query", show=reporter.progress):
                check: CheckResult = application.check(spark)
            summary = replace(summary, check=check.text, ok=check.ok, detail=check.detail)
        reporter.summary(replace(summary, seconds=time.perf_counter() - start))
        return 1 if summary.ok is False else 0


@contextmanager
def ended_by(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the end of the block. If the block has failed or was interrupted, that is the error.

    A signal to a process group ends Spark's process as well; then nothing of Spark can be stopped any more.
    """
    try:
        yield
    except BaseException:
        try:
            stop()
        except Exception as error:
            log.debug("not stopped: %s: %s", type(error).__name__, error)
        raise
    stop()


def trigger_of(settings: Settings) -> dict[str, Any]:
    """Return the trigger of the stream: what is there at the start and no more, unless an interval is set."""
    interval = settings.spark.trigger_interval
    return {"availableNow": True} if interval is None else {"processingTime": interval}


def session(settings: Settings) -> SparkSession:
    """Start a Spark session with the settings' name, master and configuration, and return it.

    Python workers use this interpreter, unless PYSPARK_PYTHON is set. They import modules from the current directory.
    """
    modules = {f"spark.py.files[{at}]": path for at, path in enumerate(settings.spark.py_files)}
    for key, path in {"spark.environment": settings.spark.environment, **modules}.items():
        if path is not None and not Path(path).expanduser().exists():
            raise ConfigError(key, found=path, expected="a file that exists")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for each in application_properties(settings):  # a later one replaces an earlier one
        builder = builder.config(each.name, each.value)
    spark = builder.getOrCreate()
    for path in modules.values():
        spark.sparkContext.addPyFile(importable(Path(path).expanduser()))
    spark.sparkContext.setLogLevel("FATAL" if settings.chaos else "ERROR")
    with suppress(AttributeError):  # a server of PySpark's that prints a traceback when the JVM has ended
        spark.sparkContext._accumulatorServer.handle_error = lambda *_: log.debug("PySpark", exc_info=True)
    return spark


def importable(path: Path) -> str:
    """Return a file that Python can import from: a directory as a zip file, and a wheel under that name."""
    if not path.is_dir() and path.suffix != ".whl":
        return str(path)
    made = Path(tempfile.mkdtemp(prefix="taskplace-")) / f"{path.name}.zip"
    atexit.register(
        shutil.rmtree, made.parent, ignore_errors=True
    )  # Spark sends it to later executors as well
    if path.is_dir():
        return shutil.make_archive(str(made.with_suffix("")), "zip", path.parent, path.name)
    return shutil.copyfile(path, made).as_posix()


def placed_stream(
    settings: Settings, application: Application, spark: SparkSession, reporter: Reporter | None
) -> Placed:
    """Return the `Placed` of an application's topology, with the directories, keys and options of the settings.

    Errors: as for `Placed`.
    """
    placed = Placed(
        spark,
        application.topology(),
        checkpoint=settings.checkpoint_dir,
        state_dir=settings.state_dir,
        config=settings.placement,
        options=settings.runtime,
        reporter=reporter,
    )
    batches: Any = getattr(application, "batches", None)
    placed.total_batches = batches() if batches is not None else None
    return placed


def root_cause(error: BaseException) -> str:
    """Return an error in one line: the last line of a worker's traceback, or the error's type and first line.

    >>> root_cause(ValueError("no such column"))
    'ValueError: no such column'
    """
    lines = [
        line for line in str(error).splitlines() if line.strip() and not line.strip().startswith("SQLSTATE")
    ]
    if type(error).__name__ == "PythonException" and lines:
        return lines[-1].strip()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def of_source(said: str) -> str | None:
    """Return the error of a source of this project in the text of Spark's error, which has a traceback; else None.

    >>> of_source("[STREAM_FAILED] ...\\n  File ...\\ntaskplace.errors.InputError: topic 'in': found .\\n SQLSTATE: 3")
    "topic 'in': found ."
    """
    found = re.search(r"^taskplace\.\S+: (.+)$", said, re.MULTILINE)
    return found and found[1]


class Drill:
    """Kills executors on purpose, in the middle of a batch, as the settings say.

    In the last stage of its batch, as soon as one task has written its changes and others have not, the executor's JVM
    gets SIGKILL. Errors: `InputError` for an executor that is not there, or not on this host.
    """

    def __init__(self, chaos: tuple[ChaosSettings, ...], placed: Placed) -> None:
        self._due = {order.batch: order.kill for order in chaos}
        self._placed = placed

    def on_stage(self, batch: int, subtopology: int) -> None:
        """Arm the drill when the last stage of its batch begins."""
        if subtopology == self._placed.built.order[-1] and batch in self._due:
            which = self._due.pop(batch)
            pid = self._pid(which)
            checkpoint = self._placed.checkpoint
            reports = checkpoint / reports_dir(batch, subtopology)
            before = _written(checkpoint, reports)
            threading.Thread(
                target=self._kill,
                args=(pid, lambda: _written(checkpoint, reports) != before),
                name="taskplace-drill",
                daemon=True,
            ).start()

    def _pid(self, which: str) -> int:
        members = self._placed.state.members
        if which == MOST_ACTIVE:
            views = self._placed.placement()
            which = max(views, key=lambda view: (view.active, view.id)).id
        name = which if which.startswith("executor-") else f"executor-{which}"
        if name not in members:
            raise InputError("chaos.kill", found=which, expected=f"one of {sorted(members)}")
        return members[name].pid

    @staticmethod
    def _kill(pid: int, begun: Callable[[], bool]) -> None:
        # Wait for the first task's changes, so that the loss comes while the others run.
        while not begun():
            time.sleep(POLL_SECONDS)
        os.kill(pid, signal.SIGKILL)


def _written(checkpoint: Path, reports: Path) -> dict[Path, int]:
    """Return the bytes of each changelog segment, and of each report: what changes with the first attempt to end."""
    written = {}
    for path in (*checkpoint.glob("changelog/*.segment"), *reports.glob("*.json")):
        with suppress(FileNotFoundError):  # pruned meanwhile
            written[path] = path.stat().st_size
    return written
