"""When copies have caught up: by hand for small clusters, and what holds for every queue of warm-ups."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.explanation import Explainer, Outlook, Seen
from taskplace.explanation.outlook import Timetable

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


def dues(of: Problem, **more: Any) -> list[tuple[float, int | None]]:
    """When each copy has caught up, and how many warm up before it."""
    table = Timetable(of, **more)
    goal = {t: name for name, roles in taskplace.plan(of).target.items() for t in roles.active}
    found = [table.due(goal[task], task) for task in TASKS]
    return [(due.seconds, due.before) for due in found if due is not None]


def test_copies_of_one_instance_take_turns() -> None:
    """Two warm up at a time: (900 + 1000) / 10 seconds for both, then 900 / 10 for each of the others."""
    b = Instance("b", restore_rate=10.0)
    assert dues(problem(b)) == [(190, None), (190, None), (280, 2), (370, 3), (460, 4), (550, 5)]


def test_copies_of_several_instances_catch_up_beside_each_other() -> None:
    """One at a time on b (900 / 10 = 90 s) or c (900 / 30 = 30 s), but never more than two in all."""
    found = dues(problem(Instance("b", restore_rate=10.0), Instance("c", restore_rate=30.0)))
    running = [seconds for seconds, before in found if before is None]
    assert len(running) == 2
    assert max(seconds for seconds, _ in found) < 550


def test_the_rates_of_a_stream_go_before_those_of_the_problem() -> None:
    b = Instance("b", restore_rate=10.0)
    assert dues(problem(b), rates={"b": 1.0})[0] == (1_900, None)
    assert dues(problem(b), rates={"b": None})[0] == (math.inf, None)


def test_what_a_driver_has_measured_goes_before_any_rate_and_delays_the_queue() -> None:
    b = Instance("b", restore_rate=10.0)
    seen = {("b", TASKS[0]): Seen(1_000.0), ("b", TASKS[1]): Seen(2_000.0)}
    assert dues(problem(b), seen=seen)[:3] == [(1_000, None), (2_000, None), (2_090, 2)]


def test_a_stalled_copy_holds_its_turn() -> None:
    b = Instance("b", restore_rate=10.0)
    stalled = {("b", task): Seen(None, "b hangs") for task in TASKS[:2]}
    assert {seconds for seconds, _ in dues(problem(b), seen=stalled)} == {math.inf}


def explained(of: Problem, task: TaskId) -> Outlook:
    outlook = Explainer(of, taskplace.plan(of)).in_full(task).outlook
    assert outlook is not None
    return outlook


def test_what_is_not_known_is_said_with_the_reason() -> None:
    of = problem(Instance("b"))
    assert explained(of, TASKS[0]).text == (
        "It moves once b lacks at most 100 records; the time is not known: no restore rate of b has been measured."
    )
    waiting = explained(of, TASKS[5])
    assert (waiting.state, waiting.seconds) == ("waiting", None)
    assert (
        waiting.text == "It moves after that; the time is not known: no restore rate of b has been measured."
    )
    assert waiting.stopped == (
        "b waits for its turn to warm up: 5 copies are before it, and 2 may warm up at a time"
    )
    assert waiting.remedy == "with max.warmup.replicas=6 b would warm up now"
    unknown = explained(problem(Instance("b", restore_rate=10.0), end=None), TASKS[0])
    assert unknown.seconds is None
    assert "the time is not known: the length of a changelog is not known." in unknown.text


def test_a_driver_may_say_why_it_knows_no_time() -> None:
    of = problem(Instance("b", restore_rate=10.0))
    seen = {("b", TASKS[0]): Seen(unknown="b loads a snapshot")}
    outlook = Explainer(of, taskplace.plan(of), seen).in_full(TASKS[0]).outlook
    assert outlook is not None and outlook.seconds is None
    assert outlook.text.endswith("; the time is not known: b loads a snapshot.")


def test_the_copies_before_one_are_named_in_the_order_of_their_turns() -> None:
    of = problem(Instance("b", restore_rate=10.0))
    assert Timetable(of).up_to("b", TASKS[4]) == [("b", task) for task in TASKS[:5]]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_higher_limit_is_named_that_gives_a_turn_at_once(most: int) -> None:
    of = problem(Instance("b"), max_warmup_replicas=most)
    changes = Explainer(of, taskplace.plan(of)).in_full(TASKS[4]).changes
    assert changes is not None
    (limit,) = [change for change in changes if change.edit.key == "max.warmup.replicas"]
    assert (limit.edit.value, limit.effect[:2]) == (5, ("warm-up", "b"))


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_never_more_warm_up_at_a_time_than_may(data: st.DataObject) -> None:
    tasks = tuple(TaskId(0, p) for p in range(data.draw(st.integers(1, 30))))
    most = data.draw(st.integers(1, 4))
    rates = data.draw(st.lists(st.floats(0.5, 50), min_size=1, max_size=3))
    ends = [data.draw(st.integers(1, 5_000)) for _ in tasks]
    a = Instance("a", active=tasks, lags=dict.fromkeys(tasks, 0), draining=True)
    others = [Instance(f"b{k}", restore_rate=rate) for k, rate in enumerate(rates)]
    config = PlacementConfig(max_warmup_replicas=most, acceptable_recovery_lag=0)
    of = Problem([Task(t, end_offset=e) for t, e in zip(tasks, ends, strict=True)], [a, *others], config)
    plan, table = taskplace.plan(of), Timetable(of)
    goal = {t: name for name, roles in plan.target.items() for t in roles.active}
    found = [due for t in tasks if (due := table.due(goal[t], t)) is not None]
    assert len(found) == len(tasks)
    queue = sorted((due for due in found if due.before is not None), key=lambda due: due.before or 0)
    assert [due.before for due in queue] == list(range(len(found) - len(queue), len(found)))
    assert [due.turn for due in queue] == sorted(due.turn for due in queue)
    for due in queue:
        at = due.turn
        assert due.seconds > at
        busy = sum(other.turn <= at < other.seconds for other in found if math.isfinite(other.seconds))
        assert busy <= most


def test_a_stateless_task_that_is_elsewhere_for_now_waits_for_others() -> None:
    """Six stateful tasks cannot move to b yet, so the stateless ones go there, and some come back."""
    loose = tuple(TaskId(1, p) for p in range(9))
    tasks = [Task(t, end_offset=1_000) for t in TASKS] + [Task(t, stateful=False) for t in loose]
    a = Instance("a", active=(*TASKS, *loose), lags=LAGS)
    of = Problem(tasks, [a, Instance("b")], PlacementConfig(acceptable_recovery_lag=100))
    plan = taskplace.plan(of)
    there = next(t for t in loose if t in plan.assignment["b"].active and t in plan.target["a"].active)
    outlook = explained(of, there)
    assert outlook == Outlook("waiting", None, "It moves to a as other tasks move.")
