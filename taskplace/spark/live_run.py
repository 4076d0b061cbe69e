"""The pages of a running stream: what a live page shows, and the page that `taskplace run` leaves behind.

`ServedRun` is the live page of a stream that runs (`Placed.serve_ui`). `RunReport` makes both pages of one run
(`report.html`, `report.ui.port`). The page is written when the run ends, however it ends. A driver that is killed
writes no page; if there is a `report.events`, its lines are there, and `taskplace report` makes a page of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from taskplace.errors import TaskplaceError
from taskplace.explanation import Explainer
from taskplace.record.events import Finish, Reporter
from taskplace.record.html.live import LivePage
from taskplace.record.html.of_plan import reasons_of
from taskplace.record.html.of_run import INTERRUPTED, RunRecorder
from taskplace.record.html.page import check_report, write_page
from taskplace.record.html.values import Now, Reason, Report
from taskplace.record.reporters import FanOut
from taskplace.redaction import scrubbed
from taskplace.spark.driver.runner import BatchRunner
from taskplace.spark.inspection.now import figures_of, input_rows, now_of
from taskplace.spark.inspection.situation import status_explainer
from taskplace.spec.application import ReportSettings

log = logging.getLogger(__name__)

#: Reasons are made again after so many seconds, because lags change.
REASONS_SECONDS = 60


class LiveRun:
    """One stream, for a live page and for the page at its end.

    `recorder` gets the stream's events. Reasons are made when they are asked for, once for each assignment and minute.
    Nothing here delays a batch.
    """

    def __init__(
        self, runner: BatchRunner, recorder: RunRecorder, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.recorder = recorder
        self._runner, self._clock, self._began = runner, clock, clock()
        self._lock = threading.Lock()
        self._reasons: tuple[str, tuple[Reason, ...]] = ("", ())
        if (event := runner.rebalancer.in_force()) is not None and not recorder.version:
            recorder.begin_with(event)

    def report(self) -> Report:
        """Return the report so far, without reasons."""
        return self._with_input(self.recorder.report())

    def whole_report(self) -> Report:
        """Return the report so far, with the reasons of the assignment in force."""
        return self._with_input(self.recorder.report(self._made()))

    def _with_input(self, report: Report) -> Report:
        if not self._runner.operations.began:
            return report
        status = self._runner.operations.status()
        figures = (*report.figures, *figures_of(status))
        return replace(report, inputs=input_rows(status.input), figures=figures)

    def now(self) -> Now:
        """Return what is going on: the driver's state, or how the run has ended."""
        operations, version = self._runner.operations, self.recorder.version
        if self.recorder.end is not None or not operations.began:
            return Now(self.recorder.state(), version=version, explained=self._explained())
        return now_of(
            operations.status(),
            checkpoint=self._runner.definition.checkpoint,
            version=version,
            explained=self._explained(),
        )

    def reasons(self) -> tuple[Reason, ...]:
        """Return why each task is where it is."""
        with self._lock:
            wanted = self._explained()
            if self._reasons[0] != wanted:
                self._reasons = (wanted, self._made())
            return self._reasons[1]

    def _made(self) -> tuple[Reason, ...]:
        explainer = explainer_of(self._runner)
        return () if explainer is None else reasons_of(explainer)[0]

    def _explained(self) -> str:
        """Return a name for the reasons: another assignment, or another minute, gives others."""
        minute = int((self._clock() - self._began) / REASONS_SECONDS)
        return f"{self._runner.rebalancer.loop.generation}, {0 if self.recorder.end else minute}"


def explainer_of(runner: BatchRunner) -> Explainer | None:
    """Return what explains the tasks for the cluster as it is now. Plans once.

    None before the first plan, and while no executor is there: then there is nothing to plan with.
    """
    rebalancer = runner.rebalancer
    with rebalancer.lock:
        if rebalancer.loop.plan is None or not rebalancer.state.members:
            return None
        status = runner.operations.status()
        ends = {str(task): runner.journal.end_offset(task) for task in rebalancer.task_ids}
    return status_explainer(status, ends, checkpoint=runner.definition.checkpoint)


class ServedRun(LivePage):
    """A live page about one stream. `url` is its address; `close` ends it, and may be called again.

    It shows what happens from now on, and the assignment that is in force already.
    Errors: `InputError` for an address or a port that cannot be used.
    """

    def __init__(self, runner: BatchRunner, reporters: FanOut, *, title: str, port: int, host: str) -> None:
        self._recorder, self._reporters = RunRecorder(title), reporters
        super().__init__(LiveRun(runner, self._recorder), port=port, host=host)
        reporters.add(self._recorder)

    def close(self) -> None:
        """End the page. Whoever looks at it is told that it has ended."""
        self._reporters.remove(self._recorder)
        self._recorder.add(Finish(exit_code=0))
        super().close()


class RunReport:
    """A context around a run. Events go to `reporter`, which passes them on to the given one and to `recorder`.

    Errors: `InputError` at the start for what `check_report` refuses.
    """

    def __init__(self, settings: ReportSettings, title: str, reporter: Reporter) -> None:
        check_report(settings)
        self._settings = settings
        self.recorder = RunRecorder(title)
        self._live: LiveRun | None = None
        self._page: LivePage | None = None
        self.reporter = FanOut(reporter)
        if settings.html is not None or settings.ui_port is not None:
            self.reporter.add(self.recorder)

    def follow(self, live: LiveRun) -> None:
        """Explain the placement of this stream, and serve its live page if there is to be one."""
        self._live = live
        if self._settings.ui_port is not None:
            port, host = self._settings.ui_port, self._settings.ui_host
            self._page = LivePage(self._live, port=port, host=host, path="report.ui.port")
            self.reporter.note(f"live page: {self._page.url}")

    def __enter__(self) -> RunReport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.recorder.add(_finish(error))
        if self._settings.html is not None:
            self._write(self._settings.html)
        if self._page is not None:
            self._page.close()

    def _write(self, path: str) -> None:
        """Write the page, and name it. An error of it never hides that of the run."""
        try:
            made = self._live.whole_report() if self._live is not None else self.recorder.report()
            self.reporter.note(f"page: {write_page(made, Path(path))}")
        except Exception as error:
            self.reporter.note(f"the page was not written: {_said(error)}")
            log.debug("the page was not written", exc_info=True)


def _finish(error: BaseException | None) -> Finish:
    if error is None or isinstance(error, KeyboardInterrupt):
        return Finish(exit_code=0 if error is None else INTERRUPTED)
    return Finish(exit_code=1, error=_said(error))


def _said(error: BaseException) -> str:
    """Return what is shown of an error. Only messages of taskplace are: those of others may have values of rows."""
    return scrubbed(str(error)) if isinstance(error, TaskplaceError) else type(error).__name__
