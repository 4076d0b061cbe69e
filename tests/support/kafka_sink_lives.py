"""Drivers that write to a Kafka topic and are killed with SIGKILL, each by its process id, at drawn points.

A life is one process: a whole `Placed` without Spark, with a `KafkaSink`. It repeats the last committed batch, as Spark
does, and goes on until it is killed, or until the last batch is published. Its executors die as well: at drawn points
of their tasks. Processes are forked from a server that has everything imported, so a life takes little time.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow as pa
import pytest

from taskplace.spark import faults
from taskplace.spark.kafka.sink import KafkaSink
from taskplace.spark.processors import PerKey
from tests.support.chaos import ATTEMPT_POINTS, deck
from tests.support.placed_without_spark import Died, World
from topology import Topology

KEYS = "abcdefgh"
SINK_POINTS = faults.SINK_POINTS
#: Some time after the driver has opened the checkpoint: in its start, or in any of the first batches.
ANY_TIME = "any time"
#: Some milliseconds after all rows and the marker are produced: before, in or after the commit of the transaction.
IN_COMMIT = "in the commit"
#: Some time after a manifest: while processes publish the shares of the batch.
IN_PUBLISHING = "in publishing"
#: How much later a driver is killed at most, in seconds, and the point from which on it counts.
LATER = {ANY_TIME: (3.0, ""), IN_COMMIT: (0.03, "sink.sent"), IN_PUBLISHING: (0.3, "batch.committed")}
#: Where a driver is killed: in the sink, around its commit, or some time after a batch has begun.
POINTS = [
    *SINK_POINTS, *SINK_POINTS, "batch.checked", "batch.committed", "batch.published", *[ANY_TIME, IN_COMMIT] * 4
]  # fmt: skip
#: Points that a driver passes once, when it takes the checkpoint over.
ONCE = ("sink.starting", "sink.started", "sink.marked")


#: The file with a line for each executor that has died.
LOSSES = "losses.log"


@dataclass(frozen=True, kw_only=True)
class Life:
    """What a driver does. `point`: where it dies; None: it lives until batch `last` is published.

    A driver with a point goes on until it comes there. If it has not come there at batch `last`, its exit code is 3.
    """

    folder: str
    servers: str
    topic: str
    markers: str
    seed: int
    number: int
    last: int
    point: str | None = None
    delivery: str = "exactly-once"


def number_rows(key: dict, rows: list[dict], state: dict | None) -> tuple[dict, list[dict]]:
    """Number the rows of a key, over all batches."""
    before = state["n"] if state else 0
    numbered = [{**key, "i": row["i"], "n": before + at + 1} for at, row in enumerate(rows)]
    return {"n": before + len(rows)}, numbered


class Rows:
    """The rows of all batches: keys, each with the number of its row among all rows of this key."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._batches: list[list[tuple[str, int]]] = []
        self._counts: Counter[str] = Counter()

    def of(self, batch: int) -> list[tuple[str, int]]:
        """Return the rows of a batch."""
        while len(self._batches) <= batch:
            draw = random.Random(f"rows {self._seed} {len(self._batches)}")
            rows = []
            for key in draw.choices(KEYS, k=draw.choice([0, 5, 20, 60])):
                self._counts[key] += 1
                rows.append((key, self._counts[key]))
            self._batches.append(rows)
        return self._batches[batch]

    def counts(self, last: int) -> Counter[str]:
        """Return the number of rows of each key, up to a batch."""
        return Counter(key for batch in range(last + 1) for key, _ in self.of(batch))


def topology(life: Life) -> Topology:
    """Return the topology: rows are numbered once more by a store, and sent with their key."""
    topo = Topology("numbers")
    columns = {"k": "string", "i": "int64", "n": "int64"}
    numbers = PerKey("numbers", number_rows, by={"k": "string"}, state={"n": "int64"}, output=columns)
    options = {"key": "k", "marker_topic": life.markers, "delivery": life.delivery}
    target = KafkaSink(life.topic, servers=life.servers, **options)
    topo.source("in", key="k", partitions=3).process(numbers, name="numbered").sink("out", target=target)
    return topo


