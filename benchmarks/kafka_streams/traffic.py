"""Sends users and orders to Kafka, and reads the totals that are committed, beside the applications under test."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_streams.ledger import Ledger
from kafka_streams.programs import wait_for
from taskplace.spark.kafka import brokers as questions

REGIONS = ("north", "east", "south", "west")
ITEM = b"a book with a blue cover, 312 pages"
TICK = 0.01  # seconds between the sends of a steady stream


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one application."""

    orders: str
    users: str
    totals: str

    @classmethod
    def of(cls, run: str) -> Topics:
        """Return the names for a run.

        >>> Topics.of("7").totals
        'totals-7'
        """
        return cls(*(f"{name}-{run}" for name in ("orders", "users", "totals")))


@lru_cache(maxsize=100_000)
def milliseconds(text: str) -> int:
    """Return the milliseconds since 1970 of a time in ISO 8601, as either side writes it.

    >>> milliseconds("1970-01-01T00:00:10Z") == milliseconds("1970-01-01T00:00:10.000000Z") == 10_000
    True
    """
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def regions(users: int) -> dict[str, str]:
    """Return the region of each user."""
    return {f"user{i:07}": REGIONS[i % len(REGIONS)] for i in range(users)}


class Traffic:
    """What one application gets and gives. A context manager; the topics are made at its start.

    `fill` sends each user's region, and has to come before any order, so that the join finds every one.
    """

    def __init__(
        self, servers: str, run: str, *, partitions: int, users: int, window_ms: int, seed: int
    ) -> None:
        self.servers, self.topics = servers, Topics.of(run)
        self._partitions, self._random = partitions, random.Random(seed)
        self._regions = regions(users)
        self._users = list(self._regions)
        self.ledger = Ledger(self._regions, window_ms)
        common: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
        self._admin = AdminClient(common)
        sending = {"partitioner": "murmur2_random", "linger.ms": 1, "enable.idempotence": True}
        self._producer = Producer({**common, **sending})
        self._consumer = Consumer(
            {
                **common,
                "group.id": f"verifier-{run}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
            }
        )
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Traffic:
        names = (self.topics.orders, self.topics.users, self.topics.totals)
        for name in names:
            questions.Admin(self._admin, 60).create(NewTopic(name, self._partitions))
        self._consumer.assign(
            [TopicPartition(self.topics.totals, partition, 0) for partition in range(self._partitions)]
        )
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._reader.join(30)
        self._consumer.close()

    def fill(self) -> None:
        """Send the users."""
        for user, region in self._regions.items():
            self._produce(self.topics.users, user, region.encode(), time.time())
        self._flush()

    def check(self) -> None:
        """Raise what has ended the reader, such as `WrongResultError`."""
        if self._error is not None:
            raise self._error

    def burst(self, orders: int) -> float:
        """Send so many orders as fast as possible, and return the seconds that it took."""
        begun = time.monotonic()
        for user in self._random.choices(self._users, k=orders):
            self._order(user)
        self._flush()
        return time.monotonic() - begun

    @contextlib.contextmanager
    def steady(self, rate: float) -> Iterator[None]:
        """Send orders at a rate per second, from a thread, until the block ends."""
        ended = threading.Event()
        thread = threading.Thread(target=self._send_steadily, args=(rate, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(60)
            self.check()

    def drained(self, seconds: float, check: Any) -> float:
        """Wait until all orders have come out, and return the time. Errors: as for `check`, and `wait_for`."""

        def both() -> None:
            self.check()
            check()

        return wait_for(
            lambda: not self.ledger.missing, f"all {self.ledger.orders:,} orders have come out", seconds, both
        )

    def _send_steadily(self, rate: float, ended: threading.Event) -> None:
        try:
            begun, done = time.monotonic(), 0
            while not ended.wait(TICK):
                due = int((time.monotonic() - begun) * rate)
                for _ in range(due - done):
                    self._order(self._random.choice(self._users))
                done = due
            self._flush()
        except BaseException as error:
            self._error = error

    def _order(self, user: str) -> None:
        now = time.time()
        self.ledger.sent(user, now)
        self._produce(self.topics.orders, user, ITEM, now)

    def _produce(self, topic: str, key: str, value: bytes, at: float) -> None:
        while True:
            try:
                self._producer.produce(
                    topic, key=key, value=value, timestamp=round(at * 1000), on_delivery=self._delivered
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._error = RuntimeError(f"a record was not sent: {error}")

    def _flush(self) -> None:
        if left := self._producer.flush(60):
            raise RuntimeError(f"{left} records were not sent within 60 s")
        self.check()

    def _read(self) -> None:
        try:
            while not self._ended.is_set():
                first = self._consumer.poll(0.1)
                at = time.time()
                messages = [] if first is None else [first, *self._consumer.consume(1000, timeout=0)]
                for message in messages:
                    self._take(message, at)
        except BaseException as error:
            self._error = error

    def _take(self, message: Any, at: float) -> None:
        if (error := message.error()) is not None:
            if (
                error.code() != KafkaError._PARTITION_EOF
                and error.name() not in questions.PASSING | questions.NEW
            ):
                raise RuntimeError(f"the totals cannot be read: {error}")
            return
        value = json.loads(message.value())
        self.ledger.received(
            message.key().decode(),
            milliseconds(value["window_start"]),
            n=value["n"],
            region=value["region"],
            partition=message.partition(),
            at=at,
        )
