"""Facts of Kafka's rack tests (RackAwareTaskAssignorTest), on the cluster of these tests: racks, replicas, figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.assign.rack_standbys import place_rack_standbys, shared_values
from taskplace.assign.standby import Traffic, place_standbys
from taskplace.model.problem_columns import STANDBY, Columns

STRATEGIES = ("min_traffic", "balance_subtopology")
RACK_OF = {"p1": 0, "p2": 1, "p3": 2, "p4": 3, "p5": 4, "p6": 0, "p7": 1}
REPLICAS = [(0, 1), (1, 2), (0, 2), (1, 3), (3, 4)]
SERVED = {  # which of these sets of racks has the task's input, and its changelog
    "0_0": (0, 0), "0_1": (1, 1), "0_2": (1, 1), "1_0": (2, 2), "1_1": (3, 3), "1_2": (0, 0),
}  # fmt: skip

Held = Mapping[str, tuple[Sequence[str], Sequence[str]]]


def _problem(tasks: Sequence[str], held: Held, stateful: bool = True, **config: object) -> Problem:
    """A cluster whose copies are all caught up; `held`: active and standby tasks of each process."""
    racks = [tuple(f"rack{r}" for r in replicas) for replicas in REPLICAS]
    made = []
    for name in tasks:
        inputs, changelog = SERVED[name]
        own = (racks[changelog],) if stateful else ()
        made.append(Task(TaskId.parse(name), stateful, 1_000 * stateful, 1.0, True, (racks[inputs],), own))
    instances = []
    for name, (active, standby) in held.items():
        roles = [tuple(map(TaskId.parse, role)) for role in (active, standby)]
        tags = {"rack": f"rack{RACK_OF[name]}"}
        lags = dict.fromkeys((*roles[0], *roles[1]), 0) if stateful else {}
        instances.append(Instance(name, tags=tags, active=roles[0], standby=roles[1], lags=lags))
    return Problem(made, instances, PlacementConfig(**config))


def _actives(problem: Problem) -> tuple[dict[str, set[str]], int]:
    """Return the target of actives, and what it costs: 10 a read, 1 a move (stateless tasks: by their own figures)."""
    made = taskplace.plan(problem)
    roles = made.target or made.assignment
    return {n: set(map(str, r.active)) for n, r in roles.items()}, int(made.metrics["reads_across_racks"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_moves_save_two_reads(strategy):
    """0_0 is near p1 and p2, 1_0 near p1 and p3: a cost of 20 becomes one of 2."""
    held: Held = {"p1": ((), ()), "p2": (["1_0"], ()), "p3": (["0_0"], ())}
    problem = _problem(["0_0", "1_0"], held, rack_aware_assignment_strategy=strategy)
    _, reads = _actives(problem)
    assert reads == 0
    assert taskplace.plan(problem).optimality.moves == 2
    none = _problem(["0_0", "1_0"], held, rack_aware_assignment_strategy="none")
    assert taskplace.plan(none).optimality.moves == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_balance_comes_before_traffic(strategy):
    """All three tasks are near p2, none is near p5; one of them runs on p5 all the same, at a cost of 10."""
    held: Held = {"p2": (["0_0", "1_1"], ()), "p5": (["0_1"], ())}
    placed, reads = _actives(_problem(["0_0", "0_1", "1_1"], held, rack_aware_assignment_strategy=strategy))
    assert reads == 1
    assert placed == {"p2": {"0_0", "1_1"}, "p5": {"0_1"}}


def test_an_unbalanced_assignment_is_balanced_here():
    """p1 has nothing and p2 two tasks: Kafka's optimisation keeps these numbers, here each gets its share."""
    held: Held = {"p1": ((), ()), "p2": (["0_1", "1_0"], ()), "p3": (["0_0"], ())}
    placed, reads = _actives(
        _problem(["0_0", "0_1", "1_0"], held, rack_aware_assignment_strategy="min_traffic")
    )
    assert reads == 0
    assert [len(tasks) for tasks in placed.values()] == [1, 1, 1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_a_price_of_traffic_everything_stays(strategy):
    held: Held = {"p1": (["0_1"], ["0_0"]), "p2": (["1_0"], ["0_1"]), "p3": (["0_0"], ["1_0"])}
    problem = _problem(
        ["0_0", "0_1", "1_0"],
        held,
        rack_aware_assignment_strategy=strategy,
        rack_aware_assignment_traffic_cost=0,
        rack_aware_assignment_non_overlap_cost=1,
        num_standby_replicas=1,
    )
    assert taskplace.plan(problem).stable


SIX: Held = {
    "p1": (["0_0"], ["0_1", "1_1"]),
    "p2": (["0_1"], ["0_0", "1_0"]),
    "p3": (["1_0"], ["0_0", "0_2"]),
    "p4": (["1_1"], ["0_1", "1_2"]),
    "p6": (["0_2"], ["1_0", "1_2"]),
    "p7": (["1_2"], ["0_2", "1_1"]),
}


def _reads(c: Columns, traffic: Traffic, task: np.ndarray, inst: np.ndarray) -> int:
    return int(traffic.reads[task, traffic.rack_of[inst]].sum())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_standbys_that_may_go_anywhere_cost_20_in_place_of_60(strategy):
    problem = _problem(list(SERVED), SIX, rack_aware_assignment_strategy=strategy, num_standby_replicas=2)
    c = problem.columns
    traffic = Traffic.of(c, problem.config)
    assert traffic is not None
    now = c.role == STANDBY
    assert 10 * _reads(c, traffic, c.task[now], c.inst[now]) == 60
    found = place_standbys(c, c.owner, 2, traffic=traffic)
    assert np.bincount(found.inst).tolist() == [2] * 6
    assert 10 * _reads(c, traffic, found.task, found.inst) <= 20


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_standbys_that_have_to_be_in_other_racks_cost_50_in_place_of_60(strategy):
    problem = _problem(list(SERVED), SIX, rack_aware_assignment_strategy=strategy, num_standby_replicas=2)
    c = problem.columns
    traffic = Traffic.of(c, problem.config)
    assert traffic is not None
    task, inst = place_rack_standbys(c, c.owner, 2, shared_values(c.tags, ["rack"]), traffic)
    for t in range(c.n):
        racks = [traffic.rack_of[i] for i in (c.owner[t], *inst[task == t])]
        assert len(set(racks)) == 3
    assert np.bincount(inst).tolist() == [2] * 6
    assert 10 * _reads(c, traffic, task, inst) <= 50


def test_a_problem_without_standbys_or_without_tasks_has_nothing_to_weigh():
    held: Held = {"p1": (["0_1", "1_1"], ()), "p2": (["1_0"], ()), "p3": (["0_0"], ())}
    problem = _problem(["0_0", "0_1", "1_0", "1_1"], held, rack_aware_assignment_strategy="min_traffic")
    made = taskplace.plan(problem)
    assert made.metrics["standby_reads_across_racks"] == 0
    assert all(not roles.standby for roles in made.target.values())
    assert not [w for w in made.warnings if "standbys" in w]


@pytest.mark.parametrize("standbys", [0, 1, 3])
def test_random_clusters_keep_their_balance_and_never_cost_more(standbys):
    rng = np.random.default_rng(standbys)
    racks = [f"rack{k}" for k in range(8)]
    tasks = [
        Task(
            TaskId(s, p),
            end_offset=1_000,
            racks=(tuple(rng.choice(racks, 2, replace=False).tolist()),),
            changelog_racks=(tuple(rng.choice(racks, 2, replace=False).tolist()),),
        )
        for s in range(20)
        for p in range(3)
    ]
    instances = [
        Instance(f"i{k:02}", int(rng.integers(1, 4)), {"rack": racks[int(rng.integers(8))]})
        for k in range(20)
    ]
    made = {
        strategy: taskplace.plan(
            Problem(
                tasks,
                instances,
                PlacementConfig(num_standby_replicas=standbys, rack_aware_assignment_strategy=strategy),
            )
        )
        for strategy in ("balance_subtopology", "min_traffic")
    }
    reads = [plan.metrics["reads_across_racks"] for plan in made.values()]
    assert all(more >= less for more, less in pairwise(reads))
    for plan in made.values():
        assert plan.metrics["standbys"] == 60 * standbys


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_four_moves_save_four_reads(strategy):
    """Every task runs away from its racks: a cost of 40 becomes one of 4."""
    held: Held = {"p1": (["0_1", "1_1"], ()), "p2": (["1_0"], ()), "p3": (["0_0"], ())}
    problem = _problem(["0_0", "0_1", "1_0", "1_1"], held, rack_aware_assignment_strategy=strategy)
    _, reads = _actives(problem)
    assert (reads, taskplace.plan(problem).optimality.moves) == (0, 4)


def _standbys(
    served: Sequence[Sequence[str]],
    places: Sequence[tuple[str, str, Sequence[int], Sequence[int]]],
    strategy: str,
    tags: tuple[str, ...] = (),
) -> list[list[int]]:
    """Return which tasks each place is a standby of; `places`: rack, zone, active and standby tasks in force."""
    tasks = [Task(TaskId(0, p), end_offset=9, changelog_racks=(tuple(r),)) for p, r in enumerate(served)]
    instances = []
    for k, (rack, zone, active, standby) in enumerate(places):
        roles = [tuple(TaskId(0, p) for p in role) for role in (active, standby)]
        instances.append(
            Instance(
                f"i{k}",
                2,
                {"rack": rack, "zone": zone},
                active=roles[0],
                standby=roles[1],
                lags=dict.fromkeys((*roles[0], *roles[1]), 0),
            )
        )
    replicas = sum(len(standby) for *_, standby in places) // len(tasks)
    config = PlacementConfig(num_standby_replicas=replicas, rack_aware_assignment_strategy=strategy)
    c = Problem(tasks, instances, config).columns
    traffic = Traffic.of(c, config)
    if tags:
        task, inst = place_rack_standbys(c, c.owner, replicas, shared_values(c.tags, tags), traffic)
    else:
        found = place_standbys(c, c.owner, replicas, traffic=traffic)
        task, inst = found.task, found.inst
    return [task[inst == i].tolist() for i in range(c.m)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_standbys_change_places(strategy):
    places = [("r1", "", (0, 1), ()), ("r2", "", (), (1,)), ("r3", "", (), (0,))]
    assert _standbys([["r2"], ["r3"]], places, strategy) == [[], [0], [1]]
    again = [("r1", "", (0, 1), ()), ("r2", "", (), (0,)), ("r3", "", (), (1,))]
    assert _standbys([["r2"], ["r3"]], again, strategy) == [[], [0], [1]]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_zones_of_standbys_are_kept_apart_where_racks_do_not_matter(strategy):
    """A fourth place is in the zone of the second: no task has both, and the zones stay three for each task."""
    places = [("r1", "1", (0,), (1,)), ("r1", "2", (1,), (0,)), ("r1", "3", (), (0, 1)), ("r1", "2", (), ())]
    found = _standbys([["r1"], ["r1"]], places, strategy, ("zone",))
    for t, owner in enumerate((0, 1)):
        zones = [places[i][1] for i in range(4) if i == owner or t in found[i]]
        assert sorted(zones) == ["1", "2", "3"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_tasks_that_are_near_enough_stay(strategy):
    """Tasks with several racks: each is on an instance that one of them is of, and nothing moves."""
    served = [("r1", "r2"), ("r2", "r3"), ("r3", "r4")]
    tasks = [Task(TaskId(0, p), end_offset=9, racks=(racks,)) for p, racks in enumerate(served)]
    instances = [
        Instance(f"i{k}", 2, {"rack": f"r{k + 1}"}, active=(TaskId(0, k),), lags={TaskId(0, k): 0})
        for k in range(3)
    ]
    made = taskplace.plan(Problem(tasks, instances, PlacementConfig(rack_aware_assignment_strategy=strategy)))
    assert made.stable and made.metrics["reads_across_racks"] == 0
