"""Stateless tasks: level beside the stateful ones, alike among themselves, and few of them move."""

from __future__ import annotations

from collections import Counter
from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

import taskplace
from taskplace import Instance, PlacementConfig, Plan, Problem, Roles, Task, TaskId
from taskplace.assign.stateless import place_stateless
from taskplace.assign.target import stateless_for_now
from taskplace.model.shares import floors_and_ceilings, level_loads, stateless_shares
from taskplace.simulation import Cluster
from taskplace.simulation.run import settle
from taskplace.verify import verify

END = 50_000


def cluster_of(
    room: list[int], stateful: list[int], loose: list[int], owners: list[int]
) -> tuple[Problem, np.ndarray]:
    """Return a problem, and where its tasks are: `stateful` and `owners` are instances, `loose` subtopologies."""
    tasks = [Task(TaskId(9, p), end_offset=END) for p in range(len(stateful))]
    seen: Counter[int] = Counter()
    ids = []
    for s in loose:
        ids.append(TaskId(s, seen[s]))
        seen[s] += 1
    tasks += [Task(t, stateful=False) for t in ids]
    at = {t: o for t, o in zip(ids, owners, strict=True) if o >= 0}
    at |= {TaskId(9, p): o for p, o in enumerate(stateful)}
    held = [[t for t, o in at.items() if o == k] for k in range(len(room))]
    instances = [
        Instance(f"i{k}", r, active=held[k], lags={t: 0 for t in held[k] if t.subtopology == 9})
        for k, r in enumerate(room)
    ]
    problem = Problem(tasks, instances)
    where = np.array([at.get(t, -1) for t in problem.columns.ids], np.int64)
    return problem, where


def price(problem: Problem, place: np.ndarray) -> tuple[int, int, int, int]:
    """Return what a placement is judged by: distances of total, kind and subtopologies, and moves; each by hand."""
    c = problem.columns
    loose = np.flatnonzero(~c.stateful)
    busy = np.bincount(place[c.stateful], minlength=c.m)
    total = np.bincount(place, minlength=c.m)

    def uneven(tasks):
        return apart(np.bincount(place[tasks], minlength=c.m), *floors_and_ceilings(len(tasks), c.open_slots))

    each = sum(uneven(loose[c.sub[loose] == s]) for s in set(c.sub[loose].tolist()))
    owned = loose[(c.owner[loose] >= 0)]
    far = apart(total, *level_loads(c.n, c.n, busy, c.open_slots))
    return far, uneven(loose), each, int((place[owned] != c.owner[owned]).sum())


def apart(counts: np.ndarray, low: np.ndarray, high: np.ndarray) -> int:
    return int(np.maximum(np.maximum(low - counts, counts - high), 0).sum())


small = st.integers(1, 3).flatmap(
    lambda m: st.tuples(
        st.lists(st.integers(0, 3), min_size=m, max_size=m).filter(any),
        st.lists(st.integers(0, m - 1), max_size=5),
        st.lists(st.tuples(st.integers(0, 2), st.integers(-1, m - 1)), min_size=1, max_size=6),
    )
)


