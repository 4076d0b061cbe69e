"""Drains over several queries, some of which wait: who is told, and when an executor is drained.

What the steered queries of an application share: their tasks, drains and removals.

Decommissioned executors: removed once they are empty, by any handle, and given up in the end.
"""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.bridge import Executor
from taskplace.spark.steering import rounds as steering_round
from taskplace.spark.steering.application import SteeredQueries
from taskplace.spark.steering.layout import QueryLayout
from tests.support.steering_stand_in import Spark, on, pair, polled, publish, steering_of, turned, unreadable
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
        steering._app.follow_drains()
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


def test_a_handle_with_nothing_to_steer_knows_that_nothing_is_there_stopped_or_not():
    spark = Spark("nothing there", 6, 3)
    spark.found = QueryLayout()
    steering = steering_of(spark)
    polled(steering)
    assert steering.drained("2")
    steering.stop()
    assert steering.drained("2")


def test_of_an_executor_that_is_known_to_be_gone_nothing_is_asked(monkeypatch):
    spark = Spark("known to be gone", 6, 3)
    steering = steering_of(spark)
    polled(steering)
    steering._app.known |= {"executor-9"}
    monkeypatch.setattr(spark, "alive", lambda: pytest.fail("asked"))
    assert steering.drained("9")


TASKS = [TaskId(0, p) for p in range(6)]


def test_an_instance_ends_once_whoever_asks():
    steered, calls = SteeredQueries(), []
    publish(steered, "one", {TaskId(0, 0): "x"})
    steered.drain("x", remove=True)
    assert steered.remove("x", lambda: calls.append(1) or True) is None, "it is not empty"
    publish(steered, "one", {TaskId(0, 0): "y"})
    assert steered.remove("x", lambda: steered.remove("x", lambda: True)) is None, (
        "while one asks, no other does"
    )
    steered.drain("x", remove=True)
    assert steered.remove("x", lambda: True) is True
    assert steered.remove("x", lambda: True) is None
    assert steered.draining == {"x"}
    assert not calls


def test_what_has_stood_down_and_has_not_planned_since_a_drain_is_not_stuck_for_it_will_plan():
    steered = SteeredQueries()
    publish(steered, "one", {TASKS[0]: "b"}, stood_down="a reason")
    steered.drain("a")
    (blocker,) = steered.blockers("a")
    assert str(blocker) == "query one has not planned since the drain was requested"
    assert not blocker.stuck
    publish(steered, "one", {TASKS[0]: "a"}, stood_down="a reason")
    (blocker,) = steered.blockers("a")
    assert str(blocker) == "query one has stood down, and has 1 task there: a reason; or stop() its handle"
    assert blocker.stuck


def test_a_decommission_outlives_the_handle_that_was_told():
    a, b, one, other = pair("outlives")
    one.start()
    other.start()
    one.decommission("2")
    one.stop()
    wait_until(lambda: on(b.at, "executor-2") == 0, "the other one leaves")
    b.ran()
    wait_until(lambda: b.removed == ["2"], "and asks for its end")
    other.stop()
    assert not a.removed


def test_with_the_last_handle_a_decommission_is_given_up_and_that_is_said_but_the_drain_stays():
    spark = Spark("given up", 6, 3, spread=True)
    steering = steering_of(spark)
    steering.start()
    wait_until(lambda: steering.status().batch == 0, "it has had a round")
    steering.decommission("2")
    steering.stop()
    said = steering.status().changes
    assert any(line.startswith("executor-2 will not be removed: no steered query is left") for line in said)
    assert not SteeredQueries.of("given up").to_remove
    later = steering_of(Spark("given up", 6, 3, run="later", spread=True))
    polled(later)
    assert later.status().draining == ("executor-2",)


def test_an_end_that_can_never_be_asked_for_is_given_up_after_three_times_by_whichever_handles():
    a, b, one, other = pair("never by any", budget=6)
    asked = []
    a.remove = b.remove = lambda id_: asked.append(id_) or 1 / 0
    for told in (one, other):
        asked.clear()
        told.decommission("2")
        for _ in range(5):
            for query, steering in ((a, one), (b, other)):
                query.ran()
                polled(steering, 2)
        assert asked == ["2"], "no handle asks again at once"
        for _ in range(200):
            one._turn()
            other._turn()
        assert asked == ["2"] * 3
        assert one.status().errors + other.status().errors == (3 if told is one else 6)
    one.decommission("2")
    one.undrain("2")
    one.decommission("2")
    a.remove = b.remove = lambda id_: asked.append(id_) or True
    for _ in range(2):
        for query, steering in ((a, one), (b, other)):
            query.ran()
            polled(steering)
    assert asked == ["2"] * 4


def test_what_is_gone_is_kept_by_nobody_and_no_end_is_asked_for():
    a, b, one, other = unreadable("kept and gone")
    one.decommission("2")
    a.ran()
    for query in (a, b):
        query.there = query.there[:2]
    for _ in range(2):
        polled(one)
        turned(other)
        a.ran()
    assert not SteeredQueries.of("kept and gone").to_remove
    assert not any("is not empty" in change for change in one.status().changes)
    assert not a.removed + b.removed
    one.stop()
    other.stop()
    assert not any("will not be removed" in change for change in other.status().changes)


APPLICATIONS = count()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ran", "ran", "poll", "poll", "drain", "decommission", "undrain", "plan"]),
        st.integers(0, 2),
        st.sampled_from(["1", "2"]),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(STEPS)
def test_whatever_is_asked_of_whom_none_ends_that_was_run_on_and_in_the_end_all_do_that_are_to(steps):
    queries = [
        Spark(app := f"history {next(APPLICATIONS)}", 4, 3, run="q0", spread=True),
        *(Spark(app, 4, 3, run=f"q{i}", spread=True) for i in (1, 2)),
    ]
    ended: list[str] = []

    def end(id_: str) -> bool:
        assert not any(on(query.running, f"executor-{id_}") for query in queries)
        assert id_ not in ended
        ended.append(id_)
        for query in queries:
            query.there = [executor for executor in query.there if executor.id != id_]
        return True

    handles = [steering_of(query, 2) for query in queries]
    for query, steering in zip(queries, handles, strict=True):
        query.remove = end
        polled(steering, 1)
    wanted: set[str] = set()
    for what, which, executor in steps:
        if what == "ran":
            queries[which].ran()
        elif what == "poll":
            polled(handles[which], 1)
        elif what == "plan":
            handles[which].plan()
        elif executor not in ended:
            getattr(handles[which], what)(executor)
            if what != "drain":
                (wanted.add if what == "decommission" else wanted.discard)(executor)
    for _ in range(6):
        for query, steering in zip(queries, handles, strict=True):
            query.ran()
            polled(steering, 2)
    assert set(ended) == wanted
    for steering in handles:
        assert all(steering.drained(executor) for executor in ended)
        assert steering.status().errors == 0
