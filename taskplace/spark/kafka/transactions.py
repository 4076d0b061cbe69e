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
from taskplace.spark.kafka.clients import PERMANENT, REPEATED, Clients, cause, outline
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
#: The errors of a producer that another one with its transactional id has fenced, or that the brokers have given up.
_FENCED = frozenset(("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"))
_IDEMPOTENT = {"enable.idempotence": True}
Records = Callable[[], Iterable[Record]]


@dataclass(kw_only=True)
class _Writer(ABC):
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

    def publish(self, commit: Commit, records: Records) -> None:
        """Publish a batch, unless the topic is known to have it. `records` may be called several times."""
        output = Output(checkpoint_id=commit.checkpoint_id, sink=commit.sink, check_epoch=commit.check_epoch)
        what = f"batch {commit.batch_id} of sink {commit.sink!r}"
        until = time.monotonic() + self.patience
        self._until_done(_Try(output=output, what=what, until=until, commit=commit, records=records))

    def _until_done(self, this: _Try) -> None:
        done = False
        try:
            while not done:
                done = self._tried(this)
        finally:
            if not done:
                self.close()

    def _tried(self, this: _Try) -> bool:
        """Return whether all is done; False: try again."""
        try:
            if self.topics is not None:
                self._check_topics(self.topics)
            self._try(this)
            return True
        except _TryAgain as again:
            if time.monotonic() >= this.until:
                done = "done" if this.commit is None else "published"
                raise SinkError(
                    f"{this.what}: not {done} within {self.patience:.0f} s; the last error: {again}; check that the "
                    "brokers run"
                ) from None
            REPEATED.warn(
                log, "%s is sent again: %s", this.what, again.logged, key=this.what, kind=again.logged
            )
            log.debug("the whole error: %s", again)
            time.sleep(this.pause())
        return False

    def _check_topics(self, topics: SinkTopics) -> None:
        try:
            topics.check_now(SLICE)
        except TimeoutError as error:
            raise _TryAgain(str(error)) from None

    @abstractmethod
    def _try(self, this: _Try) -> None:
        """Do it once. Errors: `_TryAgain`."""

    def close(self) -> None:
        """Give the producer up. What it has queued is not sent. The next batch makes another one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _made(self, **own: Any) -> ck.Producer:
        own |= {"delivery.report.only.error": True, "on_delivery": self._on_delivery}
        return self.clients.producer(own)

    def _on_delivery(self, error: ck.KafkaError, message: object) -> None:
        self._failed = self._failed if self._failed is not None else error

    def _raise_permanent(self, what: str) -> None:
        """Raise `SinkError` for what does not pass by waiting."""
        self.clients.raise_refusal(what)
        if self._failed is not None and self._failed.name() in PERMANENT:
            raise self.clients.permanent(self._failed, what)


@dataclass(kw_only=True)
class Transactions(_Writer):
    """The transactions of one sink. Lifetime: `_marker` as long as `_producer`.

    `timeout`: `transaction.timeout.ms`, in seconds.
    """

    markers: MarkerTopic
    timeout: float
    _marker: Marker | None = field(default=None, init=False)

    def probe(self) -> None:
        """Make a producer, and give it up. Errors: `InputError` for properties that it refuses; no broker is asked."""
        self._made(**{"transactional.id": "taskplace-probe"})

    def open(self, output: Output) -> None:
        """Do steps 1 and 2, before the first commit. Errors: those of the module."""
        until = time.monotonic() + self.patience
        self._until_done(_Try(output=output, what=f"the start of sink {output.sink!r}", until=until))

    def close(self) -> None:
        """Give the producer up. The next producer ends its transaction."""
        super().close()
        self._marker = None

    # -- one try

    def _try(self, this: _Try) -> None:
        try:
            if self._producer is None:
                this.output.check_epoch()
                self._start(this)
            if this.commit is not None and not self._has(this, this.commit):
                self._send(this, this.commit)
        except _TooLong:
            self.close()
            this.too_long += 1
            if this.too_long > 1:
                raise self._too_long(this) from None
            raise _TryAgain(f"the transaction took longer than {self.timeout:.0f} s") from None

    def _key(self, output: Output) -> MarkerKey:
        return MarkerKey(output.checkpoint_id, output.sink)

    def _start(self, this: _Try) -> None:
        """Make a producer, end its predecessor's transaction, and read the marker."""
        key, this.sent = self._key(this.output), None
        faults.point("sink.starting")
        self._producer = self._made(**{"transactional.id": transactional_id(key)})
        self._repeatedly(this, self._producer.init_transactions, "init_transactions", until=this.until)
        faults.point("sink.started")
        self._marker = self.markers.read(key, max(this.until - time.monotonic(), SLICE))
        faults.point("sink.marked")

    def _has(self, this: _Try, commit: Commit) -> bool:
        """Return whether the topic has the batch. Errors: `CheckpointError`, `Fenced`."""
        marker = self._marker
        if marker is None or marker.batch < commit.batch_id:
            return False
        if marker == Marker(commit.batch_id, commit.checksum):
            return True
        commit.check_epoch()
        raise CheckpointError(
            f"{this.what}: topic {self.topic!r} has batch {marker.batch} of this checkpoint, with another manifest; "
            "the checkpoint was set back, for example to a backup; to write its batches again, give the sink another "
            "name"
        )

    def _send(self, this: _Try, commit: Commit) -> None:
        producer = self._running()
        self._failed, self.clients.disturbed = None, False
        this.sent = sent = Progress()
        try:
            producer.begin_transaction()
            for number, record in enumerate(this.records()):
                self._produce(this, self.topic, record)
                if number % LOOK_EVERY == 0:
                    faults.point("sink.sending")
                    self._look(this)
            marker = Marker(commit.batch_id, commit.checksum)
            value = msgspec.json.encode(marker)
            self._produce(this, self.markers.name, Record(self._key(this.output).encode(), value, [], 0))
            faults.point("sink.sent")
        except ck.KafkaException as error:
            self._abort(this, error)
        except BaseException:  # an open transaction would hold up the topic's readers until it times out
            with suppress(ck.KafkaException):
                producer.abort_transaction(SLICE)
            raise
        # A commit that is not known to have failed counts until the marker says something else.
        self._repeatedly(
            this, producer.commit_transaction, "commit_transaction", until=sent.begun + 2 * self.timeout
        )
        faults.point("sink.committed")
        self._marker = marker

    def _produce(self, this: _Try, topic: str, record: Record) -> None:
        producer = self._running()
        while not _queued(producer, topic, record):
            producer.poll(0.01)
            self._look(this)
        if this.sent is not None:
            this.sent.sent += 1

    def _look(self, this: _Try) -> None:
        """Look for what a transaction that is open may have met. Errors: those of the module, and `_TooLong`."""
        self._running().poll(0)
        self._raise_permanent(this.what)
        self._look_at_progress(this)
        if self._is_over(this):
            self._over_time(this)

    def _look_at_progress(self, this: _Try, *, waiting: bool = False) -> None:
        """Note whether the brokers take records. One that has failed is no longer part of the producer's length."""
        if this.sent is None or self._producer is None or self._failed is not None:
            return
        went_on = this.sent.seen(self._producer, disturbed=self.clients.disturbed, waiting=waiting)
        self.clients.disturbed = False
        if went_on and this.sent.acknowledged > this.furthest:
            this.furthest, this.until = this.sent.acknowledged, time.monotonic() + self.patience

    def _is_over(self, this: _Try) -> bool:
        return this.sent is not None and time.monotonic() - this.sent.begun > self.timeout

    # -- what goes wrong

    def _repeatedly(self, this: _Try, call: Callable[[float], None], what: str, *, until: float) -> None:
        """Call until it succeeds, or fails in a way that a repetition does not mend."""
        while True:
            try:
                call(SLICE)
                return
            except ck.KafkaException as error:
                found = cause(error)
                with suppress(ck.KafkaException):  # after a fatal error, it raises that again
                    self._running().poll(0)
                self.clients.raise_refusal(f"{this.what}: {what} failed")
                self._look_at_progress(this, waiting=True)
                if found is None or not found.retriable() or found.txn_requires_abort():
                    self._abort(this, error)
                if self.topics is not None:  # a client goes on asking for a topic that is lost
                    with suppress(TimeoutError):
                        self.topics.check_now(SLICE)
                if time.monotonic() >= until:
                    self.close()
                    says = self.clients.says(error)
                    raise _TryAgain(f"{what}: {says}", f"{what}: {outline(error)}") from None

    def _abort(self, this: _Try, error: Exception) -> NoReturn:
        """Abort the transaction after an error, and raise what follows from it."""
        found = cause(error)
        said = self.clients.says(error)
        failed = self._failed if self._failed is not None else found
        if found is not None and found.txn_requires_abort():
            try:
                self._running().abort_transaction(SLICE)
            except ck.KafkaException:
                self.close()  # the next producer ends the transaction
        else:
            self.close()
        if failed is not None and failed.name() in PERMANENT:
            raise self.clients.permanent(failed, this.what)
        if found is not None and (found.name() in _FENCED or found.fatal()):
            self.close()
            if self._is_over(this):
                self._over_time(this)
            this.output.check_epoch()
            this.fenced += 1
            if this.fenced > FENCED_AT_MOST:
                raise SinkError(
                    f"{this.what}: fenced {this.fenced} times by a producer with the same transactional id, "
                    f"{transactional_id(self._key(this.output))!r}; is a copy of the checkpoint in use?"
                )
        elif self._is_over(this):
            self._over_time(this)
        raise _TryAgain(said, outline(error))

    def _over_time(self, this: _Try) -> NoReturn:
        """Raise what follows from a transaction that was open for too long: the brokers' fault, or the batch's."""
        if self._producer is not None:
            with suppress(ck.KafkaException):
                self._producer.poll(LATE)
        self._look_at_progress(this, waiting=True)
        lost = this.sent.lost() if this.sent is not None else 0.0
        if lost >= self.timeout / 2:
            self.close()
            raise _TryAgain(
                f"the brokers could not be reached for {lost:.0f} s of a transaction that may take {self.timeout:.0f} s"
            )
        if self._failed is not None and self._failed.name() == "_MSG_TIMED_OUT":
            self.close()
            raise _TryAgain(
                f"the brokers have not taken a record within {self.timeout:.0f} s; check that as many replicas are in "
                "sync as `min.insync.replicas` of the topics"
            )
        raise _TooLong

    def _too_long(self, this: _Try) -> SinkError:
        number, lost = sum(1 for _ in this.records()), this.sent.lost() if this.sent is not None else 0.0
        without = f" (for {lost:.0f} s of it, the brokers could not be reached)" if lost >= 1 else ""
        return SinkError(
            f"{this.what}: its {number} records took longer than transaction.timeout.ms = {self.timeout * 1000:.0f}"
            f"{without}; raise `transaction.timeout.ms` in the sink's options (the brokers' "
            "`transaction.max.timeout.ms` limits it), or make batches smaller"
        )

    def _running(self) -> ck.Producer:
        if self._producer is None:
            raise _TryAgain("the producer was given up")
        return self._producer


