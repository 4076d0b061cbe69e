"""Embeds a topology with placed state in a PySpark pipeline: `Placed`.

Idea: one Structured Streaming query reads all sources. Spark keeps the offsets and repeats a batch that was not
committed. The query's `foreachBatch` is `Placed.process_batch`, which runs the batch where the state is:

    rebalance (between batches) -> one pinned job per subtopology -> manifest -> sinks -> followers catch up

`Placed` embeds the stream and answers questions about it; `taskplace.spark.driver.runner` runs the batches.

Properties: state is effectively once, under the loss of any executor and of the driver. Sinks get each batch at least
once, always with the same rows under the same batch id.

Non-goal: Spark Connect, which cannot reach executors.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from typing_extensions import Unpack

from taskplace import validation
from taskplace.errors import InputError, TaskplaceError
from taskplace.explanation import Removal, TaskExplanation
from taskplace.model.callables import check_function
from taskplace.model.config import PlacementConfig
from taskplace.model.placed_options import PlacedKeywords, PlacedOptions
from taskplace.model.tables import table
from taskplace.record.events import InstanceView, Reporter, Summary
from taskplace.record.html.of_run import RunRecorder
from taskplace.record.reporters import FanOut
from taskplace.spark import options as checks
from taskplace.spark.bridge import Bridge, start_query
from taskplace.spark.cluster import Cluster
from taskplace.spark.driver.cluster_state import ClusterState
from taskplace.spark.driver.definition import read_trigger
from taskplace.spark.driver.metrics import DriverMetrics
from taskplace.spark.driver.runner import BatchRunner
from taskplace.spark.live_run import LiveRun, ServedRun, explainer_of
from taskplace.spark.messages import SPARK_CHECKPOINT
from taskplace.spark.query import PlacedQuery
from taskplace.spark.store_reader import ReadOptions, StoreReader
from taskplace.spark.versions import PLANNED_SOURCES
from taskplace.wording import count
from topology import BuiltTopology, TaskId, Topology

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from taskplace.record.http_server import HttpServer


class Placed:
    """Runs a topology's batches on placed state.

    - `checkpoint`: a directory that driver and executors share; `state_dir`: local disk of the executors. Both are
      paths or file:// URIs
    - `config`: Kafka's keys (see `PlacementConfig`), or the object
    - `options`, or its fields as keywords: `PlacedOptions`. Field names carry units (`locality_wait_ms`,
      `snapshot_bytes`); a duration is a text with its unit ("10 minutes")
    - `reporter`: receives the events of the stream (`taskplace.record`)
    - `bridge`: the cluster to run on; None: that of `spark`. Tests pass a stand-in

    Errors: `UnsupportedSpark`; `InputError` and `TopologyError` for a wrong argument or topology; `CheckpointError` if
    the checkpoint does not belong to this topology. These errors come before anything has started: until the first
    batch, the driver that runs the checkpoint keeps it.

        placed = Placed(spark, topology, checkpoint="/data/delays", state_dir="/var/tmp/delays",
                        config={"num.standby.replicas": 1})
        query = placed.start({"flights": flights})
        query.awaitTermination()

    Lifetime: one per driver and checkpoint; `close` it, or stop its query, when the stream ends. `error` is the error
    of the last batch that failed; None if none has failed.
    """

    def __init__(
        self,
        spark: SparkSession,
        topology: Topology | BuiltTopology,
        *,
        checkpoint: str | Path,
        state_dir: str | Path,
        config: PlacementConfig | Mapping[str, Any] | None = None,
        options: PlacedOptions | None = None,
        reporter: Reporter | None = None,
        bridge: Cluster | None = None,
        **keywords: Unpack[PlacedKeywords],
    ) -> None:
        checks.check_reporter(reporter)
        stream = checks.stream_definition(
            topology,
            checkpoint=checkpoint,
            state_dir=state_dir,
            config=config,
            options=options,
            keywords=keywords,
        )
        self.bridge = bridge or Bridge(spark, locality_wait_ms=stream.options.locality_wait_ms)
        self._reporters = FanOut(reporter)
        self._runner = BatchRunner(stream, self.bridge, self._reporters)
        stream = self._runner.definition  # with the checkpoint's id
        self.built, self.config, self.options = stream.built, stream.config, stream.options
        self.checkpoint, self.state_dir = stream.checkpoint, stream.state_dir
        self.programs, self.state_root = stream.programs, stream.state_root
        self.journal, self.rebalancer = self._runner.journal, self._runner.rebalancer
        self.loop, self.stats = self.rebalancer.loop, self.rebalancer.stats
        self._metrics = DriverMetrics(self.rebalancer, self._runner.operations.status)
        self._servers: list[HttpServer | ServedRun] = []
        self.error: Exception | None = None

    # -- embedding

    def start(
        self,
        sources: Mapping[str, DataFrame],
        *,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> PlacedQuery[Placed]:
        """Start one streaming query over all sources and return its handle.

        - `sources`: by external topic, its streaming data frame
        - `trigger`: the arguments of `DataStreamWriter.trigger`, such as {"processingTime": "10 seconds"}; None:
          Spark's default
        - `name`: the query's name, unique among the session's active queries

        Spark's checkpoint is a subdirectory of this checkpoint. For this query alone, Spark writes its logs without
        starting processes, and keeps those of the last ten batches, unless the session has set `minBatchesToRetain` and
        `checkpointFileManagerClass`. Work that is due by event time also runs without rows, unless the checkpoint was
        made without ticks; then a warning is logged.
        Errors: `InputError` for a wrong argument, or for a source that is missing, unknown or not streaming;
        `CheckpointError` if Spark's checkpoint and the placed state are not of the same run.
        """
        triggered = read_trigger(trigger)
        if name is not None and (not isinstance(name, str) or not name):
            raise InputError("name", found=name, expected="a name of the query, or None")
        checks.check_sources(sources, streaming=True)
        self._runner.takeover.check_start()
        spark_checkpoint = self.checkpoint / SPARK_CHECKPOINT
        ticks = self._runner.no_data_batches.wants_ticks(spark_checkpoint)
        united = self.unite(sources, ticks=ticks)
        writer = united.writeStream.foreachBatch(self.process_batch)
        writer = writer.option("checkpointLocation", str(spark_checkpoint))
        if name:
            writer = writer.queryName(name)
        if triggered:
            writer = writer.trigger(**triggered)
        query = start_query(writer, united.sparkSession)
        self._runner.operations.wait()
        ends_early = "availableNow" in triggered and not PLANNED_SOURCES and ticks

        def start_again() -> StreamingQuery | None:
            return start_query(writer, united.sparkSession) if self.due() else None

        return PlacedQuery(self, query, start_again if ends_early else None)

    def unite(self, sources: Mapping[str, DataFrame], *, ticks: bool = False) -> DataFrame:
        """Return the one data frame that `process_batch` takes, for a topology with several sources.

        With `ticks`, the frame has one more source, which has no rows and makes Spark run a batch when work is due
        (`due`). This source belongs to Spark's checkpoint like any other: a checkpoint that was made without it refuses
        it.
        Errors: `InputError` for a source that is missing, unknown, or has not the topic's columns.

            united = placed.unite({"orders": orders, "customers": customers})
            query = united.writeStream.foreachBatch(placed.process_batch).start()
        """
        checks.check_sources(sources)
        united = self._runner.input.unite(sources)
        return self._runner.no_data_batches.add_ticks(united) if ticks else united

    def process_batch(self, df: DataFrame, batch_id: int) -> None:
        """Run one batch. This is the function for `foreachBatch`.

        A batch that is already committed is only published again. `df` comes from `unite`, or is the source of a
        topology with a single source.
        Errors: `Fenced` when another driver has taken over; `CheckpointError`; `DiskFull`; the errors of sinks;
        PySpark's `PythonException` for those of processors. See "When a batch fails" in docs/runtime.md.
        """
        validation.integer(batch_id, "process_batch: batch_id", 0)
        if not hasattr(df, "columns"):
            raise InputError("process_batch: df", found=df, expected="the data frame of the batch")
        try:
            self._runner.run(df, batch_id)
        except Exception as error:
            self.error = error
            self._runner.stop_if_fenced()  # then that is the error, and not what followed from it
            raise

    def close(self) -> None:
        """Stop the replication, the metrics' endpoints and live pages, and remove the values sent to executors.

        The checkpoint and the copies stay. May be called again. A query's `stop` calls it; call it yourself after
        `process_batch` by hand.
        """
        try:
            self._runner.close()
        finally:
            while self._servers:
                self._servers.pop().close()
        shutil.rmtree(self.reads, ignore_errors=True)

    # -- questions and settings

    @property
    def total_batches(self) -> int | None:
        """The expected number of batches, for the reporter; None: unknown. May be set."""
        return self._runner.listeners.total_batches

    @total_batches.setter
    def total_batches(self, batches: int | None) -> None:
        self._runner.listeners.total_batches = batches

    @property
    def on_stage(self) -> Callable[[int, int], None] | None:
        """Called with the batch and the subtopology before a subtopology's job runs. May be set."""
        return self._runner.listeners.on_stage

    @on_stage.setter
    def on_stage(self, function: Callable[[int, int], None] | None) -> None:
        if function is not None:
            check_function(function, "on_stage", arguments=["batch", "subtopology"])
        self._runner.listeners.on_stage = function

    @property
    def reads(self) -> Path:
        """The directory to which stores that are read as data frames are written. Removed when this driver ends."""
        return self._runner.reads

    @property
    def state(self) -> ClusterState:
        """The driver's view of the cluster: members, copies, lags, and the assignment in force."""
        return self.rebalancer.state

    @property
    def query_id(self) -> str | None:
        """The id of Spark's query, the same after a restart; None before the first batch of the checkpoint."""
        query: str | None = self.journal.identity.get("query")
        return query

    @property
    def watermark(self) -> int | None:
        """The sources' watermark in the next batch, microseconds since 1970 (UTC); None: not yet known."""
        return self._runner.no_data_batches.watermark

    def due(self) -> bool:
        """Return whether the next batch has work even without rows: windows to close, or state to expire."""
        return self._runner.no_data_batches.due()

    def drain(self, executor: str | int, *, lose_unlogged: bool = False) -> None:
        """Move all tasks away from an executor ("3", 3 or "executor-3"), from the next rebalance on.

        That is before the next batch or, if none runs, within a second. Warm-ups catch up first, so no task stalls.
        `can_remove` says when the executor is empty.
        `lose_unlogged`: also if this loses entries of stores with `logged=False`, which no other executor has.
        Errors: `InputError` for an executor that is not there, naming the members, and for one with such entries.
        """
        self.rebalancer.drain(executor, lose_unlogged=lose_unlogged)

    def undrain(self, executor: str | int) -> None:
        """Revoke `drain`: the executor may run tasks again. Errors: as for `drain`."""
        self.rebalancer.drain(executor, on=False)

    def release(self, executor: str | int | None = None) -> tuple[tuple[str, TaskId], ...]:
        """Let parked copies try again: those of one executor, or all; return them as (instance, task).

        A copy that made no progress is parked: its task is planned elsewhere, and a warning in the log names it. Call
        this when the cause is fixed, such as a full disk. The next rebalance plans with these copies again.
        Errors: `InputError` for an executor that is not there.
        """
        return self.rebalancer.release(executor)

    def can_remove(self, executor: str | int) -> bool:
        """Return whether an executor has no role, and no copy that the others lack; True once it is gone.

        Errors: `InputError` for an executor that never was a member.
        """
        return self.rebalancer.removal(executor).can_remove

    def removal(self, executor: str | int) -> Removal:
        """Return whether an executor can be removed now, and if not, which tasks keep it; `text` is one line.

        The answer of `can_remove`, with its reasons: how a drain proceeds, and which copies hold it up.
        Errors: as for `can_remove`.
        """
        return self.rebalancer.removal(executor, self._runner.operations.progress())

    def explain(self, task: TaskId | str) -> TaskExplanation:
        """Return why a task ("0_3") is where it is, why it does not move, and when it will.

        `text` is one paragraph. `str()` has the facts below it: the copies with their lags, the target, and why other
        instances were refused. It is the text of `taskplace explain CHECKPOINT --task 0_3`: for the cluster as it is
        now. It makes a few plans and puts none in force, so it delays no batch.
        Errors: `InputError` for an unknown task; `TaskplaceError` before the first batch, which makes the first plan,
        and while no executor is there.

            print(placed.explain("0_3"))
        """
        explainer = explainer_of(self._runner)
        if explainer is None:
            why = "there is no plan yet; the first batch makes one"
            if self.loop.plan is not None:
                why = "no executor is there, so no task can run; the next one that comes is planned with"
            raise TaskplaceError(f"task {task}: {why}")
        return explainer.task(task)

    def placement(self) -> tuple[InstanceView, ...]:
        """Return the tasks that each executor runs and follows, and the lag of its followers in records.

        The lag is counted up to the commit before the last one: the last batch's changes are still on their way.
        """
        return self.rebalancer.placement()

    def _repr_html_(self) -> str:
        """Return the placement as a table, for notebooks."""
        with self.rebalancer.lock:
            views, generation = self.rebalancer.placement(), self.rebalancer.loop.generation
        rows = [(view.id, view.active, view.standby, view.warmup, f"{view.lag:,}") for view in views]
        at = f"batch {self.journal.last_batch}" if self.journal.last else "no batch yet"
        caption = (
            f"{self.built.name}: {at}, generation {generation}, {count(len(self.built.tasks()), 'task')}"
        )
        return table(("executor", "active", "standby", "warm-up", "lag"), rows, caption)

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the stream by name, in Kafka's words; docs/metrics.md explains each.

        A value is a number, or None if it is not known yet. A metric with labels has a list of series: its labels and
        "value". All of it is JSON data. May be called from any thread: it delays no batch, and waits for none.

            placed.metrics()["rebalance-total"]
        """
        return self._metrics.read()

    def serve_metrics(self, *, port: int, host: str = "127.0.0.1") -> HttpServer:
        """Serve the metrics to Prometheus over HTTP, and return the endpoint. `close` of it or of this stream ends it.

        - `port`: 0 takes a free one
        - `host`: the address to listen on. The endpoint has no authentication

        Errors: `InputError` for a port or a host that cannot be used, and without `prometheus-client` (the extra
        `metrics`).

            placed.serve_metrics(port=9404).url
        """
        from taskplace.record.prometheus import serve

        server = serve(self.metrics, stream=self.built.name, port=port, host=host)
        self._servers.append(server)
        return server

    def serve_ui(self, *, port: int = 0, host: str = "127.0.0.1") -> ServedRun:
        """Serve a live page about this stream, and return its handle. `close` of it or of this stream ends it.

        - `port`: 0 takes a free one; the handle's `url` has it
        - `host`: the address to listen on. The page has no authentication: it shows names of tasks, hosts and
          executors, counts, times and reasons. It shows no rows

        Errors: `InputError` for a port or a host that cannot be used.

            print(placed.serve_ui().url)
        """
        served = ServedRun(self._runner, self._reporters, title=self.built.name, port=port, host=host)
        self._servers.append(served)
        return served

    def live(self, recorder: RunRecorder) -> LiveRun:
        """Return what a page shows of this stream, whose events `recorder` gets; see `serve_ui`."""
        return LiveRun(self._runner, recorder)

    def store(self, name: str, **how: Unpack[ReadOptions]) -> StoreReader:
        """Return a reader of a store's committed state.

        `how`: `copies` ("active", or "standby" for reads that do not load the active copies), `max_lag` in records and
        `max_batches`; see `taskplace.spark.store_reader.StoreReader`.
        Errors: `InputError` for an unknown store or argument, with the nearest name.

            placed.store("delays").get({"tailnum": "N14228"})
        """
        validation.mapping(how, "store", tuple(ReadOptions.__annotations__))
        return StoreReader(self._runner, name, **how)

    def summary(self, seconds: float = 0.0) -> Summary:
        """Return the totals of the run so far. `seconds`: how long it has taken, for the rates."""
        return self.stats.summary(seconds)
