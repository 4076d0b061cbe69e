"""The stand-in for Spark is like Spark: what is read is what was sent, and an executor that dies is lost once."""

from __future__ import annotations

import json
import shutil
import time

import pytest

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.manifests import path_of
from taskplace.spark.checkpoint.spark_checkpoint import planned_offsets
from taskplace.spark.codec import sealed, unsealed
from tests.support.word_counts import counts, words


def test_the_output_of_a_batch_before_a_backup_is_not_taken_for_that_of_the_batch_after(world):
    """The next batch has other rows, and as many of them."""
    placed = world.open(counts(world))
    world.batch(placed, 0, **{"in": words("a", "b")})
    placed.close()
    shutil.copytree(placed.checkpoint, world.folder / "backup")
    world.batch(world.open(placed.built), 1, **{"in": words("a", "b")})
    shutil.rmtree(placed.checkpoint)
    (world.folder / "backup").rename(placed.checkpoint)
    shutil.rmtree(world.folder / "state")
    world.restart(1)
    batch = {"in": words("c", "d")}
    for _ in range(2):
        with pytest.raises(CheckpointError, match="batch_id=1: found the rows of another commit, expected"):
            world.batch(world.open(placed.built), 1, **batch)
    shutil.rmtree(world.folder / "out" / "batch_id=1")  # as it says
    world.batch(world.open(placed.built), 1, **batch)
    assert world.sent("out") == {0: [("a", 1), ("b", 1)], 1: [("c", 1), ("d", 1)]}


def planned(world, batch, *offsets):
    """Write the offsets of a batch as Spark does, with the time of the planning in the line of metadata."""
    world.offsets = world.folder / "spark" / "offsets"
    world.offsets.mkdir(parents=True, exist_ok=True)
    lines = ["v1", f'{{"batchTimestampMs":{time.time_ns()}}}', *map(str, offsets)]
    (world.offsets / str(batch)).write_text("\n".join(lines))


def test_a_batch_goes_on_from_the_offsets_that_the_last_one_was_committed_with(world):
    placed = world.open(counts(world))
    for batch in range(3):
        planned(world, batch, f'{{"in":{{"0":{batch}}}}}', batch)
        world.batch(placed, batch, **{"in": words("a")})
    planned(world, 2, '{"in":{"0":2}}', 2)  # planned again, to the same end
    world.batch(placed, 2, **{"in": words("a")})
    shutil.copy(world.offsets / "1", world.offsets / "2")
    for driver in (placed, world.open(placed.built)):
        for batch in (2, 3):
            planned(world, 3, '{"in":{"0":3}}', 3)
            with pytest.raises(CheckpointError, match="offsets/2: these are not the offsets that batch 2"):
                world.batch(driver, batch, **{"in": words("a")})
    planned(world, 2, '{"in":{"0":2}}', 2)
    again = world.open(placed.built)
    world.batch(again, 3, **{"in": words("a")})
    assert world.stored(again, "n") == [("a", 4)]
    for unknown in (world.offsets, None):  # offsets that nobody finds are not compared
        (world.offsets or world.folder).joinpath("3").unlink(missing_ok=True)
        world.offsets = unknown
        world.batch(world.open(placed.built), again.journal.last_batch, **{"in": words("a")})
    manifest = path_of(placed.checkpoint, 3)
    raw = json.loads(unsealed(manifest.read_bytes()))
    del raw["offsets"]  # as of a batch whose offsets were not found
    manifest.write_bytes(sealed(raw))
    planned(world, 3, "another end")
    planned(world, 4, "the next end")
    again = world.open(placed.built)
    world.batch(again, 4, **{"in": words("a")})
    assert again.journal.last.offsets == planned_offsets(world.offsets, 4)
    assert world.sent("out")[4] == [("a", 5)]
