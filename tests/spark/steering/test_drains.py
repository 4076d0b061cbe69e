"""Drains over several queries, some of which wait: who is told, and when an executor is drained."""

from __future__ import annotations

import pytest
from taskplace.spark.steering.layout import QueryLayout

from taskplace.errors import InputError
from taskplace.spark.bridge import Executor
from taskplace.spark.steering import rounds as steering_round
from taskplace.spark.steering.application import SteeredQueries
from taskplace.spark.steering.observation import Facts
from tests.support.steering_stand_in import Spark, failing, on, pair, polled, steering_of
from tests.support.steering_streams import wait_until
from topology.tasks import TaskId


def test_a_drain_reaches_a_query_that_waits_through_any_handle():
    _, b, one, other = pair("waits")
    one.drain("2")
    assert polled(other) == 1, "one round, and no more of them"
    assert on(b.at, "executor-2") == 0, "its next batch runs elsewhere"
    one.undrain("2")
    assert polled(other) == 1


def test_an_executor_that_a_round_under_way_is_about_to_send_tasks_to_is_not_drained(monkeypatch):
    spark = Spark("under way", 6, 2, spread=True)
    steering = steering_of(spark, 6)
    polled(steering)
    spark.there.append(Executor("2", "host", 2))
    decide = steering_round.decide

    def told_meanwhile(config, state, seen):
        steering.decommission("2")
        assert not steering.drained("2")
        assert steering.status().kept == {
            "executor-2": ("query run has not planned since the drain was requested",)
        }
        steering._drains.poll()
        return decide(config, state, seen)

    with monkeypatch.context() as patched:
        patched.setattr(steering_round, "decide", told_meanwhile)
        polled(steering, 1)
    assert on(spark.at, "executor-2") == 2
    assert not spark.removed
    assert not steering.drained("2")
    for _ in range(2):
        spark.ran()
        polled(steering)
    assert spark.removed == ["2"]


def test_nor_is_one_that_another_query_has_had_no_round_since_but_one_with_nothing_to_steer_need_not():
    _, _, one, other = pair("no round")
    nothing = Spark("no round", 6, 3, run="nothing")
    nothing.found = QueryLayout()
    polled(steering_of(nothing))
    steered = SteeredQueries.of("no round")
    steered.drain("executor-3")
    assert [keeper.query for keeper in steered.blockers("executor-3")] == ["a", "b"]
    polled(one)
    assert [keeper.query for keeper in steered.blockers("executor-3")] == ["b"]
    steered.drain("executor-3")  # once more, since the same time
    polled(other)
    assert steered.empty("executor-3")


def test_the_last_executor_that_does_not_drain_is_not_drained():
    *_, one, other = pair("last one")
    one.drain("2")
    other.decommission("1")
    with pytest.raises(InputError, match="at least one other executor that can take its tasks"):
        one.drain("0")


def test_an_executor_is_drained_once_the_moves_of_all_queries_have_run_not_when_they_were_sent():
    a, b, one, other = pair("sent")
    one.decommission("2")
    polled(one)
    a.ran()
    polled(one)
    b.ran()
    polled(other)  # sends its tasks elsewhere; its next batch may have begun before
    assert on(b.at, "executor-2") == 0
    assert on(b.running, "executor-2") == 2
    for steering in (one, other):
        assert not steering.drained("2")
        polled(steering)
    assert not a.removed + b.removed
    b.ran()
    polled(other)
    assert one.drained("2")
    assert other.drained("2")
    polled(one)
    assert a.removed + b.removed == ["2"]


@pytest.mark.parametrize("what", ["plan", "undrain"])
def test_no_round_between_batches_makes_what_was_sent_count_as_run(what):
    spark = Spark(f"own {what}", 6, 3, spread=True)
    steering = steering_of(spark, 6)
    polled(steering)
    steering.decommission("2")
    polled(steering)
    if what == "plan":
        steering.plan()
    else:
        steering.undrain("0")
    polled(steering)
    assert on(spark.running, "executor-2") == 2
    assert not steering.drained("2")
    assert not spark.removed
    spark.ran()
    polled(steering)
    assert spark.removed == ["2"]


def test_before_a_query_is_known_nothing_is_drained_and_no_executor_ends():
    spark, other = Spark("unknown", 6, 3, spread=True), Spark("unknown", 6, 3, run="other", spread=True)
    one = steering_of(spark, 6)
    one.start()
    wait_until(lambda: one.status().batch == 0, "it has had a round")
    other.finished_batch = lambda: None  # its first batch runs
    other.layout = lambda *, planned: None
    beside = steering_of(other)
    beside.start()
    try:
        one.decommission("2")
        wait_until(lambda: on(spark.at, "executor-2") == 0, "it is told")
        spark.ran()
        wait_until(lambda: one.status().batch == 1, "the moves have run")
        assert not one.drained("2")
        assert not spark.removed
    finally:
        beside.stop()
    wait_until(lambda: spark.removed == ["2"], "without the other it is empty")
    one.stop()


def test_an_executor_that_has_ended_is_drained_though_nothing_has_run_since():
    spark = Spark("has ended", 6, 3, spread=True)
    steering = steering_of(spark)
    polled(steering)
    assert not steering.drained("2")
    spark.there.pop()
    assert steering.drained("2")


def test_a_handle_with_nothing_to_steer_knows_that_nothing_is_there_stopped_or_not():
    spark = Spark("nothing there", 6, 3)
    spark.found = QueryLayout()
    steering = steering_of(spark)
    polled(steering)
    assert steering.drained("2")
    steering.stop()
    assert steering.drained("2")


def test_where_a_batch_has_run_is_known_though_nothing_can_be_sent():
    a, b, one, other = pair("not sent", budget=6)
    one.drain("2")
    for query, steering in ((a, one), (b, other)):
        polled(steering)
        query.ran()
        polled(steering)
    assert one.drained("2")
    b.at[TaskId(0, 0)] = "executor-2"  # there was no slot elsewhere
    b.ran()
    b.send = failing(1, b.send)
    with pytest.raises(OSError, match="a passing error"):
        polled(other)
    assert not one.drained("2")


def test_of_a_drain_that_was_taken_back_nothing_more_is_said():
    *_, b, one, other = pair("no longer")
    one.drain("2")
    one.undrain("2")
    b.facts = lambda: Facts(unload_on_commit=True)
    b.ran()
    polled(other)
    polled(one)
    assert not any("is not empty" in line for line in one.status().changes)


def test_what_keeps_an_executor_for_a_while_is_in_the_status_and_nothing_to_log():
    a, _, one, other = pair("for a while", budget=6)
    one.drain("2")
    assert one.status().kept == {"executor-2": ("query a has 2 tasks there", "query b has 2 tasks there")}
    polled(one)
    polled(other)
    to_run = "ran tasks there in its last batch; they have to run elsewhere first"
    assert one.status().kept == {"executor-2": (f"query a {to_run}", f"query b {to_run}")}
    a.ran()
    polled(one)
    assert one.status().kept == {"executor-2": (f"query b {to_run}",)}
    assert not any("is not empty" in line for line in one.status().changes)
