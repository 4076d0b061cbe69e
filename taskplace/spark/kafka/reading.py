"""Reads ranges of a partition from Kafka's brokers, as tables of records, piece by piece.

**Idea.** A range ends at an offset, not at a record. Compaction removes records, aborted transactions have records that
are not delivered, and markers of transactions take offsets. So a range is read when the consumer's position has passed
its end, whatever was delivered.

Properties:
- only committed records are delivered;
- records that retention has removed are an error, never a gap without a word: no position is chosen automatically;
- a piece has at most `PIECE_ROWS` records, or about `PIECE_BYTES`; with what the consumer has fetched ahead, that is
  all that is in memory, however long the range is;
- a time and headers that cannot be read do not end a read: the time is null, the headers are one null. What becomes of
  such a record is the decoder's decision;
- a consumer stays open in its process, and is used for one range after the other. If its secrets have changed, it is
  closed, and another one is opened;
- while no broker answers, a read waits, at most as long as it may go without progress.

Errors: `InputError` with topic, partition and offsets.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import methodcaller
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from taskplace.errors import InputError
from taskplace.spark.kafka.brokers import NEW
from taskplace.spark.kafka.clients import PERMANENT, Clients
from taskplace.spark.kafka.decoding import RECORD
from taskplace.spark.kafka.offsets import deleted, refused
from taskplace.spark.kafka.options import ClientOptions

#: The properties that a read depends on, and which users cannot set.
OWN = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
}
#: Records that are taken from the consumer's queue at once.
CHUNK = 1000
#: Where a piece ends.
PIECE_ROWS, PIECE_BYTES = 10_000, 8 * 2**20
#: Properties whose default is another one than librdkafka's, unless the options have them.
DEFAULTS = {
    "group.id": "taskplace",  # librdkafka wants one; no group is joined, and reads commit no offset
    "queued.max.messages.kbytes": 16 * 1024,  # what a consumer fetches ahead; 64 MiB otherwise
    # How long a broker holds a fetch without records back; 500 ms otherwise. At the end of a range a consumer has sent
    # one more fetch, and the next range is fetched only when that one has been answered.
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 50,  # how long a full queue stops fetches; 1 s otherwise
}
POLL_SECONDS = 0.2
#: Milliseconds that Arrow's microseconds have no room for: the producer has written nanoseconds, for example.
_MOST = 2**63 // 1000
#: The remedy for what a user may accept.
GO_ON = (
    "to go on with the state, start once with `changed_topics: go-on` of the source, from its `starting` (earliest, "
    "latest or a time); or start a new checkpoint"
)
_END = KafkaError._PARTITION_EOF
#: Not `message.headers()`: once the interpreter has specialized that call, it misses the error of a name that is not
#: UTF-8, and the null pointer in what confluent-kafka returns ends the process.
_headers_of = methodcaller("headers")
_REMOVED = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class _Open(NamedTuple):
    """A consumer that is open. `made_of`: its properties, with their secrets."""

    consumer: Any
    clients: Clients
    made_of: str


#: By process, and by the properties without their secrets.
_open: dict[tuple[int, str], _Open] = {}


def read_range(
    topic: str, partition: int, start: int, end: int, *, options: ClientOptions, seconds: float
) -> Generator[pa.Table, None, None]:
    """Yield the records of a partition from `start` to before `end`, with the columns `RECORD`. O(bytes).

    `seconds`: how long the read may go without progress. Close the iterator if it is not used up.
    Errors: `InputError` for records that are gone, a topic that cannot be read, and no answer.
    """
    with _assigned(topic, {partition: start}, options) as (consumer, clients):
        reading = _Range(topic, partition, start, end, clients)
        deadline = time.monotonic() + seconds
        while not reading.done:
            if reading.take(_polled(consumer)) or reading.moved_to(_position(consumer, topic, partition)):
                if reading.full:
                    yield reading.piece()
                deadline = time.monotonic() + seconds
            elif clients.refusal.error is not None:
                raise refused(topic, clients.refusal.error, clients, right="Read")
            elif time.monotonic() > deadline:
                raise reading.stuck(seconds)
            else:
                clients.warn_silent(deadline - seconds)
    yield reading.piece()


def times_at(
    topic: str, offsets: Mapping[int, int], *, options: ClientOptions, seconds: float
) -> dict[int, int]:
    """Return, by partition, the time (ms since 1970) of the first record at or behind an offset.

    Partitions without such a record are left out, and those whose record has no time or does not come in time.
    Errors: `InputError` for a client that is refused.
    """
    times: dict[int, int] = {}
    if not offsets:
        return times
    missing, deadline = set(offsets), time.monotonic() + seconds
    with _assigned(topic, offsets, options) as (consumer, clients):
        while missing and time.monotonic() < deadline:
            for message in _polled(consumer):
                error, partition = message.error(), message.partition()
                if partition in missing and (error is None or error.code() in (*_REMOVED, _END)):
                    missing.remove(partition)
                    consumer.pause([TopicPartition(topic, partition)])
                    kind, stamp = message.timestamp()
                    if error is None and kind:
                        times[partition] = stamp
            if clients.refusal.error is not None:
                raise refused(topic, clients.refusal.error, clients, right="Read")
        # A partition stays paused when it is assigned again.
        consumer.resume([TopicPartition(topic, partition) for partition in offsets])
    return times


@contextmanager
def _assigned(
    topic: str, offsets: Mapping[int, int], options: ClientOptions
) -> Iterator[tuple[Any, Clients]]:
    """Yield the open consumer, or a new one, at these offsets. After an error, all are closed."""
    given = options.resolved()
    key, made_of = (os.getpid(), options.without_secrets()), str(sorted(given.items()))
    if key in _open and _open[key].made_of != made_of:  # a password has changed
        _open.pop(key).consumer.close()
    if key not in _open:
        clients = Clients(options, topic)
        _open[key] = _Open(clients.made(Consumer, OWN, DEFAULTS), clients, made_of)
    consumer, clients, _ = _open[key]
    clients.refusal.clear()
    consumer.assign([TopicPartition(topic, partition, at) for partition, at in offsets.items()])
    try:
        yield consumer, clients
        consumer.unassign()
    except BaseException:
        close_consumers()
        raise


def close_consumers() -> None:
    """Close the consumers of this process. The next read makes new ones."""
    for key in [key for key in _open if key[0] == os.getpid()]:
        _open.pop(key).consumer.close()


def _polled(consumer: Any) -> list[Message]:
    """Wait for one event, and return it with those that are there as well."""
    first = consumer.poll(POLL_SECONDS)
    return [] if first is None else [first, *consumer.consume(CHUNK, timeout=0)]


def _position(consumer: Any, topic: str, partition: int) -> int:
    """Return the offset behind the last record or marker; negative before the first."""
    (at,) = consumer.position([TopicPartition(topic, partition)])
    return int(at.offset)


class _Range:
    """What was read of a range. `done`: whether its end was reached; `full`: whether there is enough for a piece."""

    def __init__(self, topic: str, partition: int, start: int, end: int, clients: Clients) -> None:
        self._topic, self._partition, self._start, self._end = topic, partition, start, end
        self._clients, self._at = clients, start
        self._tables: list[pa.Table] = []
        self._rows = self._bytes = 0
        self.done = start >= end

    @property
    def full(self) -> bool:
        return self._rows >= PIECE_ROWS or self._bytes >= PIECE_BYTES

    def take(self, messages: Iterable[Message]) -> bool:
        """Take events, and return whether one of them is progress. Errors: `InputError`."""
        before = self._at
        of_range = []
        for message in messages:
            error, at = message.error(), message.offset()
            if error is not None and error.code() != _END:
                self._failed(error)
                continue
            if error is None and self._start <= at < self._end:
                of_range.append(message)
                at += 1
            self.moved_to(at)
        if of_range:
            self._add(of_range)
        return self._at > before

    def moved_to(self, position: int) -> bool:
        """Take note of the consumer's position, and return whether it has moved on."""
        moved = position > self._at
        self._at = max(self._at, position)
        self.done = self._at >= self._end
        return moved

    def piece(self) -> pa.Table:
        """Return the records that were not returned yet, as a table."""
        piece = pa.concat_tables([RECORD.empty_table(), *self._tables])
        self._tables, self._rows, self._bytes = [], 0, 0
        return piece

    def _add(self, of: list[Message]) -> None:
        """Keep records as a table: a `Message` takes hundreds of bytes beside its key and its value."""
        stamps = [message.timestamp() for message in of]
        columns = [
            [message.key() for message in of],
            [message.value() for message in of],
            [self._topic] * len(of),
            [self._partition] * len(of),
            [message.offset() for message in of],
            [1000 * millis if kind and abs(millis) < _MOST else None for kind, millis in stamps],
            [kind - 1 for kind, _ in stamps],
            [_headers(message) for message in of],
        ]
        table = pa.table(columns, schema=RECORD)
        self._tables.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes

    def stuck(self, seconds: float) -> InputError:
        """Return the error for a read without progress."""
        options, said = self._clients.options, self._clients.refusal.said
        found = f"no record and no end after {seconds:g} s from {options.servers}{said and f': {said}'}"
        path = f"topic {self._topic!r}, partition {self._partition}, offset {self._at}"
        expected = f"the records up to offset {self._end}; check that the brokers run"
        return InputError(path, found=options.scrubbed(found), expected=expected)

    def _failed(self, error: KafkaError) -> None:
        """Raise for an error that ends the read."""
        if error.code() in _REMOVED:
            raise removed(self._topic, self._partition, self._at)
        if error.name() in NEW:  # the range was planned, so the topic was there
            raise deleted(self._topic)
        if error.name() in PERMANENT or error.fatal():
            raise refused(self._topic, error, self._clients, right="Read")


def removed(topic: str, partition: int, offset: int, first: int | None = None) -> InputError:
    """Return the error for records that were removed before they were read. `first`: the first that is there."""
    return InputError(
        f"topic {topic!r}, partition {partition}, offset {offset}",
        found=f"records that the broker no longer has{'' if first is None else f'; its first offset is {first}'}",
        expected="records that were not read yet",
        hint=f"they are lost; keep records longer than the stream may be down; {GO_ON}",
    )


def _headers(message: Message) -> list[dict[str, Any] | None] | None:
    try:
        headers = _headers_of(message)
    except (SystemError, UnicodeDecodeError):  # a name that is not UTF-8; confluent-kafka raises the former
        return [None]
    return None if headers is None else [{"key": key, "value": value} for key, value in headers]
