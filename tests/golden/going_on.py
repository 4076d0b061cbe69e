"""Goes on from a golden checkpoint, with the code as it is now, and compares with what has to come of it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.golden.formats import Golden, from_json, rows, unpack
from tests.golden.streams import STREAMS, Pipeline
from tests.support.placed_without_spark import World


def go_on(file: Path, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Run the batches that came after a checkpoint; drivers take turns, and so do applications.

    Each sink has to get what it should get, all batches together, and stores have to have what they should have.
    """
    golden = Golden.read(file)
    stream, life = STREAMS[golden.stream], len(STREAMS[golden.stream].lives) - 1
    unpack(file.with_suffix(".tar.xz"), folder)
    world = World(folder, patch, executors=stream.executors)
    world.query = golden.query
    pipelines: list[Pipeline] = []
    placed = None
    for number, batch in enumerate(golden.batches, golden.first):
        if (number - golden.first) % 3 == 0:
            if placed is not None:
                placed.close()
                world.restart(stream.executors)
            pipelines.append(stream.pipeline(folder, life))
            placed = world.open(pipelines[-1].topology, **stream.options)
        assert placed is not None
        world.batch(placed, number, **{topic: from_json(table) for topic, table in batch.items()})
        world.follow(placed)
    assert placed is not None
    sent = defaultdict(list)
    for pipeline in pipelines:
        for sink, target in pipeline.targets.items():
            sent[sink] += target.rows()
    for sink in set(golden.sent) - set(sent):
        sent[sink] = [row for found in world.sent(sink).values() for row in found]
    for sink, expected in golden.sent.items():
        assert rows(sent[sink]) == expected, f"sink {sink}"
    assert set(sent) == set(golden.sent)
    for store in pipelines[-1].stores:
        assert rows(world.stored(placed, store)) == golden.stores[store], f"store {store}"
    placed.close()
