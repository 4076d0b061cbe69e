"""Random lives of a whole `Placed`, without Spark: whatever dies, comes and goes, what is sent and kept is the truth.

Many small batches run here in the time that one takes with Spark, so that rare orders of events come up. A life is
drawn from a seed, which is printed; nothing in it depends on a clock but when a copy without a role is removed.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from taskplace.errors import CheckpointError, Fenced
from taskplace.spark.placed import Placed
from tests.support.accounts import Row, Truth, rows_of, table, topology
from tests.support.chaos import ATTEMPT_POINTS, DRIVER_POINTS, WORKER_POINTS, Crash, deck
from tests.support.placed_harness import check_copies, planned_copies
from tests.support.placed_without_spark import Died, World

FEW_EXECUTORS, MOST_EXECUTORS = 3, 6


class Life:
    """One stream, under executors and drivers that die; `totals` says what happened.

    All is drawn from the seed, in the order in which it is needed.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.seed = world, seed
        self.truth, self.totals = Truth(), Counter[str]()
        self.crashed: Counter[str] = Counter()
        self.died: Counter[str] = Counter()
        self.overtaken: Counter[str] = Counter()
        self.drained: str | None = None  # the instance
        self.spare: Placed | None = None
        self.hung: Placed | None = None  # a driver that another one has replaced, and that may not know it
        self._draw = random.Random(f"{seed}")
        self._kills = deck(random.Random(f"kills {seed}"), WORKER_POINTS)
        self._overtakes = deck(random.Random(f"overtakes {seed}"), DRIVER_POINTS)
        self._crashes = deck(random.Random(f"crashes {seed}"), [*DRIVER_POINTS, *ATTEMPT_POINTS])
        self._kill: str | None = None
        self._crash: str | None = None
        self._overtake: str | None = None
        self._rows: list[Row] = []  # of the batch that runs
        world.at = self._at
        self.placed = self._open()

    def _open(self) -> Placed:
        draw = self._draw
        config = {"num.standby.replicas": draw.choice([0, 1, 1, 2]), "probing.rebalance.interval.ms": 1}
        config["acceptable.recovery.lag"] = draw.choice([0, 10])
        config["state.cleanup.delay.ms"] = draw.choice([0, 1, 600_000])
        options = {"snapshot_interval": draw.choice([2, 5]), "snapshot_bytes": draw.choice([500, 1 << 20])}
        options |= {"compression": draw.choice(["lz4", None]), "follower_share": 1.0}
        opened = self.world.open(topology(self.world.folder), config=config, **options)
        opened.on_stage = self._on_stage
        return opened

    # -- what dies

    def _at(self, point: str) -> None:
        world = self.world
        if point == self._crash:
            self._crash = None
            self.crashed[point] += 1
            raise Crash(point)
        if point == self._overtake:
            self._overtaken_at(point)
        if point == self._kill and world.running is not None:
            others = sorted(world.usable() - {world.running})
            victim = self._draw.choice([world.running, *others])
            self._kill = None
            self.died[point] += 1
            if not others or self._draw.random() < 0.5:
                world.come()
            world.lose(victim)
            if victim == world.running:
                raise Died(point)

    def _overtaken_at(self, point: str) -> None:
        """Another driver takes over and runs this batch, while this one stands still at a point."""
        self._count()
        self._overtake, (kill, crash) = None, (self._kill, self._crash)
        self._kill = self._crash = None
        self.overtaken[point] += 1
        self.hung, self.placed, self.drained = self.placed, self._open(), None
        self._give(self.placed, self.truth.batches, self._rows)
        self._kill, self._crash = kill, crash

    def _on_stage(self, batch: int, subtopology: int) -> None:
        """Visit executors while a batch runs, as the replicator's thread would."""
        if self._draw.random() < 0.3:
            self._visit(self.placed, "visits within a batch")

    def _visit(self, placed: Placed, name: str) -> None:
        self.totals[name] += self.world.follow(placed, self._draw.randrange(1, 6))

    def _replace(self, *, crashed: bool) -> None:
        """Go on with another driver: with the spare one if there is one, at times as another application."""
        self._count()
        before, spare, self.spare = self.placed, self.spare, None
        self.hung = before if self._draw.random() < 0.5 else None
        if crashed and self._draw.random() < 0.3:
            self.hung = spare = None  # they have gone with their application
            self.world.restart(self._draw.randrange(1, 4))
            self.totals["applications"] += 1
        if self.hung is None:
            before.close()
        self.totals["spares"] += spare is not None
        self.placed = spare or self._open()
        self.drained = None  # drivers do not know what those before them have drained

    # -- a batch

    def run(self, batches: int, *, kill: float, crash: float, overtake: float) -> None:
        """Run so many batches; how probably an executor, or the driver, dies in one, or the driver is overtaken."""
        for _ in range(batches):
            draw, rows = self._draw, rows_of(self.truth.batches, self._draw)
            if self._kill is None and draw.random() < kill:
                self._kill = next(self._kills)
            if self._crash is None and draw.random() < crash:
                self._crash = next(self._crashes)
            if self._overtake is None and draw.random() < overtake:
                self._overtake = next(self._overtakes)
            self._come_and_go()
            self._batch(rows)
            self._look_after_drains()
            if draw.random() < 0.7:
                self._visit(self.placed, "visits")
            self._disturb(rows)
        self._kill = self._crash = self._overtake = None

    def calm(self) -> None:
        """Run two batches in which nothing dies, and let all followers catch up."""
        for _ in range(2):
            self._batch(rows_of(self.truth.batches, self._draw))
            assert self.world.follow(self.placed, 200) < 200, "visits never come to an end"
        self._count()

    def _come_and_go(self) -> None:
        draw, world = self._draw, self.world
        for id in sorted(world.leaving):
            world.lose(id)
        there = sorted(world.usable())
        if len(there) < MOST_EXECUTORS and (len(there) < FEW_EXECUTORS or draw.random() < 0.1):
            world.come()
            self.totals["come"] += 1
        elif len(there) > 2 and draw.random() < 0.1:
            leave, name = draw.choice([(world.leave, "decommissioned"), (world.lose, "gone between batches")])
            leave(draw.choice(there))
            self.totals[name] += 1
        if self.spare is None and draw.random() < 0.2:
            self.spare = self._open()
        elif self.spare is not None and draw.random() < 0.3:
            self._replace(crashed=False)

    def _batch(self, rows: list[Row]) -> None:
        self._rows = rows
        while True:
            placed = self.placed
            try:
                self._give(placed, self.truth.batches, rows)
                break
            except Crash:
                if self._draw.random() < 0.3:
                    self._crash = next(self._crashes)  # maybe before the batch has ended
                self._replace(crashed=True)
            except (Fenced, CheckpointError) as error:
                if placed is not self.placed:  # it was overtaken, and noticed
                    self.totals["overtaken and refused"] += 1
                    break
                # A spare driver that was made before the one in charge had begun.
                assert "another driver has changed the checkpoint" in str(error)
                self.totals["spares refused"] += 1
                self._replace(crashed=False)
        self.truth.take(rows)

    def _give(self, placed: Placed, number: int, rows: list[Row]) -> None:
        self.world.batch(placed, number, **{"in": table(rows)})

    def _look_after_drains(self) -> None:
        there = {executor.instance for executor in self.world.executors()}
        known = sorted(there & set(self.placed.state.members))
        if self.drained not in known:
            self.drained = None
        if self.drained is None:
            if len(known) > 2 and self._draw.random() < 0.8:
                self.drained = self._draw.choice(known)
                self.placed.drain(self.drained)
                self.totals["drained"] += 1
        elif self.placed.can_remove(self.drained):
            self.world.lose(self.drained.removeprefix("executor-"))
            self.totals["emptied"] += 1
            self.drained = None

    def _disturb(self, rows: list[Row]) -> None:
        """Let a driver that was replaced go on: it may visit executors, and runs no batch."""
        if self.hung is None or self._draw.random() < 0.5:
            return
        try:
            self.totals["visits of the replaced"] += self.world.follow(self.hung, 3)
        except Exception as error:  # its replicator tries again
            self.totals[f"{type(error).__name__} of the replaced"] += 1
        with pytest.raises((Fenced, CheckpointError)):
            self._give(self.hung, self.truth.batches - self._draw.randrange(2), rows)
        self.totals["fenced"] += 1
        self.hung = None

    # -- the end

    def _count(self) -> None:
        stats = self.placed.stats
        for name in ("losses", "promotions", "replayed", "restored", "scratch", "followed"):
            self.totals[name] += getattr(stats, name)

    def check(self) -> None:
        """All that was sent, batch by batch, and all that is kept, read from outside and copy by copy, is the truth."""
        world, placed, truth = self.world, self.placed, self.truth
        for sink in ("users", "windows", "paid", "sums", "joined"):
            sent = world.sent(sink)
            for batch in range(truth.batches):
                assert sent.get(batch, []) == truth.sent[sink].get(batch, []), f"sink {sink}, batch {batch}"
            assert set(sent) == set(truth.sent[sink]), f"sink {sink}"
        for program in placed.programs:
            for store in program.stores:
                assert sorted(world.stored(placed, store)) == truth.store(store), f"store {store}, read"
        history = placed.journal.history
        given = truth.store, planned_copies(placed), placed.journal.last.watermark
        assert check_copies(world.folder, history, placed.programs, *given) >= len(history)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}, {self.truth.batches} batches; executors died {dict(self.died)}; "
            f"drivers crashed {dict(self.crashed)}; overtaken {dict(self.overtaken)}; "
            f"directories taken over {self.world.adopted}; "
            f"{dict(sorted(self.totals.items()))}"
        )


