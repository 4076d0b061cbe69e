"""Makes all private calls into Spark. They are probed before anything starts.

The calls beyond the public API, and their reasons:

- `SparkContext.makeRDD(Seq[(T, Seq[String])])` with locations `executor_<host>_<id>`: runs a partition on the
  executor that has its state. It is only a preference; everything stays correct when Spark decides otherwise.
- `Dataset.toArrowBatchRdd()`, of which each partition is paired with one element of the pinned RDD: brings a shuffle's
  output to the pinned partition as Arrow bytes, one batch at a time. See `_paired`.
- `ShuffleExchangeLike.submitShuffleJob`: runs the map side first, and returns which partitions have rows.
- `ShuffleExchangeLike.getShuffleRDD` with `CoalescedPartitionSpec`, and `SparkSession.internalCreateDataFrame`: reads a
  range of the shuffle in one Spark partition, for one bin of tasks.
- `SparkStatusStore.executorList` and `SparkContext.getExecutorIds`: the executors;
  `TaskSchedulerImpl.executorsPendingDecommission` and `getExecutorDecommissionState`: those being decommissioned.
- `PythonUtils.getBroadcastThreshold`: from which size on PySpark itself makes a broadcast of a function.
- `DataSourceRegistration` with a stand-in for the session: a source that the driver's own Python plans.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import pyspark
from py4j.protocol import Py4JNetworkError
from pyspark import RDD, InheritableThread, SparkContext
from pyspark.serializers import NoOpSerializer, PairDeserializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know it by
from pyspark.sql.datasource import DataSource, DataSourceRegistration
from pyspark.sql.pandas.types import to_arrow_schema

from taskplace.errors import InputError, UnsupportedSpark
from taskplace.spark.cluster import DECOMMISSION_POLLS
from taskplace.spark.cluster import ArrowInput as ArrowInput
from taskplace.spark.cluster import Executor as Executor
from taskplace.spark.cluster import JobLostError as JobLostError
from taskplace.spark.sending import LARGE, Sending, Sent
from taskplace.spark.session_conf import LOCALITY_WAIT, ROWS_OF_A_BATCH, TESTED, WHILE_PLANNING
from taskplace.spark.worker.bin_input import with_batches
from taskplace.spark.worker_errors import own_error

POLL_SECONDS = 0.1
#: How long the tasks of a lost job may take to end by themselves. If it is cancelled, Spark ends its Python workers
#: after two seconds and more (`spark.python.task.killTimeout`), and the next job has to start new ones.
END_BY_THEMSELVES_SECONDS = 2.0
#: How far Spark's status of a job may be behind: twice its default of `spark.ui.liveUpdate.period`.
STATUS_SECONDS = 0.2
#: A job that is older is cancelled at once: its tasks may wait for blocks of an executor that does not answer.
YOUNG_SECONDS = 5.0
END_OF_TASKS_SECONDS = 5.0
#: An Arrow batch has so many bytes at most, if rows are about equally large, and so many rows.
BYTES_AT_ONCE, MOST_ROWS_AT_ONCE = 8 << 20, 10_000
#: So many elements are paired with as many ranges at once: `n` of them make `n * (n + 1)` partitions, most never run.
PAIRED_AT_ONCE = 100

#: The names of the data sources that each session knows.
_registered: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Pinned:
    """The description of a job: an RDD, the function that maps it, and the partition of each element.

    `partitions` None: the RDD has one partition per element, in order.
    """

    rdd: RDD[Any]
    function: Callable[[Iterator[Any]], Iterable[Any]]
    partitions: tuple[int, ...] | None = None

    def of(self, elements: Iterable[int]) -> list[int]:
        """Return the partitions of some elements, given by their positions."""
        return [element if self.partitions is None else self.partitions[element] for element in elements]


@dataclass(frozen=True)
class _Shuffle:
    """A shuffled data frame, the node of its plan whose map side has run, and the most rows of an Arrow batch."""

    df: DataFrame
    exchange: Any
    rows_at_once: int


class _Executors:
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


class _Shuffles:
    """Shuffles whose map side runs before the jobs that read them."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm

    def run(self, df: DataFrame, order: Sequence[int], partition_id: str) -> ArrowInput:
        """Run the map side of a shuffle; see `Cluster.arrow_input`."""
        position = {partition: at for at, partition in enumerate(order)}
        by = f"`{partition_id}`"
        if any(partition != at for at, partition in enumerate(order)):
            listed = ",".join(str(position[partition]) for partition in range(len(order)))
            by = f"element_at(array({listed}), {by} + 1)"
        with _planning(df.sparkSession):
            placed = df.repartitionById(len(order), F.expr(by))
            exchange = _exchange(placed)
        sizes = self._shuffled(exchange, len(order))
        # Spark's timestamps are microseconds in UTC, for every time zone of the session.
        schema = to_arrow_schema(placed.schema, timezone="UTC").serialize().to_pybytes()
        by_partition = tuple(sizes[position[partition]] for partition in range(len(order)))
        return ArrowInput(
            _Shuffle(placed, exchange, _rows_at_once(exchange)), schema, tuple(order), by_partition
        )

    def _shuffled(self, exchange: Any, partitions: int) -> tuple[int, ...]:
        """Run the map side of a shuffle, and return the decoded size of each partition in bytes, as an estimate."""
        done = self._jvm.org.apache.spark.util.ThreadUtils.awaitResult(
            exchange.submitShuffleJob(), self._jvm.scala.concurrent.duration.Duration.Inf()
        )
        if done is None:  # the input has no map task
            return (0,) * partitions
        written = json.loads(self._jvm.java.util.Arrays.toString(done.bytesByPartitionId()))
        decoded = exchange.metrics().apply("dataSize").value()
        scale = max(1.0, decoded / (sum(written) or 1))
        return tuple(int(size * scale) for size in written)

    def ranges(self, shuffle: _Shuffle, ranges: Sequence[tuple[int, int]]) -> Any:
        """Return a Java RDD of Arrow batches, with one partition for each range of a shuffle."""
        classes = self._jvm.java.lang.Class
        specs = self._jvm.java.lang.reflect.Array.newInstance(
            classes.forName("org.apache.spark.sql.execution.ShufflePartitionSpec"), len(ranges)
        )
        spec, unknown = (
            self._jvm.org.apache.spark.sql.execution.CoalescedPartitionSpec,
            self._jvm.scala.Option.empty(),
        )
        for i, (start, end) in enumerate(ranges):
            specs[i] = spec(start, end, unknown)
        session = shuffle.df.sparkSession
        with _Conf(session, {**WHILE_PLANNING, ROWS_OF_A_BATCH: str(shuffle.rows_at_once)}):
            rows = session._jsparkSession.internalCreateDataFrame(
                shuffle.exchange.getShuffleRDD(specs), shuffle.df._jdf.schema(), False
            )
            return rows.toArrowBatchRdd().toJavaRDD()


