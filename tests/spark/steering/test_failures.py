"""Failed rounds: repeated once the query waits, and three in a row end in a stand-down."""

from __future__ import annotations

import pytest

from tests.support.steering_stand_in import Spark, failing, polled, steering_of, turned


def test_what_stood_down_stays_so_until_it_is_resumed_though_the_operators_are_read_later():
    spark = Spark("reads later", 6, 2)
    read, failures = spark.layout, [ZeroDivisionError("no plan")] * 3
    spark.layout = lambda *, planned: (
        (_ for _ in ()).throw(failures.pop()) if failures else read(planned=planned)
    )
    steering = steering_of(spark)
    while failures:
        with pytest.raises(ZeroDivisionError) as error:
            steering._turn()
        steering._failed(error.value)
        spark.ran()
    assert steering.status().state == "stood down"
    for _ in range(3):
        spark.ran()
        polled(steering)
    assert steering.status().state == "stood down"
    assert "ZeroDivisionError: no plan" in steering.status().reason
    assert spark.sent == 0
    steering.resume()
    polled(steering)
    assert spark.sent == 1


@pytest.mark.parametrize("part", ["places", "state_operators", "settings", "layout"])
def test_a_batch_whose_round_has_failed_is_observed_once_more(part):
    spark = Spark(f"passes {part}", 12, 3)
    steering = steering_of(spark, 2)
    if part != "layout":
        polled(steering)
        spark.ran()
    setattr(spark, part, failing(2, getattr(spark, part)))
    assert turned(steering) == 1
    assert steering.status().batch == spark.batch
    assert steering._rounds.memory.ran is not None
    assert spark.sent == (2 if part == "layout" else 4), "with the budget of a batch that ran"
    assert (steering.status().state, steering.status().errors) == ("steering", 2)


def test_it_waits_for_that_until_the_query_does():
    spark = Spark("busy", 12, 3)
    steering = steering_of(spark, 2)
    polled(steering)
    spark.ran()
    spark.places, spark.between_batches = failing(1, spark.places), lambda: False
    assert turned(steering) == 0
    spark.ran()
    assert turned(steering) == 1, "the next batch is observed when it has ended"


def test_what_fails_after_each_batch_and_never_between_them_stands_down():
    spark = Spark("after each", 6, 2)
    steering = steering_of(spark)
    polled(steering)
    spark.state_operators = failing(10**6, None)
    spark.ran()
    turned(steering)
    assert steering.status().state == "stood down"
    assert steering.status().errors == 3
    assert "OSError: a passing error" in steering.status().reason
    spark.ran()
    turned(steering)
    assert steering.status().errors == 4, "one round a batch, to know what is there"


def test_after_a_stand_down_that_was_resumed_errors_have_to_come_in_a_row_again():
    spark = Spark("in a row", 6, 2)
    steering = steering_of(spark)
    polled(steering)
    places = spark.places
    spark.ran()
    spark.places = failing(3, places)
    turned(steering)
    assert steering.status().state == "stood down"
    steering.resume()
    for _ in range(4):
        assert turned(steering) == 1
        assert steering.status().state == "steering"
        spark.places = failing(1, places)
        steering.undrain("0")


def test_what_can_be_seen_and_never_sent_stands_down_too():
    """Between batches there is nothing left to send, so the round that is repeated does not fail."""
    spark = Spark("never sent", 12, 3)
    fails = failing(10**6, None)
    spark.send = lambda found, intended: fails() if intended else None
    steering = steering_of(spark)
    for rounds in (1, 1, 0):
        assert turned(steering) == rounds
        spark.ran()
    assert steering.status().state == "stood down"
    assert "OSError: a passing error" in steering.status().reason
