"""A stream without Spark that operators look at, and the commands that they run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from taskplace.spark import Placed
from tests.support.placed_without_spark import World
from tests.support.word_counts import counts, words

STRICT = {"acceptable.recovery.lag": 0}


def stream(world: World, **options: Any) -> Placed:
    """Return a driver that has committed a batch on executor-1."""
    placed = world.open(counts(world), config={**STRICT, **options.pop("config", {})}, **options)
    world.batch(placed, 0, **{"in": words(*"abcdefgh")})
    return placed


def run(world: World, placed: Placed, batch: int) -> None:
    world.batch(placed, batch, **{"in": words(*"abcdefgh")})


def turn(placed: Placed) -> None:
    """Have the driver answer requests, and write its status if it is time."""
    placed._runner.operations.turn()


def write_status(placed: Placed) -> None:
    """Have the driver write its status, however young the last one is."""
    placed.rebalancer.events.changes += 1
    placed._runner.operations._last = 0.0
    turn(placed)


@contextmanager
def attended(placed: Placed) -> Iterator[None]:
    """Have the driver take turns in another thread within this block, as it does on Spark."""
    over = threading.Event()

    def turns() -> None:
        while not over.wait(0.01):
            turn(placed)

    thread = threading.Thread(target=turns, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
