"""Executors that die: SIGKILL by process id, in the middle of a stage and between batches."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

from taskplace.errors import Fenced
from taskplace.spark.messages import reports_dir
from taskplace.spark.worker.hashing import partition_of
from tests.support.placed_harness import EXECUTORS, kill_executor, wait_until

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
    wait_until(lambda: len(p.placed.state.members) == EXECUTORS, "the replacement is a member", seconds=90)
    batch = 5
    while {(v.active, v.standby, v.warmup) for v in p.placed.placement()} != {(4, 4, 0)}:
        assert batch < 40, f"not balanced: {p.placed.placement()}"
        p.settle()
        p.run(batch, rows=60)
        batch += 1
    p.check()
    assert p.placed.stats.scratch == 0
    assert any("joined" in event.reason for event in recorder.rebalances)


def test_a_follow_job_that_hangs_and_its_executors_death_hold_up_no_other_follower(pipeline, fault_orders):
    p = pipeline(follower_share=1.0)
    for batch in range(3):
        p.run(batch)
    p.settle()
    point = "follow.applied"
    held = fault_orders / f"{point}.held"
    (fault_orders / point).write_text("hold")
    try:
        p.run(3)
        wait_until(lambda: held.exists() and held.read_text(), "a follow job is held")
        above = {process.pid for process in psutil.Process(int(held.read_text())).parents()}
        members = p.placed.state.members
        victim = next(name for name, member in members.items() if member.pid in above)
        others = members.keys() - {victim}
        for batch in (4, 5):
            p.run(batch)
            wait_until(lambda: p.followers_caught_up(others), "the other executors have followed")
        assert not p.followers_caught_up({victim})
        kill_executor(p.placed, victim)
        replicator = p.placed._runner.replicator
        wait_until(lambda: victim not in replicator.running, "its job has ended with it")
        p.run(6)
        wait_until(lambda: p.followers_caught_up(others), "the surviving executors have followed")
    finally:
        (fault_orders / f"{point}.release").touch()
    p.check()
    assert p.placed.stats.scratch == 0, "an active task was restored from scratch"
    assert p.placed.stats.promotions > 0


@pytest.mark.everyday("Files")
def test_damaged_snapshots_are_done_without_when_an_executor_dies(pipeline, caplog):
    p = pipeline(config={"num.standby.replicas": 0}, snapshot_interval=2)
    batch = 0

    def to_restore() -> list[Path]:
        """The newest snapshots of all that one executor has, none before each task has one."""
        kept = [p.placed.journal.history[task].snapshots for task in tasks]
        return [p.folder / "checkpoint" / snapshots[-1].file for snapshots in kept] if all(kept) else []

    p.run(batch)
    victim = p.placed.placement()[0].id
    tasks = p.placed.state.roles(victim).active
    while not to_restore():
        assert batch < 40, "no snapshots are made"
        batch += 1
        p.run(batch, rows=200)
    for path in to_restore():
        bytes_ = bytearray(path.read_bytes())
        bytes_[len(bytes_) // 2] ^= 1
        path.write_bytes(bytes_)
    kill_executor(p.placed, victim)
    wait_until(lambda: victim.split("-")[1] not in p.placed.bridge.alive(), "the loss is noticed")
    p.run(batch + 1)
    p.check()
    assert p.placed.stats.damaged >= 1
    assert "recovered without a damaged file" in caplog.text


@pytest.mark.everyday("Nothing depends on where Spark runs a task", "Standbys", "Two drivers")
def test_a_second_driver_that_loses_an_executor_in_its_first_batch_fences_the_first(pipeline):
    p = pipeline()
    p.run(0)
    p.settle()
    first = p.placed
    p.placed = p.open()
    killed = kill_within_stage(p, 1, 0)
    p.run(1)
    assert killed
    assert p.placed.stats.losses == 1
    assert p.placed.stats.promotions > 0
    for _ in range(2):
        with pytest.raises(Fenced):
            first.process_batch(p.frame(p.data(7)), 1)
    first.close()
    p.run(2)
    p.check()
    assert p.placed.stats.scratch == 0, "an active task was restored from scratch"


def decommission(placed, instance: str) -> None:
    """What a cluster manager does before it takes an executor away."""
    executor = placed.state.members[instance].executor.id
    jvm, backend = placed.bridge.sc._jvm, placed.bridge.sc._jsc.sc().schedulerBackend()
    info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("going", jvm.scala.Option.empty())
    assert backend.decommissionExecutor(executor, info, False, False)


def test_an_executor_that_spark_decommissions_is_left_at_once_and_nothing_is_restored(pipeline):
    recorder = Recorder()
    p = pipeline(reporter=recorder)
    for batch in range(3):
        p.run(batch)
    p.settle()
    victim = sorted(p.placed.state.members)[0]
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


def map_outputs(p) -> dict[Path, str]:
    """Return the index files of the last shuffle's map outputs, and the executors that have them."""
    found = {}
    for name, member in p.placed.state.members.items():
        for folder in psutil.Process(member.pid).environ()["SPARK_EXECUTOR_DIRS"].split(":"):
            found |= dict.fromkeys(Path(folder).rglob("shuffle_*_0.index"), name)
    last = max(int(path.name.split("_")[1]) for path in found)
    return {path: name for path, name in found.items() if path.name.startswith(f"shuffle_{last}_")}


