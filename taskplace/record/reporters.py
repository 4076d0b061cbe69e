"""Shows events: as lines for logs and continuous integration, as bars for long work, or to several reporters at once.

`json_lines` has the reporter for programs, `terminal` the one that redraws in place, `words` the texts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

from taskplace.model.work import Show
from taskplace.record import words
from taskplace.record.events import (
    BatchDone,
    ExecutorLost,
    Rebalanced,
    Reporter,
    Summary,
    WarmupChange,
    WorkProgress,
    tell,
)
from taskplace.record.json_lines import JsonReporter
from taskplace.record.words import Throttle

if TYPE_CHECKING:
    from taskplace.record.terminal import LiveBars

log = logging.getLogger(__name__)

#: Work gets a bar only after this time, so that short work neither flickers nor loads rich.
BAR_SECONDS = 0.5


def reporter_for(mode: str, stream: TextIO | None = None) -> Reporter:
    """Return the reporter for `report.progress`: auto, rich, plain, json or none.

    `auto` is rich on a terminal that can move its cursor, plain anywhere else, and where `CI` is set. Without a
    `stream` it is standard output.

    >>> import io
    >>> type(reporter_for("auto", io.StringIO())).__name__
    'PlainReporter'
    """
    stream = stream or sys.stdout
    if mode == "auto":
        mode = "rich" if redraws(stream) else "plain"
    if mode == "none":
        return SilentReporter()
    if mode == "plain":
        return PlainReporter(stream)
    if mode == "json":
        return JsonReporter(stream)
    from taskplace.record.terminal import TerminalReporter  # rich takes a while to load

    return TerminalReporter(stream)


def redraws(stream: TextIO) -> bool:
    """Return whether what a stream shows can be redrawn in place: a terminal with a cursor, and not that of a CI."""
    try:
        terminal = stream.isatty()
    except ValueError:  # closed
        return False
    return terminal and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("CI")


class SilentReporter:
    """Shows nothing."""

    def show(self, event: object) -> None:
        """Show nothing."""

    batch = rebalance = failure = note = progress = summary = show

    def close(self) -> None:
        """Nothing to give back."""


class PlainReporter:
    """Writes lines and flushes each, so that a log can be followed.

    If the stream is gone (a closed pipe), the reporter writes nothing more; the run goes on. Long work gets few lines
    (`Throttle`).

    >>> import sys
    >>> reporter = PlainReporter(sys.stdout)
    >>> reporter.failure(ExecutorLost("executor-1", 10, 8))
    lost executor-1 in batch 10 with 8 active tasks
    >>> for done in range(0, 101):
    ...     work = WorkProgress("verifying", 10 * done, 1000, "files", seconds=done / 10, eta=10 - done / 10)
    ...     reporter.progress(work)
    verifying: 200 of 1,000 files (20 %), 8.0 s left
    verifying: 700 of 1,000 files (70 %), 3.0 s left
    >>> reporter.progress(WorkProgress("verifying", 1000, 1000, "files", seconds=10.0, ended=True))
    verifying: 1,000 of 1,000 files (100 %), ended after 10.0 s
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._throttle = stream, Throttle()

    def show(self, event: BatchDone | Rebalanced | ExecutorLost) -> None:
        """Write the lines of an event."""
        self._write(*words.lines(event))

    batch = rebalance = failure = show

    def note(self, text: str) -> None:
        """Write one line."""
        self._write(text)

    def progress(self, event: WorkProgress) -> None:
        """Write a line now and then about work that takes long."""
        if self._throttle.passes(event):
            self._write(words.work_line(event))

    def summary(self, summary: Summary) -> None:
        """Write the summary of the run, with the result of the check as the last line."""
        rows = [f"  {label:<36}{value:>14}" for label, value in words.summary_rows(summary)]
        phases = [
            f"  {name:<36}{took:>14}{share:>7}" for name, took, share in words.phase_rows(summary.phases)
        ]
        self._write("summary", *rows)
        if phases:
            self._write(words.PHASES, *phases)
        self._write(*(f"  {line}" for line in summary.detail), f"check: {words.check_line(summary)}")

    def close(self) -> None:
        """Nothing to give back."""

    def _write(self, *lines: str) -> None:
        # ValueError: the stream was closed in this process; OSError: its reader is gone.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()


class FanOut:
    """A reporter that passes each event on to others, in their order.

    - `first`: its errors are raised, as those of a single reporter
    - further ones look on: an error of them is logged once, and never fails a batch

    It is false while nobody listens, so that nothing is collected in vain. `add` and `remove` may be called from any
    thread.

    >>> bool(FanOut())
    False
    """

    def __init__(self, first: Reporter | None = None) -> None:
        self._first = first
        self._others: tuple[Reporter, ...] = ()
        self._warned = False

    def __bool__(self) -> bool:
        return self._first is not None or bool(self._others)

    def add(self, reporter: Reporter) -> None:
        """Pass events on to one more reporter from now on."""
        self._others = (*self._others, reporter)

    def remove(self, reporter: Reporter) -> None:
        """Pass nothing more on to a reporter."""
        self._others = tuple(one for one in self._others if one is not reporter)

    def show(self, event: BatchDone | Rebalanced | WarmupChange | ExecutorLost | WorkProgress) -> None:
        """Pass on an event."""
        self._pass(lambda reporter: tell(reporter, event))

    batch = rebalance = warmup = failure = progress = show

    def note(self, text: str) -> None:
        """Pass on one line."""
        self._pass(lambda reporter: reporter.note(text))

    def summary(self, summary: Summary) -> None:
        """Pass on the summary of the run."""
        self._pass(lambda reporter: reporter.summary(summary))

    def close(self) -> None:
        """Close all reporters."""
        self._pass(lambda reporter: reporter.close())

    def _pass(self, event: Callable[[Reporter], None]) -> None:
        if self._first is not None:
            event(self._first)
        for reporter in self._others:
            try:
                event(reporter)
            except Exception:
                level = logging.DEBUG if self._warned else logging.WARNING
                self._warned = True
                log.log(level, "%s failed; the stream goes on", type(reporter).__name__, exc_info=True)


@contextlib.contextmanager
def long_work(stream: TextIO | None = None) -> Iterator[Show]:
    """Yield a function that shows `WorkProgress` within the block. Without a `stream` it is standard error.

    Bars on a terminal, which are cleared at the end; a few lines anywhere else, for work that takes longer than 2 s.
    Standard output stays the command's answer: it can be piped and parsed meanwhile.

    >>> from taskplace import simulate
    >>> with long_work() as show:
    ...     trajectory = simulate({"tasks": [{"id": "0_0"}], "instances": [{"id": "a"}]}, progress=show)
    """
    stream = stream or sys.stderr
    if not redraws(stream):
        yield PlainReporter(stream).progress
        return
    bars: LiveBars | None = None

    def show(event: WorkProgress) -> None:
        nonlocal bars
        if bars is None and event.seconds >= BAR_SECONDS and not event.ended:
            from taskplace.record.terminal import LiveBars  # rich takes a while to load

            bars = LiveBars(stream)
        if bars is not None:
            bars.show(event)

    try:
        yield show
    finally:
        if bars is not None:
            bars.close()
