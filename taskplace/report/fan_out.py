"""Passes events on to several reporters: to the user's, and to those that only look on."""

from __future__ import annotations

import logging
from collections.abc import Callable

from taskplace.record.events import BatchDone, ExecutorLost, Rebalanced, Reporter, Summary, WorkProgress

log = logging.getLogger(__name__)


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

    def batch(self, event: BatchDone) -> None:
        """Pass on a committed batch."""
        self._pass(lambda reporter: reporter.batch(event))

    def rebalance(self, event: Rebalanced) -> None:
        """Pass on a new assignment."""
        self._pass(lambda reporter: reporter.rebalance(event))

    def failure(self, event: ExecutorLost) -> None:
        """Pass on the loss of an instance."""
        self._pass(lambda reporter: reporter.failure(event))

    def note(self, text: str) -> None:
        """Pass on one line."""
        self._pass(lambda reporter: reporter.note(text))

    def progress(self, event: WorkProgress) -> None:
        """Pass on how far work has come, to those that show it."""
        self._pass(lambda reporter: _show(reporter, event))

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


def _show(reporter: Reporter, event: WorkProgress) -> None:
    if (show := getattr(reporter, "progress", None)) is not None:
        show(event)
