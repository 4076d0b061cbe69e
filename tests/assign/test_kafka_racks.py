"""Facts of Kafka's rack tests (RackAwareTaskAssignorTest), on the cluster of these tests: racks, replicas, figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import taskplace
from taskplace import Instance, PlacementConfig, Problem, Task, TaskId
from taskplace.assign.rack_standbys import place_rack_standbys, shared_values
from taskplace.assign.standby import Traffic, place_standbys
from taskplace.model.problem_columns import STANDBY
from tests.support.groups import named

STRATEGIES = pytest.mark.parametrize("strategy", ["min_traffic", "balance_subtopology"])
RACK_OF = {"p1": 0, "p2": 1, "p3": 2, "p4": 3, "p5": 4, "p6": 0, "p7": 1}
REPLICAS = [(0, 1), (1, 2), (0, 2), (1, 3), (3, 4)]
SERVED = {  # which of these sets of racks has the task's input and its changelog
    "0_0": 0, "0_1": 1, "0_2": 1, "1_0": 2, "1_1": 3, "1_2": 0,
}  # fmt: skip


def clustered(held: str, strategy: str, **config: object) -> Problem:
    """Return a cluster whose copies are all caught up; `held`: "process: active tasks / standbys; ..."."""
    instances = []
    for name, tasks in named(held).items():
        active, standby = (
            [TaskId.parse(task) for task in role.split()] for role in f"{tasks}/".split("/")[:2]
        )
        tags, lags = {"rack": f"rack{RACK_OF[name]}"}, dict.fromkeys((*active, *standby), 0)
        instances.append(Instance(name, tags=tags, active=active, standby=standby, lags=lags))
    tasks = []
    for task in sorted(t for i in instances for t in i.active):
        racks = (tuple(f"rack{r}" for r in REPLICAS[SERVED[str(task)]]),)
        tasks.append(Task(task, end_offset=1_000, racks=racks, changelog_racks=racks))
    return Problem(tasks, instances, PlacementConfig(rack_aware_assignment_strategy=strategy, **config))


@STRATEGIES
@pytest.mark.parametrize(
    ("held", "reads", "moves", "sizes"),
    [
        # Two moves save two reads: 0_0 is near p1 and p2, 1_0 near p1 and p3; a cost of 20 becomes one of 2.
        ("p1: ; p2: 1_0; p3: 0_0", 0, 2, None),
        # Every task runs away from its racks: a cost of 40 becomes one of 4.
        ("p1: 0_1 1_1; p2: 1_0; p3: 0_0", 0, 4, None),
        # Balance comes before traffic: all are near p2, none is near p5, where one runs all the same.
        ("p2: 0_0 1_1; p5: 0_1", 1, 0, [2, 1]),
        # Kafka's optimisation keeps these numbers; here each gets its share.
        ("p1: ; p2: 0_1 1_0; p3: 0_0", 0, None, [1, 1, 1]),
    ],
)
def test_actives_are_moved_to_their_racks(held, reads, moves, sizes, strategy):
    made = taskplace.plan(clustered(held, strategy))
    assert made.metrics["reads_across_racks"] == reads
    assert moves is None or made.optimality.moves == moves
    assert sizes is None or [len(roles.active) for roles in made.target.values()] == sizes
    # Without standbys, there is nothing to weigh.
    assert made.metrics["standby_reads_across_racks"] == 0
    assert not [w for w in made.warnings if "standbys" in w]
    if moves == 2:
        assert taskplace.plan(clustered(held, "none")).optimality.moves == 0


@STRATEGIES
def test_without_a_price_of_traffic_everything_stays(strategy):
    free = {"rack_aware_assignment_traffic_cost": 0, "rack_aware_assignment_non_overlap_cost": 1}
    held = "p1: 0_1 / 0_0; p2: 1_0 / 0_1; p3: 0_0 / 1_0"
    assert taskplace.plan(clustered(held, strategy, num_standby_replicas=1, **free)).stable


@STRATEGIES
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


SIX = (
    "p1: 0_0 / 0_1 1_1; p2: 0_1 / 0_0 1_0; p3: 1_0 / 0_0 0_2;"
    "p4: 1_1 / 0_1 1_2; p6: 0_2 / 1_0 1_2; p7: 1_2 / 0_2 1_1"
)


@STRATEGIES
@pytest.mark.parametrize(("apart", "most"), [(False, 20), (True, 50)], ids=["anywhere", "in other racks"])
def test_standbys_cost_less_than_the_60_of_now(apart, most, strategy):
    problem = clustered(SIX, strategy, num_standby_replicas=2)
    c = problem.columns
    traffic = Traffic.of(c, problem.config)

    def price(task, inst):
        return 10 * int(traffic.reads[task, traffic.rack_of[inst]].sum())

    now = c.role == STANDBY
    assert price(c.task[now], c.inst[now]) == 60
    if apart:
        task, inst = place_rack_standbys(c, c.owner, 2, shared_values(c.tags, ["rack"]), traffic)
        for t in range(c.n):
            assert len({traffic.rack_of[i] for i in (c.owner[t], *inst[task == t])}) == 3
    else:
        found = place_standbys(c, c.owner, 2, traffic=traffic)
        task, inst = found.task, found.inst
    assert np.bincount(inst).tolist() == [2] * 6
    assert price(task, inst) <= most


@pytest.mark.parametrize("standbys", [0, 1, 3])
def test_random_clusters_keep_their_balance_and_never_cost_more(standbys):
    rng = np.random.default_rng(standbys)
    racks = [f"rack{k}" for k in range(8)]
    tasks = []
    for task in (TaskId(s, p) for s in range(20) for p in range(3)):
        served = [(tuple(rng.choice(racks, 2, replace=False).tolist()),) for _ in "12"]
        tasks.append(Task(task, end_offset=1_000, racks=served[0], changelog_racks=served[1]))
    instances = [
        Instance(f"i{k:02}", int(rng.integers(1, 4)), {"rack": racks[rng.integers(8)]}) for k in range(20)
    ]
    reads = []
    for strategy in ("balance_subtopology", "min_traffic"):
        config = PlacementConfig(num_standby_replicas=standbys, rack_aware_assignment_strategy=strategy)
        metrics = taskplace.plan(Problem(tasks, instances, config)).metrics
        reads.append(metrics["reads_across_racks"])
        assert metrics["standbys"] == 60 * standbys
    assert reads[0] >= reads[1]


def standbys_of(
    served: Sequence[Sequence[str]],
    places: Sequence[tuple[str, str, Sequence[int], Sequence[int]]],
    strategy: str,
    tags: tuple[str, ...] = (),
) -> list[list[int]]:
    """Return which tasks each place is a standby of; `places`: rack, zone, active and standby tasks in force."""
    tasks = [Task(TaskId(0, p), end_offset=9, changelog_racks=(tuple(r),)) for p, r in enumerate(served)]
    instances = []
    for k, (rack, zone, *roles) in enumerate(places):
        active, standby = ([TaskId(0, p) for p in role] for role in roles)
        tagged, lags = {"rack": rack, "zone": zone}, dict.fromkeys((*active, *standby), 0)
        instances.append(Instance(f"i{k}", 2, tagged, active=active, standby=standby, lags=lags))
    config = PlacementConfig(num_standby_replicas=1, rack_aware_assignment_strategy=strategy)
    c = Problem(tasks, instances, config).columns
    traffic = Traffic.of(c, config)
    if tags:
        task, inst = place_rack_standbys(c, c.owner, 2, shared_values(c.tags, tags), traffic)
    else:
        found = place_standbys(c, c.owner, 1, traffic=traffic)
        task, inst = found.task, found.inst
    return [task[inst == i].tolist() for i in range(c.m)]


@STRATEGIES
@pytest.mark.parametrize(("second", "third"), [(1, 0), (0, 1)])
def test_two_standbys_change_places(second, third, strategy):
    places = [("r1", "", (0, 1), ()), ("r2", "", (), (second,)), ("r3", "", (), (third,))]
    assert standbys_of([["r2"], ["r3"]], places, strategy) == [[], [0], [1]]


@STRATEGIES
def test_zones_of_standbys_are_kept_apart_where_racks_do_not_matter(strategy):
    """A fourth place is in the zone of the second: no task has both, and the zones stay three for each task."""
    places = [("r1", "1", (0,), (1,)), ("r1", "2", (1,), (0,)), ("r1", "3", (), (0, 1)), ("r1", "2", (), ())]
    found = standbys_of([["r1"], ["r1"]], places, strategy, ("zone",))
    for t, owner in enumerate((0, 1)):
        zones = [places[i][1] for i in range(4) if i == owner or t in found[i]]
        assert sorted(zones) == ["1", "2", "3"]
