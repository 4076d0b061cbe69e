"""The status, as text and as JSON."""

from __future__ import annotations

from tests.support.steering_stand_in import Spark, polled, steering_of


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
