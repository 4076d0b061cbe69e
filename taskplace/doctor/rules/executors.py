"""Executors and their Python workers: cores, dynamic allocation, decommissioning, drills."""

from __future__ import annotations

from collections.abc import Iterator

from taskplace.doctor.facts import Facts
from taskplace.doctor.findings import Found, Severity, remove, rule, set_key
from taskplace.doctor.spark_properties import local_cluster
from taskplace.durations import milliseconds
from taskplace.wording import lasting

_DYNAMIC = "spark.dynamicAllocation"
#: An executor with copies that had no task for less than this may be needed with the next rows.
IDLE_SECONDS = 600.0


def _set_spark(key: str, value: object) -> str:
    return set_key(f"spark.conf.{key}", value)


@rule("executor-cores", Severity.ERROR, "executors that never start, or have no slot: cores", steered=True)
def executor_cores(facts: Facts) -> Iterator[Found]:
    """Compare the cores of an executor with those of a task, and of a worker of `local-cluster`."""
    cores, cluster = facts.spark.number("spark.executor.cores"), facts.spark.of_cluster
    key = "spark.executor.cores"
    if cluster is not None and cores is not None and cores > cluster[1]:
        yield Found(
            facts.spark.where(key),
            f"{cores} cores, and a worker of {facts.spark.master} has {cluster[1]}",
            "No worker has as many cores, so no executor starts.",
            _set_spark(key, cluster[1]),
        )
    elif facts.spark.executors.slots == 0:
        key = "spark.task.cpus"
        yield Found(
            facts.spark.where(key),
            f"{facts.spark.get(key)} cores a task, more than an executor has",
            "No executor has a slot for a task, so no batch runs.",
            _set_spark(key, 1),
        )


@rule("single-slot", Severity.ADVICE, "executors with one slot that also have standbys")
def single_slot(facts: Facts) -> Iterator[Found]:
    """Find executors on which visits and batches take turns."""
    wanted = facts.settings.placement.num_standby_replicas
    if facts.spark.executors.slots == 1 and wanted and facts.spark.executors.most != 1:
        cores, cluster = 2 * (facts.spark.number("spark.task.cpus", 1) or 1), facts.spark.of_cluster
        remedy = _set_spark("spark.executor.cores", cores)
        if cluster is not None and cores > cluster[1]:
            remedy += f" {set_key(facts.spark.where_master, local_cluster(cluster[0], cores, cluster[2]))}"
        yield Found(
            facts.spark.where("spark.executor.cores"),
            "one slot on each executor",
            "Standbys follow in the executor's slots. With one slot, a batch waits for each visit to end.",
            remedy,
        )


@rule("idle-slots", Severity.ADVICE, "fewer tasks than slots", needs=("topology",))
def idle_slots(facts: Facts) -> Iterator[Found]:
    """Compare the largest subtopology with the slots of all executors."""
    executors, built = facts.spark.executors, facts.topology
    if built is None or executors.least is None or executors.slots is None:
        return
    widest = max(built.subtopologies, key=lambda sub: sub.partitions or 0, default=None)
    slots = executors.least * executors.slots
    if widest is None or not widest.partitions or widest.partitions >= slots:
        return
    name = next((n.name for n in widest.sources if not n.internal), None)
    path = f"topology.sources.{name}.partitions" if name else "partitions"
    yield Found(
        path,
        f"{widest.partitions} tasks at a time, and {slots} slots",
        "A subtopology has as many tasks as partitions, so some slots never run one. The number of partitions cannot "
        "change under a checkpoint: choose it before the first batch.",
        set_key(path, slots) if name else "# more partitions",
    )


@rule("worker-reuse", Severity.WARNING, "Python workers that end with each task")
def worker_reuse(facts: Facts) -> Iterator[Found]:
    """Find `spark.python.worker.reuse=false`."""
    key = "spark.python.worker.reuse"
    if not facts.spark.flag(key, default=True):
        yield Found(
            facts.spark.where(key),
            "false",
            "Each task starts a Python process, and opens its copies anew. With reuse, workers keep them open between "
            "batches.",
            _set_spark(key, "true"),
        )


@rule("python-path", Severity.WARNING, "a `PYTHONPATH` of executors that replaces the one of `taskplace run`")
def python_path(facts: Facts) -> Iterator[Found]:
    """Find the property in the application's file."""
    key = "spark.executorEnv.PYTHONPATH"
    if key in facts.spark.conf:
        yield Found(
            facts.spark.where(key),
            facts.spark.conf[key],
            "`taskplace run` passes the current directory and its own PYTHONPATH to the workers. This value replaces "
            "both, so workers may not find your processors.",
            remove(facts.spark.where(key)) + "; set PYTHONPATH where `taskplace run` is started",
        )


