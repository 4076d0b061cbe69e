"""Executors are welcomed before the first batch; if none stays, the error names the true reason."""

from __future__ import annotations

import pytest

from taskplace.errors import TaskplaceError
from taskplace.spark.cluster import JobLostError
from tests.support.ended_jobs import Ended
from tests.support.word_counts import counts, words


def test_without_executors_the_error_has_the_time_that_was_waited(world):
    world.lose("1")
    placed = world.open(counts(world))
    with pytest.raises(TaskplaceError, match="no executor became available within 60 s"):
        world.batch(placed, 0, **{"in": words("a")})


def test_executors_that_are_lost_again_and_again_are_named_as_the_reason(world, monkeypatch):
    def lose(job, *_, **__):
        (id,) = world.there
        world.lose(id)
        world.come(1)
        return Ended([], JobLostError(frozenset({id})))

    monkeypatch.setattr(world, "start", lose)
    placed = world.open(counts(world))
    with pytest.raises(TaskplaceError, match=r"5 rounds of jobs.* executors lost: 1, 2, 3, 4, 5;") as error:
        world.batch(placed, 0, **{"in": words("a")})
    assert "60 s" not in str(error.value)


def test_visits_that_run_elsewhere_are_named_as_the_reason(world, monkeypatch):
    monkeypatch.setattr(world, "start", lambda *_, **__: Ended([]))
    placed = world.open(counts(world))
    with pytest.raises(TaskplaceError, match=r"5 rounds of jobs.* no executor was lost") as error:
        world.batch(placed, 0, **{"in": words("a")})
    assert "60 s" not in str(error.value)
