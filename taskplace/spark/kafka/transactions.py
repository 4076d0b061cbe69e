"""Publishes committed batches, each in one transaction that also writes its marker.

**Idea.** The rows of a batch are durable before its manifest, so a transaction may fail in any way: the batch is sent
again from the same files. What has to be known is whether the last transaction counts. The order of these steps makes
that certain:

    1. init_transactions   fences every producer with this transactional id, and ends its transaction
    2. read the marker     so no other producer can change it from now on, unless it fences this one
    3. the marker has the batch: done. Otherwise: rows in the order of the files, marker, commit
    4. a commit whose outcome is unknown, or a producer that is fenced: begin again at 1

Properties:
- One producer, with its own transactional id, for each checkpoint and sink. Steps 1 and 2 are done once for each
  producer, not for each batch, and for the first time before the first commit (`open`): what a broker refuses then
  leaves no batch that cannot be published.
- Before each try, the topics are compared with those of the start (`SinkTopics.check_now`).
- A producer that is fenced asks whether its driver is still in charge (`Commit.check_epoch`). If not, it stops, with
  `Fenced`. If it is, the other producer was a predecessor that came late, and is fenced in its turn.
- While the brokers cannot be reached, or take no records because too few replicas are in sync, it tries again for
  `patience` seconds. They begin anew when a try gets further than all before it.

Errors: `Fenced`; `CheckpointError` if the marker is that of a batch which the checkpoint does not have; `SinkError` for
a transaction that is longer than `transaction.timeout.ms`, for what does not pass by waiting, and after `patience`.
After an error, the next call begins at step 1.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

import confluent_kafka as ck
import msgspec

from taskplace.errors import CheckpointError, SinkError
from taskplace.spark import faults
from taskplace.spark.kafka.clients import PERMANENT, REPEATED, Clients, RetriableSinkError, cause, outline
from taskplace.spark.kafka.record_format import Record
from taskplace.spark.kafka.sink_topics import Marker, MarkerKey, MarkerTopic, SinkTopics
from taskplace.spark.targets import Commit, Output

log = logging.getLogger(__name__)
#: Acknowledgements come in groups; a pause between them that is shorter is none, in seconds.
STALL = 2.0
#: How long one call into the client may block, in seconds. Between calls, the sink looks whether it is refused.
SLICE = 5.0
#: How long a client may take to say what has become of its records, in seconds.
LATE = 2.0
#: After this many records, the sink looks at the time, and lets the client report errors.
LOOK_EVERY = 1000
#: A producer that is fenced this often in one batch shares its transactional id with another one that is in use.
FENCED_AT_MOST = 5
#: What a producer queues at most, in KiB, unless `message.max.bytes` needs more. librdkafka's default is 1 GiB.
QUEUE_KBYTES = 64 << 10
#: The errors of a producer that another one with its transactional id has fenced, or that the brokers have given up.
_FENCED = frozenset(("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"))
Records = Callable[[], Iterable[Record]]


@dataclass(kw_only=True)
class Writer(ABC):
    """Writes the batches of one sink with one producer.

    - `patience`: for how long a batch is tried again, in seconds
    - `topics`: None: they are not compared

    Lifetime: `_producer` until an error; `_failed`, the error of the first record that has failed, for one try.
    """

    clients: Clients
    topic: str
    patience: float
    topics: SinkTopics | None = None
    _producer: ck.Producer | None = field(default=None, init=False, repr=False)
    _failed: ck.KafkaError | None = field(default=None, init=False, repr=False)

    def probe(self) -> None:
        """Make a producer, and give it up. Errors: `InputError` for properties that it refuses; no broker is asked."""
        self._made("taskplace-probe")

    @abstractmethod
    def open(self, output: Output) -> None:
        """Make ready to publish, before the first commit. Errors: those of the module."""

    def publish(self, commit: Commit, records: Records) -> None:
        """Publish a batch, unless the topic is known to have it. `records` may be called several times."""
        output = Output(checkpoint_id=commit.checkpoint_id, sink=commit.sink, check_epoch=commit.check_epoch)
        what = f"batch {commit.batch_id} of sink {commit.sink!r}"
        self._until_done(_Work(output=output, what=what, commit=commit, records=records))

    def _until_done(self, work: _Work) -> None:
        """Try until it succeeds, or `patience` is over."""
        work.until = time.monotonic() + self.patience
        try:
            while not self._tried(work):
                time.sleep(min(0.1 * work.tries, 2.0))
        except BaseException:
            self.close()
            raise

    def _tried(self, work: _Work) -> bool:
        try:
            if self.topics is not None:
                self.topics.check_now(SLICE)
            self._try(work)
            return True
        except RetriableSinkError as again:
            what = work.what
            if time.monotonic() >= work.until:
                last = f"not published within {self.patience:.0f} s; the last error: {again}"
                raise SinkError(f"{what}: {last}") from None
            work.tries += 1
            REPEATED.warn(log, "%s is sent again: %s", what, again.logged, key=what, kind=again.logged)
            log.debug("the whole error: %s", again)
            return False

    @abstractmethod
    def _try(self, work: _Work) -> None:
        """Do it once. Errors: `RetriableSinkError`."""

    def close(self) -> None:
        """Give the producer up. What it has queued is not sent. The next batch makes another one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    @abstractmethod
    def _made(self, transactional_id: str) -> ck.Producer:
        """Return a new producer."""

    def _producer_with(self, **own: Any) -> ck.Producer:
        queue = max(QUEUE_KBYTES, 2 * (int(self.clients.options.get("message.max.bytes", 0)) >> 10))
        defaults = {"partitioner": "murmur2_random", "queue.buffering.max.kbytes": queue}
        own |= {"delivery.report.only.error": True, "on_delivery": self._on_delivery}
        made: ck.Producer = self.clients.made(ck.Producer, own, defaults)
        return made

    def _on_delivery(self, error: ck.KafkaError, message: object) -> None:
        self._failed = self._failed if self._failed is not None else error

    def _raise_permanent(self, what: str) -> None:
        """Raise `SinkError` for what does not pass by waiting."""
        self.clients.raise_refusal(what)
        if self._failed is not None and self._failed.name() in PERMANENT:
            raise self.clients.failed(what, self._failed)

    # -- the records of a try

    def _send_records(self, work: _Work) -> None:
        """Give all records to the client. Errors: those of `_look`."""
        self._failed, work.sent = None, Progress()
        for number, record in enumerate(work.records()):
            self._produce(work, self.topic, record)
            if number % LOOK_EVERY == 0:
                faults.point("sink.sending")
                self._running().poll(0)
                self._look(work)

    def _produce(self, work: _Work, topic: str, record: Record) -> None:
        producer = self._running()
        while not _queued(producer, topic, record):
            producer.poll(0.01)
            self._look(work, waiting=True)
        work.sent.sent += 1

    @abstractmethod
    def _look(self, work: _Work, *, waiting: bool = False) -> None:
        """Look at what has become of the records. `waiting`: for brokers. Errors: those of the module."""

    def _look_at_progress(self, work: _Work, *, waiting: bool = False) -> None:
        """Note whether the brokers take records. One that has failed is no longer part of the producer's length."""
        if self._producer is None or self._failed is not None:
            return
        if work.sent.seen(self._producer, waiting=waiting) and work.sent.acknowledged > work.furthest:
            work.furthest, work.until = work.sent.acknowledged, time.monotonic() + self.patience

    def _running(self) -> ck.Producer:
        if self._producer is None:
            raise RetriableSinkError("the producer was given up")
        return self._producer


