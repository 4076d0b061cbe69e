"""When copies have caught up: by hand for small clusters, and what a task that waits for its turn can do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.explanation import Explainer, Progress, Seen

TASKS = tuple(TaskId(0, p) for p in range(6))
LAGS = dict.fromkeys(TASKS, 0)
ALL = Instance("a", active=TASKS, lags=LAGS, draining=True)


def problem(*others: Instance, end: int | None = 1_000, **config: Any) -> Problem:
    given = {
        "acceptable.recovery.lag": 100,
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    return Problem(
        [Task(t, end_offset=end) for t in TASKS], [ALL, *others], PlacementConfig.from_properties(given)
    )


def progress(of: Problem, task: TaskId = TASKS[0], **more: Any) -> Progress:
    return Explainer(of, taskplace.plan(of), **more).task(task).progress


def test_copies_of_one_instance_take_turns() -> None:
    """Two warm up at a time: (900 + 1000) / 10 seconds for both."""
    of = problem(Instance("b", restore_rate=10.0))
    assert [(progress(of, t).state, progress(of, t).seconds) for t in TASKS] == [
        *2 * [("catching up", 190.0)],
        *4 * [("waiting", None)],
    ]


def test_copies_of_several_instances_catch_up_beside_each_other() -> None:
    """On b in 900 / 10 = 90 s, on c in 900 / 30 = 30 s."""
    of = problem(
        Instance("b", restore_rate=10.0, warmup=TASKS[:1]),
        Instance("c", restore_rate=30.0, warmup=TASKS[1:2]),
    )
    assert [progress(of, t).seconds for t in TASKS[:2]] == [90.0, 30.0]


def test_the_rates_of_a_stream_go_before_those_of_the_problem() -> None:
    of = problem(Instance("b", restore_rate=10.0))
    assert progress(of, rates={"b": 1.0}).seconds == 1_900
    assert progress(of, rates={"b": None}).seconds is None


def test_what_a_driver_has_measured_goes_before_any_rate() -> None:
    of = problem(Instance("b", restore_rate=10.0))
    assert progress(of, seen={("b", TASKS[0]): Seen(1_000.0)}).seconds == 1_000
    stalled = progress(of, seen={("b", TASKS[0]): Seen(None, "b hangs", "look at its log")})
    assert (stalled.seconds, stalled.stopped, stalled.remedy) == (None, "b hangs", "look at its log")
    assert stalled.text == "it moves once b lacks at most 100 records"


def test_what_is_not_known_is_said_with_the_reason() -> None:
    of = problem(Instance("b"))
    assert progress(of).text == (
        "it moves once b lacks at most 100 records; the time is not known: no restore rate of b has been measured"
    )
    waiting = progress(of, TASKS[5])
    assert (waiting.state, waiting.seconds, waiting.text) == ("waiting", None, "it moves after that")
    assert waiting.stopped == (
        "b waits for its turn to warm up: 5 copies are before it, and 2 may warm up at a time"
    )
    assert waiting.remedy == "with max.warmup.replicas=6 b would warm up now"
    unknown = progress(problem(Instance("b", restore_rate=10.0), end=None))
    assert unknown.seconds is None
    assert unknown.text.endswith("; the time is not known: the length of a changelog is not known")


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_copy_that_waits_warms_up_at_once_with_the_limit_that_is_named(data: st.DataObject) -> None:
    tasks = tuple(TaskId(0, p) for p in range(data.draw(st.integers(1, 20))))
    ends = [data.draw(st.integers(1, 5_000)) for _ in tasks]
    a = Instance("a", active=tasks, lags=dict.fromkeys(tasks, 0), draining=True)
    others = [Instance(f"b{k}") for k in range(data.draw(st.integers(1, 3)))]
    config = PlacementConfig(max_warmup_replicas=data.draw(st.integers(1, 4)), acceptable_recovery_lag=0)
    of = Problem([Task(t, end_offset=e) for t, e in zip(tasks, ends, strict=True)], [a, *others], config)
    explainer = Explainer(of, taskplace.plan(of))
    for task in tasks:
        remedy = explainer.task(task).progress.remedy
        if not remedy:
            continue
        limit, name = remedy.removeprefix("with max.warmup.replicas=").split(" ")[:2]
        for more, warms_up in ((0, True), (-1, False)):
            changed = replace(of, config=structs.replace(config, max_warmup_replicas=int(limit) + more))
            assert (task in taskplace.plan(changed).assignment[name].warmup) is warms_up


@pytest.mark.parametrize("of_file", [False, True])
def test_the_reasons_of_a_plan_from_a_file_are_those_of_the_engines_plan(of_file: bool) -> None:
    of = problem(Instance("b"))
    plan = taskplace.plan(of)
    read = taskplace.Plan.from_dict(plan.to_dict()) if of_file else plan
    assert str(Explainer(of, read).task(TASKS[5])) == str(Explainer(of, plan).task(TASKS[5]))
    other = replace(read, followup=False, decision=None)
    assert Explainer(of, other).task(TASKS[5]).why == "the plan places it there"


def test_a_stateless_task_that_is_elsewhere_for_now_waits_for_others() -> None:
    """Six stateful tasks cannot move to b yet, so the stateless ones go there, and some come back."""
    loose = tuple(TaskId(1, p) for p in range(9))
    tasks = [Task(t, end_offset=1_000) for t in TASKS] + [Task(t, stateful=False) for t in loose]
    a = Instance("a", active=(*TASKS, *loose), lags=LAGS)
    of = Problem(tasks, [a, Instance("b")], PlacementConfig(acceptable_recovery_lag=100))
    plan = taskplace.plan(of)
    there = next(t for t in loose if t in plan.assignment["b"].active and t in plan.target["a"].active)
    assert progress(of, there) == Progress("waiting", None, "it moves to a as other tasks move")