@settings(deadline=None, max_examples=120)
@given(small)
@example(([1, 1], [0, 0, 0, 1], [(0, 0), (0, 0), (1, 0), (1, 1), (1, 1)]))
@example(([2, 1, 1], [0, 1, 2, 2], [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 2)]))
@example(([0, 1, 1], [0, 0, 0, 1], [(0, 0), (0, 0), (1, 0), (1, 1)]))  # the first drains, and still has tasks
def test_no_placement_is_more_level_or_moves_less(drawn):
    """Try every placement of the stateless tasks, beside stateful ones that may be anywhere, as in a step."""
    room, stateful, loose = drawn
    loose = sorted(loose, key=lambda drawn_: drawn_[0])
    problem, where = cluster_of(room, stateful, [s for s, _ in loose], [o for _, o in loose])
    c = problem.columns
    place = place_stateless(c, np.where(c.stateful, where, -1))
    free = np.flatnonzero(~c.stateful)
    open_ = np.flatnonzero(c.open_slots > 0).tolist()
    tried = where.copy()
    best = price(problem, place)
    for seats in product(open_, repeat=len(free)):
        tried[free] = seats
        assert best <= price(problem, tried)
    assert (c.open_slots[place[free]] > 0).all()
    assert best[0] == 0
    # Stable: what was placed is left alone.
    again, _ = cluster_of(room, stateful, [s for s, _ in loose], place[free].tolist())
    assert (place_stateless(again.columns, place) == place).all()


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 5),
    st.lists(st.integers(0, 9), max_size=4),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.data(),
)
def test_equal_instances_are_level_in_every_way(m, stateful, loose, data):
    """In all, the stateless tasks together, and those of each subtopology: no two instances differ by more than 1."""
    tasks = [Task(TaskId(s, p)) for s, n in enumerate(stateful) for p in range(n)]
    first = len(stateful)
    free = [TaskId(first + s, p) for s, n in enumerate(loose) for p in range(n)]
    owner = {t: data.draw(st.integers(-1, m - 1)) for t in free}
    at = [Instance(f"i{k}", active=[t for t in free if owner[t] == k]) for k in range(m)]
    if not tasks and not free:
        return
    problem = Problem([*tasks, *(Task(t, stateful=False) for t in free)], at)
    plan = taskplace.check(problem, taskplace.plan(problem))
    every = range(first + len(loose))
    for part in (every, every[first:], *([s] for s in every)):
        counts = [sum(t.subtopology in part for t in r.active) for r in plan.assignment.values()]
        assert max(counts) - min(counts) <= 1


def test_the_total_wins_where_capacities_forbid_both():
    """Capacities 1 to 4 with 0, 2, 1 and 3 of 6 stateful tasks, and 5 stateless ones: shares of 0.5, 1, 1.5 and 2.

    Of all 11 tasks the shares are 1.1, 2.2, 3.3 and 4.4. To have them, i0 needs 1 stateless task and i2 needs 2; i1
    and i3 have whole shares, 1 and 2. These are 6, one more than there are.
    """
    problem, where = cluster_of([1, 2, 3, 4], [1, 1, 2, 3, 3, 3], [0] * 5, [3] * 5)
    c = problem.columns
    shares = stateless_shares(c, np.where(c.stateful, where, -1))
    assert not shares.kind_fits
    place = place_stateless(c, np.where(c.stateful, where, -1))
    assert np.bincount(place).tolist() == [1, 2, 3, 5]  # i1 gets none of its exact share, which saves a move
    assert price(problem, place)[:2] == (0, 1)


# --- the step ------------------------------------------------------------------------------------------------------


def joined(stateful: int, loose: list[int], **config: int) -> tuple[Cluster, Plan]:
    """Return a cluster of one instance at rest that a second one has just joined, and the first plan since."""
    tasks = [Task(TaskId(0, p), end_offset=END) for p in range(stateful)]
    tasks += [Task(TaskId(1 + s, p), stateful=False) for s, n in enumerate(loose) for p in range(n)]
    cluster = Cluster(tasks, PlacementConfig(**config))
    cluster.add("a")
    settle(cluster, limit=5)
    cluster.add("b")
    return cluster, taskplace.plan(cluster.problem())


def sizes(plan: Plan) -> list[int]:
    return [len(r.active) for r in plan.assignment.values()]


def test_a_step_moves_no_more_stateless_tasks_than_the_level_needs():
    """6 and 0 stateful tasks, then 5 and 1, and so on: of 9 stateless ones 7 go over, and one comes back each time."""
    cluster, plan = joined(6, [6, 3], max_warmup_replicas=1)
    moved = []
    while not plan.stable:
        moved.append(sum(m.task.subtopology > 0 for m in plan.moves))
        cluster.apply(plan)
        cluster.advance(600_000)
        plan = taskplace.plan(cluster.problem())
    assert moved == [7, 1, 1, 0]


