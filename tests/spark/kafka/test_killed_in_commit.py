"""A driver on Spark dies inside `commit_transaction`: before the broker has committed, after it, and in between."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from confluent_kafka.admin import AdminClient

from examples.kafka.broker import HOST, Brokers, free_ports
from tests.spark.kafka.test_driver_killed import MOST, PARTITIONS, SECONDS, drive, send
from tests.spark.kafka.test_sink_kills import check
from tests.spark.test_driver_killed import end
from tests.support.commit_relay import ANSWER, CUT, PASSED, REQUEST, CommitRelay
from tests.support.kafka_broker import NewTopic, make_topics
from tests.support.kafka_sink_lives import committed as last_manifest
from tests.support.kafka_topics import committed, offsets, settle
from tests.support.placed_harness import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(1500)]
OUT, MARKERS = "out", "markers"
#: What a driver says that does not know whether its commit counts.
UNKNOWN = "is sent again: commit_transaction"


@pytest.fixture
def relayed():
    """A broker, and the relay that the sink's clients stay behind."""
    (port,) = free_ports(1)
    with Brokers(relay=port) as brokers:
        make_topics(
            AdminClient({"bootstrap.servers": brokers.bootstrap}),
            NewTopic("in", PARTITIONS),
            NewTopic(OUT, 3),
        )
        with CommitRelay(port, brokers.listener("RELAYED")) as relay:
            yield brokers, relay, f"{HOST}:{port}"


class Drivers:
    """Drivers of one stream, one after the other."""

    def __init__(self, folder: Path, relay: CommitRelay, **settings: object) -> None:
        self._folder, self._relay, self._settings = folder, relay, settings
        (folder / "orders").mkdir()

    @property
    def log(self) -> str:
        return (self._folder / "driver.log").read_text()

    def start(self, **more: object):
        (self._folder / "settings.json").write_text(json.dumps(self._settings | more))
        return drive(self._folder)

    def wait_until_held(self, driver) -> None:
        """Wait until the driver is inside `commit_transaction`, and a commit is held."""

        def is_held() -> bool:
            assert driver.poll() is None, self.log[-3000:]
            return self._relay.held.is_set()

        wait_until(is_held, "a commit is held", SECONDS)

    def kill_one(self, where: str, *, after: int) -> None:
        """Run a driver, and kill it where one of its commits is held."""
        self._relay.hold(where, after=after)
        driver = self.start()
        try:
            self.wait_until_held(driver)
            os.kill(driver.pid, signal.SIGKILL)
            assert driver.wait(SECONDS) == -signal.SIGKILL
        finally:
            end(driver)


def last_marker(brokers: Brokers) -> int:
    """Return the batch of the last marker that is committed."""
    return max(json.loads(record.value())["batch"] for record in committed(brokers.bootstrap, MARKERS))


def is_open(brokers: Brokers, topic: str) -> bool:
    """Return whether a transaction is open in a topic: its last stable offsets are before its ends."""
    return offsets(brokers.bootstrap, topic, committed=True) != offsets(brokers.bootstrap, topic)


def test_a_driver_is_killed_while_the_outcome_of_a_commit_is_unknown(relayed, tmp_path):
    brokers, relay, servers = relayed
    expected = send(brokers, "in")
    drivers = Drivers(
        tmp_path,
        relay,
        **{"in": "in", "out": OUT, "markers": MARKERS, "partitions": PARTITIONS, "most": MOST},
        servers=brokers.bootstrap,
        sink_servers=servers,
    )

    drivers.kill_one(REQUEST, after=1)  # of its second batch
    assert is_open(brokers, OUT) and is_open(brokers, MARKERS), "the broker has got the commit"
    assert last_manifest(tmp_path) == 1

    drivers.kill_one(PASSED, after=0)  # of the same batch, which is published again

    drivers.kill_one(ANSWER, after=1)
    settle(brokers.bootstrap, OUT)
    assert last_marker(brokers) == last_manifest(tmp_path), "the broker has not committed"

    # Answers are lost while the driver lives: it asks again, or begins anew and reads the marker.
    relay.hold(CUT)
    driver = drivers.start(options={"transaction.timeout.ms": 15_000})
    try:
        drivers.wait_until_held(driver)
        relay.hold(ANSWER, most=100)
        wait_until(lambda: UNKNOWN in drivers.log, "the driver begins anew", SECONDS)
        relay.release()
        assert driver.wait(SECONDS) == 0, drivers.log[-3000:]
    finally:
        end(driver)
    assert last_marker(brokers) == last_manifest(tmp_path)
    check(brokers, OUT, expected)