class _Dying:
    """Kills its own process at a point, after it was passed a drawn number of times.

    In every second life, an executor dies on the way. `losses` gets a line then.
    """

    def __init__(self, world: World, life: Life, losses: Path) -> None:
        self._world, self._losses = world, losses
        seconds, self._aims_at = LATER.get(life.point or "", (0.0, life.point))
        draw = random.Random(f"life {life.seed} {life.number}")
        self._passes = 1 if life.point in ONCE else draw.choice([1, 2, 3])
        self.after = draw.random() * seconds
        self._loss = draw.choice(ATTEMPT_POINTS) if life.number % 2 == 0 else None

    def at(self, point: str) -> None:
        if point == self._aims_at:
            self._passes -= 1
            if not self._passes and self.after:
                threading.Timer(self.after, kill).start()
            elif not self._passes:
                kill()
        if point == self._loss and self._world.running is not None and len(self._world.usable()) > 1:
            self._loss = None
            with self._losses.open("a") as losses:
                losses.write(f"{point}\n")
            self._world.lose(self._world.running)
            self._world.come()
            raise Died


def committed(folder: Path) -> int:
    """Return the last committed batch; -1 if there is none."""
    return max((int(path.stem) for path in (folder / "checkpoint" / "manifests").glob("*.json")), default=-1)


def kill() -> None:
    """Kill this process as a crash of the host would."""
    os.kill(os.getpid(), signal.SIGKILL)


def live(life: Life) -> None:
    """Run a life. Called in a process of its own."""
    folder = Path(life.folder)
    log = (folder / "lives.log").open("a")
    os.dup2(log.fileno(), sys.stderr.fileno())
    world = World(folder, pytest.MonkeyPatch(), executors=2)
    world.app_id = f"app-{life.number}"
    dying = _Dying(world, life, folder / LOSSES)
    world.at = dying.at
    placed = world.open(topology(life))
    source = Rows(life.seed)
    if life.point == ANY_TIME:
        threading.Timer(dying.after, kill).start()
    for batch in range(max(committed(folder), 0), life.last + 1):
        keys, numbers = zip(*rows, strict=True) if (rows := source.of(batch)) else ((), ())
        table = pa.table({"k": pa.array(keys, pa.string()), "i": pa.array(numbers, pa.int64())})
        world.batch(placed, batch, **{"in": table})
    if life.point is not None:
        os._exit(3)  # it has not come to its point


class Lives:
    """Lives one after the other, over one checkpoint and one topic. `killed`: how often, by point."""

    def __init__(self, folder: Path, servers: str, topic: str, markers: str, seed: int, **more: str) -> None:
        self._folder, self._servers, self._topic, self._markers = folder, servers, topic, markers
        self._seed, self._number, self._more = seed, 0, more
        self.killed: Counter[str] = Counter()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])

    def committed(self) -> int:
        """Return the last committed batch; -1 if there is none."""
        return committed(self._folder)

    def run(self, point: str | None = None, *, batches: int = 1000) -> int | None:
        """Run one life, for so many batches at most; return its exit code."""
        self._number += 1
        life = Life(
            folder=str(self._folder),
            servers=self._servers,
            topic=self._topic,
            markers=self._markers,
            seed=self._seed,
            number=self._number,
            last=self.committed() + batches,
            point=point,
            **self._more,
        )
        process: BaseProcess = self._context.Process(target=live, args=(life,))
        process.start()
        process.join(900)  # this machine may be stopped for a while
        if process.exitcode is None:
            process.kill()
            process.join()
            return None
        if point is not None and process.exitcode == -signal.SIGKILL:
            self.killed[point] += 1
        return process.exitcode

    def losses(self) -> Counter[str]:
        """Return how many executors have died, by the point of their task."""
        file = self._folder / LOSSES
        return Counter(file.read_text().split() if file.exists() else ())

    def log(self) -> str:
        """Return the end of what the lives have said."""
        return (self._folder / "lives.log").read_text()[-5000:]

    def expected(self) -> dict[str, list[int]]:
        """Return the numbers of each key's rows that are committed."""
        counts = Rows(self._seed).counts(self.committed())
        return {key: list(range(1, count + 1)) for key, count in sorted(counts.items())}


def points(seed: int) -> Iterator[str]:
    """Yield the points at which lives end: every point comes before any comes again."""
    return deck(random.Random(f"points {seed}"), POINTS)
