"""The status, as text and as JSON."""

from __future__ import annotations

import json

from taskplace.spark.steering.status import SteeringStatus
from tests.support.steering_stand_in import Spark, polled, steering_of


def test_a_status_reads_as_text_and_as_json():
    status = SteeringStatus(
        "clicks",
        "stood down",
        batch=3,
        operators=("subtopology 0: stateStoreSave (0), 6 partitions, 1 stores each",),
        executors={"executor-1": (4, 3), "executor-2": (2, 3)},
        draining=("executor-1",),
        reason="because; remedy: do something",
        weights={"0_3": 4.0},
        errors=1,
        changes=("drain of executor-1 requested",),
    )
    text = str(status)
    for part in ("because", "executor-1: 4 tasks, 3 intended, draining", "0_3 4.0", "1 errors", "- drain of"):
        assert part in text
    assert json.loads(json.dumps(status.to_dict()))["executors"]["executor-2"] == {"tasks": 2, "intended": 3}


def test_the_changes_are_counted_beyond_those_that_are_kept():
    steering = steering_of(Spark("many", 4, 2, spread=True))
    polled(steering)
    before = steering.status().event_count
    for _ in range(15):
        steering.drain("1")
        steering.undrain("1")
    status = steering.status()
    assert status.event_count == before + 30
    assert status.changes[-1] == "undrain of executor-1 requested: it may run tasks again"
    assert len(status.changes) <= 20
