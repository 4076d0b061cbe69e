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
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import msgspec

from taskplace.errors import CheckpointError, SinkError
from taskplace.spark import faults
from taskplace.spark.kafka.clients import PERMANENT, REPEATED, Clients, cause, outline
from taskplace.spark.kafka.record_format import Record
from taskplace.spark.kafka.sink_topics import Marker, MarkerKey, MarkerTopic, SinkTopics
from taskplace.spark.kafka.transactions import Progress
from taskplace.spark.targets import Commit, Output

if TYPE_CHECKING:
    import confluent_kafka as ck

log = logging.getLogger(__name__)

#: How long one call into the client may block, in seconds. Between calls, the sink looks whether it is refused.
SLICE = 5.0
#: After this many records, the sink looks at the time, and lets the client report errors.
LOOK_EVERY = 1000
#: How long a client may take to say what has become of its records, in seconds.
LATE = 2.0
#: A producer that is fenced this often in one batch shares its transactional id with another one that is in use.
FENCED_AT_MOST = 5

Records = Callable[[], Iterable[Record]]


class _TryAgain(Exception):
    """A transaction did not come about, or its outcome is unknown. `logged`: its text for the log, without records."""

    def __init__(self, said: str, logged: str | None = None) -> None:
        super().__init__(said)
        self.logged = said if logged is None else logged


class _TooLong(Exception):
    """A transaction was open for longer than the brokers allow."""


@dataclass(kw_only=True)
class _Try:
    """One batch, while it is published; or the start of a producer, which has no batch."""

    output: Output
    what: str
    until: float
    commit: Commit | None = None
    records: Records = tuple
    sent: Progress | None = None
    furthest: int = 0
    fenced: int = 0
    too_long: int = 0
    last: str = ""
    tries: int = 0

    def pause(self) -> float:
        """Return how long to wait before the next try, in seconds: longer each time, up to two."""
        self.tries += 1
        return min(0.05 * 2**self.tries, 2.0)


