"""The metrics of a whole `Placed` without Spark, at known points of its life."""

from __future__ import annotations

import json
import threading

import pytest

from taskplace.errors import InputError
from taskplace.record.metrics import METRICS
from taskplace.spark.driver import metrics as module
from tests.support.word_counts import counts, words

STANDBY = {"num.standby.replicas": 1}


@pytest.fixture
def placed(world):
    """A stream of two tasks on two executors with a standby each, before its first batch."""
    world.come(1)
    return world.open(counts(world), config=STANDBY)


def run(world, placed, *numbers):
    for number in numbers:
        world.batch(placed, number, **{"in": words(*"abcdefgh")})


def series(placed, name, *labels):
    return {tuple(one[label] for label in labels): one["value"] for one in placed.metrics()[name]}


def test_the_names_and_labels_are_those_of_the_table(world, placed):
    before = placed.metrics()
    run(world, placed, 0)
    for found in (before, placed.metrics()):
        assert list(json.loads(json.dumps(found))) == [metric.name for metric in METRICS]
        for metric in METRICS:
            values = found[metric.name]
            assert isinstance(values, list) == bool(metric.labels), metric.name
            for one in values if metric.labels else []:
                assert set(one) == {*metric.labels, "value"}, metric.name
    assert before["last-batch-seconds-ago"] >= 0, "a driver that never commits is noticed"
    for name in ("last-rebalance-seconds-ago", "batch-latency-avg", "imbalance-max-mean"):
        assert before[name] is None


def test_values_of_the_first_batches(world, placed):
    run(world, placed, 0, 1)
    found = placed.metrics()
    assert (found["batches-total"], found["rows-total"]) == (2, 16)
    assert (found["rebalance-total"], found["generation"], found["failed-rebalance-total"]) == (1, 1, 0)
    latencies = {found[f"rebalance-latency-{of}"] for of in ("max", "avg", "total")}
    assert len(latencies) == 1 and latencies.pop() > 0
    assert 0 <= found["last-batch-seconds-ago"] <= found["last-rebalance-seconds-ago"]
    assert 0 < found["commit-latency-avg"] <= found["commit-latency-max"] < found["batch-latency-max"]
    assert (found["executors"], found["imbalance-max-mean"]) == (2, 1.0)
    assert series(placed, "assigned-tasks", "executor", "role") == {
        (name, role): number
        for name in ("executor-1", "executor-2")
        for role, number in (("active", 1), ("standby", 1), ("warmup", 0))
    }
    assert (found["standby-updating-tasks"], found["standbys-missing"]) == (2, 0)
    sizes = {kind: size for (kind,), size in series(placed, "state-bytes", "kind").items()}
    histories = placed.journal.history.values()
    assert sizes == {"changelog": sum(c.size for h in histories for c in h.changes), "snapshot": 0}
    assert sizes["changelog"] > 0


def test_a_loss_a_promotion_and_standbys_without_a_place(world, placed):
    run(world, placed, 0)
    world.follow(placed)
    world.lose("1")
    run(world, placed, 1)
    found = placed.metrics()
    assert (found["executors"], found["executor-losses-total"]) == (1, 1)
    assert (found["moves-forced-total"], found["moves-planned-total"]) == (1, 0)
    assert (found["standby-updating-tasks"], found["standbys-missing"]) == (0, 2)
    assert found["scratch-restores-total"] == 0


def test_a_lost_owner_counts_as_restoring_until_its_task_has_a_copy_again(world):
    world.come(1)
    placed = world.open(counts(world))
    run(world, placed, 0)
    assert placed.metrics()["active-restoring-tasks"] == 0
    (task,) = placed.state.roles("executor-1").active
    lost = placed.journal.end_offset(task)
    world.lose("1")
    found = []

    def look(point):
        if point == "attempt.sealed":
            found.append(placed.metrics()["active-restoring-tasks"])

    world.at = look
    run(world, placed, 1)
    assert found[0] == 1
    after = placed.metrics()
    assert (after["active-restoring-tasks"], after["scratch-restores-total"]) == (0, 1)
    assert after["restore-total"] == lost > 0


