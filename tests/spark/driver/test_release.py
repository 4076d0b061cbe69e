"""`Placed.release`: parked copies of an executor are tried again with the next batch."""

from __future__ import annotations

import pytest

from taskplace.errors import InputError
from tests.support.word_counts import counts, words
from topology import TaskId


def test_the_next_batch_plans_with_released_copies(world):
    placed = world.open(counts(world))
    world.batch(placed, 0, **{"in": words("a")})
    task = TaskId(0, 0)
    placed.loop._watch.parked = {("executor-1", task)}
    with pytest.raises(InputError, match=r"executor: found '7', expected executor-1, the only executor"):
        placed.release("7")
    assert placed.release("1") == (("executor-1", task),)
    assert placed.release() == ()
    plan = placed.loop.plan
    world.batch(placed, 1, **{"in": words("a")})
    assert placed.loop.plan is not plan
    assert placed.loop.plan.assignment == plan.assignment