@dataclass(kw_only=True)
class Transactions:
    """The transactions of one sink. Lifetime: `_producer` from its first batch until an error; `_marker` as long.

    - `timeout`: `transaction.timeout.ms`, in seconds
    - `patience`: for how long a batch is tried again, in seconds
    - `topics`: None: they are not compared
    """

    clients: Clients
    topic: str
    markers: MarkerTopic
    timeout: float
    patience: float
    topics: SinkTopics | None = None
    _producer: ck.Producer | None = field(default=None, init=False, repr=False)
    _marker: Marker | None = field(default=None, init=False)
    _failed: ck.KafkaError | None = field(default=None, init=False, repr=False)

    def probe(self) -> None:
        """Make a producer, and give it up. Errors: `InputError` for properties that it refuses; no broker is asked."""
        self._made(MarkerKey("probe", "probe"))

    def open(self, output: Output) -> None:
        """Do steps 1 and 2, before the first commit. Errors: those of the module."""
        until = time.monotonic() + self.patience
        self._until_done(_Try(output=output, what=f"the start of sink {output.sink!r}", until=until))

    def publish(self, commit: Commit, records: Records) -> None:
        """Publish a batch, unless its marker says that it is there. `records` may be called several times."""
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
                self._discard()

    def close(self) -> None:
        """Give the producer up. The next batch makes another one."""
        self._discard()

    # -- one try

    def _tried(self, this: _Try) -> bool:
        """Return whether the batch is in the topic, or the producer is ready; False: try again."""
        try:
            self._check_topics(this)
            if self._producer is None:
                this.output.check_epoch()
                self._start(this)
            if this.commit is not None and not self._has(this, this.commit):
                self._send(this, this.commit)
            return True
        except _TooLong:
            self._discard()
            this.too_long += 1
            if this.too_long > 1:
                raise self._too_long(this) from None
            log.warning(
                "%s: the transaction took longer than %.0f s; it is sent again", this.what, self.timeout
            )
        except _TryAgain as again:
            this.last = str(again)
            if time.monotonic() >= this.until:
                done = "done" if this.commit is None else "published"
                raise SinkError(
                    f"{this.what}: not {done} within {self.patience:.0f} s; the last error: {this.last}; "
                    "check that the brokers run"
                ) from None
            REPEATED.warn(
                log, "%s is sent again: %s", this.what, again.logged, key=this.what, kind=again.logged
            )
            log.debug("the whole error: %s", again)
            time.sleep(this.pause())
        return False

    def _check_topics(self, this: _Try) -> None:
        if self.topics is None:
            return
        try:
            self.topics.check_now(SLICE)
        except TimeoutError as error:
            raise _TryAgain(str(error)) from None

    def _made(self, key: MarkerKey) -> ck.Producer:
        own = {
            "transactional.id": transactional_id(key),
            "delivery.report.only.error": True,
            "on_delivery": self._on_delivery,
        }
        return self.clients.producer(own)

    def _key(self, output: Output) -> MarkerKey:
        return MarkerKey(output.checkpoint_id, output.sink)

    def _start(self, this: _Try) -> None:
        """Make a producer, end its predecessor's transaction, and read the marker."""
        key, this.sent = self._key(this.output), None
        faults.point("sink.starting")
        self._producer = self._made(key)
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
        except _client_errors() as error:
            self._abort(this, error)
        except BaseException:  # an open transaction would hold up the topic's readers until it times out
            with suppress(*_client_errors()):
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
        while True:
            try:
                producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=record.headers,
                    timestamp=record.timestamp,
                )
                if this.sent is not None:
                    this.sent.sent += 1
                return
            except BufferError:  # the client's queue is full
                producer.poll(0.01)
                self._look(this)

    def _look(self, this: _Try) -> None:
        """Look for what a transaction that is open may have met. Errors: those of the module, and `_TooLong`."""
        self._running().poll(0)
        self.clients.raise_refusal(this.what)
        if self._failed is not None and self._failed.name() in PERMANENT:
            raise self.clients.permanent(self._failed, this.what)
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
            except _client_errors() as error:
                found = cause(error)
                with suppress(*_client_errors()):  # after a fatal error, it raises that again
                    self._running().poll(0)
                self.clients.raise_refusal(f"{this.what}: {what} failed")
                self._look_at_progress(this, waiting=True)
                if found is None or not found.retriable() or found.txn_requires_abort():
                    self._abort(this, error)
                self._look_for_topics(this)
                if time.monotonic() >= until:
                    self._discard()
                    says = self.clients.says(error)
                    raise _TryAgain(f"{what}: {says}", f"{what}: {outline(error)}") from None

    def _look_for_topics(self, this: _Try) -> None:
        """Look whether a call that does not succeed has lost its topic: a client goes on asking for it."""
        with suppress(_TryAgain):
            self._check_topics(this)

    def _abort(self, this: _Try, error: Exception) -> NoReturn:
        """Abort the transaction after an error, and raise what follows from it."""
        found = cause(error)
        said = self.clients.says(error)
        failed = self._failed if self._failed is not None else found
        if found is not None and found.txn_requires_abort():
            try:
                self._running().abort_transaction(SLICE)
            except _client_errors():
                self._discard()  # the next producer ends the transaction
        else:
            self._discard()
        if failed is not None and failed.name() in PERMANENT:
            raise self.clients.permanent(failed, this.what)
        if found is not None and (found.name() in _FENCED or found.fatal()):
            self._discard()
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
            with suppress(*_client_errors()):
                self._producer.poll(LATE)
        self._look_at_progress(this, waiting=True)
        lost = this.sent.lost() if this.sent is not None else 0.0
        if lost >= self.timeout / 2:
            self._discard()
            raise _TryAgain(
                f"the brokers could not be reached for {lost:.0f} s of a transaction that may take {self.timeout:.0f} s"
            )
        if self._failed is not None and self._failed.name() == "_MSG_TIMED_OUT":
            self._discard()
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

    def _on_delivery(self, error: ck.KafkaError, message: object) -> None:
        self._failed = self._failed if self._failed is not None else error

    def _running(self) -> ck.Producer:
        if self._producer is None:
            raise _TryAgain("the producer was given up")
        return self._producer

    def _discard(self) -> None:
        """Give the producer up. What it has queued is not sent; the next producer ends its transaction."""
        producer, self._producer, self._marker = self._producer, None, None
        if producer is not None:
            producer.purge()


#: The errors of a producer that another one with its transactional id has fenced, or that the brokers have given up.
_FENCED = frozenset(("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"))


def _client_errors() -> tuple[type[Exception], ...]:
    import confluent_kafka as ck

    return (ck.KafkaException,)


def transactional_id(key: MarkerKey) -> str:
    """Return the transactional id of a sink.

    >>> transactional_id(MarkerKey("3f", "totals"))
    'taskplace-3f-totals'
    """
    return f"taskplace-{key.checkpoint}-{key.sink}"
