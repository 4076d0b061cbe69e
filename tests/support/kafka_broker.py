"""One Kafka broker for all tests of a run, and topics that no other test has."""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from examples.kafka import background
from taskplace.spark.kafka import brokers as questions

SECONDS = 60  # the most that a request to the broker may take


class SharedBroker:
    """The broker of a test run. Its topics stay until the end of the run, so each needs a name of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._numbers = itertools.count(1)

    def unique(self, name: str) -> str:
        """Return a name for a topic or a group that nothing else has."""
        return f"{name}-{os.getpid()}-{next(self._numbers)}"

    def topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Make a topic, wait until it is there, and return its name, which begins with `name`."""
        made = self.unique(name)
        make_topics(self.admin, NewTopic(made, partitions, config=dict(config or {})))
        return made


def make_topics(admin: AdminClient, *topics: NewTopic) -> None:
    """Make topics, and wait until every broker knows them."""
    for topic in topics:
        if not questions.Admin(admin, SECONDS).create(topic):
            raise ValueError(f"topic {topic.topic!r}: found one with this name, expected none")
    brokers = questions.Admin(admin, SECONDS).metadata().brokers
    for broker in brokers.values() if len(brokers) > 1 else ():
        one = AdminClient({"bootstrap.servers": f"{broker.host}:{broker.port}", "log_level": 0})
        for topic in topics:  # a client asks the broker that it knows first
            questions.Admin(one, SECONDS).describe(topic.topic, new=SECONDS)


@contextmanager
def shared_broker(run: Path) -> Iterator[SharedBroker]:
    """Yield the broker of a test run with this directory. The first worker that asks starts it.

    It ends with the run: with the process that controls the workers, or else with this one.
    """
    of_workers = "PYTEST_XDIST_WORKER" in os.environ
    state = run / "kafka.json"
    with (run / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        address = background.up(state, owner=os.getppid() if of_workers else os.getpid())
    yield SharedBroker(address)
    if not of_workers:
        background.down(state)
