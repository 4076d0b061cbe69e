"""One line for each event: for logs, for continuous integration, for a terminal without a cursor."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TextIO

from taskplace.record import words
from taskplace.record.events import BatchDone, ExecutorLost, Rebalanced, Summary, WorkProgress
from taskplace.record.reporters import Seldom


class WorkLines:
    """Writes few lines about long work (`Seldom`).

    >>> lines = WorkLines(print)
    >>> for done in range(0, 101):
    ...     lines.show(WorkProgress("verifying", 10 * done, 1000, "files", seconds=done / 10, eta=10 - done / 10))
    verifying: 200 of 1,000 files (20 %), 8.0 s left
    verifying: 700 of 1,000 files (70 %), 3.0 s left
    >>> lines.show(WorkProgress("verifying", 1000, 1000, "files", seconds=10.0, ended=True))
    verifying: 1,000 of 1,000 files (100 %), ended after 10.0 s
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write, self._seldom = write, Seldom()

    def show(self, event: WorkProgress) -> None:
        """Write a line if one is due."""
        if self._seldom.due(event):
            self._write(words.work_line(event))


class PlainReporter:
    """Writes lines and flushes each, so that a log can be followed.

    If the stream is gone (a closed pipe), the reporter writes nothing more; the run goes on.

    >>> import sys
    >>> PlainReporter(sys.stdout).failure(ExecutorLost("executor-1", 10, 8))
    lost executor-1 in batch 10 with 8 active tasks
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._work = WorkLines(self._write)

    def batch(self, event: BatchDone) -> None:
        """Write a committed batch."""
        self._write(words.batch_line(event))

    def rebalance(self, event: Rebalanced) -> None:
        """Write a new assignment, its reason and its first moves."""
        self._write(words.rebalance_line(event), *(f"  {line}" for line in words.move_lines(event)))

    def failure(self, event: ExecutorLost) -> None:
        """Write the loss of an instance."""
        self._write(words.loss_line(event))

    def note(self, text: str) -> None:
        """Write one line."""
        self._write(text)

    def progress(self, event: WorkProgress) -> None:
        """Write a line now and then about work that takes long."""
        self._work.show(event)

    def summary(self, summary: Summary) -> None:
        """Write the summary of the run, with the result of the check as the last line."""
        rows = [f"  {label:<36}{value:>14}" for label, value in words.summary_rows(summary)]
        phases = [
            f"  {name:<36}{took:>14}{share:>7}" for name, took, share in words.phase_rows(summary.phases)
        ]
        self._write("summary", *rows)
        if phases:
            self._write("where a batch's time goes (median)", *phases)
        self._write(*(f"  {line}" for line in summary.detail), f"check: {words.check_line(summary)}")

    def close(self) -> None:
        """Nothing to give back."""

    def _write(self, *lines: str) -> None:
        # ValueError: the stream was closed in this process; OSError: its reader is gone.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()


class SilentReporter:
    """Shows nothing."""

    def batch(self, event: BatchDone) -> None:
        """Show nothing."""

    def rebalance(self, event: Rebalanced) -> None:
        """Show nothing."""

    def failure(self, event: ExecutorLost) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""

    def progress(self, event: WorkProgress) -> None:
        """Show nothing."""

    def summary(self, summary: Summary) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing to give back."""