@dataclass(kw_only=True)
class Transactions(Writer):
    """The transactions of one sink. Lifetime: `_marker` as long as `_producer`.

    `timeout`: `transaction.timeout.ms`, in seconds.
    """

    markers: MarkerTopic
    timeout: float
    _marker: Marker | None = field(default=None, init=False)

    def open(self, output: Output) -> None:
        """Do steps 1 and 2."""
        self._until_done(_Work(output=output, what=f"the start of sink {output.sink!r}"))

    def close(self) -> None:
        """Give the producer up. The next producer ends its transaction."""
        super().close()
        self._marker = None

    def _made(self, transactional_id: str) -> ck.Producer:
        return self._producer_with(**{"transactional.id": transactional_id})

    # -- one try

    def _try(self, work: _Work) -> None:
        if self._producer is None:
            work.output.check_epoch()
            self._start(work)
        if work.commit is not None and not self._has(work, work.commit):
            self._send(work, work.commit)

    def _start(self, work: _Work) -> None:
        """Make a producer, end its predecessor's transaction, and read the marker."""
        key, work.sent = _key(work.output), Progress()
        faults.point("sink.starting")
        self._producer = self._made(transactional_id(key))
        self._repeatedly(work, self._producer.init_transactions, "init_transactions", until=work.until)
        faults.point("sink.started")
        self._marker = self.markers.read(key, max(work.until - time.monotonic(), SLICE))
        faults.point("sink.marked")

    def _has(self, work: _Work, commit: Commit) -> bool:
        """Return whether the topic has the batch. Errors: `CheckpointError`, `Fenced`."""
        marker = self._marker
        if marker is None or marker.batch < commit.batch_id:
            return False
        if marker == Marker(commit.batch_id, commit.checksum):
            return True
        commit.check_epoch()
        raise CheckpointError(
            f"{work.what}: topic {self.topic!r} has batch {marker.batch} of this checkpoint, with another manifest: it "
            "was set back; to write its batches again, give the sink another name"
        )

    def _send(self, work: _Work, commit: Commit) -> None:
        producer = self._running()
        marker = Marker(commit.batch_id, commit.checksum)
        try:
            producer.begin_transaction()
            self._send_records(work)
            record = Record(_key(work.output).encode(), msgspec.json.encode(marker), [], 0)
            self._produce(work, self.markers.name, record)
            faults.point("sink.sent")
        except ck.KafkaException as error:
            self._abort(work, error)
        except BaseException:  # an open transaction would hold up the topic's readers until it times out
            with suppress(ck.KafkaException):
                producer.abort_transaction(SLICE)
            raise
        # A commit that is not known to have failed counts until the marker says something else.
        until = work.sent.begun + 2 * self.timeout
        self._repeatedly(work, producer.commit_transaction, "commit_transaction", until=until)
        faults.point("sink.committed")
        self._marker = marker

    def _look(self, work: _Work, *, waiting: bool = False) -> None:
        self._raise_permanent(work.what)
        self._look_at_progress(work)
        self._check_time(work)

    # -- what goes wrong

    def _repeatedly(self, work: _Work, call: Callable[[float], None], what: str, *, until: float) -> None:
        """Call until it succeeds, or fails in a way that a repetition does not mend."""
        while True:
            try:
                call(SLICE)
                return
            except ck.KafkaException as error:
                found = cause(error)
                with suppress(ck.KafkaException):  # after a fatal error, it raises that again
                    self._running().poll(0)
                self.clients.raise_refusal(f"{work.what}: {what} failed")
                self._look_at_progress(work, waiting=True)
                if found is None or not found.retriable() or found.txn_requires_abort():
                    self._abort(work, error)
                if self.topics is not None:  # a client goes on asking for a topic that is lost
                    with suppress(RetriableSinkError):
                        self.topics.check_now(SLICE)
                if time.monotonic() >= until:
                    self.close()
                    says = self.clients.says(error)
                    raise RetriableSinkError(f"{what}: {says}", f"{what}: {outline(error)}") from None

    def _abort(self, work: _Work, error: Exception) -> NoReturn:
        """Abort the transaction after an error, and raise what follows from it."""
        found, said = cause(error), self.clients.says(error)
        producer = self._running()
        if found is None or not found.txn_requires_abort():
            self.close()
        else:
            try:
                producer.abort_transaction(SLICE)
            except ck.KafkaException:
                self.close()  # the next producer ends the transaction
        failed = self._failed if self._failed is not None else found
        if failed is not None and failed.name() in PERMANENT:
            raise self.clients.failed(work.what, failed)
        self._check_time(work)
        if found is not None and (found.name() in _FENCED or found.fatal()):
            self.close()
            work.output.check_epoch()
            work.fenced += 1
            if work.fenced > FENCED_AT_MOST:
                shared = f"a producer with the same transactional id, {transactional_id(_key(work.output))!r}"
                hint = "is a copy of the checkpoint in use?"
                raise SinkError(f"{work.what}: fenced {work.fenced} times by {shared}; {hint}")
        raise RetriableSinkError(said, outline(error))

    def _check_time(self, work: _Work) -> None:
        """Raise what follows from a transaction that is open for too long: the brokers' fault, or the batch's."""
        if not work.sent.sent or time.monotonic() - work.sent.begun <= self.timeout:
            return
        stalled = work.sent.stalled()  # before the client is waited for
        if self._producer is not None:
            with suppress(ck.KafkaException):
                self._producer.poll(LATE)
        failed = self._failed is not None and self._failed.name()
        self.close()
        if stalled >= self.timeout / 2 or failed == "_MSG_TIMED_OUT":
            said = f"the brokers have taken no record for {stalled:.0f} s of a transaction that may take "
            hint = "check that as many replicas are in sync as `min.insync.replicas` of the topics"
            raise RetriableSinkError(f"{said}{self.timeout:.0f} s; {hint}")
        work.too_long += 1
        if work.too_long > 1:
            records = f"its {sum(1 for _ in work.records())} records"
            longer = f"took longer than transaction.timeout.ms = {self.timeout * 1000:.0f}"
            raise SinkError(
                f"{work.what}: {records} {longer}; raise it in the sink's options (the brokers' "
                "`transaction.max.timeout.ms` limits it), or make batches smaller"
            )
        raise RetriableSinkError(f"the transaction took longer than {self.timeout:.0f} s")


