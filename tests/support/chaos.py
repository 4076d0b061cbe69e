"""Chaos runs: small batches while executors are killed, drained and undrained, and drivers crash."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from taskplace.spark import faults
from taskplace.spark.driver import followers
from tests.support.placed_harness import FaultOrders, Pipeline

WORKER_POINTS = [name for name in faults.POINTS if not name.startswith("batch.")]
ATTEMPT_POINTS = [name for name in WORKER_POINTS if name.startswith("attempt.")]
DRIVER_POINTS = [name for name in faults.POINTS if name.startswith("batch.")]

T = TypeVar("T")

#: After this many batches, an order that no process has taken is withdrawn, and another one is drawn.
PATIENCE = 4


class Crash(BaseException):
    """The driver crashes here: no error handler must run."""


def deck(rng: random.Random, names: Sequence[T]) -> Iterator[T]:
    """Yield the items at random for ever. Every item comes before any comes again."""
    while True:
        yield from rng.sample(names, len(names))


class Chaos:
    """One run of small batches under executors that are killed and drivers that crash, all drawn from a seed.

    The draws of a batch depend only on the seed and the batch. Executors take their orders from files, and it is random
    which one is first. The driver runs in the test's process. So its crash is an exception at a point, after which
    another driver opens the checkpoint and gets the same batch again, as from Spark. Every second crashed driver
    continues to have executors follow for a while, like one that only hung. Executors are drained one at a time, and
    undrained when they are empty, if they are still alive.
    """

    def __init__(self, p: Pipeline, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.p, self.seed = p, seed
        self.orders = FaultOrders(folder)
        self.crashes: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.executors: set[str] = set()
        self.batches: list[list[tuple]] = []
        self.drained: str | None = None  # the drained instance
        self._monkeypatch = monkeypatch
        self._kills = deck(random.Random(f"kills {seed}"), WORKER_POINTS)
        self._drivers = deck(random.Random(f"drivers {seed}"), DRIVER_POINTS)
        self._order: tuple[str, int] | None = None  # drawn for a stage, and not written yet
        self._age = 0
        self._crash: str | None = None
        self._old: list = []
        monkeypatch.setattr(faults, "point", self._point)

    def run(self, batches: int, *, kill: float, crash: float, drain: float = 0.0) -> None:
        """Run this many batches. `kill`, `crash`, `drain`: the probability of such an order for a batch."""
        try:
            for batch in range(batches):
                draw = random.Random(f"{self.seed} {batch}")
                self._look_after_orders(batch, draw, kill)
                if draw.random() < crash:
                    self._crash = self._crash or next(self._drivers)
                self._look_after_drains(random.Random(f"drains {self.seed} {batch}"), drain)
                self._batch(batch, draw.choice([0, 1, 40, 300]), draw)
                if draw.random() < 0.03:
                    self._restart(draw, crashed=False)
        finally:
            self.orders.withdraw()
            self._order = self._crash = None
            if self.drained in self.p.placed.state.members:
                self.p.placed.undrain(self.drained)
            self._count()
            for placed in self._old:
                placed.close()

    def calm(self, batches: int) -> None:
        """Run a few more batches without orders, so that the last deaths are noticed and all copies settle."""
        for batch in range(len(self.batches), len(self.batches) + batches):
            self._batch(batch, 300, random.Random(f"{self.seed} {batch}"))
        self.p.settle()

    def _look_after_drains(self, draw: random.Random, drain: float) -> None:
        placed, known = self.p.placed, sorted(self.p.placed.state.members)
        if self.drained not in known:
            self.drained = None
        if self.drained is not None and placed.can_remove(self.drained):
            self.totals["emptied"] += 1
            placed.undrain(self.drained)
            self.drained = None
        elif self.drained is None and len(known) > 1 and draw.random() < drain:
            self.drained = draw.choice(known)
            self.totals["drained"] += 1
            placed.drain(self.drained)

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
        """Write the order that was drawn for this stage, so that not all orders go to the first stage."""
        if self._order is not None and self._order[1] == stage:
            self.orders.write(self._order[0])
            self._order = None

    def _batch(self, batch: int, rows: int, draw: random.Random) -> None:
        given = self.p.data(batch, rows)
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
        # A starting driver waits for the executors that it expects. This one continues with the remaining ones.
        if len(before.bridge.executors()) > 1:
            self._monkeypatch.setattr(followers, "WAIT_FOR_EXECUTORS_SECONDS", 0.5)
        self.p.placed = self.p.open(snapshot_interval=3, **options)
        self.drained = None  # a driver does not know the drains of earlier drivers

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
