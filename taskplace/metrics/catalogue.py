"""The table of all metrics of a placed stream: names, kinds, units, labels and meanings.

**Idea.** Each metric is declared once. The driver computes the values (`taskplace.spark.driver.metrics`), the collector
exports them (`taskplace.record.prometheus`), and scripts/metrics.py writes docs/metrics.md. None of them has names of
its own, so they cannot differ.

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


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric.

    - `name`: in the dict of `Placed.metrics`
    - `kind`: a counter only grows; a gauge has the current value
    - `unit`: of the value in the dict: "ms", "s", "bytes", or what is counted
    - `doc`: its meaning, in one sentence without a full stop
    - `kafka`: the metric of Kafka with the same meaning, or ""
    - `labels`: by which a metric has several values
    - `kept`: a counter that continues over restarts, because the checkpoint keeps it
    """

    name: str
    kind: Kind
    unit: str
    doc: str
    kafka: str = ""
    labels: tuple[str, ...] = ()
    kept: bool = False

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


def _counter(name: str, unit: str, doc: str, kafka: str = "", *, kept: bool = False) -> Metric:
    return Metric(name=name, kind="counter", unit=unit, doc=doc, kafka=kafka, kept=kept)


def _gauge(name: str, unit: str, doc: str, kafka: str = "", labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name=name, kind="gauge", unit=unit, doc=doc, kafka=kafka, labels=labels)


