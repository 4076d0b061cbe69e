"""`Placed`: a topology with placed state, embedded in a PySpark pipeline.

Idea: one Structured Streaming query reads all sources; Spark keeps the offsets and repeats a batch that was
not committed. Its `foreachBatch` is `Placed.process_batch`, which runs the batch where the state is:

    rebalance (between batches) -> one pinned job per subtopology -> manifest -> sinks -> followers catch up

Properties: state effectively once, under the loss of any executor and of the driver; sinks get each batch at
least once, always with the same rows under the same batch id.

Non-goal: Spark Connect, which cannot reach executors.
"""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from taskplace import validation
from taskplace.assign.registry import BUILT_IN
from taskplace.assign.registry import find as find_assignor
from taskplace.durations import Duration
from taskplace.errors import ConfigError, Fenced, InputError
from taskplace.explanation import Removal
from taskplace.model.config import PlacementConfig
from taskplace.model.events import BatchDone, InstanceView, Reporter, Summary
from taskplace.model.placed_options import PlacedOptions
from taskplace.rebalance import RebalanceLoop, Trigger
from taskplace.spark import faults
from taskplace.spark import options as checks
from taskplace.spark.bridge import Bridge
from taskplace.spark.driver import programs as make
from taskplace.spark.driver import stages, structure
from taskplace.spark.driver.cluster_state import ClusterState
from taskplace.spark.driver.directory_overlaps import check_overlaps
from taskplace.spark.driver.followers import Followers
from taskplace.spark.driver.halves import SPARKS_OWN, check_halves
from taskplace.spark.driver.idle import Idle, rows_by_partition
from taskplace.spark.driver.journal import Journal
from taskplace.spark.driver.publishing import Publisher
from taskplace.spark.driver.rebalancer import Rebalancer, check_weights
from taskplace.spark.driver.replication import Replicator
from taskplace.spark.driver.silence import Silence
from taskplace.spark.driver.sources import key_types
from taskplace.spark.driver.staging import SCHEMAS, SinkSchemas
from taskplace.spark.driver.stats import Phases, Stats
from taskplace.spark.driver.takeover import Takeover
from taskplace.spark.driver.ticks import Ticks, carries_ticks
from taskplace.spark.driver.triggers import read_trigger
from taskplace.spark.driver.watermarks import Watermarks
from taskplace.spark.messages import Change, Declaration, History, Manifest, Report, Setting
from taskplace.spark.query import PlacedQuery
from taskplace.spark.state.directories import check_commits, check_owner
from taskplace.spark.store_reader import StoreReader
from taskplace.spark.worker.attempt import TAG
from taskplace.spark.worker.guard import told_when_full
from taskplace.spark.worker.hashing import HASH_VERSION
from topology import BuiltTopology, TaskId, Topology

log = logging.getLogger(__name__)


