"""Tasks that Spark runs elsewhere than intended, and when that ends in a stand-down."""

from __future__ import annotations

from taskplace.spark.steering.decide import OverrideWatch
from taskplace.spark.steering.observation import Facts
from topology.tasks import TaskId

TASKS = [TaskId(0, p) for p in range(6)]


def test_a_task_whose_instance_is_gone_was_not_overruled():
    watch = OverrideWatch().send({TASKS[0]: "a", TASKS[1]: "b"})
    watch = watch.verify({TASKS[0]: "b", TASKS[1]: "b"}, ["b"])
    assert watch.overruled == ()
    assert watch.verdict(Facts(), patience=1) is None


def test_stragglers_among_many_tasks_are_no_reason_to_stand_down():
    watch, many = OverrideWatch(), [TaskId(0, p) for p in range(200)]
    for batch in range(9):
        watch = watch.send(dict.fromkeys(many, "a"))
        watch = watch.verify({**dict.fromkeys(many, "a"), many[batch]: "b"}, ["a", "b"])
        assert watch.verdict(Facts(), patience=3) is None
    assert watch.total == 9


def test_the_same_task_again_and_again_is():
    watch, many = OverrideWatch(), [TaskId(0, p) for p in range(200)]
    said = []
    for _ in range(3):
        watch = watch.send(dict.fromkeys(many, "a"))
        watch = watch.verify({**dict.fromkeys(many, "a"), many[7]: "b"}, ["a", "b"])
        said.append(watch.verdict(Facts(), patience=3) is not None)
    assert said == [False, False, True]


def test_a_share_of_the_tasks_again_and_again_is_whichever_they_are():
    watch = OverrideWatch()
    said = []
    for elsewhere in (TASKS[:2], TASKS[2:4]):
        watch = watch.send(dict.fromkeys(TASKS, "a"))
        watch = watch.verify({**dict.fromkeys(TASKS, "a"), **dict.fromkeys(elsewhere, "b")}, ["a", "b"])
        said.append(watch.verdict(Facts(), patience=2) is not None)
    assert said == [False, True]


def test_a_long_wait_names_the_other_causes():
    watch = OverrideWatch().send({TASKS[0]: "a"}).verify({TASKS[0]: "b"}, ["a", "b"])
    assert "no free slot within spark.locality.wait (3000 ms)" in watch.verdict(Facts(), patience=1).reason
