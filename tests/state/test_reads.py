"""Reading stores through `StoreReader`, with copies of several executors and no Spark."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from taskplace.errors import InputError, TaskplaceError
from taskplace.spark.bridge import Executor
from taskplace.spark.reading import StoreReader
from taskplace.spark.worker.follow import Orders, visit_all

EXECUTORS = {n: Executor(n, "host", 2) for n in ("1", "2")}


class Bridge:
    """Runs what is pinned to an executor as that executor."""

    local, app_id = False, "app"

    def __init__(self, runtime):
        self.runtime = runtime

    def pinned(self, elements, locations, function):
        return [(element, location, function) for element, location in zip(elements, locations, strict=True)]

    def run(self, pinned, _partitions, tag):
        answers = []
        for element, location, function in pinned:
            self.runtime.be(location.split("_")[-1])
            answers += function([element])
        return answers


@pytest.fixture
def store(runtime):
    """Returns a reader's maker: of "totals", whose tasks are active on one executor and followed by the other."""

    def read(active, known_lag_of_the_other=0, **how):
        members = SimpleNamespace(
            by_instance={e.instance: SimpleNamespace(executor=e) for e in EXECUTORS.values()},
            lag=lambda name, _task: 0 if name == f"executor-{active}" else known_lag_of_the_other,
        )
        cluster = SimpleNamespace(
            lock=nullcontext(),
            members=members,
            owners=lambda: dict.fromkeys(("0_0", "0_1"), EXECUTORS[active]),
            following=lambda name: [] if name == f"executor-{active}" else ["0_0", "0_1"],
        )
        placed = SimpleNamespace(
            programs=(runtime.first, runtime.second),
            tasks_of=lambda s: tuple(f"{s}_{i}" for i in range(runtime.TASKS[s])),
            journal=SimpleNamespace(history=runtime.history),
            cluster=cluster,
            bridge=Bridge(runtime),
            state_root=runtime.state,
            watermark=None,
        )
        return StoreReader(placed, "totals", **how)

    return read


@pytest.fixture
def behind(runtime):
    """Executor 1 has all of three batches; executor 2 lacks the last one, of many records."""
    for delay in (5, 9):
        runtime.run_batch([(f"N{i}", delay) for i in range(9)], [("N1", 100)])
    stores = {p.subtopology: sorted(p.stores) for p in (runtime.first, runtime.second)}
    orders = Orders(
        "executor-2",
        str(runtime.checkpoint),
        str(runtime.state),
        "app",
        stores,
        stores,
        follow=runtime.history,
    )
    runtime.be("2")
    list(visit_all([orders.encode()]))
    runtime.run_batch([(f"N{i}", i) for i in range(500)])
    return runtime


def test_an_active_copy_that_has_not_caught_up_is_not_taken_for_the_last_batch(behind, store):
    assert store("1").get({"tailnum": "N1"}) == {"flights": 3, "worst": 9}
    assert store("2").get({"tailnum": "N1"}) == {"flights": 3, "worst": 9}  # asked the one before it
    with pytest.raises(TaskplaceError, match="the copy is at batch 1, which is beyond the bound"):
        store("2", known_lag_of_the_other=7).get({"tailnum": "N1"})


def test_a_standby_is_measured_by_what_it_answers(behind, store):
    old = {"flights": 2, "worst": 9}
    assert store("1", copies="standby").get({"tailnum": "N1"}) == old
    assert store("1", copies="standby", max_lag=1000, max_batches=1).get({"tailnum": "N1"}) == old
    for bound in ({"max_lag": 0}, {"max_lag": 100}, {"max_batches": 0}):
        with pytest.raises(TaskplaceError, match="beyond the bound"):
            store("1", copies="standby", **bound).get({"tailnum": "N1"})


@pytest.mark.parametrize("how", [{"max_lag": 3}, {"copies": "standby", "max_batches": -1}])
def test_bounds_that_make_no_sense(runtime, store, how):
    with pytest.raises(InputError, match="a bound of at least 0, for copies='standby'"):
        store("1", **how)
