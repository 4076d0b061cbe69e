"""Decommissioned executors: removed once they are empty, by any handle, and given up in the end."""

from __future__ import annotations

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from taskplace.spark.steering.layout import QueryLayout

from taskplace.spark.steering.application import SteeredQueries
from tests.support.steering_stand_in import Spark, on, pair, polled, steering_of, turned, unreadable
from tests.support.steering_streams import wait_until


def test_a_query_that_waits_ends_the_executor_once_another_has_left_it():
    a, b, one, other = pair("last")
    one.decommission("2")
    polled(one)
    a.ran()
    polled(one)
    assert not a.removed
    polled(other)
    b.ran()
    polled(other, 1)
    assert not b.removed, "it has only had a round"
    polled(one)
    assert a.removed == ["2"]
    polled(other)
    assert not b.removed, "one of them asks, once"
    assert "executor-2 is empty: its removal was requested" in one.status().changes


def test_with_threads_of_their_own_an_executor_ends_though_one_query_waits_after_one_batch():
    a, b, one, other = pair("threads")
    for steering in (one, other):
        steering.start()
    try:
        one.decommission("2")
        wait_until(lambda: on(a.at, "executor-2") == on(b.at, "executor-2") == 0, "both were told")
        for query in (a, b):
            query.ran()
        wait_until(lambda: a.removed or b.removed, "its end is asked for")
        assert a.removed + b.removed == ["2"]
    finally:
        one.stop()
        other.stop()


def test_a_decommission_that_another_handle_took_back_is_forgotten_by_all():
    a, b, one, other = pair("taken back")
    one.decommission("2")
    other.undrain("2")
    other.drain("2")
    for _ in range(6):
        for query, steering in ((a, one), (b, other)):
            query.ran()
            polled(steering)
    assert one.drained("2")
    assert not a.removed
    assert not b.removed


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


def test_an_end_that_could_not_be_asked_for_is_asked_for_again():
    spark = Spark("asks again", 6, 3, spread=True)
    steering = steering_of(spark)
    polled(steering)
    answers = [OSError("nobody"), OSError("nobody")]
    really = spark.remove
    spark.remove = lambda id_: (_ for _ in ()).throw(answers.pop()) if answers else really(id_)
    steering.decommission("2")
    for _ in range(6):
        spark.ran()
        polled(steering)
    assert spark.removed == ["2"]
    assert steering.status().errors == 2
    assert "executor-2 is empty: OSError, its removal will be requested again" in steering.status().changes


def test_an_end_that_can_never_be_asked_for_is_given_up_and_that_is_said():
    spark = Spark("never asked", 6, 3, spread=True)
    steering = steering_of(spark)
    polled(steering)
    asked = []
    spark.remove = lambda id_: asked.append(id_) or 1 / 0
    steering.decommission("2")
    for _ in range(9):
        spark.ran()
        polled(steering)
    assert asked == ["2"] * 3
    assert "executor-2 is empty: ZeroDivisionError, its removal is given up" in steering.status().changes
    assert steering.status().state == "steering"


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


def test_a_handle_with_nothing_to_steer_ends_an_executor_too():
    spark = Spark("stateless", 6, 3)
    spark.found = QueryLayout()
    steering = steering_of(spark)
    polled(steering)
    steering.decommission("2")
    polled(steering)
    assert spark.removed == ["2"]


def test_an_executor_that_ended_by_itself_is_not_asked_to():
    spark = Spark("by itself", 6, 3, spread=True)
    steering = steering_of(spark)
    polled(steering)
    steering.decommission("2")
    spark.there.pop()
    for _ in range(3):
        spark.ran()
        polled(steering)
    assert not spark.removed
    assert not SteeredQueries.of("by itself").to_remove


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
