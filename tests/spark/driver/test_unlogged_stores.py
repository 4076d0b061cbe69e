"""Stores without a changelog: only the active copy has their entries, so their tasks do not move by themselves."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from taskplace.errors import InputError
from taskplace.spark.driver import operations
from taskplace.spark.inspection.driver import ask
from taskplace.spark.operator_messages import STATUS_FILE, Status, read
from taskplace.spark.processors import Count
from taskplace.spark.sinks import ParquetSink
from tests.support.operators import turn
from tests.support.word_counts import words
from topology import TaskId, Topology

KEYS = "abcdefghijkl"


def counting(world, *, mixed: bool) -> Topology:
    """Count words in a store without a changelog; with `mixed`, in one with a changelog of the same tasks as well."""
    topo = Topology("t")
    topo.store("kept", logged=False)
    source = topo.source("in", key="k", partitions=6)
    source.process(Count("kept", by={"k": "string"}), name="kept").sink(
        "kept-out", target=ParquetSink(world.folder / "kept")
    )
    if mixed:
        source.process(Count("n", by={"k": "string"}), name="n").sink(
            "n-out", target=ParquetSink(world.folder / "n")
        )
    return topo


class Lives:
    """A stream over its drivers, and what its counts are if nothing is lost."""

    def __init__(self, world, *, mixed: bool, standbys: int) -> None:
        self.world, self.mixed = world, mixed
        self.options = {"config": {"num.standby.replicas": standbys, "acceptable.recovery.lag": 0}}
        self.truth: Counter[str] = Counter()
        self.number = 0
        self.start()

    def start(self) -> None:
        self.placed = self.world.open(counting(self.world, mixed=self.mixed), **self.options)

    def batch(self, keys: str = KEYS) -> dict[str, int]:
        """Run a batch, and return its counts from the store without a changelog."""
        self.world.batch(self.placed, self.number, **{"in": words(*keys)})
        self.truth.update(keys)
        if self.mixed:
            assert dict(self.world.sent("n")[self.number]) == {key: self.truth[key] for key in keys}
        self.number += 1
        return dict(self.world.sent("kept")[self.number - 1])

    def whole(self, keys: str = KEYS) -> None:
        """Run a batch, whose counts are whole."""
        assert self.batch(keys) == {key: self.truth[key] for key in keys}

    def owners(self) -> dict[TaskId, str]:
        return {task: owner.instance for task, owner in self.placed.state.owners().items()}


@pytest.fixture(
    params=[(False, 0), (False, 1), (True, 0), (True, 1)], ids=["alone", "alone-1", "mixed", "mixed-1"]
)
def lives(world, request) -> Lives:
    world.come(1)  # two executors
    mixed, standbys = request.param
    made = Lives(world, mixed=mixed, standbys=standbys)
    for _ in range(2):
        made.whole()
        world.follow(made.placed)
    return made


def test_a_task_with_such_a_store_stays_where_it_lives(lives, world):
    before = lives.owners()
    world.come(2)
    world.follow(lives.placed)
    lives.whole()
    assert lives.owners() == before
    lives.start()  # another driver, on the same executors
    lives.whole()
    assert lives.owners() == before
    assert lives.placed.stats.unlogged == 0
    warm = [task for view in lives.placed.placement() for task in range(view.warmup)]
    assert not warm, "nothing is warmed up for a move that does not come"


def test_executors_of_another_application_take_the_copies_over(lives, world):
    world.restart(2)
    lives.start()
    lives.whole()
    assert lives.placed.stats.unlogged == 0


def test_a_drain_is_refused_unless_the_state_may_go(lives, world, monkeypatch):
    monkeypatch.setattr(operations, "LEAST_SECONDS", 0.0)
    placed = lives.placed
    says = r"found 'executor-1', expected an executor whose tasks may move; it has the only entries of the stores with "
    with pytest.raises(InputError, match=says):
        placed.drain("1")
    turn(placed)
    status = read(placed.checkpoint / STATUS_FILE, Status)
    for kind in ("preview", "drain"):
        answer = ask(placed.checkpoint, status, kind, ["1"], timeout=0.5, sleep=lambda _: turn(placed))
        assert "--lose-unlogged" in answer.error and not answer.draining
    lives.whole()
    mine = sum(owner == "executor-1" for owner in lives.owners().values())
    answer = ask(
        placed.checkpoint,
        status,
        "drain",
        ["1"],
        timeout=0.5,
        lose_unlogged=True,
        sleep=lambda _: turn(placed),
    )
    assert answer.draining == ("executor-1",)
    for _ in range(3):
        lives.batch()
        world.follow(placed)
    assert set(lives.owners().values()) == {"executor-2"}
    assert placed.stats.unlogged == mine == 3


@pytest.mark.parametrize("end", ["leave", "lose"])
def test_entries_that_go_with_an_executor_are_told_and_counted(lives, world, caplog, end):
    gone = [task for task, owner in lives.owners().items() if owner == "executor-1"]
    getattr(world, end)("1")
    found = lives.batch()
    assert "executor-1 went with the entries of stores that are not logged, of task 0_" in caplog.text
    assert caplog.text.count("goes on without the entries") == len(gone) == lives.placed.stats.unlogged
    assert set(found.values()) == {1, lives.truth["a"]}
    again = lives.batch()
    assert all(again[key] == found[key] + 1 for key in KEYS)
    assert lives.placed.stats.unlogged == len(gone), "once for each"


def test_an_executor_that_takes_over_the_directory_of_a_dead_one_gets_its_tasks(lives, world):
    """Before another copy has gone on."""
    world.lose("1")
    world.come(1)
    world.follow(lives.placed)
    lives.placed.rebalancer.rebalance_between_batches()
    lives.whole()
    assert world.adopted and lives.placed.stats.unlogged == 0


@pytest.mark.parametrize("seed", range(6))
def test_no_entry_is_lost_as_long_as_no_executor_is(world, seed):
    rng = random.Random(seed)
    lives = Lives(world, mixed=rng.random() < 0.5, standbys=rng.randrange(3))
    for _ in range(12):
        what = rng.choice(["batch", "batch", "come", "driver", "application", "follow", "drain", "fail"])
        if what == "come" and len(world.there) < 5:
            world.come(1)
        elif what == "driver":
            lives.start()
        elif what == "application":
            world.restart(len(world.there))
            lives.start()
        elif what == "follow" and lives.placed.journal.epoch:
            world.follow(lives.placed)
        elif what == "drain" and lives.placed.state.members:
            for name in list(lives.placed.state.members):
                if lives.placed.state.kept(lives.placed.state.members[name]):
                    with pytest.raises(InputError, match="lose_unlogged"):
                        lives.placed.drain(name)
        elif what == "fail":
            point = rng.choice(["attempt.stored", "batch.staged"])
            world.at = lambda name, point=point: (_ for _ in ()).throw(OSError()) if name == point else None
            with pytest.raises(OSError):
                world.batch(lives.placed, lives.number, **{"in": words(*KEYS)})
            world.at = lambda name: None
        lives.whole("".join(rng.sample(KEYS, rng.randrange(1, len(KEYS)))))
    assert lives.placed.stats.unlogged == 0, f"seed {seed}"


def test_a_read_from_outside_is_refused(lives):
    with pytest.raises(InputError, match=r"^store: found 'kept', expected a store with a changelog"):
        lives.placed.store("kept")
