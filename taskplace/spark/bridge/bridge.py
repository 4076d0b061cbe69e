"""The cluster on Spark: checks its private calls, knows its executors, and pins jobs to them.

Jobs read shuffles whose map side has run.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import RDD, InheritableThread, SparkContext
from pyspark.serializers import NoOpSerializer, PairDeserializer
from pyspark.sql import DataFrame, SparkSession

from taskplace.errors import InputError, UnsupportedSpark
from taskplace.spark.bridge.jobs import POLL_SECONDS, Job, Pinned
from taskplace.spark.bridge.queries import JVM_ENDED, register_source
from taskplace.spark.bridge.shuffles import Shuffles
from taskplace.spark.cluster import DECOMMISSION_POLLS, ArrowInput, Executor, JobLostError
from taskplace.spark.sending import LARGE, Sending, Sent
from taskplace.spark.session_conf import LOCALITY_WAIT, SUPPORTED, class_name, expected_executors, supported
from taskplace.spark.versions import DataSource
from taskplace.spark.worker.external import with_batches

WORKS = f"taskplace works with PySpark classic {SUPPORTED}"
#: So many elements are paired with as many ranges at once: `n` of them make `n * (n + 1)` partitions, most never run.
PAIRED_AT_ONCE = 100
#: In the error of a job, if all jobs of the application were cancelled.
ALL_CANCELLED = "cancelled as part of cancellation of all jobs"
#: The methods that the bridge calls beyond Spark's public API, by Java class.
NEEDED: Mapping[str, Sequence[str]] = {
    "org.apache.spark.SparkContext": (
        "makeRDD", "statusStore", "statusTracker", "getExecutorIds", "taskScheduler", "cancelJobsWithTag",
    ),
    "org.apache.spark.SparkStatusTracker": ("getJobIdsForTag", "getJobInfo", "getStageInfo"),
    "org.apache.spark.api.python.PythonUtils": ("getBroadcastThreshold", "toSeq"),
    "org.apache.spark.scheduler.TaskSchedulerImpl": (
        "executorsPendingDecommission", "getExecutorDecommissionState",
    ),
    "org.apache.spark.sql.classic.Dataset": ("toArrowBatchRdd", "queryExecution"),
    "org.apache.spark.sql.classic.SparkSession": ("internalCreateDataFrame", "sharedState"),
    "org.apache.spark.sql.execution.CoalescedPartitionSpec": ("startReducerIndex", "endReducerIndex"),
    "org.apache.spark.sql.execution.exchange.ShuffleExchangeLike": ("submitShuffleJob", "getShuffleRDD"),
    "org.apache.spark.sql.execution.streaming.runtime.StreamExecution": (
        "awaitInitialization", "resolvedCheckpointRoot",
    ),
    "org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper": ("streamingQuery",),
    "org.apache.spark.sql.internal.SharedState": ("activeStreamingQueries",),
    "org.apache.spark.status.AppStatusStore": ("executorList", "lastStageAttempt", "taskList"),
}  # fmt: skip


class Bridge:
    """The private side of one Spark session: a `taskplace.spark.cluster.Cluster`.

    Errors: `UnsupportedSpark` when a needed call is missing.
    """

    def __init__(self, spark: SparkSession, *, locality_wait_ms: int = 30_000) -> None:
        self._spark = spark
        self._probe()
        self.sc = spark.sparkContext
        self._jsc = self.sc._jsc.sc()
        self._jvm: Any = self.sc._jvm
        self.app_id = self.sc.applicationId
        self.local = bool(self._jsc.isLocal())
        threshold = int(self._jvm.PythonUtils.getBroadcastThreshold(self.sc._jsc))
        self._sending = Sending(self.sc, min(LARGE, threshold))
        self._executors = Executors(self.sc, local=self.local)
        self._shuffles = Shuffles(self._jvm)
        self._configure(locality_wait_ms)

    @property
    def spark(self) -> SparkSession:
        """The session. Errors: `InputError` once it is stopped; no other session is started in its place."""
        self.check_running()
        return self._spark

    def check_running(self) -> None:
        """Raise `InputError` once the session is stopped. One short call."""
        if self.stopped():
            raise InputError(
                "spark",
                found="a session that was stopped",
                expected="a running SparkSession",
                hint="start a session, then create the objects that use it again",
            )

    def stopped(self) -> bool:
        """Return whether the session was stopped, here or in the JVM. One short call."""
        context = self._spark.sparkContext._jsc
        try:
            return context is None or bool(context.sc().isStopped())
        except JVM_ENDED:
            return True

    def _probe(self) -> None:
        if hasattr(self._spark, "_jsparkSession"):
            self.check_running()
        probe(self._spark)

    def _configure(self, locality_wait_ms: int) -> None:
        conf = self._jsc.conf()
        if not conf.contains(LOCALITY_WAIT):
            conf.set(LOCALITY_WAIT, f"{locality_wait_ms}ms")

    # -- executors

    def executors(self) -> list[Executor]:
        """See `Cluster.executors`."""
        return self._executors.registered()

    def alive(self) -> frozenset[str]:
        """See `Cluster.alive`."""
        return self._executors.alive()

    def usable(self) -> frozenset[str]:
        """See `Cluster.usable`."""
        return self._executors.usable()

    def expected_executors(self) -> int:
        """Return the number of executors that the session begins with, as far as its configuration tells."""
        return expected_executors(self.sc.master, dict(self.sc.getConf().getAll()))

    def wait_for_executors(self, seconds: float) -> list[Executor]:
        """See `Cluster.wait_for_executors`."""
        deadline = time.monotonic() + seconds
        while len(present := self.executors()) < self.expected_executors() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return present

    # -- jobs

    def query_id(self) -> str | None:
        """See `Cluster.query_id`. Spark keeps the id in a property of the thread."""
        return self.sc.getLocalProperty("sql.streaming.queryId")

    def query_offsets(self) -> Path | None:
        """See `Cluster.query_offsets`."""
        root = "" if (query := self._query()) is None else str(query.resolvedCheckpointRoot())
        return Path(root.removeprefix("file:")) / "offsets" if root.startswith(("file:", "/")) else None

    def _query(self) -> Any:
        if (query_id := self.query_id()) is None:
            return None
        queries = self._spark._jsparkSession.sharedState().activeStreamingQueries()
        return queries.get(self._jvm.java.util.UUID.fromString(query_id))

    def query_stopped(self, error: BaseException) -> bool:
        """See `Cluster.query_stopped`. A query is found by its id, whichever session has started it."""
        if ALL_CANCELLED in str(error):
            return True
        query = self._query()
        return query is not None and not query.isActive()

    def arrow_input(self, df: DataFrame, order: Sequence[int], partition_id: str) -> ArrowInput:
        """See `Cluster.arrow_input`."""
        return self._shuffles.run(df, order, partition_id)

    def pinned(
        self,
        elements: Sequence[bytes],
        locations: Sequence[str | None],
        function: Callable[[Iterator[Any]], Iterable[Any]],
        arrow: ArrowInput | None = None,
        ranges: Sequence[tuple[int, int]] = (),
    ) -> Pinned:
        """See `Cluster.pinned`. Errors: `InputError` once the session is stopped."""
        self.check_running()
        if arrow is None:
            return Pinned(RDD(self._located(elements, locations), self.sc, NoOpSerializer()), function)
        parts, partitions, behind = [], [], 0
        for start in range(0, len(elements), PAIRED_AT_ONCE):
            some = slice(start, start + PAIRED_AT_ONCE)
            rdd, at = self._paired(self._located(elements[some], locations[some]), arrow, ranges[some])
            parts.append(rdd)
            partitions += [behind + partition for partition in at]
            behind += len(at) * (len(at) + 1)
        rdd = parts[0] if len(parts) == 1 else self.sc.union(parts)
        return Pinned(rdd, partial(with_batches, function), tuple(partitions))

    def _paired(
        self, located: Any, arrow: ArrowInput, ranges: Sequence[tuple[int, int]]
    ) -> tuple[RDD[Any], list[int]]:
        """Pair elements with the Arrow batches of their ranges. Return the RDD, and the partition of each element.

        The Cartesian product of two RDDs has a partition for each pair of their partitions, and it reads the second one
        row by row. Only the partitions of an element with its own range are run, so the others cost nothing but a small
        object. A range without rows would have no pair at all. Its element is paired with an empty batch instead, which
        is the last partition. Spark does not read blocks whose size is 0, so these ranges are known to have no rows.
        """
        crossed = located.cartesian(self._shuffles.ranges(arrow.rows, ranges).union(self._no_rows))
        before = [0, *accumulate(arrow.sizes[partition] for partition in arrow.order)]
        width = len(ranges) + 1
        partitions = [
            number * width + (number if before[end] > before[start] else len(ranges))
            for number, (start, end) in enumerate(ranges)
        ]
        return RDD(crossed, self.sc, PairDeserializer(NoOpSerializer(), NoOpSerializer())), partitions

    def _located(self, elements: Sequence[bytes], locations: Sequence[str | None]) -> Any:
        """Return a Java RDD with one partition per element, which prefers its location."""
        new_list, pair, to_scala, tag = self._located_with
        pairs = new_list()
        add = pairs.add
        places: dict[str | None, Any] = {}
        for location in locations:
            if location not in places:
                of_one = new_list()
                if location:
                    of_one.add(location)
                places[location] = to_scala(of_one)
        for element, location in zip(elements, locations, strict=True):
            add(pair(element, places[location]))
        return self._jsc.makeRDD(to_scala(pairs), tag).toJavaRDD()

    @cached_property
    def _no_rows(self) -> Any:
        """A Java RDD of one partition with an empty Arrow batch."""
        return self._located([b""], [None])

    @cached_property
    def _located_with(self) -> tuple[Any, Any, Any, Any]:
        """What `_located` calls. Each step on the way to a class or a method is a call into the JVM, in each batch."""
        return (
            self._jvm.java.util.ArrayList,
            self._jvm.scala.Tuple2,
            self._jvm.PythonUtils.toSeq,  # Scala's own converters differ between 2.12 and 2.13
            self._jvm.scala.reflect.ClassTag.apply(self._jvm.java.lang.Class.forName("java.lang.Object")),
        )

    def keep(self, name: str, value: object) -> Sent:
        """See `Cluster.keep`."""
        return self._sending.keep(name, value)

    def close(self) -> None:
        """See `Cluster.close`."""
        self._sending.close()

    def lighten(self, function: Callable[..., Any]) -> tuple[Callable[..., Any], Sent | None]:
        """Return a function whose job leaves no broadcast file on the driver; see `Sending.lighten`."""
        return self._sending.lighten(function)

    def run(
        self,
        pinned: Pinned,
        partitions: Sequence[int],
        *,
        tag: str,
        watch: frozenset[str] = frozenset(),
        pool: str | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> list[Any]:
        """See `Cluster.run`. Waits for the tasks of a lost job to end: at most `END_BY_THEMSELVES_SECONDS` until it is
        cancelled, if it is young, and `END_OF_TASKS_SECONDS` after that.

        An exception of a task is raised as a `PythonException` with its traceback, or as the error that `own_error`
        reads in it.
        """
        job = self.start(pinned, partitions, tag=tag, pool=pool)
        polls = 0
        while not job.done.wait(POLL_SECONDS):
            polls += 1
            if lost := watch - (self.alive() if polls % DECOMMISSION_POLLS else self.usable()):
                job.end_lost(on_lost)
                raise JobLostError(lost)
        # A job may have failed before the loss was seen. Its other tasks may still run.
        if job.error is not None and (lost := watch - self.usable()):
            job.end_lost(on_lost)
            raise JobLostError(lost) from job.error
        return job.result()

    def start(
        self,
        pinned: Pinned,
        partitions: Sequence[int],
        *,
        tag: str,
        pool: str | None = None,
        on_done: Callable[[], None] | None = None,
    ) -> Job:
        """See `Cluster.start`. `on_done` is called in the job's own thread."""
        tag = f"{tag}-{uuid.uuid4().hex}"  # other streams of this session may use the same name
        job = Job(self.sc, self._sending, pinned, partitions, tag=tag, pool=pool, on_done=on_done)
        job.start()
        return job

    def register_source(self, spark: SparkSession, name: str, source: Callable[[], type[DataSource]]) -> None:
        """See `Cluster.register_source`."""
        register_source(spark, name, source)

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """See `Cluster.thread`. The thread inherits the Spark properties of the calling thread."""
        return InheritableThread(target=target, name=name, daemon=True)


