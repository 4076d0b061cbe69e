"""Rounds over a bridge that stands for Spark: when there is one, what it sends, what it learns of load.

Moves that were sent and have not run: what is on the way, what has moved, what goes back.

Moves that were sent and have not run: which count as moved, and which batches teach what a reload costs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.spark.bridge import Executor
from taskplace.spark.steering import rounds as steering_round
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.layout import SparkSettings
from taskplace.spark.steering.rounds import UNCERTAIN_BATCHES, SentMoves
from taskplace.spark.steering.steering import Steering
from tests.support.steering_simulation import grid
from tests.support.steering_stand_in import (
    Spark,
    polled,
    reloads_counted,
    steering_of,
)


def test_between_two_batches_no_more_is_sent_than_the_budget_whatever_is_asked_for():
    spark = Spark("budget", 30, 1)
    steering = steering_of(spark)
    assert polled(steering) == 1
    for i in range(1, 6):
        spark.there.append(Executor(str(i), "host", 2))
        steering.undrain(0)
        assert polled(steering) == 1
    assert spark.sent == 1
    spark.ran()
    assert polled(steering) == 1
    assert spark.sent == 2


def test_what_spark_decommissions_is_noticed_while_the_query_waits_and_emptied_at_once():
    spark = Spark("decommissions", 24, 3, spread=True)
    steering = steering_of(spark)
    polled(steering)
    spark.ending = {"2"}
    assert polled(steering) == 1, "one round, and no more of them"
    assert spark.sent == 8
    assert "executor-2" not in spark.at.values()
    status = steering.status()
    assert status.draining == ("executor-2",)
    assert status.changes[-1] == "batch 0: 8 moves now, 0 later; decommissioned: executor-2"
    spark.there.pop()  # it has ended, as was to be expected
    assert polled(steering) == 0
    spark.ran()
    polled(steering)
    assert steering.drained("2")


def test_a_dry_run_does_not_hide_a_change_from_the_thread():
    spark = Spark("dry", 8, 2, spread=True)
    steering = steering_of(spark)
    polled(steering)
    spark.there.append(Executor("2", "host", 2))
    assert steering.plan().moves
    assert spark.sent == 0
    assert polled(steering) == 1
    assert spark.sent == 1


def test_sizes_are_listed_once_the_moves_are_sent_and_count_from_the_next_batch_on(monkeypatch):
    spark, sent, loads = Spark("sizes", 12, 3), [], []
    sizes = {t: 41.0 if t.partition == 0 else 1.0 for t in spark.found.tasks}
    spark.state_sizes = lambda found: sent.append(spark.sent) or sizes
    steering = Steering(spark, SteeringConfig(load_by="state.size", max_moves_per_batch=3))
    polled(steering)
    decide = steering_round.decide
    monkeypatch.setattr(
        steering_round,
        "decide",
        lambda config, state, seen: loads.append(seen.load) or decide(config, state, seen),
    )
    for _ in range(8):
        spark.ran()
        polled(steering)
    assert sent[0] == 6, "after what the round before and this one send"
    assert loads == [None, *[sizes] * 5, None, None]
    assert steering.status().load == "by state.size"
    assert steering.status().weights["0_0"] == 41.0


TASKS = grid(1, 4)
PLACES = st.fixed_dictionaries(dict.fromkeys(TASKS, st.sampled_from([None, "a", "b"])))
SENDS = st.lists(st.dictionaries(st.sampled_from(TASKS), st.sampled_from("abc")), max_size=4)


def send(places, sends) -> tuple[SentMoves, dict]:
    """Send again and again before a batch runs; return the moves, and Spark's map after them."""
    moves, now = SentMoves(), dict(places)
    for new in sends:
        new = {task: name for task, name in new.items() if now[task] != name}
        moves = moves.send(now, new)
        now |= new
    return moves, now


@given(PLACES, SENDS)
def test_a_batch_that_obeys_runs_all_that_is_on_the_way_and_leaves_nothing(places, sends):
    moves, now = send(places, sends)
    assert moves.on_the_way == sum(now[task] != places[task] for task in TASKS)
    left = moves.after_batch(now)
    assert (left.moved, left.on_the_way, left.origins) == (moves.on_the_way, 0, {})


@given(PLACES, SENDS, st.sets(st.sampled_from("abc")))
def test_what_is_sent_back_goes_to_its_origin_if_that_is_usable(places, sends, usable):
    moves, now = send(places, sends)
    back = moves.to_return(now, usable)
    assert back == {
        task: places[task] for task in TASKS if now[task] != places[task] and places[task] in usable
    }


@given(PLACES, SENDS, PLACES, st.integers(0, 3))
def test_how_many_loaded_their_state_is_known_only_of_the_next_batch_of_an_undisturbed_map(
    places, sends, elsewhere, skipped
):
    moves, now = send(places, sends)
    assert moves.observed(now).loaded_in(1, after=0) is None, "no batch was observed before"
    moves = SentMoves().after_batch(places)
    for new in sends:
        moves = moves.send({**places, **moves.expected}, new)
    seen = {**places, **moves.expected}
    known = moves.observed(seen).loaded_in(1 + skipped, after=0) if sends else None
    assert known == (moves.on_the_way if sends and not skipped else None)
    if sends and elsewhere != seen:
        assert moves.observed(elsewhere).observed(seen).loaded_in(1, after=0) is None
    assert replace(moves, certain_from=UNCERTAIN_BATCHES).observed(seen).loaded_in(2, after=1) is None
    assert replace(moves, undisturbed=False).observed(seen).loaded_in(1, after=0) is None


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


def test_a_stand_down_is_said_once():
    spark = Spark("once said", 6, 2)
    steering = steering_of(spark)
    polled(steering)
    spark.settings = lambda: SparkSettings(unload_on_commit=True)
    for _ in range(5):
        spark.ran()
        polled(steering)
    assert sum("stood down" in change for change in steering.status().changes) == 1
    steering.resume()
    polled(steering)
    assert sum("stood down" in change for change in steering.status().changes) == 2, (
        "again, since it was resumed"
    )