def _planning(session: SparkSession) -> _Conf:
    """Set what this module needs while Spark plans."""
    return _Conf(session, WHILE_PLANNING)


def _exchange(df: DataFrame) -> Any:
    plan = df._jdf.queryExecution().executedPlan()
    while not plan.getClass().getSimpleName().startswith("ShuffleExchange"):
        plan = plan.children().head()
    return plan


def _rows_at_once(exchange: Any) -> int:
    """Return how many rows of a shuffle an Arrow batch may have: they are in the executor's heap at once."""
    rows = exchange.metrics().apply("shuffleRecordsWritten").value()
    decoded = exchange.metrics().apply("dataSize").value()
    return max(1, min(MOST_ROWS_AT_ONCE, rows * BYTES_AT_ONCE // (decoded or 1)))


def register_source(spark: SparkSession, name: str, source: Callable[[], type[DataSource]]) -> None:
    """Make a data source known to a session, once. The driver's own Python plans the source.

    Spark would use the executors' Python for the planning, which may not be installed on the driver.
    """
    if name in _registered.setdefault(spark, set()):
        return
    here: Any = SimpleNamespace(
        sparkContext=_OfDriver(spark.sparkContext), _jsparkSession=spark._jsparkSession
    )
    DataSourceRegistration(here).register(source())
    _registered[spark].add(name)


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
        self._executors = _Executors(self.sc, local=self.local)
        self._shuffles = _Shuffles(self._jvm)
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
        except Py4JNetworkError:  # the JVM has ended
            return True

    def _probe(self) -> None:
        works = f"taskplace works with PySpark classic {TESTED}.x on Java 17 or newer"
        if not hasattr(self._spark, "_jsparkSession"):
            if not type(self._spark).__module__.startswith("pyspark.sql.connect"):
                raise InputError("spark", found=self._spark, expected="a SparkSession")
            raise UnsupportedSpark(
                f"found a Spark Connect session, which cannot reach executors; {works}, not with Spark Connect"
            )
        if not pyspark.__version__.startswith("4."):
            raise UnsupportedSpark(f"found PySpark {pyspark.__version__}; {works}")
        sc = self.spark.sparkContext
        frame = self.spark.range(1)._jdf
        for owner, method in (
            (sc._jsc.sc(), "makeRDD"),
            (sc._jsc.sc(), "statusStore"),
            (sc._jsc.sc(), "getExecutorIds"),
            (sc._jsc.sc(), "taskScheduler"),
            (sc._jsc.sc().taskScheduler(), "executorsPendingDecommission"),
            (sc._jsc.sc().taskScheduler(), "getExecutorDecommissionState"),
            (frame, "toArrowBatchRdd"),
            (self._spark._jsparkSession, "internalCreateDataFrame"),
        ):
            names = {m.getName() for m in owner.getClass().getMethods()}
            if method not in names:
                raise UnsupportedSpark(f"PySpark {pyspark.__version__} has no {method}; {works}")

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
        """Return the number of executors in the configuration; 1 if it has none."""
        master = self.sc.master
        if match := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,.*\]", master):
            return int(match[1])
        return int(self.sc.getConf().get("spark.executor.instances", "1") or "1")

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
        none = self._located([b""], [None])
        crossed = located.cartesian(self._shuffles.ranges(arrow.rows, ranges).union(none))
        before = [0, *accumulate(arrow.sizes[partition] for partition in arrow.order)]
        width = len(ranges) + 1
        partitions = [
            number * width + (number if before[end] > before[start] else len(ranges))
            for number, (start, end) in enumerate(ranges)
        ]
        return RDD(crossed, self.sc, PairDeserializer(NoOpSerializer(), NoOpSerializer())), partitions

    def _located(self, elements: Sequence[bytes], locations: Sequence[str | None]) -> Any:
        """Return a Java RDD with one partition per element, which prefers its location."""
        # Each attribute of a JVM object is a call, so each is looked up once.
        pairs, to_scala = (
            self._jvm.java.util.ArrayList(),
            self._jvm.scala.jdk.javaapi.CollectionConverters.asScala,
        )
        pair, add = self._jvm.scala.Tuple2, pairs.add
        places: dict[str | None, Any] = {}
        for location in locations:
            if location not in places:
                of_one = self._jvm.java.util.ArrayList()
                if location:
                    of_one.add(location)
                places[location] = to_scala(of_one).toSeq()
        for element, location in zip(elements, locations, strict=True):
            add(pair(element, places[location]))
        tag = self._jvm.scala.reflect.ClassTag.apply(self._jvm.java.lang.Class.forName("java.lang.Object"))
        return self._jsc.makeRDD(to_scala(pairs).toSeq(), tag).toJavaRDD()

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
    ) -> _Job:
        """See `Cluster.start`. `on_done` is called in the job's own thread."""
        tag = f"{tag}-{uuid.uuid4().hex}"  # other streams of this session may use the same name
        job = _Job(self, pinned, partitions, tag, pool, on_done)
        job.start()
        return job

    def register_source(self, spark: SparkSession, name: str, source: Callable[[], type[DataSource]]) -> None:
        """See `Cluster.register_source`."""
        register_source(spark, name, source)

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """See `Cluster.thread`. The thread inherits the Spark properties of the calling thread."""
        return InheritableThread(target=target, name=name, daemon=True)


