"""Every invariant is found when it is broken, by name."""

from __future__ import annotations

import dataclasses

import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Roles, Task, TaskId
from taskplace.errors import InvalidPlan
from taskplace.model.placement import bases
from taskplace.model.plan import Optimality
from taskplace.model.proofs import fewest_moves
from taskplace.simulation import Cluster
from taskplace.verify import changes, stable, verify
from tests.support.scenarios import KINDS, scenario

A, B = TaskId(0, 0), TaskId(0, 1)
END = 50_000
CONFIG = PlacementConfig(num_standby_replicas=1, max_warmup_replicas=1)
PROBLEM = Problem(
    (Task(A, end_offset=END), Task(B, end_offset=END)),
    (
        Instance("a", active=(A,), standby=(B,), lags={A: 0, B: 0}),
        Instance("b", active=(B,), standby=(A,), lags={A: 0, B: 0}),
        Instance("c", draining=True, lags={A: 30_000}),
    ),
    CONFIG,
)
GOOD = taskplace.plan(PROBLEM)

# Everybody is caught up, so this is safe; but two actives change their instances, for nothing.
SWAPPED = {"a": Roles((B,), (A,)), "b": Roles((A,), (B,)), "c": Roles()}


def broken(plan: Plan, problem: Problem = PROBLEM) -> set[str]:
    return {v.invariant for v in verify(problem, plan)}


def with_roles(which: str = "assignment", **roles: Roles) -> Plan:
    return dataclasses.replace(GOOD, **{which: {**getattr(GOOD, which), **roles}})


def test_a_good_plan_breaks_nothing() -> None:
    assert verify(PROBLEM, GOOD) == ()
    assert taskplace.check(PROBLEM, GOOD) is GOOD


@pytest.mark.parametrize(
    ("invariant", "plan"),
    [
        ("known", with_roles(z=Roles())),
        ("known", with_roles(a=Roles((A,), (TaskId(7, 7),)))),
        ("known", dataclasses.replace(GOOD, fingerprint="another")),
        ("once", with_roles(a=Roles((), (B,)))),
        ("once", with_roles(b=Roles((A, B), ()))),
        ("once", with_roles("target", a=Roles())),
        ("disjoint", with_roles(a=Roles((A,), (A, B)))),
        ("disjoint", with_roles(a=Roles((A,), (B,), (B,)))),
        ("no-stall", with_roles(a=Roles((), (B,)), c=Roles((A,)))),
        ("standbys", with_roles(b=Roles((B,), ()))),
        ("budget", dataclasses.replace(with_roles(c=Roles((), (), (A, B))), followup=True)),
        ("drained", with_roles("target", b=Roles((B,)), c=Roles((), (A,)))),
        ("at-rest", with_roles(c=Roles((), (), (A,)))),
        ("at-rest", with_roles("target", a=Roles((B,), (A,)), b=Roles((A,), (B,)))),
        ("balance", with_roles("target", a=Roles((A, B)), b=Roles((), (A, B)))),
        ("minimal", Plan(SWAPPED, SWAPPED)),
        ("minimal", dataclasses.replace(GOOD, assignment=SWAPPED, target=SWAPPED)),
        ("figures", dataclasses.replace(GOOD, assignment=SWAPPED, target=SWAPPED)),
        ("figures", dataclasses.replace(GOOD, optimality=Optimality(2, 2, 0))),
        ("figures", dataclasses.replace(GOOD, optimality=Optimality(0, 0, 1))),
    ],
)
def test_each_invariant_is_named_when_broken(invariant: str, plan: Plan) -> None:
    assert invariant in broken(plan)
    with pytest.raises(InvalidPlan, match=invariant):
        taskplace.check(PROBLEM, plan)


def test_whether_a_plan_is_stable_is_read_off_its_assignment() -> None:
    assert stable(PROBLEM, GOOD) and changes(PROBLEM, GOOD) == 0
    silent = dataclasses.replace(GOOD, assignment=SWAPPED, target=SWAPPED, moves=())
    assert not stable(PROBLEM, silent) and changes(PROBLEM, silent) == 8  # four roles taken, four given
    assert not stable(PROBLEM, dataclasses.replace(GOOD, target=SWAPPED))
    assert not stable(PROBLEM, dataclasses.replace(GOOD, followup=True))
    assert stable(PROBLEM, Plan(GOOD.assignment, {}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_two_networks_agree_on_the_fewest_moves(kind: str, seed: int) -> None:
    s = scenario(kind, seed, largest=0.5)
    cluster = Cluster.of(s.problem, restore_rate=100.0)
    for group in ((), *s.events):
        for event in group:
            event.apply(cluster)
        problem = cluster.problem()
        c = problem.columns
        plan = taskplace.plan(problem)
        assert plan.optimality.lower_bound == fewest_moves(c, bases(c)) == plan.optimality.moves
        cluster.apply(plan)
        cluster.advance(60_000)


def test_stateless_tasks_have_no_standbys() -> None:
    problem = Problem((Task(A, stateful=False),), (Instance("a"), Instance("b")))
    plan = Plan({"a": Roles((A,)), "b": Roles((), (A,))}, {})
    assert broken(plan, problem) == {"stateful"}


def test_the_last_caught_up_copy_is_kept() -> None:
    problem = Problem(
        (Task(A, end_offset=END),), (Instance("a", lags={A: 0}), Instance("b", lags={A: 30_000}))
    )
    assert broken(Plan({"a": Roles(), "b": Roles((A,))}, {}), problem) == {"no-stall", "keeps"}
    # A standby of it is not enough, but keeps it.
    assert broken(Plan({"a": Roles((), (A,)), "b": Roles((A,))}, {}), problem) == {"no-stall"}


def test_nobody_caught_up_is_no_excuse_for_passing_over_the_copy_that_lacks_least() -> None:
    problem = Problem(
        (Task(A, end_offset=END),), (Instance("a", lags={A: 20_000}), Instance("b", lags={A: 30_000}))
    )
    assert broken(Plan({"a": Roles(), "b": Roles((A,))}, {}), problem) == {"resumes"}
    assert broken(Plan({"a": Roles((A,)), "b": Roles()}, {}), problem) == set()


def test_violations_say_how_many_and_give_an_example() -> None:
    plan = with_roles(a=Roles((A,), ()), b=Roles((B,), ()))
    texts = [str(v) for v in verify(PROBLEM, plan)]
    assert "standbys: 2 tasks have fewer than 1 standbys, e.g. 0_0 has 0" in texts


C, D = TaskId(0, 2), TaskId(0, 3)