class Placed:
    """Runs a topology's batches on placed state.

    - `checkpoint`: a directory that driver and executors share; `state_dir`: local disk of the executors
    - `config`: Kafka's keys (see `PlacementConfig`), or the object
    - `options`, or its fields as keywords: `PlacedOptions`
    - `reporter`: shows what happens (`taskplace.report`)

    Errors: `UnsupportedSpark`; `InputError` and `TopologyError` for what is wrong in the description;
    `CheckpointError` when the checkpoint was made by something else. Nothing has started by then: what was in charge of
    the checkpoint still is, until the first batch.

        placed = Placed(spark, topology, checkpoint="/data/delays", state_dir="/var/tmp/delays",
                        config={"num.standby.replicas": 1})
        query = placed.start({"flights": flights})
        query.awaitTermination()

    Lifetime: one per driver and checkpoint; `close` it, or stop its query, when the stream ends.
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
        **keywords: Any,
    ) -> None:
        self.built, self.config = checks.built_topology(topology), checks.placement_config(config)
        self.options = checks.placed_options(options, keywords)
        checks.check_reporter(reporter)
        if self.config.task_assignor_class not in BUILT_IN:
            find_assignor(self.config.task_assignor_class)
        if self.config.rack_aware_assignment_strategy != "none":
            raise ConfigError(
                "rack.aware.assignment.strategy",
                found=self.config.rack_aware_assignment_strategy,
                expected="none: rows come to tasks through a shuffle, so that no rack is nearer to a task than another",
                hint="rack.aware.assignment.tags spreads standbys over racks or zones",
            )
        self.checkpoint = checks.local_path(checkpoint, "checkpoint")
        self.state_dir = checks.local_path(state_dir, "state_dir")
        check_overlaps(self.built, {"the checkpoint": self.checkpoint, "the state_dir": self.state_dir})
        self.programs = make.programs(self.built)
        self._event_times = make.event_times(self.built)
        self._task_ids = self._tasks_by_subtopology()
        self.bridge = Bridge(spark, locality_wait_ms=self.options.locality_wait_ms)
        check_weights(self.options.weights or {}, self.built)
        self._publisher = Publisher(self.checkpoint, self.built)
        check_owner(self.checkpoint, "checkpoint")
        with told_when_full(self.checkpoint):
            check_commits(self.checkpoint, "checkpoint")
            self._publisher.probe()
        self._sinks = SinkSchemas(self.built)
        self._new_id = uuid.uuid4().hex
        self.journal = Journal(
            self.checkpoint,
            {
                "hash": HASH_VERSION,
                "keys": None,
                "query": None,
                # The watermark goes on from what it was; of another column it would be worth nothing.
                **{f"event_time of {topic!r}": time.column for topic, time in self._event_times.items()},
            },
            self._declare,
            take_over=False,
        )
        self._takeover = Takeover(self.journal, self._publisher)
        checkpoint_id, self.programs = structure.kept(self.journal.declaration, self.programs)
        self.state_root = self.state_dir / checkpoint_id
        generation = self.journal.last.generation if self.journal.last else 0
        self.loop = RebalanceLoop(self.config, generation=generation)
        self.stats = Stats()
        self.rebalancer = Rebalancer(
            self.bridge,
            self.journal,
            self.loop,
            self.built,
            self.programs,
            self.stats,
            reporter=reporter,
            tags=self.options.tags,
        )
        self.rebalancer.weigh(self.options.weights or {})
        self._followers = Followers(
            self.rebalancer,
            self.programs,
            checkpoint=self.checkpoint,
            state_root=self.state_root,
            options=self.options,
        )
        self._replicator = Replicator(
            self.bridge, self._followers.orders, self._followers.absorb, self._visit
        )
        self.total_batches: int | None = None
        self.error: Exception | None = None
        self.on_stage: Callable[[int, int], None] | None = None
        self._idle = Idle()
        self._silence = self._watched(self.options.idle_closing)
        self._ticks: Ticks | None = None
        self._told_of_ticks = False
        self._reporter = reporter
        self._batch = threading.Lock()

    def _declare(self, last: Manifest | None) -> Declaration:
        """Return what this driver declares when it takes over."""
        epoch = last.epoch if last else None
        structure.check_sources(self.checkpoint, self.built, epoch)
        declared = structure.declare(self.checkpoint, self.built, self.programs, epoch, self._new_id)
        self._publisher.check(declared.id)
        self._sinks.check(self.checkpoint, last.identity if last else {})
        return declared

    def _tasks_by_subtopology(self) -> dict[int, tuple[TaskId, ...]]:
        found: dict[int, list[TaskId]] = {program.subtopology: [] for program in self.programs}
        for task in self.built.tasks():
            found[task.id.subtopology].append(task.id)
        return {subtopology: tuple(tasks) for subtopology, tasks in found.items()}

    def _watched(self, idle_closing: Duration | None) -> Silence:
        if idle_closing is not None and not self._by_time:
            raise InputError(
                "idle_closing",
                found=idle_closing,
                expected="a topology with windows, or with state that is forgotten by event time",
            )
        kept = (store.ttl for program in self.programs for store in program.stores.values())
        behind = (operator.lag for program in self.programs for operator in program.operators)
        longest = sum(kept) + sum(behind)
        return Silence(idle_closing, self._event_times, longest)

    # -- embedding

    def start(
        self,
        sources: Mapping[str, DataFrame],
        *,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> PlacedQuery[Placed]:
        """Start one streaming query over all sources and return its handle; Spark's own part of the
        checkpoint is kept beside the rest. `trigger` is what `DataStreamWriter.trigger` takes.

        What is due by event time runs without rows as well, unless the checkpoint was made without ticks: a warning
        says so then.
        """
        triggered = read_trigger(trigger)
        if name is not None and (not isinstance(name, str) or not name):
            raise InputError("name", found=name, expected="a name of the query, or None")
        checks.check_sources(sources, streaming=True)
        check_halves(self.checkpoint, self.journal)
        spark_checkpoint = self.checkpoint / SPARKS_OWN
        ticks = carries_ticks(spark_checkpoint)
        if ticks is False and self._by_time:
            log.warning(
                "%s: made without ticks, and Spark adds no source to a checkpoint. While all sources are silent, "
                "windows do not close and state does not expire: that waits for the next rows. A new checkpoint has "
                "ticks",
                self.checkpoint,
            )
            self._told_of_ticks = True
        united = self.unite(sources, ticks=self._by_time if ticks is None else ticks)
        writer = united.writeStream.foreachBatch(self.process_batch)
        writer = writer.option("checkpointLocation", str(spark_checkpoint))
        if name:
            writer = writer.queryName(name)
        if triggered:
            writer = writer.trigger(**triggered)
        return PlacedQuery(self, writer.start())

    def unite(self, sources: Mapping[str, DataFrame], *, ticks: bool = False) -> DataFrame:
        """Return the one data frame that `process_batch` takes, for a topology with several sources.

        With `ticks`, it has one more source for Spark, which brings no rows and has batches run when something is due
        (`due`). It belongs to Spark's checkpoint like any other source: one that was made without it refuses it.
        """
        checks.check_sources(sources)
        united = make.unite(self.built, sources)
        self.journal.bind_keys(key_types(self.built, {topic: df.schema for topic, df in sources.items()}))
        if not ticks:
            return united
        self._ticks = Ticks(self.checkpoint)
        self._tick()
        return self._ticks.added_to(united)

    def process_batch(self, df: DataFrame, batch_id: int) -> None:
        """Run one batch; this is the function for `foreachBatch`.

        A batch that is committed already is only published again. `df` comes from `unite`, or is the one
        source of a topology that has just one.
        Errors: what a processor raises; `Fenced` when another driver has taken over; `CheckpointError`.
        """
        validation.integer(batch_id, "process_batch: batch_id", 0)
        if not hasattr(df, "columns"):
            raise InputError("process_batch: df", found=df, expected="the data frame of the batch")
        self._silence.stop()
        try:
            self._process(df, batch_id)
            self._tick()
        except Exception as error:
            self.error = error
            if self.journal.epoch:  # a copy that has seen a newer driver refuses: say so, not how it showed
                self._stop_if_fenced()
            raise

    def due(self) -> bool:
        """Return whether the next batch has something to do without rows: windows to close, or state to forget."""
        last, watermark = self.journal.last, self.watermark
        if last is None or watermark is None or not self._by_time:
            return False
        return watermark != last.watermark or self._idle.expiring

    @property
    def _by_time(self) -> bool:
        """Whether a moved watermark gives any task something to do."""
        return bool(self._event_times) and any(p.forgets or p.every_batch for p in self.programs)

    def _tick(self) -> None:
        """Ask Spark for a batch without rows, if something is due: now, or after a silence of all sources."""
        if self._ticks is not None:
            if self.due():
                with told_when_full(self.checkpoint):
                    self._ticks.ask(self.journal.last_batch + 1)
            elif (last := self.journal.last) is not None:
                ask = partial(self._ticks.ask, last.batch + 1)
                self._silence.watch(last.event_times, self.watermark, ask)
        elif self.due() and not self._told_of_ticks:
            self._told_of_ticks = True
            log.warning(
                "%s: windows to close and state to forget wait for the next batch, and Spark runs none while all "
                "sources are silent; `start`, or `unite(sources, ticks=True)` on a new Spark checkpoint, has it run",
                self.checkpoint,
            )

    def _stop_if_fenced(self) -> None:
        try:
            self.journal.check_epoch()
        except Fenced:
            self._replicator.stop()  # who has taken over sends followers of its own
            raise

    def _process(self, df: DataFrame, batch_id: int) -> None:
        with self._batch:
            self._takeover.take(batch_id, self.bridge.query_id(), lambda: self._united(df))
            self.journal.check_epoch()
            self._takeover.check_batch(batch_id)
            if self.journal.last is not None and batch_id == self.journal.last.batch:
                self._publish(df.sparkSession, self.journal.last)
                self._compare_repeated(df, self.journal.last)
                return
            with self.rebalancer.batch():
                self._run(self._united(df), batch_id)

    def _compare_repeated(self, df: DataFrame, manifest: Manifest) -> None:
        """Warn of a batch of which Spark brings more than was committed: it may have cut it anew.

        It need not have, so it goes on: the other side of a join may have grown. Fewer rows mean nothing: a source may
        have forgotten them, or not be able to bring them any more.
        """
        try:
            united = self._united(df)
            found = sum(
                make.stage_input(united, program).count() for program in self.programs if program.external
            )
        except Exception as error:
            log.warning(
                "%s: batch %d is committed and published; its rows cannot be counted again: %s",
                self.checkpoint, manifest.batch, error,
            )  # fmt: skip
            return
        if found > manifest.rows:
            log.warning(
                "%s: batch %d was committed with %d rows, and Spark brings %d for it now; if its own checkpoint was "
                "lost or set back, the others are lost: restore it, or start both anew",
                self.checkpoint, manifest.batch, manifest.rows, found,
            )  # fmt: skip

    def _united(self, df: DataFrame) -> DataFrame:
        topics = make.external_topics(self.built)
        if df.columns[:2] == [TAG, make.PARTITION] and set(df.columns[2:]) == set(topics):
            return df
        if len(topics) != 1:
            raise InputError(
                "process_batch",
                found=df.columns,
                expected=f"the data frame that unite({sorted(topics)}) gives",
            )
        return self.unite(dict.fromkeys(topics, df))

    def close(self) -> None:
        """Stop following, and remove what was sent to executors; the checkpoint and the copies stay."""
        self._silence.stop()
        self._replicator.stop()
        self.bridge.close()
        shutil.rmtree(self.reads, ignore_errors=True)

    # -- asking and telling

    @property
    def reads(self) -> Path:
        """Where stores are written that are read as data frames; gone when this driver ends."""
        return self.checkpoint / "reads" / str(self.journal.epoch)

    @property
    def state(self) -> ClusterState:
        """What is known of the cluster: members, copies, lags, and the assignment in force."""
        return self.rebalancer.state

    @property
    def watermark(self) -> int | None:
        """The sources' watermark in the next batch, microseconds since 1970 (UTC); None: unknown yet."""
        last = self.journal.last
        return make.watermark(self._event_times, last.event_times, last.watermark) if last else None

    def drain(self, executor: str | int) -> None:
        """Have everything moved away from an executor ("3", 3 or "executor-3"), behind warm-ups; nothing stalls."""
        self.rebalancer.drain(executor)

    def undrain(self, executor: str | int) -> None:
        """Take `drain` back."""
        self.rebalancer.drain(executor, on=False)

    def can_remove(self, executor: str | int) -> bool:
        """Return whether an executor has no role any more, and no copy that the others lack."""
        return self.rebalancer.can_remove(executor)

    def removal(self, executor: str | int) -> Removal:
        """Return what still has to catch up elsewhere before an executor can go; its `text` says it in one line."""
        return self.rebalancer.removal(executor)

    def placement(self) -> tuple[InstanceView, ...]:
        """Return what each executor runs and follows, and how far its followers are behind."""
        return self.rebalancer.placement()

    def store(self, name: str, **how: Any) -> StoreReader:
        """Return a reader of a store's committed state; `how`: see `taskplace.spark.store_reader.StoreReader`."""
        validation.mapping(how, "store", ("copies", "max_lag", "max_batches"))
        return StoreReader(self, name, **how)

    def tasks_of(self, subtopology: int) -> tuple[TaskId, ...]:
        """Return a subtopology's tasks, in order of partition."""
        return self._task_ids[subtopology]

    def summary(self, seconds: float = 0.0) -> Summary:
        """Return what the run so far adds up to."""
        s = self.stats
        return Summary(
            s.batches,
            s.rows,
            s.rebalances,
            s.promotions,
            s.replayed,
            s.restored,
            s.scratch,
            s.elsewhere,
            s.medians(),
            seconds,
            followed_records=s.followed,
        )

    # -- one batch

    def _run(self, df: DataFrame, batch_id: int) -> None:
        clock = Phases()
        with clock.phase("rebalance"):
            self._rebalance(batch_id)
        self._replicator.start()
        reports: dict[TaskId, Report] = {}
        watermarks = Watermarks(self.watermark, self.journal.last)
        for number in self.built.order:
            with clock.phase(f"subtopology {number}"):
                found = self._stage(df, batch_id, number, reports, watermarks)
                self._bind_keys(found.values())
                reports |= found
        changes: dict[TaskId, Change] = {
            task: r.change for task, r in reports.items() if r.change is not None
        }
        sinks, schemas = self._sinks.settle(self.checkpoint, reports, self.journal.identity)
        rows = sum(report.rows for report in reports.values())
        faults.point("batch.staged")
        with clock.phase("commit"), told_when_full(self.checkpoint), self.rebalancer.lock:
            before = self.journal.last.changes if self.journal.last else {}
            self.journal.identity = {**self.journal.identity, SCHEMAS: schemas}
            manifest = self.journal.commit(
                batch_id,
                self.loop.generation,
                changes,
                sinks,
                self.rebalancer.assignment(),
                self._silence.newest(
                    _newest(report.event_times for report in reports.values()),
                    self.journal.last.event_times if self.journal.last else {},
                    rows,
                    self.watermark,
                ),
                rows,
                watermarks.now,
                watermarks.expired,
                watermarks.held,
            )
            self.state.committed({*before, *changes})  # of `before`, what was under way has now settled
            self._idle.committed(reports)
        self._replicator.wake()
        faults.point("batch.committed")
        with clock.phase("publish"):
            self._publish(df.sparkSession, manifest)
        faults.point("batch.published")
        with self.rebalancer.lock:
            self.journal.prune()
        self._tell(batch_id, rows, reports, clock)

    def _bind_keys(self, reports: Iterable[Report]) -> None:
        """See that the keys of internal topics are of the types that they always were: that says where they go."""
        for report in reports:
            self.journal.bind_keys({topic: b.key for topic, b in report.boundaries.items() if b.key})

    def _stage(
        self,
        df: DataFrame,
        batch_id: int,
        number: int,
        before: Mapping[TaskId, Report],
        watermarks: Watermarks,
    ) -> dict[TaskId, Report]:
        program, tasks = self.programs[number], self._task_ids[number]
        arrow = None
        if program.external:
            arrow = self.bridge.arrow_input(make.stage_input(df, program), len(tasks), make.PARTITION)
        boundaries = {
            topic: [r.boundaries[topic] for _, r in sorted(before.items()) if topic in r.boundaries]
            for topic in program.internal
        }
        setting = Setting(
            checkpoint=str(self.checkpoint),
            state_root=str(self.state_root),
            spark_app=self.bridge.app_id,
            epoch=self.journal.epoch,
            batch=batch_id,
            generation=self.loop.generation,
            schema=arrow.schema if arrow else None,
            compression=self.options.compression,
            bytes_per_task=self.options.bytes_per_task,
            watermarks=watermarks.topics(program),
            late=watermarks.late(program),
            sinks=self._sinks.of(program.sinks, self.journal.identity),
        )
        brought = Counter(rows_by_partition(before.values(), program.internal))
        brought.update(dict(enumerate(arrow.sizes if arrow else ())))
        idle = self._idle.tasks(
            program,
            tasks,
            lambda partition: brought[partition] > 0,
            setting.watermarks,
            self.rebalancer.behind(),
        )
        if self.on_stage is not None:
            self.on_stage(batch_id, number)

        def lost(ids: frozenset[str]) -> None:
            names = ", ".join(f"executor-{i}" for i in sorted(ids))
            self._rebalance(batch_id, (Trigger("lost", f"{names} died within batch {batch_id}"),))

        reports = stages.run(
            self.bridge,
            program,
            setting,
            boundaries,
            arrow,
            tasks,
            idle,
            self.journal.history,
            self.rebalancer.owners,
            lambda: self.loop.generation,
            lost,
            partial(watermarks.held_before, program),
        )
        watermarks.passed(program, len(tasks), reports.values())
        with self.rebalancer.lock:
            for report in reports.values():
                if program.stateful:
                    end = (
                        report.change.position
                        if report.change
                        else self.journal.history.get(report.task, History()).end
                    )
                    self.state.moved(report.instance, report.task, end)
        self.stats.count(reports.values())
        return reports

    def _rebalance(self, batch_id: int, because: Sequence[Trigger] = ()) -> None:
        if not self.rebalancer.keep(cancelled=bool(because)):
            self._followers.welcome()
        if self.rebalancer.rebalance(batch_id, because):
            self._replicator.wake()

    def _publish(self, spark: SparkSession, manifest: Manifest) -> None:
        with told_when_full(self.checkpoint):
            self._publisher.publish(spark, manifest, self.journal.check_epoch)

    @contextmanager
    def _visit(self) -> Iterator[None]:
        with ExitStack() as visit:
            with self.rebalancer.lock:
                visit.enter_context(self.journal.visit())
            yield

    def _tell(self, batch_id: int, rows: int, reports: Mapping[TaskId, Report], clock: Phases) -> None:
        worker: dict[str, float] = {}
        for report in reports.values():
            for name, seconds in report.seconds.items():
                worker[f"tasks: {name}"] = worker.get(f"tasks: {name}", 0.0) + seconds
        self.stats.batches += 1
        self.stats.rows += rows
        self.stats.time({**clock.seconds, "whole batch": clock.total(), **worker})
        if self._reporter is not None:
            self._reporter.batch(
                BatchDone(
                    batch_id,
                    self.total_batches,
                    rows,
                    clock.total(),
                    clock.seconds,
                    self.placement(),
                    self.loop.generation,
                )
            )


def _newest(found: Iterable[Mapping[str, int]]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for times in found:
        newest.update({topic: max(time, newest.get(topic, time)) for topic, time in times.items()})
    return newest
