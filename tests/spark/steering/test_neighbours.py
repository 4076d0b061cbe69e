"""Several steered queries on the same executors, some of which have stood down: without Spark.

Drains beside a query that has stood down: what it keeps, and what is known of it.
"""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.spark.steering.application import SteeredQueries
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.measurements import FEWEST, Costs
from tests.support.steering_simulation import Decider, cluster, even, grid, observed, slots
from tests.support.steering_stand_in import failing, on, pair, polled, publish, turned, unreadable
from topology.tasks import TaskId


def queries(layouts, names, down=(), draining=frozenset()) -> list[dict[TaskId, str]]:
    """Steer several queries side by side, in turn, and return where they come to rest; `down` have stood down."""
    steered = SteeredQueries()
    found = [(str(i), Decider(SteeringConfig(max_moves_per_batch=2)), p) for i, p in enumerate(layouts)]
    for i in down:
        found[i][1].stand_down()
    for batch in range(60):
        moves = 0
        for i, (query, decider, places) in enumerate(found):
            neighbours = steered.neighbours(query)
            costs = Costs(task=1.0, reload=1e-6)
            seen = observed(
                batch, names, places, draining=draining, costs=costs, ran=batch > 0, neighbours=neighbours
            )
            decision = decider.decide(seen)
            planned = decider.state.target.neighbour_places
            assert all(
                planned.get(other.task.id, other.place) == other.place
                for other in neighbours.tasks
                if other.fixed
            )
            publish(steered, query, decision.intended, stood_down=str(decision.stood_down or ""))
            found[i] = (query, decider, dict(decision.intended))
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
    steered, names = SteeredQueries(), {f"executor-{i}": count for i, count in enumerate(cores)}
    runs, moved = [], []
    for own in costs:
        tasks = grid(1, len(own))
        runs.append(cluster(tasks, names, {t: random.choice(sorted(names)) for t in tasks}, per_batch=2))
    for batch in range(60):
        moves = 0
        for query, (run, own) in enumerate(zip(runs, costs, strict=True)):
            neighbours = steered.neighbours(str(query))
            load = {t: own[t.partition] for t in run.seen.places} if batch else None
            decision = run.batch(load=load, neighbours=neighbours)
            weights = run.weights(run.seen.places)
            publish(steered, str(query), decision.intended, weights)
            moves += len(decision.moves)
        moved.append(moves)
    assert not any(moved[40:]), moved


def test_what_gains_only_once_several_queries_move_is_judged_by_all_their_moves():
    names = {"executor-0": 3, "executor-1": 3, "executor-2": 1, "executor-3": 2}
    places = [[1, 1, 0], [3, 0, 0, 1], [0, 2], [1, 2, 3]]
    layouts = [{TaskId(0, p): f"executor-{at}" for p, at in enumerate(own)} for own in places]
    together = [name for found in queries(layouts, names) for name in found.values()]
    assert misses(together, names) == 0


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
    random, steered, names = Random(0), SteeredQueries(), slots(instances)
    runs = [cluster(grid(1, n), names, dict.fromkeys(grid(1, n), "executor-0")) for n in tasks]
    moved = []
    for batch in range(60):
        if batch == 30:  # what has stood down there counts elsewhere from then on
            *_, lost = names
            names = {name: cores for name, cores in names.items() if name != lost}
        wanders = {t: random.choice(sorted(names)) for t in grid(1, others) if random.random() < 0.8}
        told = {**dict.fromkeys(grid(1, others)), **wanders}
        publish(steered, "down", told, stood_down="a reason", alive=names)
        for query, run in enumerate(runs):
            neighbours = steered.neighbours(str(query))
            decision = run.batch(slots=names, neighbours=neighbours)
            publish(steered, str(query), decision.intended)
            moved.append((batch, len(decision.moves)))
    assert sum(moves for _, moves in moved)
    assert not any(moves for batch, moves in moved if 15 <= batch < 30 or batch >= 45), moved


def test_no_task_of_a_query_that_has_stood_down_is_counted_on_to_make_room_for_a_hot_one():
    steered, names, tasks = SteeredQueries(), slots(2, 1), grid(1, 4)
    run = cluster(tasks, names, {t: f"executor-{t.partition % 2}" for t in tasks})
    stays = dict.fromkeys(grid(1, 2), "executor-1")
    publish(steered, "down", stays, dict(zip(stays, [4.0, 1.0], strict=True)), stood_down="a reason")
    costs = dict(zip(tasks, [1.0, 3.0, 1.0, 1.0], strict=True))
    for batch in range(FEWEST + 10):
        neighbours = steered.neighbours("own")
        decision = run.batch(neighbours=neighbours, load=costs if batch else None)
        publish(steered, "own", decision.intended, run.weights(tasks))
    assert not decision.moves
    assert run.seen.places == dict.fromkeys(tasks, "executor-0") | {tasks[1]: "executor-1"}


def test_a_query_that_cannot_be_read_keeps_executors_and_the_one_that_was_asked_says_so(caplog):
    a, b, one, other = unreadable("unreadable")
    assert other.status().state == "stood down"
    with caplog.at_level("INFO"):
        one.decommission("2")
        for _ in range(3):
            a.ran()
            b.ran()
            polled(one)
            turned(other)
    assert on(a.running, "executor-2") == 0
    assert not one.drained("2")
    assert not a.removed + b.removed, "nobody knows what it has there"
    (why,) = one.status().kept["executor-2"]
    assert why.startswith("query b has stood down, and where its tasks run is unknown: 3 errors in a row")
    assert why.endswith("then resume(); or stop() its handle")
    assert f"executor-2 is not empty: {why}" in str(one.status())
    assert f"executor-2 is not empty: {why}" in str(one.plan())
    assert one.plan().to_dict()["kept"] == one.status().to_dict()["kept"] == {"executor-2": [why]}
    assert caplog.text.count("executor-2 is not empty: query b") == 1, "said once, by the one that was asked"
    other.stop()
    polled(one)
    assert one.drained("2")
    assert a.removed == ["2"]


def test_of_a_query_whose_rounds_have_failed_nobody_knows_what_was_seen_before():
    """Spark may have run its tasks elsewhere meanwhile."""
    a, b, one, other = pair("lost sight", budget=6)
    one.drain("2")
    for query, steering in ((a, one), (b, other)):
        polled(steering)
        query.ran()
        polled(steering)
    assert one.drained("2")
    b.ran()
    b.places = failing(3, b.places)
    turned(other)
    assert other.status().state == "stood down"
    assert not one.drained("2")
    one.undrain("1")
    assert polled(other) == 1
    assert not one.drained("2"), "a round between batches does not tell where they ran"
    b.ran()
    turned(other)
    assert one.drained("2"), "until a round tells"
