"""Publishes committed batches without transactions: faster, and a batch may be in the topic twice after a crash.

Properties: the records of a batch are in the topic, and acknowledged by all replicas in sync, before the next batch
begins. Within one try, the client writes each record once and in order, also when it has to send it again. Readers see
the records at once.

Errors: `SinkError` for what does not pass by waiting, and after `patience` seconds in which no further record was
acknowledged. A try that fails has to get further than all before it for that time to begin anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from taskplace.errors import SinkError
from taskplace.spark import faults
from taskplace.spark.kafka.clients import PERMANENT, REPEATED, Clients, cause, outline
from taskplace.spark.kafka.record_format import Record
from taskplace.spark.kafka.sink_topics import SinkTopics
from taskplace.spark.kafka.transactions import Progress
from taskplace.spark.targets import Commit, Output

if TYPE_CHECKING:
    import confluent_kafka as ck

log = logging.getLogger(__name__)

#: After this many records, the sink lets the client report errors.
LOOK_EVERY = 1000
#: How long the question for the topics may take; the pause after one without an answer.
LOOK_SECONDS, PAUSE_SECONDS = 5.0, 0.5


@dataclass
class _Batch:
    """One batch, while it is published.

    - `until`: when it is given up
    - `furthest`: the most records that a try has got acknowledged
    """

    what: str
    patience: float
    until: float = 0.0
    furthest: int = 0

    def __post_init__(self) -> None:
        self.until = time.monotonic() + self.patience

    def went_on(self, acknowledged: int) -> float:
        """Take the number of records that a try has got acknowledged, and return when this try is given up."""
        until = time.monotonic() + self.patience
        if acknowledged > self.furthest:
            self.furthest, self.until = acknowledged, until
        return until


@dataclass(kw_only=True)
class AtLeastOnce:
    """Writes the batches of one sink. Lifetime: `_producer` from the first batch until an error."""

    clients: Clients
    topic: str
    patience: float
    topics: SinkTopics | None = None
    _producer: ck.Producer | None = field(default=None, init=False, repr=False)
    _failed: ck.KafkaError | None = field(default=None, init=False, repr=False)

    def publish(self, commit: Commit, records: Callable[[], Iterable[Record]]) -> None:
        """Publish a batch. `records` may be called several times."""
        what = f"batch {commit.batch_id} of sink {commit.sink!r}"
        batch = _Batch(what, self.patience)
        while (said := self._tried(batch, records)) is not None:
            commit.check_epoch()
            self.close()
            if time.monotonic() >= batch.until:
                raise SinkError(
                    f"{what}: no further record was acknowledged within {self.patience:.0f} s; the last error: {said}; "
                    "check that the brokers run"
                )
            failed = self._failed
            again = said if failed is None else outline(failed)
            REPEATED.warn(log, "%s is sent again: %s", what, again, key=what, kind=again)
            log.debug("the whole error: %s", said)

    def probe(self) -> None:
        """Make a producer, and give it up. Errors: `InputError` for properties that it refuses; no broker is asked."""
        self._made()

    def open(self, output: Output) -> None:
        """Do nothing: the brokers need not know a producer without transactions."""

    def close(self) -> None:
        """Give the producer up. The next batch makes another one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _tried(self, batch: _Batch, records: Callable[[], Iterable[Record]]) -> str | None:
        """Return why a try has failed; None: all records were acknowledged."""
        self._failed = None
        try:
            if self.topics is not None:
                self.topics.check_now(LOOK_SECONDS)
        except TimeoutError as error:
            time.sleep(PAUSE_SECONDS)
            return str(error)
        if self._sent(batch, records()):
            return None
        return self.clients.says(self._failed) if self._failed is not None else "no answer of the brokers"

    def _made(self) -> ck.Producer:
        own = {
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "on_delivery": self._on_delivery,
        }
        return self.clients.producer(own)

    def _sent(self, batch: _Batch, records: Iterable[Record]) -> bool:
        """Return whether all records were acknowledged."""
        import confluent_kafka as ck

        if self._producer is None:
            self._producer = self._made()
        self._failed = None
        producer, progress, until, what = self._producer, Progress(), batch.until, batch.what

        def over() -> bool:
            """Return whether a record has failed, or the brokers have acknowledged none for too long."""
            nonlocal until
            if self._failed is not None:
                return True  # a record that has failed is no longer part of the producer's length either
            if progress.seen(producer):
                until = batch.went_on(progress.acknowledged)
            return time.monotonic() >= until

        try:
            for number, record in enumerate(records):
                while not self._produced(producer, record):
                    producer.poll(0.01)
                    self._look(what)
                    if over():
                        return False
                progress.sent += 1
                if number % LOOK_EVERY == 0:
                    faults.point("sink.sending")
                    producer.poll(0)
                    self._look(what)
                    if over() and self._failed is not None:
                        return False
            while producer.flush(1.0) and not over():
                self._look(what)
                self.clients.warn_silent(until - self.patience)
            self._look(what)
        except ck.KafkaException as error:  # a fatal one; the next try needs another producer
            self._failed = self._failed if self._failed is not None else cause(error)
            self._look(what)
            return False
        except BaseException:
            self.close()
            raise
        return self._failed is None and not len(producer)

    def _produced(self, producer: ck.Producer, record: Record) -> bool:
        """Return whether the client has queued a record; False: its queue is full."""
        try:
            producer.produce(
                self.topic,
                value=record.value,
                key=record.key,
                headers=record.headers,
                timestamp=record.timestamp,
            )
        except BufferError:
            return False
        return True

    def _look(self, what: str) -> None:
        self.clients.raise_refusal(what)
        if self._failed is not None and self._failed.name() in PERMANENT:
            raise self.clients.permanent(self._failed, what)

    def _on_delivery(self, error: ck.KafkaError, message: object) -> None:
        self._failed = self._failed if self._failed is not None else error