class Executors:
    """The executors of an application. The host and the cores of an id never change, so Spark is asked for them once.

    Which ids exist, and which of them Spark is decommissioning, is asked each time. Each call to the JVM takes a few
    tenths of a millisecond, and the list of executors takes several calls for each of them.
    """

    def __init__(self, sc: SparkContext, *, local: bool) -> None:
        self._sc, self._local = sc, local
        self._jsc: Any = sc._jsc.sc()
        self._known: dict[str, Executor] = {}

    def alive(self) -> frozenset[str]:
        """Return the ids that the scheduler knows now."""
        if self._local:
            return frozenset({"driver"})
        ids = self._jsc.getExecutorIds().mkString(",")
        return frozenset(ids.split(",")) if ids else frozenset()

    def usable(self) -> frozenset[str]:
        """Return the ids that may get tasks."""
        alive = self.alive()
        if self._local:
            return alive
        scheduler = self._jsc.taskScheduler()
        if scheduler.executorsPendingDecommission().isEmpty():
            return alive
        return frozenset(id_ for id_ in alive if scheduler.getExecutorDecommissionState(id_).isEmpty())

    def registered(self) -> list[Executor]:
        """Return the usable executors that have registered with their number of cores, sorted by id."""
        usable = self.usable()
        found = {id_: self._known[id_] for id_ in usable if id_ in self._known}
        if found.keys() < usable:
            found |= self._listed(usable - found.keys())
        self._known = found
        return sorted(found.values())

    def _listed(self, ids: Collection[str]) -> dict[str, Executor]:
        """Return those of `ids` that Spark's list of executors has."""
        infos = self._jsc.statusStore().executorList(True)
        found = {}
        for i in range(infos.size()):
            info = infos.apply(i)
            id_ = info.id()
            if id_ in ids and ((cores := info.totalCores()) > 0 or self._local):
                host = re.sub(r":\d+$", "", info.hostPort())
                found[id_] = Executor(id_, host, cores or self._sc.defaultParallelism)
        return found


