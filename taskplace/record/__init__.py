"""Records what happens in a stream, and shows it: one struct for each event, and folds over events and status.

- `events`: the events, and the protocol of a reporter
- `reporters`, `json_lines`, `terminal`: lines for logs, JSON for programs, and a view that stays in place
- `words`: the texts for events, the same in all reporters
- `html`: the page of a run, a plan, a simulation or a checkpoint, and the live page
- `metrics`, `prometheus`: what the metrics are called, and how they are exported
"""

from taskplace.record.events import BatchDone as BatchDone
from taskplace.record.events import CheckResult as CheckResult
from taskplace.record.events import ExecutorLost as ExecutorLost
from taskplace.record.events import InstanceView as InstanceView
from taskplace.record.events import Rebalanced as Rebalanced
from taskplace.record.events import Reporter as Reporter
from taskplace.record.events import Summary as Summary
from taskplace.record.events import WarmupChange as WarmupChange
from taskplace.record.events import WorkProgress as WorkProgress
from taskplace.record.metrics import METRICS as METRICS
from taskplace.record.metrics import Metric as Metric
from taskplace.record.reporters import FanOut as FanOut
from taskplace.record.reporters import PlainReporter as PlainReporter
from taskplace.record.reporters import SilentReporter as SilentReporter
from taskplace.record.reporters import long_work as long_work
from taskplace.record.reporters import reporter_for as reporter_for