#: By section of the documentation.
SECTIONS: Mapping[str, tuple[Metric, ...]] = {
    "The stream": (
        _counter("batches-total", "batches", "committed batches", "commit-total", kept=True),
        _counter(
            "rows-total", "rows", "rows of committed batches, from all sources", "process-total", kept=True
        ),
        _counter(
            "late-rows-total",
            "rows",
            "rows of committed batches that stores dropped because they were late",
            "dropped-records-total",
            kept=True,
        ),
        _gauge(
            "last-batch-seconds-ago",
            "s",
            "time since the last commit of this driver; before its first one, since it started",
        ),
        _gauge(
            "batch-latency-avg",
            "ms",
            "mean time of the last 1,024 batches of this driver",
            "process-latency-avg",
        ),
        _gauge(
            "batch-latency-max",
            "ms",
            "longest time of one of the last 1,024 batches of this driver",
            "process-latency-max",
        ),
        _gauge(
            "commit-latency-avg",
            "ms",
            "mean time of the commits of the last 1,024 batches of this driver",
            "commit-latency-avg",
        ),
        _gauge(
            "commit-latency-max",
            "ms",
            "longest time of a commit in the last 1,024 batches of this driver",
            "commit-latency-max",
        ),
    ),
    "Input": (
        _gauge(
            "records-lag",
            "records",
            "offsets of a partition behind the last committed batch; of topics that tasks read themselves, as of the "
            "last answer of their brokers",
            "records-lag",
            ("topic", "partition"),
        ),
        _gauge("records-lag-max", "records", "largest `records-lag` of all partitions", "records-lag-max"),
        _gauge(
            "records-lag-seconds",
            "s",
            "age of a partition's first unread record, by its timestamp; 0 without one",
            labels=("topic", "partition"),
        ),
        _gauge(
            "records-consumed-rate",
            "records/s",
            "records of committed batches per second, of the last minute, from a topic that tasks read themselves",
            "records-consumed-rate",
            ("topic",),
        ),
        _gauge(
            "watermark-timestamp-seconds", "s", "watermark of the sources in the next batch, since 1970 (UTC)"
        ),
        Metric(
            name="dead-letters-total",
            kind="counter",
            unit="records",
            doc="records of committed batches that could not be decoded, and became dead letters",
            kafka="dropped-records-total",
            labels=("topic",),
            kept=True,
        ),
    ),
    "Rebalances": (
        _counter(
            "rebalance-total", "rebalances", "rebalances that changed the assignment", "rebalance-total"
        ),
        _gauge(
            "rebalance-latency-avg",
            "ms",
            "mean time to plan and to put a rebalance in force",
            "rebalance-latency-avg",
        ),
        _gauge("rebalance-latency-max", "ms", "longest time of one rebalance", "rebalance-latency-max"),
        _counter(
            "rebalance-latency-total", "ms", "time of all rebalances together", "rebalance-latency-total"
        ),
        _gauge(
            "last-rebalance-seconds-ago", "s", "time since the last rebalance", "last-rebalance-seconds-ago"
        ),
        _counter(
            "failed-rebalance-total",
            "rebalances",
            "plans that were not put in force because they were invalid",
            "failed-rebalance-total",
        ),
        _gauge("generation", "", "generation of the assignment in force"),
        _counter(
            "moves-planned-total",
            "moves",
            "active tasks that moved as planned, after their copy had caught up",
        ),
        _counter(
            "moves-forced-total",
            "moves",
            "copies that were promoted because their task had lost its owner, or the owner lagged",
        ),
        _gauge("moves-pending", "tasks", "active tasks that are not yet on the executor of their target"),
    ),
    "Executors": (
        _gauge("executors", "executors", "executors with copies or slots for them", "alive-stream-threads"),
        _gauge("executors-draining", "executors", "executors that are being drained"),
        _counter("executor-losses-total", "executors", "executors that were lost", "failed-stream-threads"),
        _gauge(
            "assigned-tasks",
            "tasks",
            "tasks of an executor in a role: `active`, `standby` or `warmup`",
            "assigned-partitions",
            ("executor", "role"),
        ),
        _gauge(
            "imbalance-max-mean",
            "ratio",
            "largest load of an executor divided by the mean load: weights of its active tasks per slot; 1 is even",
        ),
    ),
    "Copies": (
        _gauge(
            "active-restoring-tasks",
            "tasks",
            "active tasks whose copy is missing or behind the end of its changelog",
            "active-restoring-tasks",
        ),
        _gauge(
            "standby-updating-tasks",
            "copies",
            "standby copies that follow their changelog",
            "standby-updating-tasks",
        ),
        _gauge(
            "standbys-missing",
            "copies",
            "standby copies that `num.standby.replicas` asks for and that have no place",
        ),
        _gauge("warmup-tasks", "copies", "warm-up copies that are catching up"),
        _gauge("warmup-waiting-tasks", "copies", "copies that wait for their turn to warm up"),
        _gauge(
            "stuck-copies",
            "copies",
            "copies that should follow and make no progress, parked ones included; `taskplace status` has each with "
            "its cause",
        ),
        _gauge("parked-copies", "copies", "copies without progress that were taken out of the plans"),
        _gauge(
            "copy-lag",
            "records",
            "largest lag of the copies of a stateful task in a role, measured up to the commit before the last one",
            labels=("task", "role"),
        ),
        _gauge(
            "warmup-remaining-seconds",
            "s",
            "estimated time until a task's slowest warm-up has caught up; none while that is not known",
            labels=("task",),
        ),
        _counter(
            "restore-total",
            "records",
            "records that active tasks had to apply before a batch, from changelogs and snapshots",
            "restore-total",
        ),
        _counter("update-total", "records", "records that standbys and warm-ups applied", "update-total"),
        _counter("scratch-restores-total", "tasks", "active tasks that were restored without a local copy"),
        _counter("elsewhere-total", "tasks", "attempts that Spark ran on another executor than planned"),
        _counter(
            "damaged-files-total",
            "files",
            "damaged files that recoveries could do without; one that none can do without leaves its copy stuck",
        ),
    ),
    "Size": (
        _gauge(
            "state-bytes",
            "bytes",
            "bytes that the checkpoint keeps for the state, by kind: `changelog` or `snapshot`; the copies on "
            "executors are not in it",
            labels=("kind",),
        ),
    ),
}
METRICS: tuple[Metric, ...] = tuple(metric for section in SECTIONS.values() for metric in section)
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
