"""Kills at random, from a seed, in the middle of everything; the result has to be the truth all the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from placed_harness import (
    EXECUTORS,
    SINKS,
    FaultOrders,
    Pipeline,
    check_copies,
    check_each_batch,
    data,
    part_from_executor,
    runs,
    topology,
    wait_until,
)
from test_driver_killed import drive, end, write_events

from taskplace.spark import faults
from taskplace.spark.driver import followers
from taskplace.spark.driver.journal import Journal
from taskplace.spark.driver.programs import programs
from taskplace.spark.worker.attempt import reports_dir

pytestmark = pytest.mark.spark

WORKER_POINTS = [name for name in faults.POINTS if not name.startswith("batch.")]
ATTEMPT_POINTS = [name for name in WORKER_POINTS if name.startswith("attempt.")]
DRIVER_POINTS = [name for name in faults.POINTS if name.startswith("batch.")]

T = TypeVar("T")

#: After so many batches, an order that nobody has taken is withdrawn, and another one is drawn.
PATIENCE = 4


class Crash(BaseException):
    """The driver is gone: no handler of errors runs any more."""


def deck(rng: random.Random, names: Sequence[T]) -> Iterator[T]:
    """Yield them at random, all of them before any comes again."""
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
            self._order = self._crash = None
            self._count()
            for placed in self._old:
                placed.close()

    def calm(self, batches: int) -> None:
        """Run a few batches more, without orders, so that who died last is noticed, and all settle."""
        for batch in range(len(self.batches), len(self.batches) + batches):
            self._batch(batch, 300, random.Random(f"{self.seed} {batch}"))
        self.p.settle()

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
    ("seed", "kill", "crash"),
    [(20261121, 0.05, 0.03), *(pytest.param(s, 0.4, 0.12, marks=pytest.mark.slow) for s in (2, 3, 5, 7, 11))],
)
def test_executors_and_drivers_that_die_at_random_points(
    pipeline, fault_orders, monkeypatch, seed, kill, crash
):
    """One seed every day; those after it kill in almost every other batch, at each point several times."""
    print(f"seed {seed}")
    batches = 200
    config = {"num.standby.replicas": random.Random(seed).choice([0, 1, 2])}
    p = pipeline(partitions=4, snapshot_interval=3, pairs=True, config=config)
    chaos = Chaos(p, fault_orders, seed, monkeypatch)
    try:
        chaos.run(batches, kill=kill, crash=crash)
    finally:
        print(chaos)
    chaos.calm(2)
    p.check()
    check_each_batch(p.folder, chaos.batches, list(SINKS))
    assert p.placed.journal.last_batch == batches + 1
    assert chaos.orders.carried_out.total() >= kill * batches / 2
    assert chaos.crashes.total() >= crash * batches / 2
    assert chaos.totals["losses"] > 0
    assert chaos.executors - p.placed.bridge.alive()
    assert set(DRIVER_POINTS) <= set(chaos.crashes)
    if kill >= 0.4:  # the deck has had every point several times
        assert set(ATTEMPT_POINTS) <= set(chaos.orders.carried_out)
    p.check_state()


def test_a_zombie_that_wakes_up_after_its_task_was_replaced_changes_nothing(pipeline, fault_orders):
    """An executor dies, its Python worker does not: stopped while it holds a finished attempt, it goes on later."""
    p = pipeline()
    for batch in range(2):
        p.run(batch)
    p.settle()
    orders = FaultOrders(fault_orders)
    orders.write("attempt.sealed", "hold")
    victims: list[str] = []

    def kill_the_jvm_of_the_held_worker() -> None:
        wait_until(lambda: orders.held_at("attempt.sealed"), "an attempt is held")
        worker = orders.held_at("attempt.sealed")
        for member in p.placed.members.by_instance.values():
            if _is_ancestor(member.pid, worker):
                victims.append(member.executor.instance)
                part_from_executor(worker)
                os.kill(member.pid, signal.SIGKILL)
                return

    killer = threading.Thread(target=kill_the_jvm_of_the_held_worker)
    killer.start()
    p.run(2)
    killer.join()
    zombie = orders.held_at("attempt.sealed")
    assert victims
    p.check()
    p.run(3)
    reports = p.folder / "checkpoint" / reports_dir(2, 0)
    before = set(reports.glob("*.json"))
    assert runs(zombie)
    orders.release("attempt.sealed")
    wait_until(lambda: not runs(zombie), "the zombie has ended")
    assert len(set(reports.glob("*.json")) - before) == 1, "it was meant to finish its attempt"
    p.run(4)
    wait_until(lambda: len(p.placed.bridge.executors()) == EXECUTORS, "a replacement is there", seconds=90)
    for batch in range(5, 8):
        p.run(batch)
        p.settle()
    p.check()
    p.check_state()


def _is_ancestor(pid: int, of: int) -> bool:
    return any(parent.pid == pid for parent in psutil.Process(of).parents())


class DriverRounds:
    """Driver after driver, each on a cluster of its own, is killed with all of it; what happens is drawn from a seed.

    Half of them are killed at a point of the driver's, the others while a worker of theirs is in an attempt: it is
    held there. Of these workers one half is killed too; the others live on, and go on when the next driver has
    committed a batch. Some drivers lose an executor before that.
    """

    BATCHES = 70

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        rng = random.Random(seed)
        orders = folder / "orders"
        orders.mkdir()
        self.orders = FaultOrders(orders)
        in_flight, kills = deck(rng, ATTEMPT_POINTS), deck(rng, WORKER_POINTS)
        lives_on = deck(rng, (True, False))
        ends = [*DRIVER_POINTS, *(next(in_flight) for _ in DRIVER_POINTS)]
        rng.shuffle(ends)
        #: How a driver ends; where one of its executors is killed before that; whether a held worker lives on.
        self.rounds = [
            (
                end,
                next(kills) if rng.random() < 0.6 else None,
                end in ATTEMPT_POINTS and next(lives_on),
            )
            for end in ends
        ]
        self.held: Counter[str] = Counter()
        self.zombies: Counter[str] = Counter()
        self._zombie: tuple[int, str] | None = None

    def run(self) -> None:
        write_events(self.folder, self.BATCHES)
        try:
            for end_at, kill_at, lives_on in self.rounds:
                driver = drive(self.folder, {"TASKPLACE_FAULTS": str(self.orders.folder)})
                try:
                    self._await_batches(driver, 1)
                    self._let_the_zombie_go_on()
                    if kill_at is not None:
                        self._order(driver, kill_at, "kill")
                    if end_at in DRIVER_POINTS:
                        self.orders.write(end_at)
                        assert driver.wait(timeout=300) == -signal.SIGKILL, f"{end_at}: {self._log()}"
                        assert self.orders.taken()
                    else:
                        self._kill_in_an_attempt(driver, end_at, lives_on)
                finally:
                    end(driver)
            last = drive(self.folder, {"TASKPLACE_FAULTS": str(self.orders.folder)})
            try:
                self._await_batches(last, 1)
                self._let_the_zombie_go_on()
                assert last.wait(timeout=400) == 0, self._log()
            finally:
                end(last)
        finally:
            if self._zombie is not None:
                os.kill(self._zombie[0], signal.SIGKILL)

    def _order(self, driver: subprocess.Popen, name: str, what: str) -> None:
        """Give an order, and time to carry it out: there are attempts in every batch, but maybe no snapshot."""
        self.orders.write(name, what)
        self._await_batches(driver, PATIENCE, self.orders.taken)
        self.orders.withdraw()
        if name in ATTEMPT_POINTS:
            assert self.orders.carried_out[name] == self.orders.written[name], f"none came by {name}"

    def _kill_in_an_attempt(self, driver: subprocess.Popen, name: str, lives_on: bool) -> None:
        self._order(driver, name, "hold")
        wait_until(lambda: self.orders.held_at(name), f"a worker is held at {name}")
        worker = self.orders.held_at(name)
        self.held[name] += 1
        if lives_on:
            part_from_executor(worker)
            self._zombie = worker, name
        os.killpg(driver.pid, signal.SIGKILL)
        if not lives_on:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
            self.orders.forget(name)

    def _let_the_zombie_go_on(self) -> None:
        if self._zombie is None:
            return
        worker, name = self._zombie
        assert runs(worker)
        self.orders.release(name)
        wait_until(lambda: not runs(worker), f"the worker held at {name} has ended")
        self._zombie = None
        self.orders.forget(name)
        self.zombies[name] += 1

    def _await_batches(self, driver: subprocess.Popen, count: int, enough=lambda: False) -> None:
        """Wait until a driver has committed so many batches, or it is enough."""
        before = self._committed()
        wait_until(
            lambda: enough() or self._committed() >= before + count or driver.poll() is not None,
            f"{count} batches are committed",
            seconds=300,
        )
        assert driver.poll() is None, f"the driver has ended by itself: {self._log()}"

    def _log(self) -> str:
        return (self.folder / "driver.log").read_text()[-3000:]

    def _committed(self) -> int:
        manifests = (self.folder / "checkpoint" / "manifests").glob("*.json")
        return max((int(path.stem) for path in manifests if path.stem.isdigit()), default=-1)

    def __str__(self) -> str:
        return (
            f"rounds {self.rounds}; ordered {dict(self.orders.written)}, carried out {dict(self.orders.carried_out)}, "
            f"killed in attempts {dict(self.held)}, of their workers went on later {dict(self.zombies)}"
        )


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_drivers_killed_at_random_points(tmp_path, seed):
    """Before, at and after the commit, and in the middle of attempts; some lose an executor before that."""
    print(f"seed {seed}")
    chaos = DriverRounds(tmp_path, seed)
    try:
        chaos.run()
    finally:
        print(chaos)
    batches = [data(batch) for batch in range(chaos.BATCHES)]
    check_each_batch(tmp_path, batches, ["keys", "groups"])
    carried_out = chaos.orders.carried_out
    assert {name: carried_out[name] for name in DRIVER_POINTS} == dict.fromkeys(DRIVER_POINTS, 1)
    killed = Counter(kill_at for _, kill_at, _ in chaos.rounds if kill_at in ATTEMPT_POINTS)
    assert killed.total() > 0, "another seed"
    assert Counter({name: carried_out[name] for name in ATTEMPT_POINTS}) == chaos.held + killed
    assert (chaos.held.total(), chaos.zombies.total()) == (4, 2)
    history = Journal(tmp_path / "checkpoint", {}).history
    rows = [row for batch in batches for row in batch]
    assert check_copies(tmp_path, history, programs(topology(tmp_path).build()), rows) >= len(history)
