"""Runs one batch, from the rows of `foreachBatch` to the report: the steps of "A batch" in docs/architecture.md.

    take over and check -> rebalance -> one job per subtopology -> settle sinks -> commit -> publish -> report

Follow jobs run in parallel: the replicator is woken when there are new changes for followers.

Properties:
- Nothing takes effect before the commit. After an error before the commit, the whole batch is run again; after an error
  behind it, the batch is only published again.
- The fault points of tests (`taskplace.spark.faults`) lie between the steps.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from taskplace.errors import Fenced
from taskplace.rebalance import Trigger
from taskplace.record.events import TOTALS, Reporter, Totals
from taskplace.spark import faults
from taskplace.spark.checkpoint.history import trimmed_since
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.checkpoint.spark_checkpoint import planned_offsets
from taskplace.spark.cluster import Cluster
from taskplace.spark.compile.infer import infer
from taskplace.spark.compile.keys import KeyTypes, alike
from taskplace.spark.compile.partition_columns import warn_of_unchecked_keys
from taskplace.spark.driver import read_topics, structure
from taskplace.spark.driver.batch import Batch, BatchInput, Listeners
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.followers import Followers, Replicator
from taskplace.spark.driver.no_data_batches import NoDataBatches
from taskplace.spark.driver.operations import Operations
from taskplace.spark.driver.publishing import Publisher
from taskplace.spark.driver.read_topics import InputLag
from taskplace.spark.driver.rebalancer import Rebalancer, check_weights
from taskplace.spark.driver.stages import IdleTasks, StageRunner
from taskplace.spark.driver.staging import SCHEMAS, SinkSchemas
from taskplace.spark.driver.takeover import Takeover
from taskplace.spark.driver.watermarks import Watermarks
from taskplace.spark.messages import OFFSETS, SPARK_CHECKPOINT, Declaration, Manifest, Report
from taskplace.spark.state.directories import check_commits, check_owner
from taskplace.spark.worker.guard import raising_disk_full
from taskplace.spark.worker.hashing import HASH_VERSION


class BatchRunner:
    """Runs the batches of one stream, one at a time. Lifetime: one for each driver.

    It opens the checkpoint, and does not take it over: until its first batch, the previous driver keeps it.
    `definition` has the checkpoint's id. A warning is logged for keys that no task checks. Errors: `InputError` for
    options that do not fit the topology; `CheckpointError` if the checkpoint does not belong to this stream; the error
    of a sink that cannot write.
    """

    def __init__(
        self, definition: StreamDefinition, bridge: Cluster, reporter: Reporter | None = None
    ) -> None:
        built, checkpoint = definition.built, definition.checkpoint
        check_weights(definition.options.weights or {}, built)
        warn_of_unchecked_keys(built)
        self.bridge, self._one_batch = bridge, threading.Lock()
        self.publisher, self.schemas = Publisher(checkpoint, built), SinkSchemas(built)
        check_owner(checkpoint, "checkpoint")
        with raising_disk_full(checkpoint):
            check_commits(checkpoint, "checkpoint")
            self.publisher.probe()
        self.journal = journal = _journal(definition, self.publisher, self.schemas)
        self.definition = definition = definition.opened(journal.declaration)
        self.takeover = Takeover(journal, self.publisher, bridge.query_offsets)
        self.rebalancer = rebalancer = Rebalancer(bridge, journal, definition, reporter)
        self.followers = followers = Followers(rebalancer, definition)
        self.replicator = Replicator(bridge, followers, rebalancer.rebalance_between_batches)
        self.listeners, self.idle = Listeners(definition, rebalancer), IdleTasks()
        self.stages = StageRunner(definition, rebalancer, self.schemas, self.idle, self.listeners)
        self.no_data_batches = NoDataBatches(definition, bridge, journal, self.idle)
        self.input = BatchInput(definition, journal, self.schemas)
        self.lag = InputLag(definition.readers, journal, checkpoint / SPARK_CHECKPOINT / OFFSETS)
        self.operations = Operations(definition, rebalancer, followers, self.lag.topics)

    @property
    def reads(self) -> Path:
        """The directory to which stores that are read as data frames are written; another one for each driver."""
        return self.definition.checkpoint / "reads" / str(self.journal.epoch)

    def run(self, df: DataFrame, batch_id: int) -> None:
        """Run a batch. A batch that is already committed is only published again, and compared with what was committed.

        Errors: as `Placed.process_batch`.
        """
        self.no_data_batches.stop_waiting()
        with self._one_batch:
            self.publisher.reopen()
            self.takeover.take(batch_id, self.bridge.query_id(), lambda: self.input.of_batch(df))
            self.journal.check_epoch()
            self.takeover.check_batch(batch_id)
            self.operations.begin()
            self.lag.begin()
            last = self.journal.last
            if last is not None and batch_id == last.batch:
                self._publish(df.sparkSession, last)
                self.input.check_repeated(df, last)
                self.replicator.start()  # rows may be long in coming
            else:
                running = self.operations.batch(batch_id, self.bridge.query_stopped)
                with self.rebalancer.batch(), running:
                    watermarks = Watermarks(self.no_data_batches.watermark, last)
                    self._run(Batch(batch_id, self.input.of_batch(df), df.sparkSession, watermarks))
        self.no_data_batches.request_batch()

    def stop_if_fenced(self) -> None:
        """Stop the replicator and raise `Fenced` if another driver has taken over from this one."""
        if not self.journal.epoch:
            return  # this driver was never in charge
        try:
            self.journal.check_epoch()
        except Fenced:
            self.replicator.stop()  # from now on the followers are the other driver's
            raise

    def close(self) -> None:
        """Stop the replicator, close the sinks' targets, and remove the values that were sent to executors.

        May be called again.
        """
        with ExitStack() as last_first:  # each of them is called, whatever becomes of the others
            last_first.callback(self.bridge.close)
            last_first.callback(self.publisher.close)
            last_first.callback(self.operations.stop)
            last_first.callback(self.lag.stop)
            last_first.callback(self.replicator.stop)
            last_first.callback(self.no_data_batches.stop_waiting)

    def _run(self, batch: Batch) -> None:
        with batch.clock.phase("rebalance"):
            self._rebalance(batch.id)
        self.replicator.start()
        self._run_stages(batch)
        batch.staged, batch.schemas = self.schemas.settle(
            self.definition.checkpoint, batch.reports, self.journal.identity
        )
        faults.point("batch.staged")
        with batch.clock.phase("commit"):
            manifest = self._commit(batch)
        self.replicator.wake()
        faults.point("batch.committed")
        with batch.clock.phase("publish"):
            self._publish(batch.session, manifest)
        faults.point("batch.published")
        with batch.clock.phase("prune"), self.rebalancer.lock:
            self.journal.prune()
        self.rebalancer.stats.count_batch(batch.rows, batch.clock, batch.reports.values())
        self.listeners.batch_done(batch)

    # -- before the commit

    def _rebalance(self, batch_id: int, because: Sequence[Trigger] = ()) -> None:
        """Plan with the remaining members. If there are none, wait for executors."""
        if not self.rebalancer.keep(cancelled=bool(because)):
            self.followers.welcome(self.replicator.make)
        if self.rebalancer.rebalance(batch_id, because):
            self.replicator.wake()

    def _rebalance_after_loss(self, batch_id: int, lost: frozenset[str]) -> None:
        names = ", ".join(f"executor-{id_}" for id_ in sorted(lost))
        self._rebalance(batch_id, (Trigger("lost", f"{names} died within batch {batch_id}"),))

    def _run_stages(self, batch: Batch) -> None:
        """Run the subtopologies in topological order, and bind the key types of internal topics.

        Errors: as for the stages; `CheckpointError` for topics that were not read on from where the last batch ended;
        `InputError` for topics that were deleted meanwhile, also if they were made again.
        """
        for subtopology in self.definition.built.order:
            with batch.clock.phase(f"subtopology {subtopology}"):
                on_lost = partial(self._rebalance_after_loss, batch.id)
                reports = self.stages.run(batch, subtopology, on_lost)
                for keys in _key_types(reports.values()):
                    self.journal.bind_keys(keys)  # a key of another type would reach another task
                batch.reports |= reports
        batch.read = read_topics.advanced(
            self.definition.checkpoint, self.journal.last, batch.reports.values(), self.definition.readers
        )
        read_topics.check_ids(self.definition.readers, batch.reports.values())

    # -- the commit, and after it

    def _commit(self, batch: Batch) -> Manifest:
        """Write the manifest, and update the driver's state to the committed changes."""
        journal = self.journal
        with raising_disk_full(self.definition.checkpoint), self.rebalancer.lock:
            before, earlier = journal.last.changes if journal.last else {}, journal.history
            so_far = Totals.of(journal.last)
            totals = so_far.with_batch(batch.reports.values())
            identity = {**journal.identity, SCHEMAS: batch.schemas, TOTALS: totals.to_dict()}
            identity = read_topics.with_read(identity, batch.id, self.definition.readers, batch.read)
            journal.identity = self.publisher.with_outputs(identity, batch.id)
            manifest = journal.commit(
                batch=batch.id,
                generation=self.rebalancer.loop.generation,
                changes=batch.changes,
                sinks=batch.staged,
                assignment=self.rebalancer.assignment(),
                event_times=self.no_data_batches.event_times(batch),
                rows=batch.rows,
                watermark=batch.watermarks.now,
                expired=batch.watermarks.expired,
                held=batch.watermarks.held,
                offsets=planned_offsets(self.bridge.query_offsets(), batch.id),
            )
            # From now on, the changes of the batch before count as lag: followers had one batch's time to apply them.
            # A snapshot trims its task's history, so a copy that is older than the history lacks more than before.
            trimmed = trimmed_since(earlier, journal.history)
            self.rebalancer.state.committed({*before, *batch.changes, *trimmed})
            self.rebalancer.stats.count_commit(so_far, totals, batch.read)
            self.lag.committed(batch.read)
            self.idle.committed(batch.reports)
        return manifest

    def _publish(self, session: SparkSession, manifest: Manifest) -> None:
        with raising_disk_full(self.definition.checkpoint):
            self.publisher.publish(session, manifest, self.journal.check_epoch)


