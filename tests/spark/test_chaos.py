"""Kills at random, from a seed, in the middle of everything; the result has to be the truth all the same."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

import pytest
from placed_harness import EXECUTORS, check, wait_until
from test_driver_killed import drive, end, write_events

from taskplace.spark.faults import POINTS

pytestmark = pytest.mark.spark

WORKER_POINTS = [name for name in POINTS if not name.startswith("batch.")]
DRIVER_POINTS = [name for name in POINTS if name.startswith("batch.")]


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("seed", "batches"),
    [(20261121, 25), *(pytest.param(seed, 200, marks=pytest.mark.slow) for seed in (2, 3, 5, 7, 11))],
)
def test_executors_killed_at_random_points(pipeline, fault_orders, seed, batches):
    print(f"seed {seed}")
    rng = random.Random(seed)
    p = pipeline(partitions=4, snapshot_interval=5, config={"num.standby.replicas": rng.choice([0, 1, 2])})
    kills = 0
    for batch in range(batches):
        if batch and batch % 8 == 0 and len(p.placed.bridge.alive()) == EXECUTORS:
            name = rng.choice(WORKER_POINTS)
            (fault_orders / name).write_text("kill")
            kills += 1
        p.run(batch, rows=rng.choice([0, 1, 40, 300]))
        if rng.random() < 0.1:
            p.check()
        if rng.random() < 0.05:
            p.reopen(config={"num.standby.replicas": rng.choice([0, 1, 2])}, snapshot_interval=5)
    p.check()
    assert kills
    assert p.placed.journal.last_batch == batches - 1


def test_a_zombie_that_wakes_up_after_its_task_was_replaced_changes_nothing(pipeline, fault_orders):
    """An executor dies, its Python worker does not: stopped while it holds a finished attempt, it goes on later."""
    p = pipeline()
    for batch in range(2):
        p.run(batch)
    p.settle()
    (fault_orders / "attempt.sealed").write_text("hold")
    held = fault_orders / "attempt.sealed.held"
    victims: list[str] = []

    def kill_the_jvm_of_the_held_worker() -> None:
        wait_until(held.exists, "an attempt is held")
        worker = int(held.read_text())
        for member in p.placed.members.by_instance.values():
            if _is_ancestor(member.pid, worker):
                victims.append(member.executor.instance)
                os.kill(member.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_the_jvm_of_the_held_worker)
    killer.start()
    p.run(2)
    killer.join()
    zombie = int(held.read_text())
    assert victims
    p.check()
    p.run(3)
    (fault_orders / "attempt.sealed.release").touch()
    wait_until(lambda: not _runs(zombie), "the zombie has ended")
    p.run(4)
    wait_until(lambda: len(p.placed.bridge.executors()) == EXECUTORS, "a replacement is there", seconds=90)
    for batch in range(5, 8):
        p.run(batch)
        p.settle()
    p.check()


def _is_ancestor(pid: int, of: int) -> bool:
    import psutil

    return any(parent.pid == pid for parent in psutil.Process(of).parents())


def _runs(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_drivers_killed_at_random_points(tmp_path, seed):
    """Driver after driver is killed before, at and after the commit, together with all its executors."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    rows = write_events(tmp_path, 30)
    orders = tmp_path / "orders"
    orders.mkdir()
    for _ in range(6):
        driver = drive(tmp_path, {"TASKPLACE_FAULTS": str(orders)})
        try:
            committed = _manifests(tmp_path)
            wait_until(
                lambda d=driver, c=committed: _manifests(tmp_path) > c or d.poll() is not None,
                "a batch is committed",
                seconds=120,
            )
            (orders / rng.choice(DRIVER_POINTS)).write_text("kill")
            driver.wait(timeout=120)
        finally:
            end(driver)
    last = drive(tmp_path)
    try:
        assert last.wait(timeout=300) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    finally:
        end(last)
    check(tmp_path, rows)


def _manifests(folder: Path) -> int:
    return max((int(path.stem) for path in (folder / "checkpoint" / "manifests").glob("*.json")), default=-1)