def probe(spark: SparkSession) -> None:
    """Check a session. Only names are compared, so nothing is started.

    Errors: `UnsupportedSpark`, which says what is missing and what works; `InputError` for something else than a
    session.
    """
    if not hasattr(spark, "_jsparkSession"):
        if not type(spark).__module__.startswith("pyspark.sql.connect"):
            raise InputError("spark", found=spark, expected="a SparkSession")
        raise UnsupportedSpark(
            f"found a Spark Connect session, which cannot reach executors; {WORKS}, not with Spark Connect"
        )
    release = f"PySpark {pyspark.__version__}"
    if not supported(pyspark.__version__):
        raise UnsupportedSpark(f"found {release}; {WORKS}")
    jvm: Any = spark.sparkContext._jvm
    for name, methods in NEEDED.items():
        there = _methods(jvm, class_name(name, pyspark.__version__))
        if missing := [method for method in methods if method not in there]:
            raise UnsupportedSpark(f"{release} has no {name.rpartition('.')[2]}.{missing[0]}; {WORKS}")


def _methods(jvm: Any, name: str) -> frozenset[str]:
    """Return the names of the public methods of a Java class; none if there is no such class. A few calls."""
    try:
        methods = jvm.java.lang.Class.forName(name).getMethods()
    except Py4JJavaError:
        return frozenset()
    return frozenset(re.findall(r"\.(\w+)\(", jvm.org.apache.commons.lang3.ArrayUtils.toString(methods)))
