"""The decision as a function: drains, moves that pay, overruled tasks, dry runs. Without Spark.

Tasks that Spark runs elsewhere than intended, and when that ends in a stand-down.
"""

from __future__ import annotations

from pathlib import Path

from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.decide import OverrideWatch
from taskplace.spark.steering.layout import SparkSettings
from taskplace.spark.steering.measurements import Costs
from tests.support.steering_simulation import (
    CHEAP,
    Decider,
    changed,
    cluster,
    grid,
    observed,
    slots,
)
from topology.tasks import TaskId


def test_a_drained_instance_ends_with_none_even_if_moving_is_not_worth_it():
    tasks = grid(1, 6)
    run = cluster(tasks, slots(3), dict.fromkeys(tasks), per_batch=1)
    run.settle()
    run.seen = changed(run.seen, costs=Costs(task=0.001, reload=1000.0))
    decision = run.batch(draining=frozenset({"executor-1"}))
    assert [move.why for move in decision.moves] == ["drain"]
    run.settle()
    assert run.counts() == {"executor-0": 3, "executor-1": 0, "executor-2": 3}


def test_what_drains_is_left_first_however_little_it_has_and_then_the_busiest():
    tasks = grid(1, 16)
    at = ["executor-0"] * 6 + ["executor-1"] * 9 + ["executor-3"]
    run = cluster(tasks, slots(4, cores=1), dict(zip(tasks, at, strict=True)), per_batch=1)
    run.seen = changed(run.seen, draining=frozenset({"executor-3"}))
    run.settle()
    left = [move.from_ for moves in run.moves for move in moves]
    assert left[0] == "executor-3"
    assert left[1:4] == ["executor-1"] * 3, "0_0 to 0_5 are on the other one"
    assert sorted(run.counts().values()) == [0, 5, 5, 6]


def test_moves_that_do_not_pay_are_left_and_made_once_they_do():
    tasks = grid(1, 4)
    run = cluster(tasks, slots(2), dict.fromkeys(tasks, "executor-0"), worth_batches=10)
    run.seen = changed(run.seen, costs=Costs(task=0.01, reload=5.0))
    decision = run.batch()
    assert not decision.moves
    assert not decision.verdict.worth
    assert "not worth it" in str(decision)
    assert len(run.batch(costs=Costs(task=5.0, reload=5.0)).moves) == 2


def test_overruled_tasks_are_sent_again_and_then_steering_stands_down():
    tasks = grid(1, 4)
    decider = Decider(SteeringConfig(patience_batches=3))
    there = dict.fromkeys(tasks, "executor-0")
    seen = observed(0, slots(2), there, costs=CHEAP, settings=SparkSettings(locality_wait_ms=0))
    assert len(decider.decide(seen).moves) == 2
    for batch in (1, 2):
        again = decider.decide(changed(seen, batch=batch, ran=True))
        assert len(again.moves) == len(again.overruled) == 2
    last = decider.decide(changed(seen, batch=3, ran=True))
    assert not last.moves
    assert "spark.locality.wait is 0 ms" in last.stood_down.reason
    assert "3s" in last.stood_down.remedy
    assert not decider.decide(changed(seen, batch=4, ran=True)).moves
    decider.state = decider.state.resumed()
    assert len(decider.decide(changed(seen, batch=5)).moves) == 2


def test_the_walk_in_the_documentation_is_what_is_decided():
    text = " ".join((Path(__file__).parents[3] / "docs" / "steering.md").read_text().split())
    tasks = grid(1, 6)
    run = cluster(tasks, slots(2), {t: f"executor-{t.partition % 2}" for t in tasks}, per_batch=1)
    run.seen = changed(run.seen, batch=6, costs=Costs(task=0.5, reload=0.2))
    assert not run.batch().moves
    joins = run.batch(slots=slots(3))
    assert str(joins).startswith("batch 8: 1 move now, 1 later; membership: executor-2 joined; ")
    for said in (*map(str, joins.why), str(joins.verdict), "batch 8: 1 move now, 1 later; membership"):
        assert said in text
    (move,) = joins.moves
    assert f"{move.task}: {move.from_} -> {move.to} ({move.why})" in text
    follows = run.batch()
    assert [str(move.task) for move in follows.moves] == ["0_1"]
    assert str(follows) in text
    assert not run.batch().moves


TASKS = [TaskId(0, p) for p in range(6)]


def test_stragglers_among_many_tasks_are_no_reason_to_stand_down():
    watch, many = OverrideWatch(), [TaskId(0, p) for p in range(200)]
    for batch in range(9):
        watch = watch.send(dict.fromkeys(many, "a"))
        watch = watch.verify({**dict.fromkeys(many, "a"), many[batch]: "b"}, ["a", "b"])
        assert watch.verdict(SparkSettings(), patience=3) is None
    assert watch.total == 9


def test_a_share_of_the_tasks_again_and_again_is_whichever_they_are():
    watch = OverrideWatch()
    said = []
    for elsewhere in (TASKS[:2], TASKS[2:4]):
        watch = watch.send(dict.fromkeys(TASKS, "a"))
        watch = watch.verify({**dict.fromkeys(TASKS, "a"), **dict.fromkeys(elsewhere, "b")}, ["a", "b"])
        said.append(watch.verdict(SparkSettings(), patience=2) is not None)
    assert said == [False, True]


def test_unload_on_commit_is_hopeless_from_the_start():
    seen = observed(0, slots(2), dict.fromkeys(grid(1, 4)), settings=SparkSettings(unload_on_commit=True))
    decision = Decider().decide(seen)
    assert "unloadOnCommit" in str(decision.stood_down)
    assert not decision.moves