@pytest.mark.parametrize("assignor", ["high_availability", "sticky"])
def test_both_built_in_assignors_level_the_step(assignor):
    _, plan = joined(6, [6, 3], max_warmup_replicas=1, task_assignor_class=assignor)
    assert plan.followup
    assert abs(np.subtract(*sizes(plan))) <= 1


def test_racks_level_the_step_as_well():
    tasks = [Task(TaskId(0, p), end_offset=END, racks=(("x",),)) for p in range(6)]
    tasks += [Task(TaskId(1, p), stateful=False, racks=(("x",),)) for p in range(6)]
    config = PlacementConfig(rack_aware_assignment_strategy="balance_subtopology")
    cluster = Cluster(tasks, config)
    cluster.add("a", tags={"rack": "x"})
    settle(cluster, limit=5)
    cluster.add("b", tags={"rack": "y"})
    plan = taskplace.check(cluster.problem(), taskplace.plan(cluster.problem()))
    assert plan.followup
    assert sizes(plan) == [6, 6]
    cluster.drain("a")
    plan = taskplace.check(cluster.problem(), taskplace.plan(cluster.problem()))
    assert sizes(plan) == [6, 6]


def test_an_assignor_of_ones_own_says_itself_where_stateless_tasks_run():
    problem, where = cluster_of([1, 1], [0, 0], [0, 0], [0, 0])
    own = PlacementConfig(task_assignor_class="somebody:else")
    c = problem.columns
    goal = np.where(c.stateful, 1, 0)
    assert (stateless_for_now(c, own, where, goal) == where).all()
    assert (stateless_for_now(c, problem.config, where, goal) != where).any()


# --- what verification sees ----------------------------------------------------------------------------------------


def with_tasks(problem: Problem, held: dict[str, list[TaskId]]) -> Plan:
    return Plan({n: Roles(tuple(sorted(t))) for n, t in held.items()}, {}, followup=True)


def broken(problem: Problem, plan: Plan) -> list[str]:
    return [str(v) for v in verify(problem, plan)]


def test_verification_counts_the_level_of_the_step():
    problem, _ = cluster_of([1, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0])
    mine = [TaskId(9, p) for p in range(3)]
    loose = [TaskId(0, p) for p in range(3)]
    bad = with_tasks(problem, {"i0": [*mine, loose[0]], "i1": loose[1:]})
    assert broken(problem, bad) == ["level: i0 has 1 stateless tasks, a level load is 0 to 0"]
    assert broken(problem, with_tasks(problem, {"i0": mine, "i1": loose})) == []


def test_verification_counts_stateless_tasks_by_themselves():
    problem, _ = cluster_of([1, 1], [], [0, 0, 1, 1], [0, 0, 1, 1])
    bad = with_tasks(problem, {f"i{s}": [TaskId(s, p) for p in range(2)] for s in range(2)})
    found = "alike: stateless subtopology 0: i0 has 2, its share is 1 to 1"
    assert broken(problem, bad) == [found]
    problem, _ = cluster_of([1, 1, 1], [0, 1, 2, 2], [0, 0, 0], [0, 0, 0])
    mine = [[TaskId(9, 0)], [TaskId(9, 1)], [TaskId(9, 2), TaskId(9, 3)]]
    loose = [TaskId(0, p) for p in range(3)]
    bad = with_tasks(problem, {"i0": [*mine[0], *loose[:2]], "i1": [*mine[1], loose[2]], "i2": mine[2]})
    assert broken(problem, bad) == ["alike: i0 has 2 stateless tasks, its share is 1 to 1"]


def test_stateless_tasks_do_not_stay_on_an_instance_that_drains():
    free = TaskId(0, 0)
    problem = Problem(
        [Task(free, stateful=False)], [Instance("a", draining=True, active=[free]), Instance("b")]
    )
    found = broken(problem, with_tasks(problem, {"a": [free], "b": []}))
    assert found == ["level: stateless task 0_0 is on a, which has no free slots"]
    assert taskplace.plan(problem).assignment["b"].active == (free,)
