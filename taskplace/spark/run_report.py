"""The HTML page and the live page of one `taskplace run`: `report.html` and `report.ui.port`.

The page is written when the run ends, however it ends. A driver that is killed writes no page; if there is a
`report.events`, its lines are there, and `taskplace report` makes a page of them.
"""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType

from taskplace.errors import TaskplaceError
from taskplace.record.events import Reporter
from taskplace.record.html.live import LivePage
from taskplace.record.html.of_run import RunRecorder
from taskplace.record.html.page import check_report, write_page
from taskplace.record.json_lines import Ended
from taskplace.record.reporters import FanOut
from taskplace.redaction import scrubbed
from taskplace.spark.live_run import LiveRun
from taskplace.spark.placed import Placed
from taskplace.spec.application import ReportSettings

log = logging.getLogger(__name__)


class RunReport:
    """A context around a run. Events go to `reporter`, which passes them on to the given one as well.

    Errors: `InputError` at the start for what `check_report` refuses.
    """

    def __init__(self, settings: ReportSettings, title: str, reporter: Reporter) -> None:
        check_report(settings)
        self._settings = settings
        self._recorder = RunRecorder(title)
        self._live: LiveRun | None = None
        self._page: LivePage | None = None
        self.reporter = FanOut(reporter)
        if settings.html is not None or settings.ui_port is not None:
            self.reporter.add(self._recorder)

    def follow(self, placed: Placed) -> None:
        """Explain the placement of this stream, and serve its live page if there is to be one."""
        self._live = placed.live(self._recorder)
        if self._settings.ui_port is not None:
            port, host = self._settings.ui_port, self._settings.ui_host
            self._page = LivePage(self._live, port=port, host=host, path="report.ui.port")
            self.reporter.note(f"live page: {self._page.url}")

    def __enter__(self) -> RunReport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.ended(_end(error))
        if self._settings.html is not None:
            self._write(self._settings.html)
        if self._page is not None:
            self._page.close()

    def _write(self, path: str) -> None:
        """Write the page, and name it. An error of it never hides that of the run."""
        try:
            made = self._live.whole_report() if self._live is not None else self._recorder.report()
            self.reporter.note(f"page: {write_page(made, Path(path))}")
        except Exception as error:
            said = scrubbed(str(error)) if isinstance(error, TaskplaceError) else type(error).__name__
            self.reporter.note(f"the page was not written: {said}")
            log.debug("the page was not written", exc_info=True)


def _end(error: BaseException | None) -> Ended:
    """Return how a run has ended. Only messages of taskplace are shown: those of others may have values of rows."""
    if error is None:
        return Ended("ended")
    if isinstance(error, KeyboardInterrupt):
        return Ended("interrupted", "it goes on after its last committed batch")
    name = type(error).__name__
    return Ended("failed", scrubbed(str(error)) if isinstance(error, TaskplaceError) else name)
