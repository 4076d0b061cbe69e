"""Executors that die: SIGKILL by process id, in the middle of a stage and between batches."""

from __future__ import annotations

import threading

import pytest
from placed_harness import EXECUTORS, kill_executor, wait_until

from taskplace.spark.worker.attempt import reports_dir

pytestmark = pytest.mark.spark


class Recorder:
    """A reporter that keeps what it is told."""

    def __init__(self):
        self.batches, self.rebalances, self.losses = [], [], []

    def batch(self, event):
        self.batches.append(event)

    def rebalance(self, event):
        self.rebalances.append(event)

    def failure(self, event):
        self.losses.append(event)


def kill_within_stage(p, batch: int, subtopology: int) -> list[str]:
    """Kill the executor with most active tasks once the first task of a stage has finished."""
    killed: list[str] = []

    def on_stage(at: int, stage: int) -> None:
        if (at, stage) == (batch, subtopology) and not killed:
            victim = max(p.placed.placement(), key=lambda view: (view.active, view.id)).id
            killed.append(victim)
            folder = p.folder / "checkpoint" / reports_dir(batch, subtopology)

            def kill() -> None:
                wait_until(lambda: folder.exists() and any(folder.glob("*.json")), "a first finished attempt")
                kill_executor(p.placed, victim)

            threading.Thread(target=kill, daemon=True).start()

    p.placed.on_stage = on_stage
    return killed


@pytest.mark.parametrize("subtopology", [0, 1])
def test_a_loss_within_a_stage_promotes_standbys_in_the_same_batch(pipeline, subtopology):
    recorder = Recorder()
    p = pipeline(reporter=recorder)
    for batch in range(3):
        p.run(batch)
    p.settle()
    killed = kill_within_stage(p, 3, subtopology)
    p.run(3, rows=20_000)
    p.run(4)
    p.check()
    assert killed
    assert [event.instance for event in recorder.losses] == killed
    assert p.placed.stats.scratch == 0, "an active task was restored from scratch"
    assert p.placed.stats.promotions > 0
    assert killed[0] not in {view.id for view in p.placed.placement()}

    if subtopology == 0:
        return  # what follows is the same for both
    # A replacement comes, is warmed up, and the cluster is balanced again.
    wait_until(
        lambda: len(p.placed.members.by_instance) == EXECUTORS, "the replacement is a member", seconds=90
    )
    batch = 5
    while {(v.active, v.standby, v.warmup) for v in p.placed.placement()} != {(4, 4, 0)}:
        assert batch < 40, f"not balanced: {p.placed.placement()}"
        p.settle()
        p.run(batch, rows=60)
        batch += 1
    p.check()
    assert p.placed.stats.scratch == 0
    assert any("joined" in event.reason for event in recorder.rebalances)


def test_a_loss_between_batches(pipeline):
    p = pipeline()
    p.run(0)
    p.settle()
    victim = p.placed.placement()[0].id
    kill_executor(p.placed, victim)
    wait_until(lambda: victim.split("-")[1] not in p.placed.bridge.alive(), "the loss is noticed")
    p.run(1)
    p.check()
    assert p.placed.stats.scratch == 0


def test_without_standbys_state_is_restored_from_the_checkpoint(pipeline):
    p = pipeline(config={"num.standby.replicas": 0}, snapshot_interval=2)
    for batch in range(5):
        p.run(batch)
    victim = p.placed.placement()[0].id
    kill_executor(p.placed, victim)
    wait_until(lambda: victim.split("-")[1] not in p.placed.bridge.alive(), "the loss is noticed")
    p.run(5)
    p.check()
    assert p.placed.stats.scratch > 0


def decommission(placed, instance: str) -> None:
    """What a cluster manager does before it takes an executor away."""
    executor = placed.members.by_instance[instance].executor.id
    jvm, backend = placed.bridge.sc._jvm, placed.bridge.sc._jsc.sc().schedulerBackend()
    info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("going", jvm.scala.Option.empty())
    assert backend.decommissionExecutor(executor, info, False, False)


def test_an_executor_that_spark_decommissions_is_left_at_once_and_nothing_is_restored(pipeline):
    recorder = Recorder()
    p = pipeline(reporter=recorder)
    for batch in range(3):
        p.run(batch)
    p.settle()
    victim = sorted(p.placed.members.by_instance)[0]
    decommission(p.placed, victim)
    for batch in range(3, 6):
        p.run(batch)
        assert victim not in {view.id for view in p.placed.placement()}
    assert [(loss.instance, loss.leaving, loss.cancelled) for loss in recorder.losses] == [
        (victim, True, False)
    ]
    assert p.placed.stats.scratch == 0
    assert p.placed.stats.elsewhere == 0
    assert p.placed.stats.promotions > 0
    wait_until(lambda: len(p.placed.bridge.executors()) == EXECUTORS, "a replacement is there", seconds=90)
    p.run(6)
    p.check()


def test_an_executor_that_is_decommissioned_within_a_stage(pipeline, fault_orders):
    p = pipeline()
    for batch in range(3):
        p.run(batch)
    p.settle()
    (fault_orders / "attempt.processed").write_text("hold")  # one attempt takes its time
    held = fault_orders / "attempt.processed.held"
    victims = []

    def take_away() -> None:
        wait_until(held.exists, "an attempt is held")
        victims.append(max(p.placed.placement(), key=lambda view: view.active).id)
        decommission(p.placed, victims[0])
        (fault_orders / "attempt.processed.release").touch()

    thread = threading.Thread(target=take_away)
    thread.start()
    p.run(3)
    thread.join()
    p.run(4)
    assert victims[0] not in {view.id for view in p.placed.placement()}
    p.check()
