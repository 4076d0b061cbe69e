"""Standbys near their changelogs (KIP-925): what comes before what, against every placement there is, and at rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Task, TaskId
from taskplace.assign.rack_standbys import place_rack_standbys, shared_values
from taskplace.assign.standby import place_standbys
from taskplace.assign.standby_costs import StandbyCosts, Traffic
from taskplace.errors import ConfigError, InputError
from taskplace.explanation import Explainer
from taskplace.model.columns import STANDBY, Columns
from taskplace.model.detours import detour
from taskplace.model.judge import judge
from taskplace.model.shares import level_loads
from taskplace.simulation import Cluster
from taskplace.verify import verify

STRATEGIES = ("min_traffic", "balance_subtopology")


def _config(
    strategy: str = "balance_subtopology",
    standbys: int = 1,
    costs: tuple[int | None, int | None] = (None, None),
    tags: Sequence[str] = (),
) -> PlacementConfig:
    return PlacementConfig(
        num_standby_replicas=standbys,
        rack_aware_assignment_strategy=strategy,
        rack_aware_assignment_traffic_cost=costs[0],
        rack_aware_assignment_non_overlap_cost=costs[1],
        rack_aware_assignment_tags=tuple(tags),
        acceptable_recovery_lag=100,
    )


@st.composite
def problems(draw: st.DrawFn, most_standbys: int = 2, tags: Sequence[str] = ()) -> Problem:
    """Small clusters, with standbys in force here and there, and changelogs in some racks."""
    racks = "xyz"[: draw(st.integers(2, 3))]
    m = draw(st.integers(2, 4))
    served = st.lists(st.sampled_from(racks), min_size=0, max_size=2, unique=True).map(tuple)
    n = draw(st.integers(1, 6 if m < 4 else 4))
    tasks = [
        Task(
            TaskId(draw(st.integers(0, 1)), p),
            end_offset=draw(st.sampled_from([0, 1_000, 100_000])),
            changelog_racks=tuple(draw(st.lists(served, max_size=3))),
        )
        for p in range(n)
    ]
    held: list[dict[str, list[TaskId]]] = [{"active": [], "standby": []} for _ in range(m)]
    lags: list[dict[TaskId, int]] = [{} for _ in range(m)]
    for t in tasks:
        order = draw(st.permutations(range(m)))
        for role, k in zip(("active", "standby", "standby"), order, strict=False):
            if draw(st.booleans()):
                held[k][role].append(t.id)
                lags[k][t.id] = min(draw(st.sampled_from([0, 50, 900])), t.end_offset or 0)
    instances = [
        Instance(
            f"i{k}",
            draw(st.integers(1, 2)),
            {"rack": draw(st.sampled_from(racks)), "zone": draw(st.sampled_from("ab"))},
            active=tuple(held[k]["active"]),
            standby=tuple(held[k]["standby"]),
            lags=lags[k],
        )
        for k in range(m)
    ]
    costs = draw(st.sampled_from([(10, 1), (1, 10), (0, 1), (1, 0), (3, 2), (1_000_000, 999_999)]))
    config = _config(draw(st.sampled_from(STRATEGIES)), draw(st.integers(1, most_standbys)), costs, tags)
    return Problem(tasks, instances, config)


def _price(problem: Problem, standbys: Sequence[Sequence[int]]) -> int:
    """What standbys cost, said once more and plainly: [tasks][replicas] instances."""
    config = problem.config
    read, move = config.rack_aware_assignment_traffic_cost, config.rack_aware_assignment_non_overlap_cost
    assert read is not None and move is not None
    total = 0
    for t, places in zip(problem.tasks, standbys, strict=True):
        for k in places:
            i = problem.instances[k]
            total += read * sum(bool(racks) and i.tags["rack"] not in racks for racks in t.changelog_racks)
            total += move * (t.id not in i.standby)
    return total


def _all(problem: Problem, active: Sequence[int], replicas: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    m = len(problem.instances)
    each = [list(combinations([k for k in range(m) if k != a], replicas)) for a in active]
    yield from product(*each)


def _load(standbys: Sequence[Sequence[int]], m: int) -> np.ndarray:
    return np.bincount([k for places in standbys for k in places], minlength=m)


def _apart(problem: Problem, active: Sequence[int], load: np.ndarray, replicas: int) -> int:
    room = np.array([i.capacity for i in problem.instances])
    actives = np.bincount(active, minlength=len(room))
    low, high = level_loads(len(active) * (1 + replicas), len(active), actives, room)
    total = actives + load
    return int(np.maximum(low - total, 0).sum() + np.maximum(total - high, 0).sum())


def _rows(c: Columns, task: np.ndarray, inst: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(inst[task == t].tolist()) for t in range(c.n)]


@settings(max_examples=150, deadline=None)
@given(problem=problems(), data=st.data())
def test_no_level_placement_of_standbys_costs_less(problem: Problem, data: st.DataObject) -> None:
    c = problem.columns
    active = np.array([data.draw(st.integers(0, c.m - 1)) for _ in range(c.n)], np.int64)
    traffic = Traffic.of(c, problem.config)
    if traffic is None:
        return
    options = list(_all(problem, active.tolist(), min(problem.config.num_standby_replicas, c.m - 1)))
    for full in (10**9, 0):  # both networks
        found = place_standbys(c, active, problem.config.num_standby_replicas, full, traffic)
        mine = _rows(c, found.task, found.inst)
        assert all(len(set(places)) == found.replicas for places in mine)
        level = [s for s in options if _apart(problem, active.tolist(), _load(s, c.m), found.replicas) == 0]
        if level:
            assert _apart(problem, active.tolist(), _load(mine, c.m), found.replicas) == 0
        else:  # loads come first: then traffic is least for the loads that were found
            level = [s for s in options if (_load(s, c.m) == _load(mine, c.m)).all()]
        assert _price(problem, mine) == min(_price(problem, s) for s in level)


@pytest.mark.parametrize("full", [10**9, 0])
def test_where_loads_cannot_be_level_traffic_is_least_for_the_loads_there_are(full: int) -> None:
    """d would have to take standbys, but all tasks are parked there; b and c exchange theirs for the sake of racks."""
    tasks = [Task(TaskId(0, p), end_offset=9, changelog_racks=((("y", "x")[p // 2],),)) for p in range(4)]
    ids = [t.id for t in tasks]
    instances = [
        Instance("a", tags={"rack": "w"}, active=tuple(ids), lags=dict.fromkeys(ids, 0)),
        Instance("b", tags={"rack": "x"}, standby=tuple(ids[:2]), lags=dict.fromkeys(ids[:2], 0)),
        Instance("c", tags={"rack": "y"}, standby=tuple(ids[2:]), lags=dict.fromkeys(ids[2:], 0)),
        Instance("d", tags={"rack": "z"}, parked=tuple(ids)),
    ]
    problem = Problem(tasks, instances, _config())
    c = problem.columns
    found = place_standbys(c, c.owner, 1, full, Traffic.of(c, problem.config))
    assert found.inst.tolist() == [2, 2, 1, 1]


@settings(max_examples=150, deadline=None)
@given(problem=problems(), data=st.data())
def test_the_verifier_finds_a_saving_if_and_only_if_there_is_one(
    problem: Problem, data: st.DataObject
) -> None:
    c = problem.columns
    replicas = min(problem.config.num_standby_replicas, c.m - 1)
    active = [data.draw(st.integers(0, c.m - 1)) for _ in range(c.n)]
    if not any(c.changelog_racks):
        return
    options = list(_all(problem, active, replicas))
    mine = data.draw(st.sampled_from(options))
    level = [s for s in options if _apart(problem, active, _load(s, c.m), replicas) == 0]
    if mine not in level:
        level = [s for s in options if (_load(s, c.m) == _load(mine, c.m)).all()]
    task = np.repeat(np.arange(c.n), replicas)
    inst = np.array([k for places in mine for k in places], np.int64)
    found = detour(c, problem.config, np.array(active, np.int64), task, inst)
    assert found == (_price(problem, mine) > min(_price(problem, s) for s in level))


@settings(max_examples=150, deadline=None)
@given(problem=problems(most_standbys=1, tags=["zone"]), data=st.data())
def test_shared_tags_come_first_then_level_loads_then_traffic(problem: Problem, data: st.DataObject) -> None:
    c = problem.columns
    active = np.array([data.draw(st.integers(0, c.m - 1)) for _ in range(c.n)], np.int64)
    traffic = Traffic.of(c, problem.config)
    if traffic is None:
        return
    zones = [i.tags["zone"] for i in problem.instances]
    group, shared = shared_values(c.tags, ["zone"])
    task, inst = place_rack_standbys(c, active, 1, group, shared, traffic)
    mine = _rows(c, task, inst)

    def sharing(standbys: Sequence[Sequence[int]]) -> int:
        return sum(zones[a] == zones[s[0]] for a, s in zip(active.tolist(), standbys, strict=True))

    options = list(_all(problem, active.tolist(), 1))
    fewest = min(map(sharing, options))
    assert sharing(mine) == fewest
    spread = [s for s in options if sharing(s) == fewest]
    level = [s for s in spread if _apart(problem, active.tolist(), _load(s, c.m), 1) == 0]
    if not level:
        level = [s for s in spread if (_load(s, c.m) == _load(mine, c.m)).all()]
    else:
        assert _apart(problem, active.tolist(), _load(mine, c.m), 1) == 0
    assert _price(problem, mine) == min(_price(problem, s) for s in level)


@settings(max_examples=60, deadline=None)
@given(problem=problems(), tags=st.sampled_from([(), ("zone",)]))
def test_a_change_comes_to_rest_and_stays_there(problem: Problem, tags: tuple[str, ...]) -> None:
    problem = replace(problem, config=replace(problem.config, rack_aware_assignment_tags=tags))
    cluster = Cluster.of(problem)
    for _ in range(4 * len(problem.tasks) + 4):
        now: Plan = taskplace.plan(cluster.problem())
        assert not verify(cluster.problem(), now)
        if now.stable:
            break
        cluster.apply(now)
        cluster.advance(600_000)
    assert taskplace.plan(cluster.problem()).stable


def _spread_over_racks(n: int, m: int, standbys: int, config: PlacementConfig, step: int = 1) -> Problem:
    tasks = [Task(TaskId(0, q), end_offset=1_000, changelog_racks=((f"r{q % 3}",),)) for q in range(n)]
    instances = [
        Instance(
            f"e{k:03}",
            tags={"rack": f"r{k % 3}", "zone": f"z{k % 2}"},
            active=tuple(t.id for t in tasks[k::m]),
            standby=tuple(t.id for j in range(1, standbys + 1) for t in tasks[(k - step * j) % m :: m]),
        )
        for k in range(m)
    ]
    instances = [replace(i, lags=dict.fromkeys([*i.active, *i.standby], 0)) for i in instances]
    return Problem(tasks, instances, config)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_standbys_go_to_the_rack_of_their_changelog_and_loads_stay_level(strategy: str) -> None:
    """Task q runs in rack q % 3, where its changelog is; there is another instance of that rack for its standby."""
    problem = _spread_over_racks(24, 6, 1, _config(strategy))
    made = taskplace.plan(problem)
    racks = {i.id: i.tags["rack"] for i in problem.instances}
    for name, roles in made.target.items():
        assert len(roles.active) == len(roles.standby) == 4
        for t in roles.standby:
            assert (f"{racks[name]}",) in next(x for x in problem.tasks if x.id == t).changelog_racks
    assert made.followup
    assert made.metrics["standby_reads_across_racks"] == 0


def test_a_dear_move_leaves_standbys_where_they_are() -> None:
    problem = _spread_over_racks(24, 6, 1, _config(costs=(1, 10)))
    made = taskplace.plan(problem)
    assert made.stable
    assert made.metrics["standby_reads_across_racks"] == 24


@pytest.mark.parametrize("standbys", [1, 2])
def test_both_networks_find_the_same_price_in_a_large_problem(standbys: int) -> None:
    problem = _spread_over_racks(300, 15, standbys, _config(standbys=standbys))
    c = problem.columns
    traffic = Traffic.of(c, problem.config)
    assert traffic is not None
    found = [place_standbys(c, c.owner, standbys, full, traffic) for full in (10**9, 0)]
    assert len({traffic.total(c, one.task, one.inst) for one in found}) == 1
    now = c.role == STANDBY
    assert traffic.total(c, found[0].task, found[0].inst) < traffic.total(c, c.task[now], c.inst[now])


def test_a_few_candidates_of_many_instances_are_near_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _spread_over_racks(120, 24, 1, _config(tags=["zone"]))
    exact = taskplace.plan(problem)
    monkeypatch.setattr("taskplace.assign.rack_standbys.FULL_NETWORK", 0)
    few = taskplace.plan(problem)
    reads = "standby_reads_across_racks"
    assert few.metrics[reads] == exact.metrics[reads] == 0
    assert not any("two copies in one zone" in w for w in few.warnings)


def test_racks_that_are_not_known_are_named_once_and_known_ones_count() -> None:
    problem = _spread_over_racks(6, 3, 1, _config())
    bare = Problem([t._replace(changelog_racks=()) for t in problem.tasks], problem.instances, problem.config)
    (warning,) = [
        w for w in taskplace.plan(bare).warnings if w.startswith("standbys are placed without racks")
    ]
    assert "changelog_racks" in warning
    assert not [w for w in taskplace.plan(problem).warnings if w.startswith("standbys")]
    half = [t if t.id.partition % 2 else t._replace(changelog_racks=()) for t in problem.tasks]
    assert not [
        w
        for w in taskplace.plan(Problem(half, problem.instances, problem.config)).warnings
        if "standbys" in w
    ]
    untagged = [replace(problem.instances[0], tags={}), *problem.instances[1:]]
    assert [
        w
        for w in taskplace.plan(Problem(problem.tasks, untagged, problem.config)).warnings
        if "standbys" in w
    ]


def test_racks_of_changelogs_are_read_written_and_part_of_the_fingerprint() -> None:
    task = Task(TaskId(0, 0), end_offset=5, changelog_racks=(("x", "y"), ()))
    problem = Problem([task], [Instance("a"), Instance("b")])
    assert Problem.from_dict(problem.to_dict()) == problem
    assert problem.to_dict()["tasks"][0]["changelog_racks"] == [["x", "y"], []]
    assert problem.fingerprint != Problem([task._replace(changelog_racks=())], problem.instances).fingerprint
    assert (
        problem.fingerprint
        != Problem([task._replace(racks=task.changelog_racks)], problem.instances).fingerprint
    )
    wrong = {"tasks": [{"id": "0_0", "changelog_racks": [["x", 3]]}], "instances": [{"id": "a"}]}
    with pytest.raises(InputError, match=r"tasks\[0\].changelog_racks\[0\]: found 3"):
        Problem.from_dict(wrong)
    with pytest.raises(InputError, match=r"tasks\[0_0\].changelog_racks"):
        judge([task._replace(changelog_racks=3)], [], PlacementConfig())  # type: ignore[arg-type]


def test_prices_that_do_not_fit_are_refused_with_the_largest_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _spread_over_racks(24, 6, 1, _config(costs=(5_000, 1)))
    c = problem.columns
    tasks = np.arange(c.n)

    def made(read: int) -> StandbyCosts:
        traffic = Traffic.of(c, _config(costs=(read, 1)))
        return StandbyCosts(c, c.owner, tasks, 1, strict=True, parked=False, traffic=traffic)

    monkeypatch.setattr("taskplace.assign.standby_costs.cost_budget", lambda nodes: 8 * 25 * 1_000)
    with pytest.raises(
        ConfigError, match=r"traffic_cost: found 5000, expected at most (\d+) for 24"
    ) as caught:
        made(5_000)
    largest = int(str(caught.value.expected).split()[2])
    assert 0 < largest < 1_000
    assert made(largest).unit * (largest + 2) <= 8 * 25 * 1_000
    with pytest.raises(ConfigError):
        made(largest + 1)


def test_coarse_levels_still_keep_standbys_where_traffic_is_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _spread_over_racks(24, 6, 1, _config(), step=3)  # every standby is in the rack of its changelog
    monkeypatch.setattr("taskplace.assign.standby_costs.cost_budget", lambda nodes: 8 * 25 * 20)
    assert taskplace.plan(problem).stable


def test_the_explanation_names_what_a_standby_reads_across_racks() -> None:
    problem = _spread_over_racks(24, 6, 1, _config())
    made = taskplace.plan(problem)
    moved = next(m for m in made.moves if m.role == "warmup")
    text = {r.role: r.why for r in Explainer(problem, made).task(moved.task).roles}
    assert "0 changelog partitions across racks" in text["warmup"]
    rest = taskplace.plan(_spread_over_racks(24, 6, 1, _config(costs=(1, 10))))
    (why,) = [
        r.why
        for r in Explainer(_spread_over_racks(24, 6, 1, _config(costs=(1, 10))), rest).task("0_0").roles
        if r.role == "standby"
    ]
    assert why == "it is one already, and it reads 1 changelog partition across racks from there"


def test_a_needless_read_across_racks_is_found_by_the_verifier() -> None:
    problem = _spread_over_racks(24, 6, 1, _config(costs=(1, 10)))
    at_rest = taskplace.plan(problem)
    dear = Problem(problem.tasks, problem.instances, _config(costs=(10, 1)))
    found = verify(dear, replace(at_rest, fingerprint="", optimality=taskplace.plan(dear).optimality))
    assert "traffic" in {v.invariant for v in found}
    assert not verify(dear, taskplace.plan(dear))
