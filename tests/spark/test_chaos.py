"""Kills at random, from a seed, in the middle of everything; the result has to be the truth all the same."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from placed_harness import EXECUTORS, SINKS, FaultOrders, Pipeline, check_each_batch, data, wait_until
from test_driver_killed import drive, end, write_events

from taskplace.spark import faults
from taskplace.spark.driver import followers

pytestmark = pytest.mark.spark

WORKER_POINTS = [name for name in faults.POINTS if not name.startswith("batch.")]
DRIVER_POINTS = [name for name in faults.POINTS if name.startswith("batch.")]

#: After so many batches, an order that nobody has taken is withdrawn, and another one is drawn.
PATIENCE = 4


class Crash(BaseException):
    """The driver is gone: no handler of errors runs any more."""


def deck(rng: random.Random, names: Sequence[str]) -> Iterator[str]:
    """Yield names at random, all of them before any comes again."""
    while True:
        yield from rng.sample(names, len(names))


class Chaos:
    """One run of small batches under executors that are killed and drivers that crash, all drawn from a seed.

    What is drawn for a batch depends on the seed and the batch alone. Executors take their orders from files; which of
    them comes by first, nobody knows. The driver shares its process with the test, so that its crash is an exception
    at a point, after which another driver opens the checkpoint and gets the same batch again, as Spark would give it;
    every other time the crashed one goes on to visit executors for a while, as one does that only hung.
    """

    def __init__(self, p: Pipeline, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.p, self.seed = p, seed
        self.orders = FaultOrders(folder)
        self.crashes: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.executors: set[str] = set()
        self.batches: list[list[tuple[str, str, int]]] = []
        self._monkeypatch = monkeypatch
        self._kills = deck(random.Random(f"kills {seed}"), WORKER_POINTS)
        self._drivers = deck(random.Random(f"drivers {seed}"), DRIVER_POINTS)
        self._order: tuple[str, int] | None = None  # drawn for a stage, and not written yet
        self._age = 0
        self._crash: str | None = None
        self._old: list = []
        monkeypatch.setattr(faults, "point", self._point)

    def run(self, batches: int, *, kill: float, crash: float) -> None:
        """Run so many batches; `kill` and `crash`: how probably something is ordered for a batch."""
        try:
            for batch in range(batches):
                draw = random.Random(f"{self.seed} {batch}")
                self._look_after_orders(batch, draw, kill)
                if draw.random() < crash:
                    self._crash = self._crash or next(self._drivers)
                self._batch(batch, draw.choice([0, 1, 40, 300]), draw)
                if draw.random() < 0.03:
                    self._restart(draw, crashed=False)
        finally:
            self.orders.withdraw()
            self._count()
            for placed in self._old:
                placed.close()

    def _look_after_orders(self, batch: int, draw: random.Random, kill: float) -> None:
        alive = self.p.placed.bridge.alive()
        self.executors |= alive
        wanted, stage = draw.random() < kill, draw.choice(self.p.placed.built.order)
        self._age += 1
        if self._age > PATIENCE:
            self.orders.withdraw()
            self._order = None
            wanted = True
        if self.orders.taken() and self._order is None and wanted and batch and len(alive) > 1:
            self._order, self._age = (next(self._kills), stage), 0

    def _at_stage(self, _batch: int, stage: int) -> None:
        """Write the order that was drawn for this stage, so that not the first one takes them all."""
        if self._order is not None and self._order[1] == stage:
            self.orders.write(self._order[0])
            self._order = None

    def _batch(self, batch: int, rows: int, draw: random.Random) -> None:
        given = data(batch, rows)
        while True:
            self.p.placed.on_stage = self._at_stage
            try:
                self.p.placed.process_batch(self.p.frame(given), batch)
                break
            except Crash:
                if draw.random() < 0.3:
                    self._crash = next(self._drivers)  # maybe before the batch has ended
                self._restart(draw, crashed=True)
        self.batches.append(given)
        self.p.rows.extend(given)
        self._monkeypatch.setattr(followers, "WAIT_FOR_EXECUTORS_SECONDS", 60.0)

    def _point(self, name: str) -> None:
        if name == self._crash:
            self._crash = None
            self.crashes[name] += 1
            raise Crash(name)

    def _restart(self, draw: random.Random, *, crashed: bool) -> None:
        self._count()
        before, options = self.p.placed, {"config": {"num.standby.replicas": draw.choice([0, 1, 2])}}
        if crashed and draw.random() < 0.5:
            self._old.append(before)
        else:
            before.close()
        for placed in self._old[:-1]:
            placed.close()
        # A driver that starts waits for the executors it expects. This one goes on with those that are left.
        if len(before.bridge.executors()) > 1:
            self._monkeypatch.setattr(followers, "WAIT_FOR_EXECUTORS_SECONDS", 0.5)
        self.p.placed = self.p.open(snapshot_interval=3, **options)

    def _count(self) -> None:
        stats = self.p.placed.stats
        for name in ("losses", "promotions", "replayed", "restored", "scratch", "elsewhere", "followed"):
            self.totals[name] += getattr(stats, name)

    def __str__(self) -> str:
        gone = len(self.executors - self.p.placed.bridge.alive())
        return (
            f"seed {self.seed}, {len(self.batches)} batches; executors: ordered {dict(self.orders.written)}, "
            f"carried out {dict(self.orders.carried_out)}, gone {gone}; drivers crashed {dict(self.crashes)}; "
            f"{dict(self.totals)}"
        )


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("seed", "batches"),
    [(20261121, 30), *(pytest.param(seed, 200, marks=pytest.mark.slow) for seed in (2, 3, 5, 7, 11))],
)
def test_executors_and_drivers_that_die_at_random_points(pipeline, fault_orders, monkeypatch, seed, batches):
    print(f"seed {seed}")
    config = {"num.standby.replicas": random.Random(seed).choice([0, 1, 2])}
    p = pipeline(partitions=4, snapshot_interval=3, pairs=True, config=config)
    chaos = Chaos(p, fault_orders, seed, monkeypatch)
    try:
        chaos.run(batches, kill=0.4, crash=0.12)
    finally:
        print(chaos)
    p.check()
    check_each_batch(p.folder, chaos.batches, list(SINKS))
    assert p.placed.journal.last_batch == batches - 1
    assert chaos.orders.carried_out.total() >= batches // 10
    assert chaos.crashes.total() >= batches // 15
    assert chaos.totals["losses"] > 0
    assert chaos.executors - p.placed.bridge.alive()


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
    """Driver after driver is killed before, at and after the commit, with all its executors; some lose one before."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    write_events(tmp_path, 60)
    folder = tmp_path / "orders"
    folder.mkdir()
    orders = FaultOrders(folder)
    drivers, kills = deck(rng, DRIVER_POINTS), deck(rng, WORKER_POINTS)
    for round_ in range(6):
        loses_an_executor = rng.random() < 0.6
        worker, driver = next(kills), next(drivers)
        process = drive(tmp_path, {"TASKPLACE_FAULTS": str(folder)})
        try:
            _await_batches(tmp_path, process, 1)
            if loses_an_executor:
                orders.write(worker)
                _await_batches(tmp_path, process, PATIENCE, orders.taken)
                orders.withdraw()
            orders.write(driver)
            assert process.wait(timeout=300) == -signal.SIGKILL, f"round {round_}: {_log(tmp_path)}"
            assert orders.taken()
        finally:
            end(process)
    print(f"ordered {dict(orders.written)}, carried out {dict(orders.carried_out)}")
    last = drive(tmp_path)
    try:
        assert last.wait(timeout=300) == 0, _log(tmp_path)
    finally:
        end(last)
    check_each_batch(tmp_path, [data(batch) for batch in range(60)], ["keys", "groups"])
    assert sum(orders.carried_out[name] for name in DRIVER_POINTS) == 6


def _await_batches(folder: Path, driver, count: int, enough=lambda: False) -> None:
    """Wait until a driver has committed so many batches, or it is enough."""
    before = _manifests(folder)
    wait_until(
        lambda: enough() or _manifests(folder) >= before + count or driver.poll() is not None,
        f"{count} batches are committed",
        seconds=300,
    )
    assert driver.poll() is None, f"the driver has ended by itself: {_log(folder)}"


def _log(folder: Path) -> str:
    return (folder / "driver.log").read_text()[-3000:]


def _manifests(folder: Path) -> int:
    return max((int(path.stem) for path in (folder / "checkpoint" / "manifests").glob("*.json")), default=-1)