@dataclass(kw_only=True)
class AtLeastOnce(Writer):
    """Publishes committed batches without transactions: faster, and a batch may be in the topic twice after a crash.

    Properties: the records of a batch are in the topic, and acknowledged by all replicas in sync, before the next batch
    begins. Within one try, the client writes each record once and in order, also when it has to send it again. Readers
    see the records at once. A try that fails has to get further than all before it for `patience` to begin anew.
    """

    def open(self, output: Output) -> None:
        """Do nothing: the brokers need not know a producer without transactions."""

    def _made(self, transactional_id: str) -> ck.Producer:
        return self._producer_with(**{"enable.idempotence": True})

    def _try(self, work: _Work) -> None:
        if work.tries:
            work.output.check_epoch()
        self._producer = producer = self._producer or self._made("")
        try:
            self._send_records(work)
            while producer.flush(1.0):
                self._look(work, waiting=True)
                self.clients.warn_silent(work.sent.went_on)
            self._look(work)
        except ck.KafkaException as error:  # a fatal one; the next try needs another producer
            self._failed = self._failed if self._failed is not None else cause(error)
            self._look(work)
            raise RetriableSinkError(self.clients.says(error), outline(error)) from None

    def _look(self, work: _Work, *, waiting: bool = False) -> None:
        """Raise if a record has failed, or if the brokers are waited for, and have acknowledged none for too long."""
        self._raise_permanent(work.what)
        if self._failed is not None:
            self.close()
            raise RetriableSinkError(self.clients.says(self._failed), outline(self._failed))
        self._look_at_progress(work, waiting=waiting)
        give_up = work.sent.went_on + self.patience if work.sent.acknowledged else work.until
        if waiting and time.monotonic() >= give_up:
            self.close()
            raise RetriableSinkError("no answer of the brokers")


