"""Assembles the driver of a placed stream: opens its checkpoint and creates its components.

Does not take over the checkpoint: until this driver's first batch, the previous driver keeps it.
"""

from __future__ import annotations

import uuid

from taskplace.rebalance import RebalanceLoop
from taskplace.record.events import Reporter, Totals
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.cluster import Cluster
from taskplace.spark.compile.infer import infer
from taskplace.spark.compile.keys import KeyTypes, alike
from taskplace.spark.compile.partition_columns import warn_of_unchecked_keys
from taskplace.spark.driver import structure
from taskplace.spark.driver.batch import LateRows
from taskplace.spark.driver.batch_input import BatchInput
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.followers import Followers, FollowJobs, Replicator
from taskplace.spark.driver.listeners import Listeners
from taskplace.spark.driver.no_data_batches import NoDataBatches
from taskplace.spark.driver.operations import Operations, StreamWork
from taskplace.spark.driver.publishing import Publisher
from taskplace.spark.driver.read_topics import InputLag
from taskplace.spark.driver.rebalancer import Rebalancer, check_weights
from taskplace.spark.driver.requests import Requests
from taskplace.spark.driver.runner import BatchRunner
from taskplace.spark.driver.stages import IdleTasks, StageRunner
from taskplace.spark.driver.staging import SinkSchemas
from taskplace.spark.driver.stats import Stats
from taskplace.spark.driver.status import StatusBoard
from taskplace.spark.driver.takeover import Takeover
from taskplace.spark.messages import OFFSETS, SPARK_CHECKPOINT, Declaration, Manifest
from taskplace.spark.state.directories import check_commits, check_owner
from taskplace.spark.worker.guard import raising_disk_full
from taskplace.spark.worker.hashing import HASH_VERSION


def assemble(
    definition: StreamDefinition, bridge: Cluster, *, reporter: Reporter | None = None
) -> BatchRunner:
    """Open the checkpoint of a stream, and return the runner of its batches. Its `definition` has the checkpoint's id.

    Errors: `InputError` for options that do not fit the topology; `CheckpointError` if the checkpoint does not belong
    to this stream; the error of a sink that cannot write. A warning for keys that no task checks.
    """
    built, options, checkpoint = definition.built, definition.options, definition.checkpoint
    check_weights(options.weights or {}, built)
    warn_of_unchecked_keys(built)
    publisher, schemas = Publisher(checkpoint, built), SinkSchemas(built)
    check_owner(checkpoint, "checkpoint")
    with raising_disk_full(checkpoint):
        check_commits(checkpoint, "checkpoint")
        publisher.probe()
    journal = _journal(definition, publisher, schemas)
    definition = definition.opened(journal.declaration)
    rebalancer = Rebalancer(
        bridge,
        journal,
        loop=RebalanceLoop(definition.config, generation=journal.last.generation if journal.last else 0),
        built=built,
        programs=definition.programs,
        stats=Stats(totals=Totals.of(journal.last)),
        reporter=reporter,
        tags=options.tags,
        follower_share=options.follower_share,
    )
    rebalancer.weigh(options.weights or {})
    followers = Followers(
        rebalancer,
        definition.programs,
        checkpoint=checkpoint,
        state_root=definition.state_root,
        options=options,
    )
    jobs = FollowJobs(bridge, followers.absorb, followers.errors.failed)
    lag = InputLag(definition.readers, journal, checkpoint / SPARK_CHECKPOINT / OFFSETS)
    listeners, idle = Listeners(reporter), IdleTasks()
    return BatchRunner(
        definition=definition,
        bridge=bridge,
        journal=journal,
        takeover=Takeover(journal, publisher, bridge.query_offsets),
        rebalancer=rebalancer,
        followers=followers,
        jobs=jobs,
        replicator=Replicator(bridge, followers.jobs, jobs, rebalancer.rebalance_between_batches),
        stages=StageRunner(definition, rebalancer, schemas, idle, listeners),
        schemas=schemas,
        publisher=publisher,
        idle=idle,
        no_data_batches=NoDataBatches(definition, bridge, journal, idle),
        listeners=listeners,
        input=BatchInput(definition, journal, schemas),
        late_rows=LateRows(definition),
        operations=_operations(definition, rebalancer, followers, lag),
        lag=lag,
    )


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


def _operations(
    definition: StreamDefinition, rebalancer: Rebalancer, followers: Followers, lag: InputLag
) -> Operations:
    # A reporter of one's own need not have it, and there may be none.
    show = getattr(rebalancer.reporter, "progress", None)
    return Operations(
        definition.checkpoint,
        rebalancer.journal,
        rebalancer.events,
        board=lambda interval: StatusBoard(
            definition, rebalancer, followers, rebalancer.events, interval=interval, input=lag.topics
        ),
        requests=Requests(definition.checkpoint, rebalancer),
        work=None if show is None else StreamWork(rebalancer, followers, show),
    )