@dataclass(kw_only=True)
class _Try:
    """One batch, while it is published; or the start of a producer, which has no batch.

    - `until`: when it is given up; `give_up`: when the current try is
    - `furthest`: the most records that a try has got acknowledged
    """

    output: Output
    what: str
    until: float
    commit: Commit | None = None
    records: Records = tuple
    sent: Progress | None = None
    furthest: int = 0
    fenced: int = 0
    too_long: int = 0
    tries: int = 0
    give_up: float = 0.0

    def pause(self) -> float:
        """Return how long to wait before the next try, in seconds: longer each time, up to two."""
        self.tries += 1
        return min(0.05 * 2**self.tries, 2.0)


class _TryAgain(Exception):
    """A transaction did not come about, or its outcome is unknown. `logged`: its text for the log, without records."""

    def __init__(self, said: str, logged: str | None = None) -> None:
        super().__init__(said)
        self.logged = said if logged is None else logged


class _TooLong(Exception):
    """A transaction was open for longer than the brokers allow."""


def transactional_id(key: MarkerKey) -> str:
    """Return the transactional id of a sink.

    >>> transactional_id(MarkerKey("3f", "totals"))
    'taskplace-3f-totals'
    """
    return f"taskplace-{key.checkpoint}-{key.sink}"


@dataclass(kw_only=True)
class AtLeastOnce(_Writer):
    """Publishes committed batches without transactions: faster, and a batch may be in the topic twice after a crash.

    Properties: the records of a batch are in the topic, and acknowledged by all replicas in sync, before the next batch
    begins. Within one try, the client writes each record once and in order, also when it has to send it again. Readers
    see the records at once. A try that fails has to get further than all before it for `patience` to begin anew.
    """

    def probe(self) -> None:
        """Make a producer, and give it up. Errors: `InputError` for properties that it refuses; no broker is asked."""
        self._made(**_IDEMPOTENT)

    def open(self, output: Output) -> None:
        """Do nothing: the brokers need not know a producer without transactions."""

    def _try(self, this: _Try) -> None:
        if this.tries:
            this.output.check_epoch()
        if self._producer is None:
            self._producer = self._made(**_IDEMPOTENT)
        self._failed, this.sent, this.give_up = None, Progress(), this.until
        producer, progress = self._producer, this.sent
        try:
            for number, record in enumerate(this.records()):
                while not _queued(producer, self.topic, record):
                    producer.poll(0.01)
                    self._look(this, producer)
                progress.sent += 1
                if number % LOOK_EVERY == 0:
                    faults.point("sink.sending")
                    producer.poll(0)
                    self._look(this, producer, waiting=False)
            while producer.flush(1.0):
                self._look(this, producer)
                self.clients.warn_silent(this.give_up - self.patience)
            self._look(this, producer, waiting=False)
        except ck.KafkaException as error:  # a fatal one; the next try needs another producer
            self._failed = self._failed if self._failed is not None else cause(error)
            self._look(this, producer)
            raise _TryAgain(self.clients.says(error), outline(error)) from None

    def _look(self, this: _Try, producer: ck.Producer, *, waiting: bool = True) -> None:
        """Raise if a record has failed, or if the brokers are waited for, and have acknowledged none for too long."""
        self._raise_permanent(this.what)
        if self._failed is not None:  # then it is no longer part of the producer's length either
            self.close()
            raise _TryAgain(self.clients.says(self._failed), outline(self._failed))
        if this.sent is not None and this.sent.seen(producer):
            this.give_up = time.monotonic() + self.patience
            if this.sent.acknowledged > this.furthest:
                this.furthest, this.until = this.sent.acknowledged, this.give_up
        if waiting and time.monotonic() >= this.give_up:
            self.close()
            raise _TryAgain("no answer of the brokers")


