"""Moves that were sent and have not run: which count as moved, and which batches teach what a reload costs."""

from __future__ import annotations

import pytest

from tests.support.steering_stand_in import Spark, failing, polled, reloads_counted, steering_of, turned


def test_reloads_are_priced_by_all_that_was_sent_since_the_batch_before(monkeypatch):
    spark = Spark("prices", 8, 2)
    asked = reloads_counted(monkeypatch)
    steering = steering_of(spark, per_batch=2)
    polled(steering)
    steering.undrain("0")
    polled(steering)
    for _ in range(3):
        spark.ran()
        polled(steering)
    assert asked == [None, 2, 2, 0], "nobody knows what the first batch had to load"


def test_no_reload_is_priced_by_a_batch_in_which_spark_loaded_more_than_was_sent(monkeypatch):
    spark = Spark("more", 8, 2, spread=True)
    asked = reloads_counted(monkeypatch)
    steering = steering_of(spark)
    polled(steering)
    spark.ran()
    polled(steering)
    spark.at[next(iter(spark.at))] = "executor-1"  # there is no slot on the other one
    spark.ran()
    polled(steering)
    spark.ran()
    polled(steering)
    for _ in range(2):  # one of them has ended unseen
        spark.ran()
    polled(steering)
    spark.ran()
    polled(steering)
    assert asked == [None, 0, None, 1, None, 0]


def test_nor_by_the_first_batch_of_a_query_that_was_placed_before_it_nor_after_one_that_was_given_up(
    monkeypatch,
):
    spark = Spark("first", 8, 2)
    asked = reloads_counted(monkeypatch)
    steering = steering_of(spark)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark, "finished_batch", lambda: None)
        spark.at = dict.fromkeys(spark.at)
        polled(steering)
        assert spark.sent == 8
    polled(steering)
    spark.ran()
    polled(steering)
    spark.state_operators = failing(3, spark.state_operators)
    for _ in range(2):
        spark.ran()
        turned(steering)
    assert steering.status().state == "stood down"
    assert asked == [None, 0, None]


def test_what_was_sent_when_the_next_batch_had_begun_teaches_no_price_for_nobody_knows_which_loads_it(
    monkeypatch,
):
    spark, load, asked = Spark("late", 12, 3, spread=True), [24], reloads_counted(monkeypatch)
    spark.state_operators = lambda: [
        {"commitTimeMs": 1200, "memoryUsedBytes": 1000, "customMetrics": {"rocksdbLoadLatencyMs": load[0]}}
    ]
    steering = steering_of(spark, 8)
    for _ in range(3):
        spark.ran()
        polled(steering)
    steering.drain("2")
    send = spark.send
    spark.send = lambda found, intended: (
        setattr(spark, "between_batches", lambda: False),
        send(found, intended),
    )
    spark.ran()
    polled(steering)  # the next batch begins while the round runs
    assert spark.sent == 4
    for load[0] in (24, 4 * 5000 + 24, 24):
        spark.ran()
        polled(steering)
    assert asked == [None, 0, 0, 0, None, None, 0]
    steering.undrain("2")
    spark.send, spark.between_batches = send, lambda: True
    polled(steering)
    load[0] = 4 * 5000 + 24
    spark.ran()
    polled(steering)
    assert asked[-1] == 4
    assert steering._rounds.memory.costs.costs.reload == pytest.approx(5.0)


def test_what_is_sent_there_and_back_before_it_has_run_is_no_move(monkeypatch):
    spark = Spark("there and back", 12, 3, spread=True)
    asked = reloads_counted(monkeypatch)
    steering = steering_of(spark, 8)
    for _ in range(2):
        spark.ran()
        polled(steering)
    steering.drain("2")
    polled(steering)
    steering.undrain("2")
    polled(steering)
    moves = sum(name != spark.running[task] for task, name in spark.at.items())
    assert moves < spark.sent == 8
    assert steering.status().moved == moves
    spark.ran()
    polled(steering)
    assert asked == [None, 0, moves]
    assert steering.status().moved == moves


def test_what_spark_did_not_run_where_it_was_sent_counts_as_moved_once_it_has():
    spark = Spark("sent again", 12, 3, spread=True)
    steering = steering_of(spark, 4)
    polled(steering)
    steering.drain("2")
    polled(steering)
    stays = next(task for task, name in spark.running.items() if name == "executor-2")
    for _ in range(2):
        spark.at[stays] = "executor-2"  # there was no slot elsewhere
        spark.ran()
        polled(steering)
        assert steering.status().moved == 3 + 1, "it is on its way again"
    spark.ran()
    polled(steering)
    assert spark.sent == 4 + 2
    assert steering.status().moved == 4


@pytest.mark.parametrize("first", [60_000, 24])
def test_what_a_reload_costs_is_the_same_whatever_the_first_batch_that_was_seen_had_to_load(first):
    """A query that has restarted loads all its state in its first batch: five seconds of each task."""
    spark, load = Spark(f"restarts {first}", 12, 3, spread=True), [first]
    spark.state_operators = lambda: [
        {"commitTimeMs": 1200, "memoryUsedBytes": 1000, "customMetrics": {"rocksdbLoadLatencyMs": load[0]}}
    ]
    steering = steering_of(spark)
    polled(steering)
    for load[0] in (24, 24):
        spark.ran()
        polled(steering)
    spark.ending = {"2"}
    polled(steering)
    assert spark.sent == 4
    load[0] = 4 * 5000 + 24
    spark.ran()
    polled(steering)
    assert steering._rounds.memory.costs.costs.reload == pytest.approx(5.0)
