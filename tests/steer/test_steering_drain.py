"""Drains and decommissions over several queries, some of which wait: who is told, what counts as empty."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.bridge import Executor
from taskplace.spark.steering.layout import Layout
from taskplace.spark.steering.overrides import Facts
from taskplace.spark.steering.steered_queries import SteeredQueries
from tests.steer.steer_harness import wait_until
from tests.steer.test_steering_handle import Spark, failing, polled, steering_of, turned
from topology.ids import TaskId


def pair(app: str, budget: int = 4):
    """Two steered queries, each with two tasks on each of three executors, that have seen a few batches."""
    queries = [Spark(app, 6, 3, run=run, spread=True) for run in ("a", "b")]
    handles = [steering_of(query, budget) for query in queries]
    for _ in range(3):
        for query, steering in zip(queries, handles, strict=True):
            query.ran()
            polled(steering)
    return (*queries, *handles)


def on(places, name: str) -> int:
    return sum(place == name for place in places.values())


def test_a_drain_reaches_a_query_that_waits_through_any_handle():
    _, b, one, other = pair("waits")
    one.drain("2")
    assert polled(other) == 1, "one look, and no more of them"
    assert on(b.at, "executor-2") == 0, "its next batch runs elsewhere"
    one.undrain("2")
    assert polled(other) == 1


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
    assert not b.removed, "it has only looked"
    polled(one)
    assert a.removed == ["2"]
    polled(other)
    assert not b.removed, "one of them asks, once"
    assert "executor-2 is empty: asked for its end" in one.status().changes


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


def test_an_executor_that_a_look_under_way_is_about_to_send_tasks_to_is_not_drained():
    spark = Spark("under way", 6, 2, spread=True)
    steering = steering_of(spark, 6)
    polled(steering)
    spark.there.append(Executor("2", "host", 2))
    look = steering._looks.loop.look

    def told_meanwhile(seen):
        steering.decommission("2")
        assert not steering.drained("2")
        assert steering.status().kept == {
            "executor-2": ("query run: it has not looked since the drain was asked for",)
        }
        steering._drains.poll()
        return look(seen)

    steering._looks.loop.look = told_meanwhile
    polled(steering, 1)
    assert on(spark.at, "executor-2") == 2
    assert not spark.removed
    assert not steering.drained("2")
    steering._looks.loop.look = look
    for _ in range(2):
        spark.ran()
        polled(steering)
    assert spark.removed == ["2"]


def test_nor_is_one_that_another_query_has_not_looked_at_since_but_one_with_nothing_to_steer_need_not():
    _, _, one, other = pair("not looked")
    nothing = Spark("not looked", 6, 3, run="nothing")
    nothing.found = Layout()
    polled(steering_of(nothing))
    fleet = SteeredQueries.of("not looked")
    fleet.drain("executor-3")
    assert [keeper.query for keeper in fleet.keepers("executor-3")] == ["a", "b"]
    polled(one)
    assert [keeper.query for keeper in fleet.keepers("executor-3")] == ["b"]
    fleet.drain("executor-3")  # once more, since the same time
    polled(other)
    assert fleet.empty("executor-3")


# ------------------------------------------------------------------------------------- taken back, given up


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
    wait_until(lambda: steering.status().batch == 0, "it has looked")
    steering.decommission("2")
    steering.stop()
    said = steering.status().changes
    assert any(line.startswith("executor-2 does not end: no query is steered any more") for line in said)
    assert not SteeredQueries.of("given up").leaving
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
    assert "executor-2 is empty: OSError, once more" in steering.status().changes


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
    assert "executor-2 is empty: ZeroDivisionError, its end is given up" in steering.status().changes
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
    assert not SteeredQueries.of("kept and gone").leaving
    assert not any("is kept by" in change for change in one.status().changes)
    assert not a.removed + b.removed
    one.stop()
    other.stop()
    assert not any("does not end" in change for change in other.status().changes)


def test_a_handle_with_nothing_to_steer_ends_an_executor_too():
    spark = Spark("stateless", 6, 3)
    spark.found = Layout()
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
    assert not SteeredQueries.of("by itself").leaving


def test_a_look_that_comes_after_the_stop_sends_and_publishes_nothing():
    """The thread may be in a call to Spark when it is stopped, for longer than `stop` waits."""
    spark = Spark("late look", 6, 3)
    steering = steering_of(spark)
    steering._end("stopped")
    assert not steering._turn()
    assert spark.sent == 0
    assert SteeredQueries.of("late look").beside("another") == (0, [])


def test_the_last_executor_that_does_not_drain_is_not_drained():
    *_, one, other = pair("last one")
    one.drain("2")
    other.decommission("1")
    with pytest.raises(InputError, match="that another executor is left to take its tasks"):
        one.drain("0")


def test_an_instance_ends_once_whoever_asks():
    fleet, calls = SteeredQueries(), []
    fleet.publish("one", {TaskId(0, 0): "x"}, {})
    fleet.drain("x", end=True)
    assert fleet.end("x", lambda: calls.append(1) or True) is None, "it is not empty"
    fleet.publish("one", {TaskId(0, 0): "y"}, {})
    assert fleet.end("x", lambda: fleet.end("x", lambda: True)) is None, "while one asks, no other does"
    fleet.drain("x", end=True)
    assert fleet.end("x", lambda: True) is True
    assert fleet.end("x", lambda: True) is None
    assert fleet.draining == {"x"}
    assert not calls


# ------------------------------------------------------------------------------------------- what is empty


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


@pytest.mark.parametrize("look", ["plan", "undrain"])
def test_no_look_between_batches_makes_what_was_sent_count_as_run(look):
    spark = Spark(f"own {look}", 6, 3, spread=True)
    steering = steering_of(spark, 6)
    polled(steering)
    steering.decommission("2")
    polled(steering)
    if look == "plan":
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


def test_a_dry_run_leaves_the_status_as_it_was():
    spark = Spark("dry status", 6, 3)
    steering = steering_of(spark)
    polled(steering)
    before = str(steering.status())
    steering.plan()
    assert str(steering.status()) == before


def test_before_a_query_is_known_nothing_is_drained_and_no_executor_ends():
    spark, other = Spark("unknown", 6, 3, spread=True), Spark("unknown", 6, 3, run="other", spread=True)
    one = steering_of(spark, 6)
    one.start()
    wait_until(lambda: one.status().batch == 0, "it has looked")
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


# ------------------------------------------------------------------------------------ beside a stand-down


def unreadable(app: str):
    """Two queries on three executors; the operators of the second cannot be read, so it stands down."""
    queries = [Spark(app, 6, 3, run=run, spread=True) for run in ("a", "b")]
    queries[1].layout = failing(10**6, None)
    handles = [steering_of(query, 6) for query in queries]
    for steering in handles:
        SteeredQueries.of(app).join(steering._bridge.run_id)
    for _ in range(3):
        for query, steering in zip(queries, handles, strict=True):
            query.ran()
            turned(steering)
    return (*queries, *handles)


def test_a_query_that_cannot_be_read_keeps_executors_and_the_one_that_was_asked_says_so(caplog):
    a, b, one, other = unreadable("unreadable")
    assert other.status().state == "stood down"
    with caplog.at_level("INFO"):
        one.decommission("2")
        for _ in range(3):
            a.ran()
            b.ran()
            polled(one)
            turned(other)
    assert on(a.running, "executor-2") == 0
    assert not one.drained("2")
    assert not a.removed + b.removed, "nobody knows what it has there"
    (why,) = one.status().kept["executor-2"]
    assert why.startswith(
        "query b: it has stood down, and nobody knows where its tasks run: 3 errors in a row"
    )
    assert why.endswith("then resume(); or stop() its handle")
    assert f"executor-2 is kept by {why}" in str(one.status())
    assert f"executor-2 is kept by {why}" in str(one.plan())
    assert one.plan().to_dict()["kept"] == one.status().to_dict()["kept"] == {"executor-2": [why]}
    assert caplog.text.count("executor-2 is kept by query b") == 1, "said once, by the one that was asked"
    other.stop()
    polled(one)
    assert one.drained("2")
    assert a.removed == ["2"]


def test_once_it_can_be_read_and_is_resumed_it_leaves_too():
    a, b, one, other = unreadable("read later")
    one.decommission("2")
    b.layout = lambda *, planned: b.found
    for _ in range(2):
        for query, steering in ((a, one), (b, other)):
            query.ran()
            turned(steering)
    assert one.status().kept == {
        "executor-2": (
            f"query b: it has stood down, and 2 tasks there: {other.status().reason}; or stop() its handle",
        )
    }, "it is known again where they are"
    other.resume()
    for _ in range(3):
        for query, steering in ((a, one), (b, other)):
            query.ran()
            turned(steering)
    assert one.drained("2")
    assert a.removed + b.removed == ["2"]
    assert one.status().kept == {}


def test_of_a_query_whose_looks_have_failed_nobody_knows_what_was_seen_before():
    """Spark may have run its tasks elsewhere meanwhile."""
    a, b, one, other = pair("lost sight", budget=6)
    one.drain("2")
    for query, steering in ((a, one), (b, other)):
        polled(steering)
        query.ran()
        polled(steering)
    assert one.drained("2")
    b.ran()
    b.places = failing(3, b.places)
    turned(other)
    assert other.status().state == "stood down"
    assert not one.drained("2")
    one.undrain("1")
    assert polled(other) == 1
    assert not one.drained("2"), "a look between batches does not tell where they ran"
    b.ran()
    turned(other)
    assert one.drained("2"), "until a look tells"


def test_nor_does_its_handle_know_once_it_is_stopped_as_long_as_the_executor_is_there():
    spark = Spark("stopped unknown", 6, 3, spread=True)
    steering = steering_of(spark, 6)
    polled(steering)
    spark.there.pop()
    polled(steering)
    spark.ran()
    spark.places = failing(3, spark.places)
    turned(steering)
    assert not steering.drained("1")
    steering.stop()
    assert not steering.drained("1")
    assert steering.drained("2"), "it had gone before"


def test_a_handle_with_nothing_to_steer_knows_that_nothing_is_there_stopped_or_not():
    spark = Spark("nothing there", 6, 3)
    spark.found = Layout()
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


def test_a_stood_down_query_is_told_of_whoever_is_asked_itself_too():
    _, b, one, other = pair("told")
    b.facts = lambda: Facts(unload_on_commit=True)
    b.ran()
    polled(other)
    for steering in (one, other):
        steering.drain("2")
        polled(steering)
        (said,) = [line for line in steering.status().changes if "is kept by query b" in line]
        assert (
            "it has stood down, and 2 tasks there: spark.sql.streaming.stateStore.unloadOnCommit=true" in said
        )
        assert said.endswith("restart the query; or stop() its handle")
        steering.undrain("2")
        polled(steering)
    assert one.status().kept == {}


def test_beside_a_query_that_has_stood_down_and_is_run_elsewhere_in_each_batch_another_rests():
    queries = [Spark("wanders", partitions, 4, run=run) for run, partitions in (("a", 10), ("b", 5))]
    handles = [steering_of(query, 4) for query in queries]
    a, b = queries
    b.facts = lambda: Facts(unload_on_commit=True)
    random, sent = Random(0), []
    for _ in range(30):
        places = [
            "executor-0",
            "executor-1",
            "executor-2",
            "executor-3",
            None,
        ]  # unloaded once it is committed
        b.at = {task: random.choice(places) for task in b.found.tasks}
        for query, steering in zip(queries, handles, strict=True):
            query.ran()
            polled(steering, 2)
        sent.append(a.sent)
    assert sent[-1] == sent[9] > 0
    assert b.sent == 0
    counts = [on(a.at, executor.instance) for executor in a.there]
    assert max(counts) - min(counts) <= 1


def test_of_a_drain_that_was_taken_back_nothing_more_is_said():
    *_, b, one, other = pair("no longer")
    one.drain("2")
    one.undrain("2")
    b.facts = lambda: Facts(unload_on_commit=True)
    b.ran()
    polled(other)
    polled(one)
    assert not any("is kept by" in line for line in one.status().changes)


def test_what_keeps_an_executor_for_a_while_is_in_the_status_and_nothing_to_log():
    a, _, one, other = pair("for a while", budget=6)
    one.drain("2")
    assert one.status().kept == {"executor-2": ("query a: 2 tasks there", "query b: 2 tasks there")}
    polled(one)
    polled(other)
    to_run = "tasks that ran there last have to run elsewhere first"
    assert one.status().kept == {"executor-2": (f"query a: {to_run}", f"query b: {to_run}")}
    a.ran()
    polled(one)
    assert one.status().kept == {"executor-2": (f"query b: {to_run}",)}
    assert not any("is kept by" in line for line in one.status().changes)
