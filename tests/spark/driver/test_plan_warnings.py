"""Warnings of plans are logged, also while the assignment stays: each one once, for as long as it lasts."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import taskplace
from taskplace.model.problem import Problem
from tests.support.word_counts import counts, words

_errors: list[str] = []


def assign(problem: Problem) -> dict:
    """Place as the default assignor does; fail while there is an error to raise."""
    if _errors:
        raise RuntimeError(_errors[-1])
    plan = taskplace.plan({**problem.to_dict(), "config": {}})
    return {name: {"active": roles.active, "standby": roles.standby} for name, roles in plan.target.items()}


@pytest.fixture
def errors() -> Iterator[list[str]]:
    _errors.clear()
    yield _errors
    _errors.clear()


def test_an_assignor_that_begins_to_fail_is_named_once(world, caplog, errors):
    caplog.set_level(logging.WARNING, "taskplace.spark.driver.rebalancer")
    placed = world.open(counts(world), config={"task.assignor.class": f"{__name__}:assign"})
    world.batch(placed, 0, **{"in": words("a")})
    assert not caplog.messages
    batch = 0

    def plan_again(times: int) -> list[str]:
        """Plan so many times, and return what was logged."""
        nonlocal batch
        caplog.clear()
        for _ in range(times):
            batch += 1
            world.come(1)  # a reason to plan
            world.follow(placed)
            world.batch(placed, batch, **{"in": words("a")})
        return caplog.messages

    errors.append("out of order")
    (logged,) = plan_again(3)
    assert "is rejected: RuntimeError: out of order; high_availability is used" in logged
    errors.append("still out of order")
    (logged,) = plan_again(2)
    assert "RuntimeError: still out of order" in logged, "a new warning"
    errors.clear()
    assert plan_again(1) == []
    errors.append("out of order")
    assert len(plan_again(1)) == 1, "a warning that has come back"
