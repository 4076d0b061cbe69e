"""Spark's own Kafka source, with the connector's jars that docs/kafka.md names, on a real broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

import pyarrow.parquet as pq
from confluent_kafka import Producer

from tests.support.kafka_topics import settle
from tests.support.spark_kafka_app import KEYS

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[3]
SECONDS = 60
PARTITIONS = 3


@pytest.fixture(scope="module")
def jars() -> str:
    """The paths of the connector's jars, as `spark.jars` takes them."""
    subprocess.run([ROOT / "scripts" / "kafka-connector.sh"], check=True)
    found = sorted((ROOT / "var" / "kafka-connector" / "jars").glob("*.jar"))
    assert len(found) == 4
    return ",".join(map(str, found))


def send(kafka, topic: str, numbers: range) -> None:
    """Send each key with each number: even numbers in transactions that are committed, odd ones in aborted ones."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "transactional.id": topic,
            "partitioner": "murmur2_random",
        }
    )
    producer.init_transactions(SECONDS)
    for number in numbers:
        producer.begin_transaction()
        for key in KEYS:
            headers = [("number", str(number).encode()), ("none", None)]
            producer.produce(topic, key=key, value=b'{"number": %d}' % number, headers=headers)
        producer.flush(SECONDS)  # also the records of an aborted transaction are in the topic
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(SECONDS)
    settle(kafka.bootstrap, topic)


def run(kafka, topic: str, folder: Path, jars: str) -> dict[str, int]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.spark_kafka_app",
            kafka.bootstrap,
            topic,
            str(PARTITIONS),
            folder,
            jars,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_committed_records_are_read_once_over_a_restart(kafka, jars, tmp_path):
    topic = kafka.topic("spark-source", partitions=PARTITIONS)
    send(kafka, topic, range(0, 6))
    assert run(kafka, topic, tmp_path, jars) == dict.fromkeys(KEYS, 3)
    send(kafka, topic, range(6, 10))
    assert run(kafka, topic, tmp_path, jars) == dict.fromkeys(KEYS, 5)  # a new process, from its checkpoint
    out = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted((row["tailnum"], row["number"]) for row in out) == sorted(
        (key, number) for key in KEYS for number in (0, 2, 4, 6, 8)
    )
    assert all(row["task"] == row["partition"] for row in out)
    assert all(
        row["headers"]
        == [{"key": "number", "value": str(row["number"]).encode()}, {"key": "none", "value": None}]
        for row in out
    )
    assert len({row["batch_id"] for row in out}) >= 4