class Progress:
    """The records of one try. `begun`: when it began; `sent`: what the client has taken so far.

    Tells brokers that take records, if slowly, from brokers that take none. A producer's length is the number of
    records that it has not yet been told of. What was sent, without these, was acknowledged or has failed; a failure is
    noticed elsewhere. So no callback for each record is needed.
    """

    def __init__(self) -> None:
        self.begun = self.went_on = self._looked = time.monotonic()
        self.sent = self.acknowledged = 0
        self._stalled = 0.0

    def seen(self, producer: Sized, *, waiting: bool = False) -> bool:
        """Look at a producer, and return whether more records were acknowledged since the last look.

        `waiting`: whether brokers are waited for although they may have acknowledged all records
        """
        before, self.acknowledged = self.acknowledged, max(self.acknowledged, self.sent - len(producer))
        more, now = self.acknowledged > before, time.monotonic()
        if more or (self.acknowledged == self.sent and not waiting):
            self._stalled, self.went_on = self.stalled(), now
        self._looked = now
        return more

    def stalled(self) -> float:
        """Return for how long the brokers took no record, in seconds: the sum of the pauses above `STALL`."""
        pause = self._looked - self.went_on
        return self._stalled + (pause if pause >= STALL else 0.0)


@dataclass(kw_only=True)
class _Work:
    """One batch, while it is published; or the start of a producer, which has no batch.

    - `until`: when it is given up; `sent`: the records of the current try
    - `furthest`: the most records that a try has got acknowledged
    """

    output: Output
    what: str
    commit: Commit | None = None
    records: Records = tuple
    sent: Progress = field(default_factory=Progress)
    until: float = 0.0
    furthest: int = 0
    fenced: int = 0
    too_long: int = 0
    tries: int = 0


def _key(output: Output) -> MarkerKey:
    return MarkerKey(output.checkpoint_id, output.sink)


def transactional_id(key: MarkerKey) -> str:
    """Return the transactional id of a sink.

    >>> transactional_id(MarkerKey("3f", "totals"))
    'taskplace-3f-totals'
    """
    return f"taskplace-{key.checkpoint}-{key.sink}"


def _queued(producer: ck.Producer, topic: str, record: Record) -> bool:
    """Return whether the client has queued a record; False: its queue is full."""
    try:
        producer.produce(
            topic, value=record.value, key=record.key, headers=record.headers, timestamp=record.timestamp
        )
    except BufferError:
        return False
    return True