def partitions_in(index: Path) -> list[int]:
    """Return the partitions that a map output has rows of; its index has where each begins, and where the last ends."""
    return np.flatnonzero(np.diff(np.frombuffer(index.read_bytes(), ">i8"))).tolist()


def run_again(sc) -> bool:
    """Return whether Spark runs tasks of a job's last stage, and not for the first time."""
    tracker = sc.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
    stages = [tracker.getStageInfo(max(job.stageIds)) for job in jobs if job is not None and job.stageIds]
    return any(
        stage.currentAttemptId > 0 and stage.numActiveTasks > 0 for stage in stages if stage is not None
    )


def test_a_stage_that_spark_runs_again_since_a_map_output_is_gone(pipeline, cluster, fault_orders):
    """One task cannot fetch its rows, and another one is held meanwhile: Spark runs both again, with attempt number 0.

    The one that was held goes on when its successor has begun, and may finish before or after it.
    """
    p = pipeline()
    for batch in range(3):
        p.run(batch)
    p.settle()
    rows = p.data(3)
    places = partition_of([pa.array([row[0] for row in rows])], 6)
    one, others = (
        [row for row, place in zip(rows, places, strict=True) if (place == 0) == of_one] for of_one in (1, 0)
    )
    rows = [*one, *others[: len(one)]]  # each half is one map task's
    again = []

    def lose_the_output(batch: int, subtopology: int) -> None:
        if (batch, subtopology) == (3, 0):
            (index,) = (path for path in map_outputs(p) if partitions_in(path) == [0])
            (rows_file,) = index.parents[1].rglob(
                index.with_suffix(".data").name
            )  # each in a folder by its name
            index.unlink()
            rows_file.unlink()
            (fault_orders / "attempt.processed").write_text("hold")

    def let_it_go_on() -> None:
        try:
            wait_until((fault_orders / "attempt.processed.held").exists, "an attempt is held", seconds=30)
            wait_until(lambda: run_again(cluster.sparkContext), "Spark runs the stage again", seconds=30)
            again.append(True)
        finally:
            (fault_orders / "attempt.processed.release").touch()

    p.placed.on_stage = lose_the_output
    thread = threading.Thread(target=let_it_go_on)
    thread.start()
    frame = cluster.createDataFrame(
        cluster.sparkContext.parallelize(rows, 2), "key string, `group` string, value bigint"
    )
    p.placed.process_batch(frame, 3)
    p.rows.extend(rows)
    thread.join()
    assert again
    p.run(4)
    p.check()
    p.settle()
    p.check_state()


def test_an_executor_that_dies_with_map_outputs_before_they_are_fetched(pipeline, cluster):
    p = pipeline()
    for batch in range(3):
        p.run(batch)
    p.settle()
    victims = []

    def kill(batch: int, subtopology: int) -> None:
        if (batch, subtopology) == (3, 0):
            victims.append(max(map_outputs(p).values()))
            kill_executor(p.placed, victims[0])
            wait_until(lambda: victims[0].split("-")[1] not in p.placed.bridge.alive(), "the loss is noticed")

    p.placed.on_stage = kill
    p.run(3)
    p.run(4)
    p.check()
    assert victims