def test_a_new_executor_warms_up(world, monkeypatch):
    monkeypatch.setattr("taskplace.spark.driver.cluster_state.LEAST_RECORDS_MEASURED", 1)
    placed = world.open(counts(world), config={"acceptable.recovery.lag": 0})
    run(world, placed, 0, 1)
    world.come(1)
    world.follow(placed)  # it joins
    run(world, placed, 2)
    found = placed.metrics()
    assert (found["warmup-tasks"], found["moves-pending"], found["imbalance-max-mean"]) == (1, 1, 2.0)
    assert found["warmup-remaining-seconds"] == [], "its rate is not known yet"
    (task,) = placed.state.roles("executor-2").warmup
    lag = series(placed, "copy-lag", "task", "role")[str(task), "warmup"]
    assert lag > 0
    placed.state.members["executor-2"].restore_rate = 2.0
    assert series(placed, "warmup-remaining-seconds", "task") == {(str(task),): lag / 2}
    world.follow(placed)
    assert series(placed, "warmup-remaining-seconds", "task") == {(str(task),): 0}
    run(world, placed, 3)
    found = placed.metrics()
    assert (found["warmup-tasks"], found["moves-pending"], found["imbalance-max-mean"]) == (0, 0, 1.0)
    assert (found["moves-planned-total"], found["moves-forced-total"]) == (1, 0)


def test_loads_are_weights_per_slot_without_executors_that_drain(world):
    world.come(2)
    placed = world.open(counts(world), weights={"0_0": 3.0})
    run(world, placed, 0)
    assert placed.metrics()["imbalance-max-mean"] == pytest.approx(3 / (4 / 3))
    empty = next(view.id for view in placed.placement() if not view.active)
    placed.drain(empty)
    found = placed.metrics()
    assert (found["executors-draining"], found["imbalance-max-mean"]) == (1, 1.5)


def test_a_reader_waits_for_no_batch(world, monkeypatch):
    """While the driver holds its lock, the values are those of the status before; the times go on."""
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.01)
    placed = world.open(counts(world))
    world.batch(placed, 0, **{"in": words(*"ab")})
    before = placed.metrics()
    held, over = threading.Event(), threading.Event()

    def hold():
        with placed.rebalancer.lock:
            placed.loop.generation += 1
            held.set()
            over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(30)
        during = placed.metrics()
        assert during["generation"] == before["generation"]
        assert during["last-batch-seconds-ago"] > before["last-batch-seconds-ago"]
    finally:
        over.set()
        thread.join()
    assert placed.metrics()["generation"] == before["generation"] + 1


def test_the_endpoint_serves_the_stream_and_ends_with_it(world):
    from urllib.error import URLError
    from urllib.request import urlopen

    placed = world.open(counts(world))
    world.batch(placed, 0, **{"in": words(*"ab")})
    url = placed.serve_metrics(port=0).url
    with urlopen(url, timeout=10) as answer:
        assert b'taskplace_rows_total{stream="t"} 2.0\n' in answer.read()
    placed.close()
    with pytest.raises(URLError):
        urlopen(url, timeout=10)
    with pytest.raises(InputError, match="a port up to 65535"):
        placed.serve_metrics(port=-1)


@pytest.mark.parametrize("busy", [False, True])
def test_status_metrics_and_explanations_say_the_same_time(world, monkeypatch, busy):
    from taskplace.spark.driver.operations import StatusBoard

    placed = world.open(counts(world), config={"acceptable.recovery.lag": 0, "max.warmup.replicas": 4})
    run(world, placed, 0)
    world.come(1)
    world.follow(placed)
    run(world, placed, 1)
    rebalancer, runner = placed.rebalancer, placed._runner
    now = [1_000.0]
    monkeypatch.setattr(rebalancer.warmups, "_monotonic", lambda: now[0])
    monkeypatch.setattr(rebalancer.warmups, "_busy", lambda: busy)
    board = StatusBoard(placed._runner.definition, rebalancer, runner.followers)

    def times():
        status = board.status()
        seen = {
            task: copy.eta_seconds
            for executor in status.executors.values()
            for task, copy in executor.warmup.items()
            if copy.eta_seconds is not None
        }
        assert {task: round(seconds, 3) for task, seconds in seen.items()} == {
            task: seconds for (task,), seconds in series(placed, "warmup-remaining-seconds", "task").items()
        }
        return seen

    assert times() == {}, "no rate is known yet"
    ((_, task),) = rebalancer.warmups.status()
    assert placed.explain(task).progress.seconds is None
    placed.state.members["executor-2"].restore_rate = 2.0
    (slow,) = times().values()
    (((_, task), warmup),) = rebalancer.warmups.status().items()
    assert placed.explain(task).progress.seconds == round(slow, 3)
    share = placed.options.follower_share if busy else 1.0
    assert slow == warmup.lag / (2.0 * share)
