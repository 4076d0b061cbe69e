"""Stores that a later topology does not have, and that come back: copies are right, warm, cold or in between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from taskplace.spark.messages import History
from taskplace.spark.processors import Count
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.store import StoreSchema
from topology import TaskId

FLIGHTS = [("a", 1), ("b", 2)]
PLANES = [("a", 10), ("b", 20)]


def without(program, store):
    """The program of a topology without the processor of that store."""
    operators = tuple(o for o in program.operators if store not in o.stores and o.name != "out")
    stores = {name: schema for name, schema in program.stores.items() if name != store}
    return replace(program, operators=operators, stores=stores)


def come_back(program, store):
    """The program of a topology that has the store again (see `driver/structure.py`)."""
    stores = {**program.stores, store: replace(program.stores[store], incarnation=1)}
    return replace(program, stores=stores)


def totals(runtime, executor):
    found = [row for p in range(2) for row in runtime.contents(TaskId(0, p), executor)["totals"]]
    return {row["tailnum"]: row["flights"] for row in found}


@pytest.fixture
def before(runtime):
    """Two batches with the store `totals`."""
    runtime.run_batch(FLIGHTS, PLANES)
    runtime.run_batch(FLIGHTS, PLANES)
    return runtime


def test_a_cold_copy_follows_a_history_with_records_of_a_store_that_went(before):
    before.first = without(before.first, "totals")
    before.run_batch(FLIGHTS)  # warm
    before.run_batch(FLIGHTS, executor="2")  # cold
    for p in range(2):
        assert before.contents(TaskId(0, p), "2") == before.contents(TaskId(0, p), "1")
    assert [row["seats"] for p in range(2) for row in before.contents(TaskId(0, p), "2")["planes"]] == [
        10,
        20,
    ]


def test_another_store_under_the_same_tasks_starts_empty(before):
    other = Count("other", by={"delay": "int64"})
    operators = tuple(
        replace(o, stores=("other",), processor=other) if o.name == "days" else o
        for o in before.second.operators
    )
    schema = StoreSchema.of("other", other.layouts()["other"])
    before.second = replace(before.second, operators=operators, stores={"other": schema})
    for executor in "12":
        before.run_batch(FLIGHTS, executor=executor)
    rows = [row for p in range(3) for row in before.contents(TaskId(1, p), "2")["other"]]
    assert {row["delay"]: row["count"] for row in rows} == {1: 2, 2: 2}


def test_a_store_that_comes_back_is_empty_on_every_copy(before):
    full = before.first
    before.first = without(full, "totals")
    before.run_batch(FLIGHTS)
    before.first = come_back(full, "totals")
    before.run_batch(FLIGHTS)
    assert totals(before, "1") == {"a": 1, "b": 1}
    before.run_batch(FLIGHTS, executor="2")
    assert totals(before, "1") == totals(before, "2") == {"a": 2, "b": 2}


def test_a_topology_that_never_committed_leaves_no_gaps_in_copies(before):
    """Its followers passed records over; then the old topology came back, and has to see all of them."""
    full, end = before.first, dict(before.history)
    less = without(full, "totals")
    for p in range(2):
        before.be("2")
        with Copy(before.copy(TaskId(0, p), "2"), less.databases) as copy:
            copy.follow(end[TaskId(0, p)], before.checkpoint)
            assert copy.position() == end[TaskId(0, p)].end
    before.run_batch(FLIGHTS, executor="2")  # with the old topology
    assert totals(before, "2") == {"a": 3, "b": 3}


def test_a_lost_attempt_of_a_topology_with_more_stores_is_undone(before):
    full = before.first
    report = before.attempt(TaskId(0, 0), FLIGHTS)  # changes `totals`, and no manifest names it
    assert report.change is not None
    before.first = without(full, "totals")
    before.run_batch(FLIGHTS)
    assert before.history[TaskId(0, 0)] == before.history.get(TaskId(0, 0), History())
    for p in range(2):
        with Copy(before.copy(TaskId(0, p)), before.first.databases) as copy:
            recovery = copy.bring_to(before.history[TaskId(0, p)], before.checkpoint)
            assert not recovery.scratch
