"""Makes golden checkpoints with this version of the code, without Spark: `python tests/golden/make.py [--seed 1]`.

They go into a folder that is named after the version of the manifests, `tests/golden/manifest-<version>/`. One that is
there is not made again: it is worth something because an earlier version has made it. The answers are those of plain
Python (`truth.py`); nothing is written unless this version gives them, too.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import uuid
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from taskplace.spark.messages import SCHEMA  # noqa: E402
from taskplace.spark.placed import Placed  # noqa: E402
from taskplace.spark.worker import attempt  # noqa: E402
from tests.golden.formats import HERE, Golden, rows, to_json  # noqa: E402
from tests.golden.going_on import go_on  # noqa: E402
from tests.golden.streams import STREAMS  # noqa: E402
from tests.golden.truth import ANSWERS  # noqa: E402
from tests.support.placed_without_spark import Died, World  # noqa: E402


class Crash(Exception):
    """The driver ends here."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*", default=sorted(STREAMS), metavar="name")
    given = parser.parse_args()
    folder = HERE / f"manifest-{SCHEMA.rpartition('/')[2]}"
    for name in given.names:
        if (folder / f"{name}.json").exists():
            print(f"{folder / name}: is there, and stays")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            made, again, tried = (Path(scratch) / part for part in ("made", "again", "tried"))
            with pytest.MonkeyPatch.context() as patch:
                make(name, given.seed, made, patch).write(made, tried)
            with pytest.MonkeyPatch.context() as patch:
                go_on(tried / f"{name}.json", again, patch)
            folder.mkdir(exist_ok=True)
            for file in tried.iterdir():
                shutil.copy(file, folder)


def make(name: str, seed: int, folder: Path, patch: pytest.MonkeyPatch) -> Golden:
    """Run a stream in a folder, and return what has to come of its checkpoint."""
    stream, batches = STREAMS[name], STREAMS[name].draw(seed)
    _repeat(patch, seed)
    world = World(folder, patch, executors=stream.executors)
    before: dict[str, list[list]] = defaultdict(list)
    number = 0
    for life, length in enumerate(stream.lives):
        pipeline = stream.pipeline(folder, life)
        placed = world.open(pipeline.topology, **stream.options)
        for batch in batches[number : number + length]:
            final = number == stream.batches - 1
            if final and name == "unpublished":
                world.at = _crash_when_committed
            if name == "processors" and number in (20, 50):
                world.at = _Loss(world)
            if name == "processors" and number == stream.batches - 2:
                placed.drain(placed.placement()[0].id)
            try:
                world.batch(placed, number, **batch)
            except Crash:
                print(f"{name}: batch {number} is committed, and not published")
            if not final:
                world.follow(placed)
            number += 1
        for sink, target in pipeline.targets.items():
            before[sink] += rows(target.rows())
        _describe(name, placed)
        placed.close()
    sent, stores = ANSWERS[name]([{t: rows.to_pylist() for t, rows in batch.items()} for batch in batches])
    first = number - (name == "unpublished")
    return Golden(
        name,
        SCHEMA,
        number - 1,
        world.query,
        first,
        [{topic: to_json(table) for topic, table in batch.items()} for batch in batches[first:]],
        {sink: _without(rows(found), before[sink]) for sink, found in sent.items()},
        {store: rows(found) for store, found in stores.items()},
    )


def _without(found: list[list], sent: list[list]) -> list[list]:
    """Return rows without those that were sent. Errors: `ValueError` for one that should not have been."""
    left = list(found)
    for row in sent:
        left.remove(row)
    return left


def _repeat(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Have names and times be the same whenever it is run."""
    draw = random.Random(f"names {seed}")
    patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=draw.getrandbits(128), version=4))
    ticks = iter(range(1 << 60))
    patch.setattr(attempt.time, "perf_counter", lambda: next(ticks) / 1e6)


def _crash_when_committed(point: str) -> None:
    if point == "batch.committed":
        raise Crash


class _Loss:
    """Ends the executor whose attempt has just sealed its files, once, and lets another one come."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __call__(self, point: str) -> None:
        world = self._world
        if point == "attempt.sealed" and world.running is not None:
            world.at = lambda point: None
            world.come()
            world.lose(world.running)
            raise Died


def _describe(name: str, placed: Placed) -> None:
    root = placed.checkpoint
    kinds = {path.relative_to(root).parts[0] for path in root.rglob("*") if path.is_file()}
    print(f"{name}: batch {placed.journal.last_batch}, {len(list(root.rglob('*')))} files: {sorted(kinds)}")


if __name__ == "__main__":
    main()
