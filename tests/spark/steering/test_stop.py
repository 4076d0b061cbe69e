"""Stopping a handle: moves that have not run yet are reverted, unless that may be too late."""

from __future__ import annotations

import pytest

from taskplace.spark.steering.application import SteeredQueries
from tests.support.steering_stand_in import Spark, failing, polled, steering_of, turned


def test_stopping_takes_moves_back_that_have_not_run():
    spark = Spark("takes back", 12, 3)
    steering = steering_of(spark, 4)
    polled(steering)
    assert spark.at != spark.running
    steering.stop()
    assert spark.at == spark.running
    assert steering.status().changes[-2:] == ("4 moves that have not run yet are reverted", "stopped")


def test_stopping_takes_moves_back_after_errors_too_unless_a_batch_has_run_since():
    for what in ("waits", "ran"):
        spark = Spark(f"errors: {what}", 12, 3)
        steering = steering_of(spark, 4)
        polled(steering)
        sent, there = dict(spark.at), dict(spark.running)
        if what == "ran":
            spark.ran()
        else:
            steering.undrain("0")  # another round
        really, spark.places = spark.places, failing(3, spark.places)
        turned(steering)
        assert steering.status().state == "stood down"
        spark.places = really
        steering.stop()
        assert spark.at == (sent if what == "ran" else there)


@pytest.mark.parametrize("what", ["begins", "begins and ends", "has ended"])
def test_stopping_takes_back_nothing_once_a_batch_has_begun_or_the_query_has_ended_meanwhile(what):
    spark = Spark(f"meanwhile: {what}", 12, 3)
    steering = steering_of(spark, 4)
    polled(steering)
    sent, places = dict(spark.at), spark.places

    def meanwhile(found):
        if what == "begins":
            spark.between_batches = lambda: False
        else:
            spark.ran()
        return places(found)

    if what == "has ended":
        spark.on = False
    else:
        spark.places = meanwhile
    steering.stop()
    assert spark.at == sent
    assert not any("taken back" in change for change in steering.status().changes)


def test_stopping_takes_back_nothing_that_has_run_or_may_be_running():
    for what in ("ran, unseen", "runs"):
        spark = Spark(f"too late: {what}", 12, 3)
        steering = steering_of(spark, 4)
        polled(steering)
        sent = dict(spark.at)
        if what == "runs":
            spark.between_batches = lambda: False
        else:
            spark.ran()
        steering.stop()
        assert spark.at == sent


def test_stopping_sends_nothing_back_to_an_executor_that_is_gone_or_drains():
    for what in ("gone", "drains", "decommissioned"):
        spark = Spark(f"no way back: {what}", 6, 3, spread=True)
        steering = steering_of(spark, 6)
        polled(steering)
        if what == "gone":
            spark.there.pop()
        elif what == "drains":
            steering.drain("2")
        else:
            spark.ending = {"2"}
        polled(steering)
        assert "executor-2" not in spark.at.values()
        steering.stop()
        assert "executor-2" not in spark.at.values()


def test_stopping_sends_nothing_back_to_an_executor_that_has_just_gone():
    spark = Spark("just gone", 12, 3)
    steering = steering_of(spark, 4)
    polled(steering)
    spark.there.pop(0)
    steering.stop()
    assert spark.sent == 4
    assert steering.status().errors == 0


def test_a_stop_that_cannot_take_moves_back_stops_all_the_same():
    spark = Spark("cannot", 12, 3)
    steering = steering_of(spark, 4)
    polled(steering)
    spark.places = failing(1, spark.places)
    steering.stop()
    assert steering.status().state == "stopped"
    assert steering.status().errors == 1


def test_an_error_after_the_stop_does_not_bring_the_query_back():
    """The thread may be in a call to Spark when it is stopped, which then fails."""
    spark = Spark("after the stop", 6, 2)
    steering = steering_of(spark)
    polled(steering)
    steering.stop()
    for _ in range(5):
        steering._failed(OSError("a late error"))
    assert SteeredQueries.of("after the stop").empty("executor-0")
    assert SteeredQueries.of("after the stop").neighbours("another") == (0, [])


def test_a_round_that_comes_after_the_stop_sends_and_publishes_nothing():
    """The thread may be in a call to Spark when it is stopped, for longer than `stop` waits."""
    spark = Spark("late round", 6, 3)
    steering = steering_of(spark)
    steering._end("stopped")
    assert not steering._turn()
    assert spark.sent == 0
    assert SteeredQueries.of("late round").neighbours("another") == (0, [])
