"""Tasks get the last changes of their history only; the whole one is read from the manifests where a copy needs it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from taskplace.spark.checkpoint.manifests import history_before
from taskplace.spark.driver import stages
from taskplace.spark.driver.stages import TAIL
from taskplace.spark.state import environment as warm
from tests.support.word_counts import counts, words

BATCHES = 6


@pytest.fixture
def sent(world, monkeypatch) -> list[Any]:
    """What the tasks of the last jobs got."""
    found: list[Any] = []
    descriptor = stages.Stage.descriptor

    def noting(stage: Any, *given: Any) -> Any:
        made = descriptor(stage, *given)
        found.extend(made.descriptors)
        return made

    monkeypatch.setattr(stages.Stage, "descriptor", noting)
    return found


def run(world: Any, placed: Any, batches: range) -> None:
    for batch in batches:
        world.batch(placed, batch, **{"in": words(*"abcdefgh")})


def expected(batches: int) -> list[tuple[str, int]]:
    return [(word, batches) for word in "abcdefgh"]


def test_a_copy_at_the_end_gets_the_last_changes_only(world, sent) -> None:
    placed = world.open(counts(world))
    run(world, placed, range(BATCHES))
    sent.clear()
    run(world, placed, range(BATCHES, BATCHES + 1))
    assert sent and all(one.tail and len(one.history.changes) == TAIL for one in sent)
    for one in sent:
        whole = history_before(placed.journal.root, BATCHES, one.task)
        assert whole.changes[-TAIL:] == one.history.changes and len(whole.changes) == BATCHES
    assert sorted(world.stored(placed, "n")) == expected(BATCHES + 1)


def test_a_copy_that_may_be_behind_gets_the_whole_history(world, sent) -> None:
    world.come(1)
    placed = world.open(counts(world))
    run(world, placed, range(BATCHES))
    sent.clear()
    world.leave("1")
    run(world, placed, range(BATCHES, BATCHES + 1))
    moved = [one for one in sent if not one.tail]
    assert moved and all(len(one.history.changes) == BATCHES for one in moved)
    assert sorted(world.stored(placed, "n")) == expected(BATCHES + 1)


@pytest.mark.parametrize("what", ["removed", "older"])
def test_a_copy_that_is_not_where_the_driver_thinks_reads_the_manifests(world, sent, what: str) -> None:
    def copies() -> list[Path]:
        return sorted(data.parent for data in world.folder.rglob("data.mdb"))

    placed = world.open(counts(world))
    kept: dict[Path, Path] = {}
    for batch in range(BATCHES):
        if batch == 2:
            warm.WARM.clear()
            kept = {home: shutil.copytree(home, home.with_name(home.name + ".kept")) for home in copies()}
        run(world, placed, range(batch, batch + 1))
    warm.WARM.clear()
    for home, old in kept.items():
        shutil.rmtree(home)
        if what == "older":
            old.rename(home)
    sent.clear()
    run(world, placed, range(BATCHES, BATCHES + 1))
    assert kept and all(one.tail for one in sent)
    assert sorted(world.stored(placed, "n")) == expected(BATCHES + 1)
