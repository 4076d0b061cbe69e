"""The loop under a clock of the test: its timer, its triggers, released copies, and moves that go on at once."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Roles, Task, TaskId
from taskplace.errors import InvalidPlan
from taskplace.rebalance import RebalanceLoop
from taskplace.rebalance.triggers import Situation, Trigger, caught_up, overtaken

A, B = TaskId(0, 0), TaskId(0, 1)
TASKS = [Task(A, end_offset=50_000), Task(B, end_offset=50_000)]
MINUTE = PlacementConfig(probing_rebalance_interval_ms=60_000)


def _moving(now: list[float], **more: int) -> tuple[RebalanceLoop, list[Instance]]:
    """A loop that warms up a copy on b, and the instances as they are then: b has not got anywhere yet."""
    loop = RebalanceLoop(MINUTE, clock=lambda: now[0], **more)
    a = Instance("a", lags={A: 0, B: 0})
    assert loop.rebalance_if_needed(TASKS, [a])
    both = [a, Instance("b")]
    decision = loop.rebalance_if_needed(TASKS, both)
    assert decision is not None and decision.plan.followup
    return loop, both


def test_the_timer_alone_makes_the_next_plan_when_the_interval_is_over():
    now = [1_000.0]
    loop, both = _moving(now)
    now[0] += 59.9
    assert loop.rebalance_if_needed(TASKS, both) is None
    now[0] = 1_060.0
    decision = loop.rebalance_if_needed(TASKS, both)
    assert decision is not None
    assert [t.kind for t in decision.triggers] == ["probing"]
    assert (decision.changed, decision.generation) == (False, 2)


def test_a_copy_that_stood_still_for_ten_intervals_is_parked_and_plans_between_them_do_not_count():
    now = [1_000.0]
    loop, both = _moving(now)
    (stuck,) = loop.plan.assignment["b"].warmup
    looks = 0
    while stuck in loop.plan.assignment["b"].warmup:
        now[0] += 60.0
        looks += 1
        assert loop.rebalance_if_needed(TASKS, both)
        assert loop.rebalance_if_needed(TASKS, both, because=[Trigger("asked", "by a test")])
        assert looks < 20
    assert looks == 11  # the first one sees where it stands


def test_the_timer_is_silent_once_nothing_is_pending():
    now = [1_000.0]
    loop, both = _moving(now)
    (warm,) = loop.plan.assignment["b"].warmup
    ready = [both[0], Instance("b", lags={warm: 0})]
    decision = loop.rebalance_if_needed(TASKS, ready)
    assert decision is not None and [t.kind for t in decision.triggers] == ["caught up"]
    assert not decision.plan.followup
    now[0] += 10_000.0
    assert loop.rebalance_if_needed(TASKS, ready) is None


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ([Instance("a")], "membership: b left"),
        ([Instance("a"), Instance("b"), Instance("c")], "membership: c joined"),
        ([Instance("a", capacity=2), Instance("b")], "membership: a changed its capacity or tags"),
        ([Instance("a"), Instance("b", tags={"zone": "z"})], "membership: b changed its capacity or tags"),
        ([Instance("a"), Instance("b", draining=True)], "drain: b drains"),
    ],
)
def test_each_change_of_the_instances_has_its_reason(now, reason):
    loop = RebalanceLoop(MINUTE, clock=lambda: 0.0)
    assert loop.rebalance_if_needed(TASKS, [Instance("a"), Instance("b")])
    lags = {t.id: 0 for t in TASKS}
    decision = loop.rebalance_if_needed(TASKS, [replace(i, lags=lags) for i in now])
    assert decision is not None and decision.reason == reason


def test_a_copy_that_has_caught_up_in_vain_is_a_reason_only_once():
    def stubborn(problem):
        """Never finish a move."""
        away = [replace(i, lags={t: n for t, n in i.lags.items() if i.id == "a"}) for i in problem.instances]
        return taskplace.plan(Problem(problem.tasks, away, problem.config))

    loop = RebalanceLoop(MINUTE, clock=lambda: 0.0, planner=stubborn)
    a = Instance("a", lags={A: 0, B: 0})
    assert loop.rebalance_if_needed(TASKS, [a]) and loop.rebalance_if_needed(TASKS, [a, Instance("b")])
    assert loop.plan is not None
    ready = [a, Instance("b", lags=dict.fromkeys(loop.plan.assignment["b"].warmup, 0))]
    decision = loop.rebalance_if_needed(TASKS, ready)
    assert decision is not None and not decision.changed
    assert [t.kind for t in decision.triggers] == ["caught up"]
    assert loop.rebalance_if_needed(TASKS, ready) is None


@pytest.fixture
def failing():
    """A loop, its clock, and how many of its next plans are invalid."""
    now, left = [1_000.0], [0]

    def planner(problem):
        if left[0]:
            left[0] -= 1
            raise InvalidPlan("once: 1 of 2 tasks is not active")
        return taskplace.plan(problem)

    return RebalanceLoop(MINUTE, planner=planner, clock=lambda: now[0]), now, left


def test_an_invalid_plan_leaves_the_one_in_force_and_is_made_again_after_the_interval(failing, caplog):
    loop, now, left = failing
    settled = [Instance(name, lags={A: 0, B: 0}) for name in "ab"]
    assert loop.rebalance_if_needed(TASKS, settled)
    assert loop.rebalance_if_needed(TASKS, settled) is None
    assert loop.plan is not None and loop.problem is not None
    assert loop.problem.columns.fingerprint == loop.plan.fingerprint
    before, left[0] = (loop.plan, loop.problem, loop.generation), 1
    asked = [Trigger("asked", "for a test")]
    assert loop.rebalance_if_needed(TASKS, [*settled, Instance("c")], because=asked) is None
    assert (loop.plan, loop.problem, loop.generation) == before
    (record,) = caplog.records
    assert record.levelname == "ERROR" and "once: 1 of 2 tasks is not active" in record.getMessage()
    assert not loop.probing.due()
    now[0] += 60
    assert loop.probing.due()
    decision = loop.rebalance_if_needed(TASKS, [*settled, Instance("c")])
    assert decision is not None and decision.plan is loop.plan
    assert "the plan is valid again (after 1 failure since " in caplog.text


def test_without_a_plan_in_force_an_invalid_one_is_raised(failing):
    loop, _, left = failing
    left[0] = 1
    with pytest.raises(InvalidPlan, match="not active"):
        loop.rebalance_if_needed(TASKS, [Instance("a")])
    assert (loop.plan, loop.problem) == (None, None) and loop.rebalance_if_needed(TASKS, [Instance("a")])


def test_released_copies_warm_up_again_without_waiting_for_the_timer():
    now = [1_000.0]
    loop, both = _moving(now, patience=1)
    for _ in range(4):  # no copy on b makes progress, so that both are parked
        now[0] += 60.0
        loop.rebalance_if_needed(TASKS, both)
    assert loop.plan.assignment["b"].warmup == ()
    assert loop.rebalance_if_needed(TASKS, both) is None
    assert loop.release("b") == (("b", A), ("b", B))
    decision = loop.rebalance_if_needed(TASKS, both)
    assert decision.changed and decision.reason == "released: 0_0 on b, 0_1 on b"
    assert len(loop.plan.assignment["b"].warmup) == 1
    assert not any("parked" in warning for warning in decision.plan.warnings)
    assert loop.rebalance_if_needed(TASKS, both) is None, "one plan for one release"


T = TaskId(0, 0)
CONFIG = PlacementConfig(acceptable_recovery_lag=100)


def situation(task: Task, assignment: dict[str, Roles], *instances: Instance) -> Situation:
    plan, known = Plan(assignment, assignment), frozenset({task.id})
    return Situation(CONFIG, plan, instances, known, instances, (task,), probing_due=False)


WARMING = {"a": Roles(active=(T,)), "b": Roles(warmup=(T,))}
FOLLOWED = {"a": Roles(active=(T,)), "b": Roles(standby=(T,))}


def said(now: Situation) -> list[str]:
    return [str(trigger) for rule in (caught_up, overtaken) for trigger in rule(now)]


def test_a_copy_of_a_changelog_that_was_reset_is_not_ready_however_small_its_lag():
    task, a = Task(T, end_offset=50), Instance("a", lags={T: 0})
    assert said(situation(task, WARMING, a, Instance("b", lags={T: 51}))) == []
    assert said(situation(task, WARMING, a, Instance("b", lags={T: 50}))) == ["caught up: 0_0 on b"]


def test_an_owner_whose_copy_is_of_another_changelog_is_overtaken():
    now = situation(
        Task(T, end_offset=50), FOLLOWED, Instance("a", lags={T: 51}), Instance("b", lags={T: 20})
    )
    assert said(now) == ["overtaken: 0_0 on b is ahead of a"]


def test_nobody_is_overtaken_where_no_copy_is_needed():
    for task in (Task(T, end_offset=0), Task(T, end_offset=500, logged=False), Task(T, stateful=False)):
        now = situation(task, FOLLOWED, Instance("a", lags={T: 400}), Instance("b", lags={T: 0}))
        assert said(now) == [], task


def test_the_roles_are_those_of_the_plan_in_force():
    """Whoever looks may hand in instances that say something else, or nothing."""
    a, b = Instance("a", standby=[T], lags={T: 400}), Instance("b", active=[T], lags={T: 0})
    now = situation(Task(T, end_offset=500), FOLLOWED, a, b)
    assert said(now) == ["overtaken: 0_0 on b is ahead of a"]


END = 150_000


class Copies:
    """Two instances with all copies; then one is lost and replaced, and a third one joins. The timer never ends."""

    def __init__(self, seed: int, standbys: int) -> None:
        self.rng, self.lags = random.Random(seed), dict[tuple[str, TaskId], int]()
        self.tasks = [Task(TaskId(0, number), end_offset=END) for number in range(12)]
        self.loop = RebalanceLoop(PlacementConfig(num_standby_replicas=standbys), clock=lambda: 0.0)
        self.names = {"a", "b"}

    def look(self) -> None:
        """Let the loop look, and give each copy of the plan in force a lag."""
        lags = {name: {t: lag for (at, t), lag in self.lags.items() if at == name} for name in self.names}
        instances = [Instance(name, capacity=2, lags=lags[name]) for name in sorted(lags)]
        self.loop.rebalance_if_needed(self.tasks, instances)
        for name, roles in self.loop.plan.assignment.items():
            self.lags |= {(name, task): 0 for task in roles.active}
            for task in (*roles.standby, *roles.warmup):
                self.lags.setdefault((name, task), END)

    def progress(self) -> None:
        """Let some copies read on."""
        for copy, lag in self.lags.items():
            if lag and self.rng.random() < 0.3:
                self.lags[copy] = max(0, lag - self.rng.randint(1, END // 2))

    def lose(self, name: str) -> None:
        self.names.discard(name)
        self.lags = {copy: lag for copy, lag in self.lags.items() if copy[0] != name}


@pytest.mark.parametrize("standbys", [0, 1, 2])
@given(seed=st.integers(0, 1 << 16), joins=st.integers(1, 60), replaced=st.integers(1, 12))
def test_all_moves_are_made_without_the_timer(standbys, seed, joins, replaced):
    copies = Copies(seed, standbys)
    for number in range(250):
        if number == 30:
            copies.lose("a")
        if number == 30 + replaced:
            copies.names.add("d")
        if number == joins + 30:
            copies.names.add("c")
        copies.look()
        copies.progress()
    plan = copies.loop.plan
    for name, roles in plan.assignment.items():
        assert set(roles.active) == set(plan.target[name].active) and len(roles.active) == 4
        assert not roles.warmup  # a standby too many may stay until the timer
