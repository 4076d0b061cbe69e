"""A driver on Spark that reads a topic and writes another one is killed; readers see each row once, in order."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from confluent_kafka import Producer

from tests.spark.kafka.test_sink_kills import check
from tests.spark.test_driver_killed import end
from tests.support.kafka_sink_lives import committed
from tests.support.killed_kafka_driver import KEYS
from tests.support.placed_harness import FaultOrders, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(900)]
PARTITIONS, TIMES, MOST = 4, 300, 40
SECONDS = 300
ROOT = Path(__file__).parents[3]


def send(kafka, topic: str, times: int = TIMES) -> dict[str, list[int]]:
    """Append numbered rows of each key to a topic, and return the numbers by key."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    for number in range(1, times + 1):
        for key in KEYS:
            producer.produce(topic, key=key, value=json.dumps({"i": number}))
    assert producer.flush(60) == 0
    return {key: list(range(1, times + 1)) for key in KEYS}


def prepare(kafka, folder: Path) -> dict[str, Any]:
    """Make the topics of a driver, and return its settings."""
    settings = {
        "servers": kafka.bootstrap,
        "in": kafka.topic("in", PARTITIONS),
        "out": kafka.topic("out", 3),
        "markers": kafka.unique("markers"),
        "partitions": PARTITIONS,
        "most": MOST,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "orders").mkdir()
    return settings


def said(folder: Path) -> str:
    """Return the end of what the drivers have logged."""
    return (folder / "driver.log").read_text()[-3000:]


def drive(folder: Path) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TASKPLACE_FAULTS": str(folder / "orders")}
    log = (folder / "driver.log").open("ab")
    command = [sys.executable, "-m", "tests.support.killed_kafka_driver", str(folder)]
    # A group of its own: JVM and executors die with it, whatever happens to this test.
    return subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)


def test_a_driver_is_killed_inside_and_around_publishing(kafka, tmp_path):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw = random.Random(seed)
    settings = prepare(kafka, tmp_path)
    orders = FaultOrders(tmp_path / "orders")
    expected = send(kafka, settings["in"])
    points = ["sink.sent", "sink.committed", "batch.committed", "sink.sending"]
    for point in draw.sample(points, 3):
        driver = drive(tmp_path)
        try:
            before = committed(tmp_path)
            wait_until(lambda before=before: committed(tmp_path) > before, "a batch is committed", SECONDS)
            orders.write(point)
            assert driver.wait(timeout=SECONDS) == -signal.SIGKILL, said(tmp_path)
        finally:
            end(driver)
    driver = drive(tmp_path)
    try:
        assert driver.wait(timeout=SECONDS) == 0, said(tmp_path)
    finally:
        end(driver)
    assert committed(tmp_path) > 4
    check(kafka, settings["out"], expected)
