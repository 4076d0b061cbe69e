"""A Kafka in memory, as far as `taskplace.spark.kafka.transactions` uses it: what is committed, and who is fenced.

`FakeBrokers.errors` has, by the name of a call, the errors that its next calls raise, each with whether the call takes
effect all the same. `calls` has the calls of all producers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka as ck
import msgspec

from taskplace.spark.kafka.clients import Clients
from taskplace.spark.kafka.options import ClientOptions
from taskplace.spark.kafka.sink_topics import Marker, MarkerKey


def error(name: str, **what: bool) -> ck.KafkaException:
    """Return the error of a client, by the name of its code; `what`: fatal, retriable, txn_requires_abort."""
    return ck.KafkaException(ck.KafkaError(getattr(ck.KafkaError, name), name.lower(), **what))


RETRIABLE = {"retriable": True}
ABORTABLE = {"txn_requires_abort": True}


@dataclass
class FakeBrokers:
    """What the producers have written: `committed` by topic, in order."""

    committed: dict[str, list[tuple[bytes | None, bytes | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    errors: dict[str, list[tuple[Exception, bool]]] = field(default_factory=lambda: defaultdict(list))
    calls: list[str] = field(default_factory=list)
    producers: list[FakeProducer] = field(default_factory=list)
    undelivered: ck.KafkaError | None = None  # what producers say of a record when they are polled
    acknowledge: bool = (
        True  # whether records of an open transaction are acknowledged as soon as they are sent
    )
    polled: Callable[[], None] = lambda: None  # called when a producer is polled

    def fail(self, call: str, failure: Exception, *, done: bool = False, times: int = 1) -> None:
        self.errors[call] += [(failure, done)] * times


class FakeProducer:
    """A transactional producer. It is fenced by a later one with its id when that has called `init_transactions`."""

    def __init__(self, brokers: FakeBrokers, properties: dict[str, Any]) -> None:
        self.brokers, self.properties = brokers, properties
        self.id, self.open, self.begun = properties.get("transactional.id"), [], False
        self.initialised, self.fenced = False, False
        brokers.producers.append(self)

    def _call(self, name: str) -> bool:
        """Note a call, and raise the error that is scripted for it. Return whether it takes effect."""
        self.brokers.calls.append(name)
        if self.fenced:
            raise error("_FENCED", fatal=True)
        if self.brokers.errors[name]:
            failure, done = self.brokers.errors[name].pop(0)
            if done:
                self._commit()
            raise failure
        return True

    def _commit(self) -> None:
        for topic, key, value in self.open:
            self.brokers.committed[topic].append((key, value))
        self.open, self.begun = [], False

    def init_transactions(self, timeout: float) -> None:
        self._call("init")
        for other in self.brokers.producers:
            if other is not self and other.id == self.id:
                other.fenced, other.open = True, []
        self.initialised = True

    def begin_transaction(self) -> None:
        self._call("begin")
        if self.begun or not self.initialised:
            raise error("_STATE")
        self.open, self.begun = [], True

    def produce(self, topic: str, value=None, key=None, headers=None, timestamp=0) -> None:
        self._call("produce")
        self.open.append((topic, key, value))

    def commit_transaction(self, timeout: float) -> None:
        self._call("commit")
        self._commit()

    def abort_transaction(self, timeout: float) -> None:
        self._call("abort")
        self.open, self.begun = [], False

    def __len__(self) -> int:
        return 0 if self.brokers.acknowledge else len(self.open)

    def poll(self, timeout: float) -> int:
        self.brokers.polled()
        if self.brokers.undelivered is not None:
            self.properties["on_delivery"](self.brokers.undelivered, None)
        return 0

    def purge(self) -> None:
        self.brokers.calls.append("purge")


class FakeClients(Clients):
    """Clients of `FakeBrokers`."""

    def __init__(self, brokers: FakeBrokers, options: dict[str, Any] | None = None) -> None:
        super().__init__(ClientOptions("KafkaSink", "nowhere:9092", options or {}), "sink")
        self.brokers = brokers

    def made(self, kind: Any, own: Any = None, defaults: Any = None) -> Any:
        return FakeProducer(self.brokers, dict(own))


class FakeMarkers:
    """The marker topic of `FakeBrokers`."""

    name = "markers"

    def __init__(self, brokers: FakeBrokers) -> None:
        self.brokers = brokers

    def read(self, key: MarkerKey, seconds: float) -> Marker | None:
        self.brokers.calls.append("read")
        found = [value for at, value in self.brokers.committed[self.name] if at == key.encode()]
        return msgspec.json.decode(found[-1], type=Marker) if found else None
