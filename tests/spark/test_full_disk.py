"""A full disk is named, and the batch is repeated when there is room; a whole `Placed` without Spark."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from taskplace.spark import sinks
from taskplace.spark.checkpoint import journal as manifests
from taskplace.spark.worker.guard import DiskFull
from tests.support.word_counts import counts, words


def full(*_: Any) -> None:
    with Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"rows")


@pytest.mark.parametrize(
    ("module", "name"),
    [(manifests, "create_exclusively"), (sinks, "_link_or_copy")],
    ids=["the manifest", "publishing"],
)
def test_a_full_disk_is_named_and_the_batch_is_repeated_when_there_is_room(world, monkeypatch, module, name):
    placed = world.open(counts(world))
    world.batch(placed, 0, **{"in": words("a", "b")})
    with monkeypatch.context() as patch:
        patch.setattr(module, name, full)
        for _ in range(2):
            with pytest.raises(
                DiskFull,
                match=rf"^no space left .*{placed.checkpoint}: \d+ of \d+ MiB free; "
                "nothing is lost, and the batch is repeated",
            ) as caught:
                world.batch(placed, 1, **{"in": words("a")})
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert world.sent("out") == {0: [("a", 1), ("b", 1)]}
    world.batch(placed, 1, **{"in": words("a")})
    world.batch(world.open(counts(world)), 2, **{"in": words("a", "b")})
    assert world.sent("out") == {0: [("a", 1), ("b", 1)], 1: [("a", 2)], 2: [("a", 3), ("b", 2)]}
