"""The table of all metrics of a placed stream: names, kinds, units, labels and meanings.

**Idea.** Each metric is declared once. The driver computes the values (`taskplace.spark.driver.metrics`), the collector
exports them (`taskplace.record.prometheus`), and scripts/metrics.py writes docs/metrics.md.

Names are Kafka's, in Kafka's notation ("rebalance-latency-avg"), where Kafka has such a metric. Times in the dict are
in Kafka's units. Prometheus gets base units: seconds and bytes.

>>> BY_NAME["rebalance-latency-avg"].exported
'taskplace_rebalance_latency_avg_seconds'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

PREFIX = "taskplace_"
#: The label that every exported sample has: the name of the stream's topology.
STREAM = "stream"
ROLES = ("active", "standby", "warmup")
_TOTAL = "-total"

Kind = Literal["counter", "gauge"]
#: The value of a metric without labels; None: not known yet.
Number = int | float | None
#: The values of a metric with labels: one mapping each, of its labels and "value".
Series = list[dict[str, "str | int | float"]]


@dataclass(frozen=True)
class Metric:
    """One metric.

    - `name`: in the dict of `Placed.metrics`
    - `unit`: of the value in the dict: "ms", "s", "bytes", or what is counted
    - `doc`: its meaning, in one sentence without a full stop
    - `kafka`: the metric of Kafka with the same meaning, or ""
    - `labels`: by which a metric has several values
    - `kept`: a counter that continues over restarts, because the checkpoint keeps it
    """

    name: str
    unit: str
    doc: str
    kafka: str = ""
    labels: tuple[str, ...] = ()
    kept: bool = False

    @property
    def kind(self) -> Kind:
        """A counter only grows, and its name ends in "-total"; a gauge has the current value."""
        return "counter" if self.name.endswith(_TOTAL) else "gauge"

    @property
    def exported(self) -> str:
        """The name in Prometheus, with the base unit; that of a counter ends in `_total`."""
        total = _TOTAL if self.kind == "counter" else ""
        seconds = "-seconds" if self.scale != 1 else ""
        return PREFIX + (self.name.removesuffix(_TOTAL) + seconds + total).replace("-", "_")

    @property
    def scale(self) -> float:
        """The factor from the value in the dict to the exported value."""
        return 0.001 if self.unit == "ms" else 1


_TOPIC, _PARTITION, _HELD = ("topic",), ("topic", "partition"), ("executor", "role")
_BATCHES = "the last 1,024 batches of this driver"
_OWN = "of topics that tasks read"
_ASKED = f"by the brokers' last answer, {_OWN}"
_DROPPED = "dropped-records-total"

#: By section of the documentation.
SECTIONS: Mapping[str, tuple[Metric, ...]] = {
    "The stream": (
        Metric("batches-total", "batches", "committed batches", "commit-total", kept=True),
        Metric(
            "rows-total", "rows", "rows of committed batches, from all sources", "process-total", kept=True
        ),
        Metric(
            "late-rows-total", "rows", "late rows that stores dropped", "dropped-records-total", kept=True
        ),
        Metric("last-batch-seconds-ago", "s", "time since this driver's last commit, or since it started"),
        Metric("batch-latency-avg", "ms", f"mean time of {_BATCHES}", "process-latency-avg"),
        Metric("batch-latency-max", "ms", f"longest time of {_BATCHES}", "process-latency-max"),
        Metric("commit-latency-avg", "ms", f"mean time of the commits of {_BATCHES}", "commit-latency-avg"),
        Metric("commit-latency-max", "ms", f"longest commit of {_BATCHES}", "commit-latency-max"),
    ),
    "Input": (
        Metric(
            "records-lag",
            "records",
            f"offsets that no batch has committed yet, {_ASKED}",
            "records-lag",
            _PARTITION,
        ),
        Metric("records-lag-max", "records", "largest `records-lag`", "records-lag-max"),
        Metric("records-lag-seconds", "s", "age of a partition's first unread record", labels=_PARTITION),
        Metric(
            "records-consumed-rate",
            "records/s",
            f"mean of the last minute, {_OWN}",
            "records-consumed-rate",
            _TOPIC,
        ),
        Metric(
            "watermark-timestamp-seconds", "s", "the sources' watermark in the next batch, since 1970 (UTC)"
        ),
        Metric(
            "dead-letters-total", "records", "records that could not be decoded", _DROPPED, _TOPIC, kept=True
        ),
    ),
    "Rebalances": (
        Metric("rebalance-total", "rebalances", "rebalances that changed the assignment", "rebalance-total"),
        Metric("rebalance-latency-avg", "ms", "mean time of a rebalance", "rebalance-latency-avg"),
        Metric("rebalance-latency-max", "ms", "longest time of a rebalance", "rebalance-latency-max"),
        Metric("rebalance-latency-total", "ms", "time of all rebalances", "rebalance-latency-total"),
        Metric(
            "last-rebalance-seconds-ago", "s", "time since the last rebalance", "last-rebalance-seconds-ago"
        ),
        Metric(
            "failed-rebalance-total",
            "rebalances",
            "plans that were refused as invalid",
            "failed-rebalance-total",
        ),
        Metric("generation", "", "generation of the assignment in force"),
        Metric("moves-planned-total", "moves", "active tasks that moved to a copy that had caught up"),
        Metric("moves-forced-total", "moves", "copies promoted because the owner was gone or lagged"),
        Metric("moves-pending", "tasks", "active tasks that are not yet on the executor of their target"),
    ),
    "Executors": (
        Metric("executors", "executors", "executors with copies or slots for them", "alive-stream-threads"),
        Metric("executors-draining", "executors", "executors that are being drained"),
        Metric("executor-losses-total", "executors", "executors that were lost", "failed-stream-threads"),
        Metric(
            "assigned-tasks",
            "tasks",
            "tasks in a role: `active`, `standby` or `warmup`",
            "assigned-partitions",
            _HELD,
        ),
        Metric("imbalance-max-mean", "ratio", "largest load of an executor (weights per slot) by the mean"),
    ),
    "Copies": (
        Metric(
            "active-restoring-tasks", "tasks", "active tasks without a current copy", "active-restoring-tasks"
        ),
        Metric("standby-updating-tasks", "copies", "standbys that follow", "standby-updating-tasks"),
        Metric("standbys-missing", "copies", "standbys of `num.standby.replicas` that have no place"),
        Metric("warmup-tasks", "copies", "warm-ups that are catching up"),
        Metric("warmup-waiting-tasks", "copies", "copies that wait for their turn to warm up"),
        Metric("stuck-copies", "copies", "copies without progress; `taskplace status` has the causes"),
        Metric("parked-copies", "copies", "copies without progress that were taken out of the plans"),
        Metric(
            "copy-lag",
            "records",
            "largest lag of a task's copies in a role, one commit back",
            labels=("task", "role"),
        ),
        Metric("warmup-remaining-seconds", "s", "estimate for a task's slowest warm-up", labels=("task",)),
        Metric(
            "restore-total", "records", "records that active tasks applied before a batch", "restore-total"
        ),
        Metric("update-total", "records", "records that standbys and warm-ups applied", "update-total"),
        Metric("scratch-restores-total", "tasks", "active tasks that were restored without a local copy"),
        Metric("elsewhere-total", "tasks", "attempts that Spark ran on another executor than planned"),
        Metric("damaged-files-total", "files", "damaged files that recoveries could do without"),
    ),
    "Size": (
        Metric(
            "state-bytes", "bytes", "state in the checkpoint: `changelog` or `snapshot`", labels=("kind",)
        ),
    ),
}
METRICS: tuple[Metric, ...] = tuple(metric for section in SECTIONS.values() for metric in section)
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
