"""Drains beside a query that has stood down: what it keeps, and what is known of it."""

from __future__ import annotations

from random import Random

from taskplace.spark.steering.observation import Facts
from tests.support.steering_stand_in import Spark, failing, on, pair, polled, steering_of, turned, unreadable


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
    assert why.startswith("query b has stood down, and where its tasks run is unknown: 3 errors in a row")
    assert why.endswith("then resume(); or stop() its handle")
    assert f"executor-2 is not empty: {why}" in str(one.status())
    assert f"executor-2 is not empty: {why}" in str(one.plan())
    assert one.plan().to_dict()["kept"] == one.status().to_dict()["kept"] == {"executor-2": [why]}
    assert caplog.text.count("executor-2 is not empty: query b") == 1, "said once, by the one that was asked"
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
            f"query b has stood down, and has 2 tasks there: {other.status().reason}; or stop() its handle",
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


def test_of_a_query_whose_rounds_have_failed_nobody_knows_what_was_seen_before():
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
    assert not one.drained("2"), "a round between batches does not tell where they ran"
    b.ran()
    turned(other)
    assert one.drained("2"), "until a round tells"


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


def test_a_stood_down_query_is_told_of_whoever_is_asked_itself_too():
    _, b, one, other = pair("told")
    b.facts = lambda: Facts(unload_on_commit=True)
    b.ran()
    polled(other)
    for steering in (one, other):
        steering.drain("2")
        polled(steering)
        (said,) = [line for line in steering.status().changes if "is not empty: query b" in line]
        assert (
            "has stood down, and has 2 tasks there: spark.sql.streaming.stateStore.unloadOnCommit=true"
            in said
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