class _Job:
    """A result job that runs in its own thread, so that it can be watched and cancelled."""

    def __init__(
        self,
        bridge: Bridge,
        pinned: Pinned,
        partitions: Sequence[int],
        tag: str,
        pool: str | None,
        on_done: Callable[[], None] | None,
    ) -> None:
        self.tag = tag
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._found: list[Any] = []
        self._cancelled = False
        self._began = time.monotonic()
        self._bridge, self._pinned, self._partitions = bridge, pinned, list(partitions)
        self._pool, self._on_done = pool, on_done
        self._thread = InheritableThread(target=self._run, name=f"taskplace-job-{tag}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def result(self) -> list[Any]:
        """Return the elements of the ended job. Errors: the exception of a task, as `Bridge.run` raises it."""
        if self.error is None:
            return self._found
        if (own := own_error(self.error)) is not None:
            raise own from self.error
        raise self.error

    def cancel(self) -> None:
        """Cancel the job, and wait for nothing."""
        self._cancelled = True  # Spark may not have the job yet
        self._bridge.sc.cancelJobsWithTag(self.tag)

    def end_lost(self, on_lost: Callable[[], None] | None) -> None:
        """End a job that has lost an executor, unless it has failed already, and wait for its tasks.

        `on_lost` asks the tasks to end. The job is cancelled if they do not, or if it is not young any more.
        """
        try:
            if on_lost is not None:
                on_lost()
                self._let_tasks_end(
                    min(time.monotonic() + END_BY_THEMSELVES_SECONDS, self._began + YOUNG_SECONDS)
                )
        finally:  # no job goes on, even if its mark could not be written
            if not self.done.is_set():
                self.cancel()
                self.done.wait()
            self._wait_for_tasks()

    def _let_tasks_end(self, deadline: float) -> None:
        """Wait until the job has ended or none of its tasks runs. Lost tasks do not: Spark looks for their executor."""
        self.done.wait(STATUS_SECONDS)
        while not self.done.is_set() and time.monotonic() < deadline and self._active_tasks():
            self.done.wait(POLL_SECONDS)

    def _wait_for_tasks(self) -> None:
        """Wait until no task of the job runs, at most `END_OF_TASKS_SECONDS`."""
        deadline = time.monotonic() + END_OF_TASKS_SECONDS
        while self._active_tasks() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def _active_tasks(self) -> int:
        """Return how many tasks of the job ran a moment ago (`STATUS_SECONDS`)."""
        tracker, active = self._bridge.sc._jsc.sc().statusTracker(), 0
        for job_id in tracker.getJobIdsForTag(self.tag):
            job = tracker.getJobInfo(job_id)
            for stage_id in job.get().stageIds() if job.isDefined() else []:
                stage = tracker.getStageInfo(stage_id)
                active += stage.get().numActiveTasks() if stage.isDefined() else 0
        return active

    def _run(self) -> None:
        sc, sent = self._bridge.sc, None
        try:
            sc.addJobTag(self.tag)
            if self._pool:
                sc.setLocalProperty("spark.scheduler.pool", self._pool)
            function, sent = self._bridge.lighten(self._pinned.function)
            if self._cancelled:
                raise RuntimeError(f"{self.tag}: cancelled before it began")
            self._found = list(sc.runJob(self._pinned.rdd, function, self._pinned.of(self._partitions)))
        except BaseException as error:
            self.error = error
        finally:
            if sent is not None:
                sent.destroy()
            self.done.set()
            if self._on_done is not None:
                self._on_done()


class _Conf:
    """Sets SQL configuration for a block, and restores the previous values after it."""

    def __init__(self, spark: SparkSession, values: dict[str, str]) -> None:
        self._spark, self._values = spark, values
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        for key, value in self._values.items():
            self._before[key] = self._spark.conf.get(key, None)
            self._spark.conf.set(key, value)

    def __exit__(self, *_: object) -> None:
        for key, value in self._before.items():
            if value is None:
                self._spark.conf.unset(key)
            else:
                self._spark.conf.set(key, value)


class _OfDriver:
    """A stand-in for a Spark context that names this process's Python."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.pythonExec = sys.executable or context.pythonExec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
