"""A checkpoint whose driver is killed or stopped at any step there is, without Spark."""

from __future__ import annotations

import itertools
import os
import signal

import pytest

from tests.support.journal_driver import BETWEEN, WHEN
from tests.support.journal_world import World, batches


@pytest.mark.parametrize(
    ("count", "visited", "when"),
    [
        pytest.param(1, ["1"], BETWEEN, marks=pytest.mark.long),
        *(pytest.param(2, ["1", "3"], when, marks=pytest.mark.slow) for when in WHEN),
    ],
)
def test_a_driver_may_be_killed_at_any_step(tmp_path, count, visited, when):
    """Driver after driver is killed one step later than the one before, until one ends by itself."""
    world = World(tmp_path)
    assert world.ended(world.fork(batches(4, ["3"])))
    for at in itertools.count(1):
        ended = world.ended(world.fork(batches(count, visited, when), at))
        world.check()
        if ended:
            break
    assert at > 60 * count, "what a driver does takes more steps than that"
    world.check_copies()
    world.check_nothing_is_left()


@pytest.mark.long
@pytest.mark.parametrize("others", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 2, 7))])
def test_a_driver_may_be_stopped_at_any_step_while_others_go_on(tmp_path, others):
    """With 7 batches of others, the stopped one's batch is pruned, and its name free again."""
    world = World(tmp_path)
    assert world.ended(world.fork(batches(4, ["3"])))
    for at in itertools.count(1):
        driver = world.fork(batches(1, ["1"]), at, signal.SIGSTOP)
        if world.ended(driver):
            break
        try:
            assert world.ended(world.fork(batches(others, ["1"])))
            world.check()
        finally:
            os.kill(driver, signal.SIGCONT)
            world.ended(driver)
        world.check()
    assert at > 20, "what a driver does takes more steps than that"
    world.check_copies()
    world.check_nothing_is_left()