class Progress:
    """The records of one try. `begun`: when it began; `sent`: what the client has taken so far.

    Tells brokers that take records, if slowly, from brokers that take none. A producer's length is the number of
    records that it has not yet been told of. What was sent, without these, was acknowledged or has failed; a failure is
    noticed elsewhere. So no callback for each record is needed.

    A client reports a lost connection also for a broker that no record waits for, such as one of three that is down. So
    the time in which brokers could not be reached has both: a report in this try, and looks at the producer that have
    found nothing new, for `STALL` seconds at least.
    """

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.sent = self.acknowledged = 0
        self._lost, self._disturbed = 0.0, False
        self._went_on = self._looked = self.begun

    def seen(self, producer: Sized, *, disturbed: bool = False, waiting: bool = False) -> bool:
        """Look at a producer, and return whether more records were acknowledged since the last look.

        - `disturbed`: whether the client has reported a lost connection since the last look
        - `waiting`: whether brokers are waited for although they may have acknowledged all records
        """
        before, self.acknowledged = self.acknowledged, max(self.acknowledged, self.sent - len(producer))
        self._disturbed = self._disturbed or disturbed
        went_on, now = self.acknowledged > before, time.monotonic()
        if went_on or (self.acknowledged == self.sent and not waiting):
            self._lost, self._went_on = self._lost + self._stalled(), now
        self._looked = now
        return went_on

    def lost(self) -> float:
        """Return for how long brokers could not be reached and took no record, in seconds."""
        return self._lost + self._stalled() if self._disturbed else 0.0

    def _stalled(self) -> float:
        """Return for how long the looks until now have found nothing new."""
        stalled = self._looked - self._went_on
        return stalled if stalled >= STALL else 0.0


def _queued(producer: ck.Producer, topic: str, record: Record) -> bool:
    """Return whether the client has queued a record; False: its queue is full."""
    try:
        producer.produce(
            topic, value=record.value, key=record.key, headers=record.headers, timestamp=record.timestamp
        )
    except BufferError:
        return False
    return True
