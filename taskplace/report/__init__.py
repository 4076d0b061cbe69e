"""Reports the progress of a stream to its user.

- `events`: the events of the runtime, as plain values;
- `words`: the texts for events, the same in all reporters;
- `plain`: lines, for logs and continuous integration;
- `json_lines`: JSON, for programs;
- `terminal`: a progress bar and a table that stay in place.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from taskplace.model.events import (
    BatchDone,
    CheckResult,
    ExecutorLost,
    InstanceView,
    Rebalanced,
    Reporter,
    Summary,
)
from taskplace.report.plain import PlainReporter, SilentReporter

__all__ = [
    "BatchDone",
    "CheckResult",
    "ExecutorLost",
    "InstanceView",
    "PlainReporter",
    "Rebalanced",
    "Reporter",
    "SilentReporter",
    "Summary",
    "reporter_for",
]


def reporter_for(mode: str, stream: TextIO | None = None) -> Reporter:
    """Return the reporter for `report.progress`: auto, rich, plain, json or none.

    `auto` is rich on a terminal that can move its cursor, plain anywhere else. Without a `stream` it is
    standard output.

    >>> import io
    >>> type(reporter_for("auto", io.StringIO())).__name__
    'PlainReporter'
    """
    stream = stream or sys.stdout
    if mode == "auto":
        mode = "rich" if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb" else "plain"
    if mode == "none":
        return SilentReporter()
    if mode == "plain":
        return PlainReporter(stream)
    if mode == "json":
        from taskplace.report.json_lines import JsonReporter

        return JsonReporter(stream)
    from taskplace.report.terminal import TerminalReporter  # rich takes a while to load

    return TerminalReporter(stream)
