"""Kills at random, from a seed, in the middle of everything; the result has to be the truth all the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.compile.programs import programs
from taskplace.spark.messages import reports_dir
from tests.spark.test_driver_killed import drive, end, write_events
from tests.support.chaos import ATTEMPT_POINTS, DRIVER_POINTS, PATIENCE, WORKER_POINTS, Chaos, deck
from tests.support.clicks import Clicks
from tests.support.placed_harness import (
    EXECUTORS,
    SINKS,
    FaultOrders,
    check_copies,
    check_each_batch,
    check_private,
    data,
    entries,
    part_from_executor,
    runs,
    topology,
    wait_until,
)

pytestmark = pytest.mark.spark


EVERYDAY = pytest.mark.everyday("State effectively once", "Sinks", "One key, one state", "Privacy and trust")
#: Batches, and how probably an executor is killed and the driver crashes in one; a short run has to be a dense one.
RUNS = [
    pytest.param(15155, 10, 0.3, 0.4, marks=EVERYDAY),
    pytest.param(20261121, 200, 0.05, 0.03, marks=pytest.mark.slow),
    *(pytest.param(seed, 200, 0.4, 0.12, marks=pytest.mark.slow) for seed in (2, 3, 5, 7, 11)),
]


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("seed", "batches", "kill", "crash"), RUNS)
def test_executors_and_drivers_that_die_at_random_points(
    pipeline, fault_orders, monkeypatch, seed, batches, kill, crash
):
    """A few batches every day; the last runs kill in almost every other batch, at each point several times."""
    print(f"seed {seed}")
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
    check_private(p.folder)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_forgotten_while_executors_die_and_are_drained(pipeline, fault_orders, monkeypatch, seed):
    """State that expires and windows that close; executors are killed, and drained and given back; drivers crash."""
    print(f"seed {seed}")
    p = pipeline(Clicks, partitions=4, snapshot_interval=3)
    chaos = Chaos(p, fault_orders, seed, monkeypatch)
    try:
        chaos.run(150, kill=0.1, crash=0.06, drain=0.2)
    finally:
        print(chaos)
    chaos.calm(2)
    truth = p.remember(chaos.batches)
    truth.check_sinks(p.folder)
    assert chaos.totals["losses"] > 0
    assert chaos.crashes.total() > 0
    assert chaos.totals["emptied"] > 0
    assert sum(map(len, truth.sent["windows"])) > 100
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
        for member in p.placed.state.members.values():
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
            (end, next(kills) if rng.random() < 0.6 else None, end in ATTEMPT_POINTS and next(lives_on))
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
    made = programs(topology(tmp_path).build())
    rows = [row for batch in batches for row in batch]
    assert check_copies(tmp_path, history, made, lambda store: entries(store, rows)) >= len(history)
