"""Whatever a long stream keeps, it keeps as much after its second half as after its first."""

from __future__ import annotations

import gc
import os
import sys
import types
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil
import pyarrow as pa
import pytest

from taskplace.spark.checkpoint import journal
from taskplace.spark.driver import stats
from taskplace.spark.processors import Aggregate, Deduplicate, count
from tests.support.placed_without_spark import World
from topology import Topology

START = datetime(2026, 1, 1)
#: What belongs to the process rather than to a driver.
OUTSIDE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, World, pytest.MonkeyPatch)


class Nowhere:
    """A sink's target that keeps nothing."""

    def publish(self, spark: Any, batch_id: int, files: list[Path]) -> None:
        pass


def pipeline() -> Topology:
    topology = Topology("soak")
    rows = topology.source("rows", key=["id"], partitions=2, event_time="at", delay="1 minute")
    once = rows.process(Deduplicate("seen", by={"id": "long"}, ttl="1 hour", time="at"))
    once.sink("new", target=Nowhere())
    groups = once.repartition(key=["group"], name="by-group", partitions=2)
    groups.process(Aggregate("totals", by={"group": "long"}, n=count())).sink("totals", target=Nowhere())
    return topology


def rows(batch: int, number: int) -> pa.Table:
    at = START + timedelta(minutes=batch)
    made = [(batch * 100 + i, i % 5, at) for i in range(number)]
    kinds = {"id": pa.int64(), "group": pa.int64(), "at": pa.timestamp("us", tz="UTC")}
    return pa.Table.from_pylist([dict(zip(kinds, row, strict=True)) for row in made], pa.schema(kinds))


def reachable(root: object) -> Iterator[object]:
    """Yield all objects that `root` keeps alive, numbers and texts too."""
    seen, left = {id(root)}, [root]
    while left:
        one = left.pop()
        yield one
        for other in gc.get_referents(one):
            if id(other) not in seen and not isinstance(other, OUTSIDE):
                seen.add(id(other))
                left.append(other)


def files(folder: Path) -> list[str]:
    return [str(Path(at, name)) for at, _, names in os.walk(folder) for name in names]


def live_through(world: World, batches: int, samples: int) -> dict[str, list[int]]:
    """Run batches, nine of ten without rows, and return what was kept, so many times on the way."""
    placed = world.open(pipeline(), config={"num.standby.replicas": 1}, snapshot_interval=5)
    me, found = psutil.Process(), []
    every = batches // samples
    for batch in range(batches):
        world.batch(placed, batch, rows=rows(batch, 0 if batch % 10 else 4))
        if batch % 10 == 3:
            world.follow(placed)
        if batch % 100 == 0:
            placed.store("totals").get({"group": 1})
        if batch % every == every - 1:
            gc.collect()
            kept = list(reachable(placed))
            found.append(
                {
                    "objects of the driver": len(kept),
                    "bytes of the driver": sum(map(sys.getsizeof, kept)),
                    "objects of the process": len(gc.get_objects()),
                    "files of the checkpoint": len(files(placed.checkpoint)),
                    "bytes of the checkpoint": sum(Path(f).stat().st_size for f in files(placed.checkpoint)),
                    "files of the executors": len(files(world.folder / "state")),
                    "handles": me.num_fds(),
                    "threads": me.num_threads(),
                }
            )
            del kept
    placed.close()
    return {name: [sample[name] for sample in found] for name in found[0]}


def check_flat(found: dict[str, list[int]]) -> None:
    for name, samples in found.items():
        warm = samples[len(samples) // 3 :]
        first, second = warm[: len(warm) // 2], warm[len(warm) // 2 :]
        # Means, as what is there swings with full manifests and snapshots; what grew by the batch would double.
        assert fmean(second) <= 1.05 * fmean(first) + 2, f"{name}: {samples}"


@pytest.mark.parametrize(
    ("batches", "samples"),
    [
        pytest.param(600, 24, id="some", marks=pytest.mark.long),
        pytest.param(100_000, 100, id="many", marks=[pytest.mark.slow, pytest.mark.timeout(7_200)]),
    ],
)
def test_what_a_stream_keeps_does_not_grow_with_its_batches(tmp_path, monkeypatch, batches, samples):
    monkeypatch.setattr(stats, "WINDOW", 50)  # full soon
    check_flat(live_through(World(tmp_path, monkeypatch, executors=2), batches, samples))


def test_executors_that_come_and_go_are_not_remembered_for_ever(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, executors=2)
    placed = world.open(pipeline(), config={"num.standby.replicas": 1}, snapshot_interval=2)
    for batch in range(30):
        world.batch(placed, batch, rows=rows(batch, 4))
        world.follow(placed)
        if batch % 3 == 2:
            world.come()
            world.follow(placed)
            world.lose(min(world.there, key=int))
    world.batch(placed, 30, rows=rows(30, 4))
    world.follow(placed)
    there = set(placed.state.members)
    followers = placed._runner.followers
    assert there == {f"executor-{id}" for id in world.there}
    for notes in (followers._first, followers._rests, followers._sweeps):
        assert set(notes) <= there
    assert {name for name, _ in placed.state.loads} <= there


def test_a_journal_knows_of_the_full_manifests_that_it_needs_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "FULL_EVERY", 2)
    world = World(tmp_path, monkeypatch)
    placed = world.open(pipeline())
    for batch in range(12):
        world.batch(placed, batch, rows=rows(batch, 2))
    assert placed.journal._full == [8, 10]
    placed.close()
    again = world.open(pipeline())
    world.batch(again, 12, rows=rows(12, 2))
    assert again.journal._full[-2:] == [10, 12]
    assert again.journal.last is not None and again.journal.last.needs >= 8
