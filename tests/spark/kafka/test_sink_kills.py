"""Drivers are killed at random points, also inside of publishing; readers of committed records see each row once."""

from __future__ import annotations

import itertools
import random
import signal
from collections import Counter
from collections.abc import Iterable

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from tests.support.kafka_sink_lives import ANY_TIME, IN_COMMIT, SINK_POINTS, Lives, points
from tests.support.kafka_topics import read

MANY_KILLS = 100


def kill_drivers(lives: Lives, at: Iterable[str]) -> None:
    """Run a life for each point, which ends there, and one more to the end."""
    for point in at:
        code = lives.run(point)
        assert code == -signal.SIGKILL, f"exit code {code} at {point}: {lives.log()}"
    assert lives.run(batches=2) == 0, lives.log()


def check(kafka, topic: str, expected: dict[str, list[int]]) -> None:
    """Each row is there once, and the rows of a key are in order, in one partition."""
    found: dict[str, list[int]] = {}
    places: dict[str, set[int]] = {}
    for partition, key, value in read(kafka.bootstrap, topic):
        assert value["n"] == value["i"], "the store has counted a row twice, or not at all"
        found.setdefault((key or b"").decode(), []).append(value["i"])
        places.setdefault(value["k"], set()).add(partition)
    assert {key: found[key] for key in sorted(found)} == expected
    assert {key: len(where) for key, where in places.items()} == dict.fromkeys(expected, 1)


def test_kills_at_every_point_of_the_sink(kafka, tmp_path):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    topic = kafka.topic("out", partitions=3)
    lives = Lives(tmp_path, kafka.bootstrap, topic, kafka.unique("markers"), seed)
    at = [*SINK_POINTS, "batch.committed", IN_COMMIT, ANY_TIME]
    kill_drivers(lives, at)
    check(kafka, topic, lives.expected())
    assert lives.killed == Counter(at)
    assert sum(lives.losses().values()) >= 1, "no executor has died"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_kills_at_random_points(kafka, tmp_path):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    topic = kafka.topic("out", partitions=3)
    lives = Lives(tmp_path, kafka.bootstrap, topic, kafka.unique("markers"), seed)
    kill_drivers(lives, itertools.islice(points(seed), MANY_KILLS))
    check(kafka, topic, lives.expected())
    rows = sum(map(len, lives.expected().values()))
    losses = lives.losses()
    print(
        f"killed: {dict(lives.killed)}; {lives.committed() + 1} batches, {rows} rows; executors: {dict(losses)}"
    )
    assert sum(lives.killed.values()) == MANY_KILLS
    assert {*SINK_POINTS, IN_COMMIT, ANY_TIME} <= set(lives.killed)
    assert sum(losses.values()) >= MANY_KILLS // 10
    assert len(losses) > 1
