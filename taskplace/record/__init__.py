"""Records what happens in a stream, and shows it: one struct for each event, and folds over events and status.

- `events`: the events, and the protocol of a reporter
- `reporters`, `json_lines`, `terminal`: lines for logs, JSON for programs, and a view that stays in place
- `words`: the texts for events, the same in all reporters
- `html`: the page of a run, a plan, a simulation or a checkpoint, and the live page
- `metrics`, `prometheus`: what the metrics are called, and how they are exported
"""

from taskplace.record.events import (
    BatchDone,
    CheckResult,
    ExecutorLost,
    InstanceView,
    Rebalanced,
    Reporter,
    Summary,
    WarmupChange,
    WorkProgress,
)
from taskplace.record.metrics import METRICS, Metric
from taskplace.record.reporters import FanOut, PlainReporter, SilentReporter, long_work, reporter_for

__all__ = [
    "METRICS",
    "BatchDone",
    "CheckResult",
    "ExecutorLost",
    "FanOut",
    "InstanceView",
    "Metric",
    "PlainReporter",
    "Rebalanced",
    "Reporter",
    "SilentReporter",
    "Summary",
    "WarmupChange",
    "WorkProgress",
    "long_work",
    "reporter_for",
]