@rule("task-failures", Severity.WARNING, "batches that fail with the first task that fails")
def task_failures(facts: Facts) -> Iterator[Found]:
    """Find `spark.task.maxFailures=1`."""
    key = "spark.task.maxFailures"
    if facts.spark.number(key) == 1:
        yield Found(
            facts.spark.where(key),
            "1",
            "One worker process that dies ends the whole batch, instead of running its tasks once more.",
            _set_spark(key, 4),
        )


@rule(
    "idle-timeout",
    Severity.WARNING,
    "dynamic allocation that removes executors between two batches",
    steered=True,
)
def idle_timeout(facts: Facts) -> Iterator[Found]:
    """Compare the idle timeout with ten minutes, and with the trigger's interval."""
    key = f"{_DYNAMIC}.executorIdleTimeout"
    seconds = facts.spark.seconds(key, 60.0, unit="s") or 60.0
    trigger = facts.settings.spark.trigger_interval
    between = 0.0 if trigger is None else milliseconds(trigger, "spark.trigger.interval") / 1000
    enough = max(IDLE_SECONDS, 10 * between)
    if facts.spark.dynamic and seconds < enough:
        yield Found(
            facts.spark.where(key),
            f"{lasting(seconds)}",
            "An executor without a task for this long is removed, with its copies. When rows come again, tasks move "
            "and standbys are restored.",
            _set_spark(key, f"{enough:.0f}s"),
        )


@rule("fewest-executors", Severity.WARNING, "dynamic allocation below the executors that standbys need")
def fewest_executors(facts: Facts) -> Iterator[Found]:
    """Compare the smallest number of executors with the copies of a task."""
    key, copies = f"{_DYNAMIC}.minExecutors", 1 + facts.settings.placement.num_standby_replicas
    least = facts.spark.executors.least
    if facts.spark.dynamic and least is not None and least < copies:
        yield Found(
            facts.spark.where(key),
            f"{least} executors at least, and {copies} copies of each task",
            "While fewer executors run than a task has copies, some copies are missing, and are restored when "
            "executors come back.",
            _set_spark(key, copies),
        )


@rule("shuffle-of-removed-executors", Severity.ERROR, "dynamic allocation that Spark refuses", steered=True)
def shuffle_of_removed_executors(facts: Facts) -> Iterator[Found]:
    """Find dynamic allocation without any way to keep shuffle files."""
    tracking, spark = f"{_DYNAMIC}.shuffleTracking.enabled", facts.spark
    kept = (
        spark.flag(tracking, default=True)
        or spark.flag("spark.shuffle.service.enabled")
        or (
            spark.flag("spark.decommission.enabled")
            and spark.flag("spark.storage.decommission.shuffleBlocks.enabled", default=True)
        )
    )
    if spark.dynamic and not kept:
        yield Found(
            spark.where(tracking),
            "false, and no external shuffle service",
            "Spark refuses to start: nothing would keep the shuffle files of an executor that it removes.",
            _set_spark(tracking, "true"),
        )


@rule("decommissioning-off", Severity.ADVICE, "executors that are taken away without notice", steered=True)
def decommissioning_off(facts: Facts) -> Iterator[Found]:
    """Find a cluster that takes executors away, without decommissioning."""
    key = "spark.decommission.enabled"
    takes = facts.spark.dynamic or facts.spark.master.startswith("k8s://")
    if takes and not facts.spark.flag(key):
        yield Found(
            facts.spark.where(key),
            "false",
            "An executor that the cluster takes away ends as in a crash. With decommissioning its tasks leave it "
            "first, between two batches.",
            _set_spark(key, "true"),
        )


@rule("drill", Severity.WARNING, "`chaos` in a stream that goes on, or without an executor to kill")
def drill(facts: Facts) -> Iterator[Found]:
    """Find drills that hurt more than they show."""
    if not facts.settings.chaos:
        return
    if facts.spark.local:
        what, why = (
            f"the master {facts.spark.master}",
            "The only executor is the driver, so the drill ends the stream.",
        )
    elif facts.goes_on:
        batches = ", ".join(str(order.batch) for order in facts.settings.chaos)
        what = "a stream that goes on"
        why = f"When the stream reaches batch {batches}, an executor is killed, in production as well."
    else:
        return
    yield Found("chaos", f"a drill, and {what}", why, "--set 'chaos=[]'")


RULES = (
    executor_cores,
    single_slot,
    idle_slots,
    worker_reuse,
    python_path,
    task_failures,
    idle_timeout,
    fewest_executors,
    shuffle_of_removed_executors,
    decommissioning_off,
    drill,
)
