"""What the steered queries of an application share: their tasks, drains and removals."""

from __future__ import annotations

from taskplace.spark.steering.application import SteeredQueries
from tests.support.steering_simulation import Decider, observed
from topology.tasks import TaskId

TASKS = [TaskId(0, p) for p in range(6)]


def test_two_queries_do_not_put_the_odd_task_on_the_same_instance():
    steered, slots = SteeredQueries(), {"a": 2, "b": 2}
    found = {}
    for query in ("one", "two"):
        neighbours = steered.neighbours(query)
        seen = observed(0, slots, dict.fromkeys(TASKS[:3]), neighbours=neighbours)
        found[query] = Decider().decide(seen).goal
        steered.publish(query, found[query], {})
    assert sorted(list(found["one"].values()) + list(found["two"].values())) == ["a"] * 3 + ["b"] * 3


def test_a_drain_holds_for_all_until_it_is_taken_back():
    steered = SteeredQueries()
    steered.publish("one", {TASKS[0]: "a"}, {})
    steered.drain("a")
    assert steered.draining == {"a"}
    assert not steered.empty("a")
    steered.publish("one", {TASKS[0]: "b"}, {})
    assert steered.empty("a")
    steered.undrain("a")
    assert not steered.draining
    steered.leave("one")
    assert steered.neighbours("two") == (0, [])


def test_an_application_has_one_set_of_steered_queries():
    assert SteeredQueries.of("app-1") is SteeredQueries.of("app-1")
    assert SteeredQueries.of("app-1") is not SteeredQueries.of("app-2")


def test_an_instance_ends_once_whoever_asks():
    steered, calls = SteeredQueries(), []
    steered.publish("one", {TaskId(0, 0): "x"}, {})
    steered.drain("x", remove=True)
    assert steered.remove("x", lambda: calls.append(1) or True) is None, "it is not empty"
    steered.publish("one", {TaskId(0, 0): "y"}, {})
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
    steered.publish("one", {TASKS[0]: "b"}, {}, stood_down="a reason")
    steered.drain("a")
    (blocker,) = steered.blockers("a")
    assert str(blocker) == "query one has not planned since the drain was requested"
    assert not blocker.stuck
    steered.publish("one", {TASKS[0]: "a"}, {}, stood_down="a reason")
    (blocker,) = steered.blockers("a")
    assert str(blocker) == "query one has stood down, and has 1 task there: a reason; or stop() its handle"
    assert blocker.stuck
