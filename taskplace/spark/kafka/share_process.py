"""A process that publishes one share of each batch, in transactions of its own.

**Idea.** Encoding rows takes most of the time of a large batch, and one Python process encodes on one core. So each
share has a process, with its own producer, transactional id and marker. It does what `Transactions` does. The driver
asks it through a pipe:

    driver -> process   Opened, or Share: one request at a time
    process -> driver   EPOCH: "is my driver still in charge?", as often as it needs to know
    driver -> process   None, or the text of `Fenced`
    process -> driver   the result: None, or the name and the text of an error

Properties:
- The process ends when the pipe does, so it does not outlive its driver, but for the transaction that it is in. The
  next driver's `init_transactions` ends that one, or comes after it and reads its marker.
- What the process is sent has secrets. It goes through the pipe only.

Started by `taskplace.spark.kafka.shares`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from taskplace.errors import Fenced
from taskplace.spark.kafka.client_options import ClientOptions
from taskplace.spark.kafka.clients import Clients
from taskplace.spark.kafka.marker import ADMIN_SECONDS, MarkerTopic
from taskplace.spark.kafka.record_format import RecordFormat
from taskplace.spark.kafka.sink_topics import SinkTopics
from taskplace.spark.kafka.staged_rows import records
from taskplace.spark.kafka.transactions import Transactions
from taskplace.spark.targets import Commit, Output

#: The question whether another driver has taken over.
EPOCH = "epoch"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What all shares of a sink have in common, and the name of this one."""

    options: ClientOptions
    topic: str
    form: RecordFormat
    markers: str
    replication: int | None
    timeout: float
    patience: float
    delivery: str
    go_on: bool
    share: str


@dataclass(frozen=True)
class Opened:
    """Request: fence the predecessor, and read the marker."""

    checkpoint_id: str
    sink: str


@dataclass(frozen=True)
class Share:
    """Request: publish these files of a batch."""

    checkpoint_id: str
    sink: str
    batch_id: int
    checksum: str
    files: Sequence[Path]


def serve(pipe: Connection) -> None:
    """Answer requests until the pipe ends. The first message is the `Setup`."""
    setup: Setup = pipe.recv()
    clients = Clients(setup.options, setup.topic)
    topics = SinkTopics(
        clients,
        setup.topic,
        setup.markers,
        delivery=setup.delivery,
        ordered=setup.form.key is not None,
        go_on=setup.go_on,
    )
    writer = Transactions(
        clients=clients,
        topic=setup.topic,
        markers=MarkerTopic(clients, setup.markers, setup.replication),
        timeout=setup.timeout,
        patience=setup.patience,
        topics=topics,
        share=setup.share,
    )
    while True:
        request = pipe.recv()
        try:
            if isinstance(request, Opened):
                topics.bind({}, ADMIN_SECONDS)
                output = Output(
                    checkpoint_id=request.checkpoint_id,
                    sink=request.sink,
                    check_epoch=partial(_ask, pipe),
                )
                writer.open(output)
            else:
                _publish(writer, setup.form, request, partial(_ask, pipe))
            answer = None
        except Exception as error:
            answer = type(error).__name__, str(error)
        pipe.send(answer)


def _publish(
    writer: Transactions, form: RecordFormat, request: Share, check_epoch: Callable[[], None]
) -> None:
    commit = Commit(
        spark=None,
        checkpoint_id=request.checkpoint_id,
        sink=request.sink,
        batch_id=request.batch_id,
        files=request.files,
        check_epoch=check_epoch,
        read_checksum=lambda: request.checksum,
    )
    writer.publish(commit, partial(records, form, request.sink, request.files))


def _ask(pipe: Connection) -> None:
    """Ask the driver whether it is in charge. Errors: `Fenced`."""
    pipe.send(EPOCH)
    if (fenced := pipe.recv()) is not None:
        raise Fenced(fenced)


def main(handle: int) -> None:
    """Serve the pipe with this file descriptor, and end at once when it ends."""
    try:
        serve(Connection(handle))
    except (EOFError, OSError):
        os._exit(0)  # without waiting for what a producer has queued
