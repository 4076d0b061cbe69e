"""Memory: heaps, Python workers and the maps of copies, against the limits of containers and of this host.

LMDB maps a copy's file into memory. Its pages are shared by the workers of an executor, and the kernel may drop them;
but YARN counts them as used, and in a container with a small limit they are read from disk again and again.
"""

from __future__ import annotations

from collections.abc import Iterator

from taskplace.doctor.facts import Facts
from taskplace.doctor.findings import Found, Severity, rule, set_key
from taskplace.doctor.spark_properties import local_cluster

_MEMORY, _OVERHEAD = "spark.executor.memory", "spark.executor.memoryOverhead"
_FACTOR = f"{_OVERHEAD}Factor"
_MEBI = 1 << 20
#: Of a Python worker with Arrow and LMDB, without rows.
WORKER_MEBIBYTES = 128
#: The input of a bin of several tasks.
BIN_MEBIBYTES = 64
LEAST_OVERHEAD = 384.0
#: The MiB of a heap below which Spark refuses to start.
LEAST_HEAP = 512


@rule("executor-memory", Severity.ERROR, "executors that never start: memory", steered=True)
def executor_memory(facts: Facts) -> Iterator[Found]:
    """Compare an executor's memory with that of a worker of `local-cluster`."""
    cluster, memory = facts.spark.of_cluster, _heap(facts)
    if cluster is not None and memory > cluster[2]:
        yield Found(
            facts.spark.where(_MEMORY),
            f"{memory:.0f} MiB, and a worker of {facts.spark.master} has {cluster[2]} MiB",
            "No worker has as much memory. Spark refuses to start.",
            set_key(f"spark.conf.{_MEMORY}", f"{cluster[2]}m"),
        )


@rule(
    "worker-memory",
    Severity.WARNING,
    "containers without room for Python workers: `memoryOverhead`",
    steered=True,
)
def worker_memory(facts: Facts) -> Iterator[Found]:
    """Compare what is left beside the heap with what the Python workers of all slots need."""
    slots = facts.spark.executors.slots
    if not facts.spark.containers or not slots:
        return
    beside = _beside_heap(facts)
    usual = slots * (WORKER_MEBIBYTES + BIN_MEBIBYTES)
    largest = slots * (WORKER_MEBIBYTES + max(BIN_MEBIBYTES, facts.settings.runtime.bytes_per_task // _MEBI))
    if beside >= largest:
        return
    yield Found(
        facts.spark.where(_OVERHEAD),
        f"{beside:.0f} MiB beside the heap, and {slots} Python workers, which need {usual} to {largest} MiB",
        f"A worker holds {BIN_MEBIBYTES} MiB of input, or one task with up to runtime.bytes.per.task, beside what the "
        "processors need. A container above its limit is killed.",
        set_key(f"spark.conf.{_OVERHEAD}", f"{largest}m"),
        None if beside < usual else Severity.ADVICE,
    )


@rule(
    "state-memory",
    Severity.WARNING,
    "maps of state that do not fit into the limit of a container, or of this host",
    needs=("checkpoint",),
)
def state_memory(facts: Facts) -> Iterator[Found]:
    """Compare the state of an executor, as the checkpoint has it, with the memory beside heaps and workers."""
    checkpoint, config = facts.checkpoint, facts.settings.placement
    executors = facts.spark.executors.least or (checkpoint.executors if checkpoint is not None else 0)
    if checkpoint is None or not executors:
        return
    copies = min(1 + config.num_standby_replicas, executors)
    state = checkpoint.state_bytes * copies / executors / _MEBI
    if facts.spark.containers:
        workers = (facts.spark.executors.slots or 1) * (WORKER_MEBIBYTES + BIN_MEBIBYTES)
        room, where = _beside_heap(facts) - workers, "in its container, beside heap and workers"
        path, remedy = (
            facts.spark.where(_OVERHEAD),
            set_key(f"spark.conf.{_OVERHEAD}", f"{state + workers:.0f}m"),
        )
    elif (left := _left_on_host(facts)) is not None:
        room, where = left / executors, "on this host, beside heaps"
        more = (state - room) * executors
        path, remedy = "state.dir", f"# {more:,.0f} MiB more memory for this host, or smaller heaps"
    else:
        return
    if state > room:
        yield Found(
            path,
            f"at least {state:,.0f} MiB of state on each executor, and {max(0, room):,.0f} MiB {where}",
            "Copies are files that are mapped into memory. YARN counts them as used memory; elsewhere their pages are "
            "dropped and read again, so that each access waits for the disk.",
            remedy,
        )


@rule(
    "host-memory", Severity.WARNING, "heaps that this host, or its container, has no memory for", steered=True
)
def host_memory(facts: Facts) -> Iterator[Found]:
    """Compare the heaps of driver and executors of `local-cluster` with the limit of this host."""
    cluster, limit = facts.spark.of_cluster, facts.host.memory
    if cluster is None or limit is None:
        return
    heaps = _driver_heap(facts) + cluster[0] * _heap(facts)
    left = limit / _MEBI - _driver_heap(facts)
    each = min(int(left / cluster[0]), cluster[2])
    if each >= LEAST_HEAP:
        remedy = set_key(f"spark.conf.{_MEMORY}", f"{each}m")
    elif (fewer := int(left / _heap(facts))) > 0:
        remedy = set_key(facts.spark.where_master, local_cluster(fewer, *cluster[1:]))
    else:
        remedy = f"# {heaps - limit / _MEBI:,.0f} MiB more memory for this host, or smaller heaps"
    if heaps > limit / _MEBI:
        yield Found(
            facts.spark.where(_MEMORY),
            f"{heaps:,.0f} MiB for the heaps of the driver and {cluster[0]} executors, and a limit of "
            f"{limit / _MEBI:,.0f} MiB",
            "All of them run on this host. Above the limit, the kernel kills one of them.",
            remedy,
        )


def _heap(facts: Facts) -> float:
    return facts.spark.mebibytes(_MEMORY, 1024.0) or 1024.0


def _driver_heap(facts: Facts) -> float:
    return facts.spark.mebibytes("spark.driver.memory", 1024.0) or 1024.0


def _beside_heap(facts: Facts) -> float:
    """Return the MiB of a container beside the heap: the overhead, and what is set aside for Python."""
    factor = facts.spark.get(_FACTOR)
    try:
        share = float(factor) if factor is not None else 0.1
    except ValueError:
        share = 0.1
    overhead = facts.spark.mebibytes(_OVERHEAD)
    if overhead is None:
        least = facts.spark.mebibytes("spark.executor.minMemoryOverhead", LEAST_OVERHEAD) or LEAST_OVERHEAD
        overhead = max(least, share * _heap(facts))
    return overhead + (facts.spark.mebibytes("spark.executor.pyspark.memory", 0.0) or 0.0)


def _left_on_host(facts: Facts) -> float | None:
    """Return the MiB of this host beside all heaps; None if executors run elsewhere, or the limit is not known."""
    if facts.host.memory is None or not (facts.spark.local or facts.spark.of_cluster):
        return None
    cluster = facts.spark.of_cluster
    heaps = _driver_heap(facts) + (cluster[0] * _heap(facts) if cluster else 0.0)
    return facts.host.memory / _MEBI - heaps


RULES = (executor_memory, worker_memory, state_memory, host_memory)
