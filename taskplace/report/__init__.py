"""Reports the progress of a stream to its user.

- `events`: the events of the runtime, as plain values;
- `words`: the texts for events, the same in all reporters;
- `plain`: lines, for logs and continuous integration;
- `json_lines`: JSON, for programs;
- `terminal`: a progress bar and a table that stay in place;
- `bars`: a bar for each long piece of work;
- `work`: the same for a single command: bars, or lines.
"""

from __future__ import annotations

import sys
from typing import TextIO

from taskplace.record.events import (
    BatchDone,
    CheckResult,
    ExecutorLost,
    InstanceView,
    Rebalanced,
    Reporter,
    Summary,
    WorkProgress,
)
from taskplace.record.reporters import PlainReporter, SilentReporter, long_work, redraws

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
    "WorkProgress",
    "long_work",
    "reporter_for",
]


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
        from taskplace.record.json_lines import JsonReporter

        return JsonReporter(stream)
    from taskplace.record.terminal import TerminalReporter  # rich takes a while to load

    return TerminalReporter(stream)