def live(folder: Path, seed: int, batches: int) -> Life:
    """Live a life to its end, and see that all of it is the truth."""
    print(f"seed {seed}")
    with pytest.MonkeyPatch.context() as patch:
        life = Life(World(folder, patch, executors=3), seed)
        try:
            life.run(batches, kill=0.4, crash=0.3, overtake=0.2)
            life.calm()
            life.check()
        finally:
            print(life)
    return life


def check_what_happened(lives: list[Life]) -> None:
    """A life in which nothing dies proves nothing."""
    for points, what in ((DRIVER_POINTS, "crashed"), (DRIVER_POINTS, "overtaken"), (WORKER_POINTS, "died")):
        assert set(points) <= {point for life in lives for point in getattr(life, what)}, what
    names = "losses", "promotions", "emptied", "spares", "fenced", "applications", "restored", "replayed"
    for name in names:
        assert sum(life.totals[name] for life in lives), name
    assert sum(life.world.adopted for life in lives)


def test_whatever_dies_comes_and_goes_the_truth_is_sent_and_kept(tmp_path):
    check_what_happened([live(tmp_path / str(seed), seed, 24) for seed in (1, 2, 3)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 112))
def test_long_lives(tmp_path, seed):
    check_what_happened([live(tmp_path, seed, 150)])
