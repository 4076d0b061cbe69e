"""Makes golden checkpoints with this version of the code, without Spark: `python tests/golden/make.py [--seed 1]`.

They go into a folder that is named after the version of the manifests, `tests/golden/manifest-<version>/`. One that is
there is not made again: it is worth something because an earlier version has made it. The answers are those of a life
of the same stream without losses, crashes and restarts. Whether they are right, the differential tests say.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from taskplace.spark.messages import SCHEMA  # noqa: E402
from tests.golden.formats import HERE, Golden, Sent, from_json, rows, to_json, unpack  # noqa: E402
from tests.golden.streams import STREAMS, Batch  # noqa: E402
from tests.support.placed_without_spark import Died, World  # noqa: E402


class Crash(Exception):
    """The driver ends here."""


def go_on(file: Path, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Go on from a checkpoint, with the code as it is now; drivers take turns, and so do applications.

    Each sink has to get what it should get, all batches together, and stores have to have what they should have.
    """
    golden = Golden.read(file)
    stream, life = STREAMS[golden.stream], len(STREAMS[golden.stream].lives) - 1
    unpack(file.with_suffix(".tar.xz"), folder)
    world = World(folder, patch, executors=stream.executors)
    world.query = golden.query
    sent: Sent = defaultdict(list)
    batches = [{topic: from_json(table) for topic, table in batch.items()} for batch in golden.batches]
    for begin in range(0, len(batches), 3):
        if begin:
            world.restart(stream.executors)
        pipeline = stream.pipeline(folder, life)
        placed = world.open(pipeline.topology, **stream.options)
        for number, batch in enumerate(batches[begin : begin + 3], golden.first + begin):
            world.batch(placed, number, **batch)
            world.follow(placed)
        for sink, target in pipeline.targets.items():
            sent[sink] += target.rows()
        stored = {store: rows(world.stored(placed, store)) for store in pipeline.stores}
        placed.close()
    for sink in pipeline.directories:
        sent[sink] = [row for found in world.sent(sink).values() for row in found]
    assert {sink: rows(found) for sink, found in sent.items()} == golden.sent
    assert stored == golden.stores


def play(
    name: str, batches: Sequence[Batch], folder: Path, patch: pytest.MonkeyPatch, *, harm: bool
) -> tuple[str, Sent, Sent]:
    """Run batches of a stream; return the id of the query, what sinks got, and what stores have.

    `harm`: whether executors and drivers are lost; then the last batch of some streams is not published.
    """
    stream, number = STREAMS[name], 0
    world = World(folder, patch, executors=stream.executors)
    sent: Sent = defaultdict(list)
    for life, length in enumerate(stream.lives):
        pipeline = stream.pipeline(folder, life)
        placed = world.open(pipeline.topology, **stream.options)
        end = number + length if life < len(stream.lives) - 1 else len(batches)
        for batch in batches[number:end]:
            last = number == len(batches) - 1
            if harm and last and name == "unpublished":
                world.at = _crash_when_committed
            if harm and name == "processors" and number in (20, 50):
                world.at = _Loss(world)
            if harm and name == "processors" and number == len(batches) - 2:
                placed.drain(placed.placement()[0].id)
            try:
                world.batch(placed, number, **batch)
                stored = {store: rows(world.stored(placed, store)) for store in pipeline.stores}
            except Crash:
                print(f"{name}: batch {number} is committed, and not published")
            if not (harm and last):
                world.follow(placed)
            number += 1
        for sink, target in pipeline.targets.items():
            sent[sink] += rows(target.rows())
        placed.close()
    for sink in pipeline.directories:
        sent[sink] = rows(row for found in world.sent(sink).values() for row in found)
    return world.query, sent, stored


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


def make(name: str, seed: int, scratch: Path, target: Path) -> None:
    """Make a checkpoint in `target`, if this version continues it with the right answers."""
    stream, batches = STREAMS[name], STREAMS[name].draw(seed)
    folders = [scratch / part for part in ("whole", "made", "tried", "again")]
    for folder in folders:
        folder.mkdir()
    whole, made, tried, again = folders
    with pytest.MonkeyPatch.context() as patch:
        _, expected, stores = play(name, batches, whole, patch, harm=False)
    with pytest.MonkeyPatch.context() as patch:
        query, before, _ = play(name, batches[: stream.batches], made, patch, harm=True)
    for sink, found in expected.items():
        if sink not in stream.pipeline(made).directories:  # a directory has what it had got before, too
            for row in before[sink]:
                found.remove(row)
    first = stream.batches - (name == "unpublished")
    later = [{topic: to_json(table) for topic, table in batch.items()} for batch in batches[first:]]
    Golden(name, SCHEMA, stream.batches - 1, query, first, later, dict(expected), stores).write(made, tried)
    with pytest.MonkeyPatch.context() as patch:
        go_on(tried / f"{name}.json", again, patch)
    target.mkdir(exist_ok=True)
    for file in tried.iterdir():
        shutil.copy(file, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", type=Path, default=HERE / f"manifest-{SCHEMA.rpartition('/')[2]}")
    parser.add_argument("names", nargs="*", default=sorted(STREAMS), metavar="name")
    given = parser.parse_args()
    for name in given.names:
        if (given.target / f"{name}.json").exists():
            print(f"{given.target / name}: is there, and stays")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            make(name, given.seed, Path(scratch), given.target)


if __name__ == "__main__":
    main()
