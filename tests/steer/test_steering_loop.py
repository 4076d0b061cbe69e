"""What to move, when, how many at a time, and whether it is worth it: without Spark."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.decision import Seen
from taskplace.spark.steering.loop import SteeringLoop
from taskplace.spark.steering.move_benefit import Prices
from taskplace.spark.steering.overrides import Facts, StandDown
from taskplace.spark.steering.steered_queries import SteeredQueries
from taskplace.spark.steering.task_weights import FEWEST
from topology.ids import TaskId

CHEAP = Prices(task=1.0, reload=0.001)


def grid(subtopologies: int, partitions: int) -> list[TaskId]:
    return [TaskId(s, p) for s in range(subtopologies) for p in range(partitions)]


def slots(count: int, cores: int = 2) -> dict[str, int]:
    return {f"executor-{i}": cores for i in range(count)}


def paid(moves) -> int:
    """How many of these moves leave a running instance, and so count against the budget."""
    return sum(move.why in ("balance", "load", "drain") for move in moves)


def even(counts) -> bool:
    return max(counts) - min(counts) <= 1


class Obedient:
    """A Spark that runs every task where it was sent."""

    def __init__(self, loop: SteeringLoop, seen: Seen) -> None:
        self.loop, self.seen, self.moves = loop, seen, []

    def batch(self, **changes):
        self.seen = replace(self.seen, batch=self.seen.batch + 1, **changes)
        decision = self.loop.look(self.seen)
        self.moves.append(decision.moves)
        self.seen = replace(self.seen, places=dict(decision.intended), ran=True, load=None)
        return decision

    def settle(self, limit: int = 100) -> int:
        for batches in range(limit):
            if not self.batch().moves:
                return batches
        pytest.fail("still moving")

    def counts(self) -> dict[str, int]:
        found = Counter(self.seen.places.values())
        return {name: found[name] for name in self.seen.slots}


def cluster(tasks, instances, places, per_batch=4, **config) -> Obedient:
    loop = SteeringLoop(SteeringConfig(max_moves_per_batch=per_batch, **config))
    return Obedient(loop, Seen(-1, instances, places, prices=CHEAP))


def test_what_is_piled_up_is_spread_a_few_moves_at_a_time():
    tasks = grid(1, 12)
    run = cluster(tasks, slots(3), dict.fromkeys(tasks, "executor-0"), per_batch=3)
    batches = run.settle()
    assert run.counts() == {"executor-0": 4, "executor-1": 4, "executor-2": 4}
    assert [len(m) for m in run.moves] == [3, 3, 2, 0]
    assert batches == 3


def test_tasks_that_ran_nowhere_are_sent_at_once():
    tasks = grid(2, 9)
    run = cluster(tasks, slots(3), dict.fromkeys(tasks), per_batch=1)
    assert len(run.batch().moves) == 18
    assert run.counts() == {"executor-0": 6, "executor-1": 6, "executor-2": 6}


def test_a_new_instance_gets_its_share_and_the_reason_is_told():
    tasks = grid(1, 6)
    run = cluster(tasks, slots(2), dict.fromkeys(tasks))
    run.settle()
    decision = run.batch(slots=slots(3))
    assert [str(why) for why in decision.why] == ["membership: executor-2 joined"]
    assert {move.to for move in decision.moves} == {"executor-2"}
    run.settle()
    assert set(run.counts().values()) == {2}


def test_a_lost_instance_s_tasks_go_where_there_is_room():
    tasks = grid(1, 6)
    run = cluster(tasks, slots(3), dict.fromkeys(tasks), per_batch=1)
    run.settle()
    decision = run.batch(slots={name: 2 for name in slots(3) if name != "executor-1"})
    assert len(decision.moves) == 2
    assert {move.why for move in decision.moves} == {"executor-1 is gone"}
    assert run.counts() == {"executor-0": 3, "executor-2": 3}


def test_what_spark_decommissions_is_emptied_at_once_and_the_reason_is_told():
    tasks = grid(1, 9)
    run = cluster(tasks, slots(3), dict.fromkeys(tasks), per_batch=1)
    run.settle()
    left = {name: 2 for name in slots(3) if name != "executor-1"}
    decision = run.batch(slots=left, ending=frozenset({"executor-1"}))
    assert [str(why) for why in decision.why] == ["decommissioned: executor-1"]
    assert [move.why for move in decision.moves] == ["decommissioned"] * 3
    decision = run.batch(slots={**left, "executor-3": 2}, ending=frozenset({"executor-1"}))
    assert [str(why) for why in decision.why] == ["membership: executor-3 joined"]


@pytest.mark.parametrize(("partitions", "before", "cores"), [(12, 4, 1), (12, 4, 2), (6, 3, 1), (200, 29, 4)])
def test_a_new_instance_gets_its_share_even_if_the_others_do_not_divide_evenly(partitions, before, cores):
    tasks = grid(1, partitions)
    run = cluster(tasks, slots(before, cores), dict.fromkeys(tasks))
    run.settle()
    run.batch(slots=slots(before + 1, cores))
    run.settle()
    assert run.counts()[f"executor-{before}"] == partitions // (before + 1)
    assert even(run.counts().values())


@settings(deadline=None)
@given(
    data=st.data(),
    partitions=st.integers(1, 12),
    subtopologies=st.integers(1, 3),
    capacities=st.lists(st.integers(1, 4), min_size=1, max_size=6),
)
def test_with_free_moves_rest_is_balanced_by_the_engine_s_own_rule(
    data, partitions, subtopologies, capacities
):
    tasks = grid(subtopologies, partitions)
    names = {f"executor-{i}": cores for i, cores in enumerate(capacities)}
    places = {t: data.draw(st.sampled_from(sorted(names)), label=str(t)) for t in tasks}
    run = cluster(tasks, names, places)
    run.seen = replace(run.seen, prices=Prices(task=1.0, reload=1e-6))
    run.settle()
    total = sum(capacities)
    for part in (tasks, *([t for t in tasks if t.subtopology == s] for s in range(subtopologies))):
        for name, cores in names.items():
            found = sum(run.seen.places[t] == name for t in part)
            share = len(part) * cores / total
            assert math.floor(share) <= found <= math.ceil(share)


def test_the_budget_is_for_a_batch_that_ran_however_often_is_looked():
    tasks = grid(1, 30)
    loop = SteeringLoop(SteeringConfig(max_moves_per_batch=4))
    seen = Seen(0, slots(3), dict.fromkeys(tasks, "executor-0"), prices=CHEAP)
    sent = []
    for names in (slots(3), slots(4), slots(5), slots(5)):
        decision = loop.look(replace(seen, slots=names))
        sent.append(len(decision.moves))
        seen = replace(seen, places=dict(decision.intended))
    assert sent == [4, 0, 0, 0]
    assert len(loop.look(replace(seen, batch=1, slots=slots(5), ran=True)).moves) == 4


def queries(layouts, names, down=(), draining=frozenset()) -> list[dict[TaskId, str]]:
    """Steer several queries side by side, in turn, and return where they come to rest; `down` have stood down."""
    fleet = SteeredQueries()
    found = [(str(i), SteeringLoop(SteeringConfig(max_moves_per_batch=2)), p) for i, p in enumerate(layouts)]
    for i in down:
        found[i][1].stand_down(StandDown("a reason", "a remedy"))
    for batch in range(60):
        moves = 0
        for i, (query, loop, places) in enumerate(found):
            base, others = fleet.beside(query)
            prices = Prices(task=1.0, reload=1e-6)
            seen = Seen(batch, names, places, draining, None, prices, ran=batch > 0, others=others, base=base)
            decision = loop.look(seen)
            planned = loop._others_goal
            assert all(
                planned.get(other.task.id, other.place) == other.place for other in others if other.fixed
            )
            fleet.publish(query, decision.intended, {}, stood_down=str(decision.stood_down or ""))
            found[i] = (query, loop, dict(decision.intended))
            moves += len(decision.moves)
        if not moves and batch:
            return [places for _, _, places in found]
    return pytest.fail("still moving")


@settings(deadline=None)
@given(
    data=st.data(), counts=st.lists(st.integers(1, 7), min_size=1, max_size=4), instances=st.integers(1, 5)
)
def test_several_queries_rest_only_where_all_their_tasks_together_are_even(data, counts, instances):
    names = slots(instances, 1)
    place = st.sampled_from(sorted(names))
    layouts = [{t: data.draw(place, label=f"{i}: {t}") for t in grid(1, n)} for i, n in enumerate(counts)]
    found = queries(layouts, names)
    for places in found:
        assert even([sum(p == name for p in places.values()) for name in names])
    together = Counter(name for places in found for name in places.values())
    assert even([together[name] for name in names])


@settings(deadline=None, max_examples=60)
@given(
    costs=st.lists(
        st.lists(st.sampled_from([1.0, 1.0, 1.0, 0.2, 3.0, 8.0, 20.0]), min_size=1, max_size=12),
        min_size=1,
        max_size=3,
    ),
    cores=st.lists(st.integers(1, 8), min_size=2, max_size=5),
    random=st.randoms(use_true_random=False),
)
def test_queries_of_any_weights_come_to_rest_on_executors_of_any_size(costs, cores, random):
    fleet, names = SteeredQueries(), {f"executor-{i}": count for i, count in enumerate(cores)}
    runs, moved = [], []
    for own in costs:
        tasks = grid(1, len(own))
        runs.append(cluster(tasks, names, {t: random.choice(sorted(names)) for t in tasks}, per_batch=2))
    for batch in range(60):
        moves = 0
        for query, (run, own) in enumerate(zip(runs, costs, strict=True)):
            base, others = fleet.beside(str(query))
            load = {t: own[t.partition] for t in run.seen.places} if batch else None
            decision = run.batch(load=load, base=base, others=others)
            weights = {t: run.loop.loads.weight(t) for t in run.seen.places}
            fleet.publish(str(query), decision.intended, weights)
            moves += len(decision.moves)
        moved.append(moves)
    assert not any(moved[40:]), moved


def test_what_gains_only_once_several_queries_move_is_judged_by_all_their_moves():
    names = {"executor-0": 3, "executor-1": 3, "executor-2": 1, "executor-3": 2}
    places = [[1, 1, 0], [3, 0, 0, 1], [0, 2], [1, 2, 3]]
    layouts = [{TaskId(0, p): f"executor-{at}" for p, at in enumerate(own)} for own in places]
    together = [name for found in queries(layouts, names) for name in found.values()]
    assert misses(together, names) == 0


@pytest.mark.parametrize("down", [(), (0, 1), (2, 3), (0, 2), (1, 3), (0, 1, 2), (3,)])
def test_queries_of_one_task_even_out_around_those_that_have_stood_down(down):
    found = queries([{TaskId(0, 0): "executor-0"} for _ in range(4)], slots(2, 1), down)
    together = Counter(name for places in found for name in places.values())
    assert together["executor-0"] == max(2, len(down))
    assert all(found[i][TaskId(0, 0)] == "executor-0" for i in down)


def misses(places, names) -> int:
    """How many of these tasks are above a share, and missing to one."""
    counts, total = Counter(places), sum(names.values())
    above = sum(max(0, counts[i] - math.ceil(len(places) * names[i] / total)) for i in names)
    return above + sum(max(0, len(places) * names[i] // total - counts[i]) for i in names)


@settings(deadline=None)
@given(
    places=st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=8),
    capacities=st.lists(st.integers(1, 3), min_size=4, max_size=4),
)
def test_no_query_of_one_task_is_better_off_elsewhere_beside_those_that_have_stood_down(places, capacities):
    names = {f"executor-{i}": cores for i, cores in enumerate(capacities)}
    down = [i for i, (_, stands) in enumerate(places) if stands]
    layouts = [{TaskId(0, 0): f"executor-{at}"} for at, _ in places]
    found = queries(layouts, names, down)
    assert all(found[i] == layouts[i] for i in down)
    together = [name for own in found for name in own.values()]
    for i in set(range(len(found))) - set(down):
        for name in names:
            assert misses([*together[:i], name, *together[i + 1 :]], names) >= misses(together, names)


@settings(deadline=None)
@given(
    data=st.data(), counts=st.lists(st.integers(1, 7), min_size=2, max_size=4), instances=st.integers(2, 4)
)
def test_what_has_stood_down_stays_where_it_is_and_the_others_come_to_rest(data, counts, instances):
    names, down = slots(instances, 1), data.draw(st.sets(st.integers(0, len(counts) - 1)))
    place = st.sampled_from(sorted(names))
    layouts = [{t: data.draw(place, label=f"{i}: {t}") for t in grid(1, n)} for i, n in enumerate(counts)]
    found = queries(layouts, names, down)
    assert all(found[i] == layouts[i] for i in down)


@pytest.mark.parametrize(
    ("tasks", "others", "instances"), [([10], 5, 4), ([12], 4, 5), ([7, 6], 5, 4), ([5, 5, 5], 4, 3)]
)
def test_queries_come_to_rest_beside_one_that_has_stood_down_and_runs_elsewhere_in_each_batch(
    tasks, others, instances
):
    random, fleet, names = Random(0), SteeredQueries(), slots(instances)
    runs = [cluster(grid(1, n), names, dict.fromkeys(grid(1, n), "executor-0")) for n in tasks]
    moved = []
    for batch in range(60):
        if batch == 30:  # what has stood down there counts elsewhere from then on
            *_, lost = names
            names = {name: cores for name, cores in names.items() if name != lost}
        wanders = {t: random.choice(sorted(names)) for t in grid(1, others) if random.random() < 0.8}
        told = {**dict.fromkeys(grid(1, others)), **wanders}
        fleet.publish("down", told, {}, stood_down="a reason", alive=names)
        for query, run in enumerate(runs):
            base, beside = fleet.beside(str(query))
            decision = run.batch(slots=names, base=base, others=beside)
            fleet.publish(str(query), decision.intended, {})
            moved.append((batch, len(decision.moves)))
    assert sum(moves for _, moves in moved)
    assert not any(moves for batch, moves in moved if 15 <= batch < 30 or batch >= 45), moved


def test_what_has_stood_down_on_an_executor_that_drains_is_in_nobody_s_way():
    names, task = slots(3, 1), TaskId(0, 0)
    layouts = [{task: "executor-2"}, {task: "executor-0"}, {task: "executor-0"}]
    found = queries(layouts, names, down=[0], draining=frozenset({"executor-2"}))
    assert [own[task] for own in found] in (
        ["executor-2", "executor-0", "executor-1"],
        ["executor-2", "executor-1", "executor-0"],
    )


@pytest.mark.parametrize("down", [0, 1])
def test_a_query_that_stands_down_before_it_has_moved_as_planned_leaves_that_to_the_other(down):
    fleet, names, task = SteeredQueries(), slots(2, 1), TaskId(0, 0)
    runs = [cluster([task], names, {task: "executor-0"}) for _ in range(2)]
    for prices in (Prices(), CHEAP, CHEAP):  # nothing is moved before anything was measured
        for query, run in enumerate(runs):
            base, others = fleet.beside(str(query))
            decision = run.batch(prices=prices, base=base, others=others)
            fleet.publish(str(query), decision.intended, {}, stood_down=str(decision.stood_down or ""))
        if prices == Prices():
            runs[down].loop.stand_down(StandDown("a reason", "a remedy"))
    assert runs[down].seen.places == {task: "executor-0"}
    assert runs[1 - down].seen.places == {task: "executor-1"}


def test_a_query_whose_neighbour_has_stood_down_elsewhere_leaves_that_alone_and_levels_what_it_can():
    names = slots(2, 1)
    piled = dict.fromkeys(grid(1, 5), "executor-0")
    stays, moved = queries([piled, piled], names, down=[0])
    assert stays == piled
    assert Counter(moved.values()) == {"executor-0": 2, "executor-1": 3}, "the odd one is where less is"


def test_no_task_of_a_query_that_has_stood_down_is_counted_on_to_make_room_for_a_hot_one():
    fleet, names, tasks = SteeredQueries(), slots(2, 1), grid(1, 4)
    run = cluster(tasks, names, {t: f"executor-{t.partition % 2}" for t in tasks})
    stays = dict.fromkeys(grid(1, 2), "executor-1")
    fleet.publish("down", stays, dict(zip(stays, [4.0, 1.0], strict=True)), stood_down="a reason")
    costs = dict(zip(tasks, [1.0, 3.0, 1.0, 1.0], strict=True))
    for batch in range(FEWEST + 10):
        base, others = fleet.beside("own")
        decision = run.batch(base=base, others=others, load=costs if batch else None)
        fleet.publish("own", decision.intended, {t: run.loop.loads.weight(t) for t in tasks})
    assert not decision.moves
    assert run.seen.places == dict.fromkeys(tasks, "executor-0") | {tasks[1]: "executor-1"}


def spread_with_a_hot_one(weight: float, partitions: int = 12, **config) -> Obedient:
    """Three instances with the same number of tasks, of which 0_0 is seen to cost `weight` times the others."""
    tasks = grid(1, partitions)
    run = cluster(tasks, slots(3, cores=1), {t: f"executor-{t.partition % 3}" for t in tasks}, **config)
    run.batch()
    for _ in range(FEWEST):
        run.batch(load={t: weight if t.partition == 0 else 1.0 for t in tasks})
    return run


def test_a_task_as_costly_as_all_others_together_ends_up_alone():
    run = spread_with_a_hot_one(11.0, per_batch=2)
    run.settle()
    assert run.counts()["executor-0"] == 1
    assert sorted(run.counts().values()) == [1, 5, 6]
    assert run.seen.places[TaskId(0, 0)] == "executor-0", "what is hot stays, what is beside it goes"
    moves = [moves for moves in run.moves if moves]
    assert [len(m) for m in moves] == [2, 1], "the budget holds, and there are no moves but those"
    assert {move.why for m in moves for move in m} == {"load"}


def test_counts_give_way_only_if_that_is_worth_it():
    assert spread_with_a_hot_one(11.0, worth_batches=1).moves[-1]
    assert not spread_with_a_hot_one(11.0, worth_batches=5e-4).moves[-1]  # a reload takes 0.001 s


@pytest.mark.parametrize("weight", [1.0, 1.2, 1.45, 2.0])
def test_small_differences_move_nothing(weight):
    run = spread_with_a_hot_one(weight)
    run.settle()
    assert not any(run.moves)


def test_counts_hold_where_the_tolerance_says_so():
    run = spread_with_a_hot_one(11.0, load_tolerance=2.0)
    run.settle()
    assert set(run.counts().values()) == {4}


def test_a_hot_task_that_cools_down_gets_its_neighbours_back_and_the_reason_is_told():
    run = spread_with_a_hot_one(11.0)
    run.settle()
    for _ in range(5):
        decision = run.batch(load=dict.fromkeys(run.seen.places, 1.0))
        if decision.why:
            assert [str(why) for why in decision.why] == ["load: all tasks weigh the same again"]
    run.settle()
    assert set(run.counts().values()) == {4}


@pytest.mark.parametrize(
    ("tasks", "hot", "before", "new"),
    [
        (grid(2, 6), {(0, 0), (0, 4)}, 2, 4),
        (grid(2, 6), {(0, 0), (0, 1)}, 2, 4),
        (grid(1, 15), {(0, 0), (0, 5)}, 2, 2),
    ],
)
def test_a_new_instance_of_other_size_takes_what_the_hot_tasks_had_beside_them(tasks, hot, before, new):
    costs = {t: 20.0 if (t.subtopology, t.partition) in hot else 1.0 for t in tasks}
    run = cluster(tasks, slots(before, cores=1), dict.fromkeys(tasks))
    run.seen = replace(run.seen, prices=Prices(task=1.0, reload=0.02))
    run.batch()
    for _ in range(FEWEST + 1):
        run.batch(load=costs)
    run.settle()
    old = busiest(run, costs)
    run.batch(slots={**slots(before, cores=1), "new": new})
    run.settle()
    assert run.counts()["new"]
    assert busiest(run, costs) < old
    assert run.seen.places == run.loop.goal


def busiest(run, costs) -> float:
    return max(
        sum(costs[t] for t, at in run.seen.places.items() if at == name) / cores
        for name, cores in run.seen.slots.items()
    )


@settings(deadline=None, max_examples=80)
@given(
    costs=st.lists(
        st.lists(st.sampled_from([1.0, 1.0, 1.0, 1.0, 0.2, 3.0, 8.0, 20.0]), min_size=1, max_size=14),
        min_size=1,
        max_size=2,
    ),
    cores=st.lists(st.integers(1, 4), min_size=2, max_size=5),
)
def test_a_new_instance_is_not_left_empty_while_the_goal_wants_tasks_there(costs, cores):
    names = {f"executor-{i}": count for i, count in enumerate(cores)}
    *_, new = names
    seconds = {TaskId(s, p): cost for s, own in enumerate(costs) for p, cost in enumerate(own)}
    run = cluster(list(seconds), {name: names[name] for name in names if name != new}, dict.fromkeys(seconds))
    run.seen = replace(run.seen, prices=Prices(task=1.0, reload=0.02))
    run.batch()
    for _ in range(FEWEST + 1):
        run.batch(load=seconds)
    run.settle()
    run.batch(slots=names)
    for _ in range(2):
        run.settle()
        run.batch(load=seconds)
    assert run.counts()[new] or new not in run.loop.goal.values(), run.loop.verdict


def with_a_new_one_of_other_size(costs, before: int, new: int) -> Obedient:
    """Tasks of these costs, spread, settled and then settled again beside a new instance of `new` slots."""
    seconds = {TaskId(0, p): cost for p, cost in enumerate(costs)}
    run = cluster(
        list(seconds), slots(before, cores=1), {t: f"executor-{t.partition % before}" for t in seconds}
    )
    run.seen = replace(run.seen, prices=Prices(task=1.0, reload=0.02))
    run.batch()
    for _ in range(FEWEST + 1):
        run.batch(load=seconds)
    run.settle()
    run.batch(slots={**slots(before, cores=1), "new": new})
    for _ in range(3):
        run.batch(load=seconds)
        run.settle()
    return run


@settings(deadline=None)
@given(
    costs=st.lists(st.sampled_from([1.0, 1.0, 1.0, 3.0, 8.0]), min_size=3, max_size=12),
    before=st.integers(2, 3),
    new=st.integers(1, 8),
)
@example(costs=[8.0, 8.0, 8.0, 8.0, 1.0, 8.0, 1.0], before=2, new=8)
def test_a_wide_new_instance_takes_what_lowers_the_peak_however_little_of_it_each_of_its_slots_gets(
    costs, before, new
):
    run = with_a_new_one_of_other_size(costs, before, new)
    seconds = {TaskId(0, p): cost for p, cost in enumerate(costs)}
    reached = busiest(run, seconds)
    run.seen = replace(run.seen, places=run.loop.goal)
    assert reached <= busiest(run, seconds) + 1e-9, run.loop.verdict


@pytest.mark.parametrize("weight", [11.0, 40.0])
def test_a_new_instance_takes_from_those_that_are_not_held_by_the_hot_task(weight):
    run = spread_with_a_hot_one(weight)
    run.settle()
    run.batch(slots=slots(4, cores=1))
    run.settle()
    assert run.counts()["executor-0"] == 1
    assert sorted(run.counts().values()) == [1, 3, 4, 4]
    assert sum(map(len, run.moves)) == 3 + 3, "and nothing is moved twice"


def test_a_drained_instance_s_tasks_do_not_join_the_hot_one():
    run = spread_with_a_hot_one(11.0)
    run.settle()
    run.batch(draining=frozenset({"executor-1"}))
    run.settle()
    assert run.counts() == {"executor-0": 1, "executor-1": 0, "executor-2": 11}


def test_what_the_hot_task_of_one_query_has_put_off_balance_does_not_disturb_another():
    fleet, names = SteeredQueries(), slots(3, 1)
    runs = {}
    for query in ("hot", "even"):
        tasks = grid(1, 12)
        runs[query] = cluster(tasks, names, {t: f"executor-{t.partition % 3}" for t in tasks})
    moved = []
    for _ in range(12):
        for query, run in runs.items():
            base, others = fleet.beside(query)
            load = {t: 11.0 if query == "hot" and t.partition == 0 else 1.0 for t in run.seen.places}
            decision = run.batch(load=load, base=base, others=others)
            fleet.publish(query, decision.intended, {t: run.loop.loads.weight(t) for t in run.seen.places})
            moved += [query] * len(decision.moves)
    assert moved == ["hot"] * 3
    assert sorted(runs["hot"].counts().values()) == [1, 5, 6]


@settings(deadline=None, max_examples=50)
@given(
    costs=st.lists(st.sampled_from([0.2, 1.0, 1.0, 1.0, 3.0, 12.0]), min_size=2, max_size=14),
    count=st.integers(2, 4),
    seed=st.integers(0, 2**32),
)
def test_noise_about_what_tasks_cost_comes_to_rest(costs, count, seed):
    random, tasks = Random(seed), grid(1, len(costs))
    run = cluster(tasks, slots(count, cores=1), dict.fromkeys(tasks))
    moves = [
        len(run.batch(load={t: costs[t.partition] * random.uniform(0.91, 1.09) for t in tasks}).moves)
        for _ in range(60)
    ]
    weighed = sum(cost != 1.0 for cost in costs) + len(costs)  # each may be weighed twice, not more
    assert not any(moves[40:]), moves
    assert sum(moves) <= len(costs) * (1 + weighed)


@pytest.mark.parametrize("seed", range(8))
def test_where_places_make_tasks_slow_handing_over_dies_down(seed):
    """What is observed of a task is partly its place, so moving it changes what it weighs."""
    random = Random(seed)
    tasks, names = grid(1, random.randint(12, 16)), slots(3, cores=1)
    slow = dict(zip(sorted(names), [4.0, random.choice([1.0, 1.7]), 1.0], strict=True))
    run, changed = cluster(tasks, names, dict.fromkeys(tasks)), 0
    run.batch()
    for _ in range(250):
        load = {t: slow[str(run.seen.places[t])] * random.uniform(0.95, 1.05) for t in tasks}
        changed += any(why.kind == "load" for why in run.batch(load=load).why)
    assert changed <= 8, "2 + 4 + ... observations lie between them"
    assert run.counts()["executor-0"] < len(tasks) / 3, "and the slow one has less to do"


def test_a_drained_instance_ends_with_none_even_if_moving_is_not_worth_it():
    tasks = grid(1, 6)
    run = cluster(tasks, slots(3), dict.fromkeys(tasks), per_batch=1)
    run.settle()
    run.seen = replace(run.seen, prices=Prices(task=0.001, reload=1000.0))
    decision = run.batch(draining=frozenset({"executor-1"}))
    assert [move.why for move in decision.moves] == ["drain"]
    run.settle()
    assert run.counts() == {"executor-0": 3, "executor-1": 0, "executor-2": 3}


def test_what_drains_is_left_first_however_little_it_has_and_then_the_busiest():
    tasks = grid(1, 16)
    at = ["executor-0"] * 6 + ["executor-1"] * 9 + ["executor-3"]
    run = cluster(tasks, slots(4, cores=1), dict(zip(tasks, at, strict=True)), per_batch=1)
    run.seen = replace(run.seen, draining=frozenset({"executor-3"}))
    run.settle()
    left = [move.from_ for moves in run.moves for move in moves]
    assert left[0] == "executor-3"
    assert left[1:4] == ["executor-1"] * 3, "0_0 to 0_5 are on the other one"
    assert sorted(run.counts().values()) == [0, 5, 5, 6]


def test_what_drains_is_no_share_of_what_others_are_to_have():
    tasks = grid(1, 6)
    at = {t: "executor-0" if t.partition < 4 else "executor-1" for t in tasks}
    run = cluster(tasks, slots(3), at)
    run.seen = replace(run.seen, draining=frozenset({"executor-2"}))
    run.settle()
    assert run.counts() == {"executor-0": 3, "executor-1": 3, "executor-2": 0}


def test_when_all_drain_nothing_moves():
    tasks = grid(1, 4)
    run = cluster(tasks, slots(2), dict.fromkeys(tasks))
    run.settle()
    assert not run.batch(draining=frozenset(slots(2))).moves


def test_without_instances_nothing_is_decided():
    decision = SteeringLoop(SteeringConfig()).look(Seen(0, {}, dict.fromkeys(grid(1, 4))))
    assert not decision.intended
    assert not decision.moves


def test_capacity_is_cores():
    tasks = grid(1, 12)
    run = cluster(tasks, {"executor-0": 4, "executor-1": 2}, dict.fromkeys(tasks, "executor-1"))
    run.settle()
    assert run.counts() == {"executor-0": 8, "executor-1": 4}


def test_moves_that_do_not_pay_are_left_and_made_once_they_do():
    tasks = grid(1, 4)
    run = cluster(tasks, slots(2), dict.fromkeys(tasks, "executor-0"), worth_batches=10)
    run.seen = replace(run.seen, prices=Prices(task=0.01, reload=5.0))
    decision = run.batch()
    assert not decision.moves
    assert not decision.verdict.worth
    assert "not worth it" in str(decision)
    assert len(run.batch(prices=Prices(task=5.0, reload=5.0)).moves) == 2


def test_before_anything_is_measured_only_what_has_to_move_moves():
    tasks = grid(1, 4)
    places = {**dict.fromkeys(tasks, "executor-0"), tasks[0]: None}
    run = cluster(tasks, slots(2), places)
    run.seen = replace(run.seen, prices=Prices())
    assert [move.why for move in run.batch().moves] == ["it ran nowhere"]
    assert [move.why for move in run.batch(prices=CHEAP).moves] == ["balance"]


def test_zero_batches_means_always():
    tasks = grid(1, 4)
    run = cluster(tasks, slots(2), dict.fromkeys(tasks, "executor-0"), worth_batches=0)
    run.seen = replace(run.seen, prices=Prices(task=0.0, reload=100.0))
    assert len(run.batch().moves) == 2


def test_a_hot_partition_counts_as_what_it_costs():
    tasks = grid(1, 8)
    run = cluster(tasks, slots(2, cores=1), {t: f"executor-{t.partition % 2}" for t in tasks})
    run.batch()
    hot = dict.fromkeys(tasks, 1.0) | {tasks[p]: 6.0 for p in (0, 2, 4)}
    for _ in range(FEWEST):
        decision = run.batch(load=hot)
    assert [why.kind for why in decision.why] == ["load"]
    run.settle()
    loads = Counter()
    for task, name in run.seen.places.items():
        loads[name] += hot[task]
    assert sorted(loads.values()) == [11.0, 12.0]
    assert sorted(run.counts().values()) == [2, 6]


@pytest.mark.parametrize("least", [0.0, 1.0])
def test_partitions_with_all_the_rows_do_not_stay_together_however_many_have_none(least):
    tasks = grid(1, 12)
    run = cluster(tasks, slots(3, cores=1), {t: f"executor-{t.partition % 3}" for t in tasks}, load_by="rows")
    rows = (
        dict.fromkeys(tasks, least)
        | {tasks[0]: 1000.0}
        | dict.fromkeys((tasks[3], tasks[6], tasks[9]), 500.0)
    )
    run.batch()
    assert busiest(run, rows) >= 2500
    for _ in range(FEWEST):
        run.batch(load=rows)
    run.settle()
    assert busiest(run, rows) <= 1000 + 8 * least


def test_overruled_tasks_are_sent_again_and_then_steering_stands_down():
    tasks = grid(1, 4)
    loop = SteeringLoop(SteeringConfig(patience_batches=3))
    there = dict.fromkeys(tasks, "executor-0")
    seen = Seen(0, slots(2), there, prices=CHEAP, facts=Facts(locality_wait_ms=0))
    assert len(loop.look(seen).moves) == 2
    for batch in (1, 2):
        again = loop.look(replace(seen, batch=batch, ran=True))
        assert len(again.moves) == len(again.overruled) == 2
    last = loop.look(replace(seen, batch=3, ran=True))
    assert not last.moves
    assert "spark.locality.wait is 0 ms" in last.stood_down.reason
    assert "3s" in last.stood_down.remedy
    assert not loop.look(replace(seen, batch=4, ran=True)).moves
    loop.resume()
    assert len(loop.look(replace(seen, batch=5)).moves) == 2


def test_one_good_batch_gives_all_patience_back():
    tasks = grid(1, 4)
    loop = SteeringLoop(SteeringConfig(patience_batches=2))
    seen = Seen(0, slots(2), dict.fromkeys(tasks, "executor-0"), prices=CHEAP)
    for batch in range(0, 20, 2):
        decision = loop.look(replace(seen, batch=batch, ran=batch > 0))
        decision = loop.look(replace(seen, batch=batch + 1, ran=True, places=dict(decision.intended)))
        assert decision.stood_down is None


def test_unload_on_commit_is_hopeless_from_the_start():
    seen = Seen(0, slots(2), dict.fromkeys(grid(1, 4)), facts=Facts(unload_on_commit=True))
    decision = SteeringLoop(SteeringConfig()).look(seen)
    assert "unloadOnCommit" in str(decision.stood_down)
    assert not decision.moves


def test_a_dry_run_changes_nothing():
    tasks = grid(1, 6)
    loop = SteeringLoop(SteeringConfig())
    seen = Seen(0, slots(3), dict.fromkeys(tasks, "executor-0"), prices=CHEAP)
    trial = loop.look(seen, dry=True)
    assert trial.moves
    assert not loop.goal
    assert not loop.watch.sent
    real = loop.look(seen)
    assert real.to_dict() == trial.to_dict()


def test_a_dry_run_weighs_as_was_observed():
    run = spread_with_a_hot_one(11.0)
    run.settle()
    trial = run.loop.look(run.seen, dry=True)
    assert not trial.moves
    assert sorted(Counter(trial.goal.values()).values()) == [1, 5, 6]


@settings(deadline=None)  # a plan loads the solver, on a busy machine
@given(
    data=st.data(),
    partitions=st.integers(1, 12),
    subtopologies=st.integers(1, 3),
    count=st.integers(1, 5),
    per_batch=st.integers(1, 6),
)
def test_any_start_ends_balanced_after_as_many_batches_as_the_budget_asks_for(
    data, partitions, subtopologies, count, per_batch
):
    tasks, names = grid(subtopologies, partitions), slots(count)
    choice = st.sampled_from([None, "executor-99", *names])
    places = {t: data.draw(choice, label=str(t)) for t in tasks}
    weights = {t: data.draw(st.sampled_from([1.0, 1.0, 4.0]), label=f"load {t}") for t in tasks}
    run = cluster(tasks, names, places, per_batch=per_batch, worth_batches=0, load_tolerance=1e6)
    for _ in range(FEWEST):
        run.loop.loads.observe(weights)
    first = run.batch(load=weights)
    note(str(first))
    total = paid(first.moves) + first.waiting
    left = run.settle()
    assert left == max(0, math.ceil(total / per_batch) - 1)
    assert sum(map(paid, run.moves)) == total
    assert all(paid(moves) <= per_batch for moves in run.moves)
    counts = Counter(run.seen.places.values())
    assert max(counts[n] for n in names) - min(counts[n] for n in names) <= 1
    for s in range(subtopologies):
        own = Counter(name for t, name in run.seen.places.items() if t.subtopology == s)
        assert max(own[n] for n in names) - min(own[n] for n in names) <= 1


@settings(deadline=None)
@given(st.data())
def test_whatever_happens_no_batch_moves_more_than_its_budget_and_peace_returns(data):
    tasks = grid(2, 6)
    run = cluster(tasks, slots(3), dict.fromkeys(tasks), per_batch=2, patience_batches=1000)
    for _ in range(data.draw(st.integers(1, 8))):
        alive = data.draw(st.sets(st.sampled_from(sorted(slots(5))), min_size=1))
        drains = data.draw(st.sets(st.sampled_from(sorted(alive)), max_size=len(alive) - 1))
        elsewhere = data.draw(st.dictionaries(st.sampled_from(tasks), st.sampled_from(sorted(alive))))
        load = data.draw(st.none() | st.fixed_dictionaries({t: st.floats(0.1, 50) for t in tasks}))
        decision = run.batch(
            slots=dict.fromkeys(alive, 2),
            draining=frozenset(drains),
            places={**run.seen.places, **elsewhere},
            load=load,
        )
        assert paid(decision.moves) <= 2
        assert set(decision.intended) == set(tasks)
        assert set(decision.intended.values()) <= alive
    run.settle()
    assert not set(run.seen.places.values()) & run.seen.draining
