"""Where tasks go, and how many at a time: without Spark."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from taskplace.spark.steering.measurements import FEWEST, Costs
from tests.support.steering_simulation import (
    changed,
    cluster,
    even,
    grid,
    paid,
    slots,
)


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
    run.seen = changed(run.seen, costs=Costs(task=1.0, reload=1e-6))
    run.settle()
    total = sum(capacities)
    for part in (tasks, *([t for t in tasks if t.subtopology == s] for s in range(subtopologies))):
        for name, cores in names.items():
            found = sum(run.seen.places[t] == name for t in part)
            share = len(part) * cores / total
            assert math.floor(share) <= found <= math.ceil(share)


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
        run.state = replace(run.state, weights=run.state.weights.measured(weights))
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
    assert not set(run.seen.places.values()) & run.seen.cluster.draining