def _key_types(reports: Iterable[Report]) -> list[dict[str, tuple[str, ...]]]:
    """Return the key types that the attempts of a stage have reported by internal topic, each combination once."""
    said = (
        tuple((topic, boundary.key) for topic, boundary in report.boundaries.items() if boundary.key)
        for report in reports
    )
    return [dict(types) for types in dict.fromkeys(said) if types]


def _journal(definition: StreamDefinition, publisher: Publisher, schemas: SinkSchemas) -> Journal:
    """Open the checkpoint, without taking it over."""
    identity = {
        "hash": HASH_VERSION,
        "keys": None,
        "query": None,
        # The watermark continues from the last one, which has no meaning for another column.
        **{f"event_time of {topic!r}": time.column for topic, time in definition.event_times.items()},
    }
    new_id = uuid.uuid4().hex

    def declare(last: Manifest | None) -> Declaration:
        """Return this driver's declaration, or refuse to continue from the last manifest."""
        checkpoint, epoch = definition.checkpoint, last.epoch if last else None
        structure.check_sources(checkpoint, definition.built, epoch)
        declared = structure.declare(checkpoint, definition.built, definition.programs, epoch, new_id)
        publisher.check(declared.id)
        schemas.check(checkpoint, last.identity if last else {})
        return declared

    types = KeyTypes(definition.built, alike(definition.built, infer(definition.built)))
    return Journal(definition.checkpoint, identity, declare, take_over=False, check_keys=types)
