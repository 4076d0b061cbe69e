"""Executors of Spark are killed while tasks read a topic and a sink writes another one; so are drivers, in between."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

import psutil

from tests.spark.kafka.test_driver_killed import SECONDS, drive, prepare, said, send
from tests.spark.kafka.test_sink_kills import check
from tests.spark.test_driver_killed import end
from tests.support.chaos import deck
from tests.support.executors import executor_processes
from tests.support.kafka_sink_lives import SINK_POINTS, committed
from tests.support.placed_harness import FaultOrders, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]
#: How long after the commit of a batch an executor is killed at most, in seconds: a batch takes about that long.
LATER = 1.5
#: Where drivers are killed. The first points are passed once in each life.
POINTS = [point for point in SINK_POINTS if point not in ("sink.starting", "sink.started", "sink.marked")]


class Run:
    """A stream whose executors and drivers are killed. `executors`: the process ids of those that were killed."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.folder, self.draw = folder, draw
        self.executors: list[int] = []
        self.drivers: list[str] = []
        self._orders = FaultOrders(folder / "orders")
        self._points: Iterator[str] = deck(draw, POINTS)

    def live(self, executors: int, *, to_the_end: bool = False) -> None:
        """Start a driver, kill so many of its executors, and then the driver, unless it lives to the end."""
        driver = drive(self.folder)
        try:
            for _ in range(executors):
                self._kill_an_executor(driver)
            if not to_the_end:
                self._next_batch()
                self.drivers.append(next(self._points))
                self._orders.write(self.drivers[-1])
            assert driver.wait(timeout=SECONDS) == (0 if to_the_end else -signal.SIGKILL), said(self.folder)
        finally:
            end(driver)

    def _next_batch(self) -> None:
        before = committed(self.folder)
        wait_until(lambda: committed(self.folder) > before, "a batch is committed", SECONDS)

    def _kill_an_executor(self, driver: subprocess.Popen) -> None:
        """Kill a JVM some time after the commit of a batch, with both executors there."""
        executors: list[psutil.Process] = []

        def both() -> bool:
            assert driver.poll() is None, said(self.folder)
            executors[:] = executor_processes(driver.pid).values()
            return len(executors) == 2

        self._next_batch()
        wait_until(both, "the driver has two executors", SECONDS)
        time.sleep(self.draw.random() * LATER)
        executor = self.draw.choice(executors)
        executor.kill()
        with contextlib.suppress(psutil.NoSuchProcess):
            executor.wait(SECONDS)
        self.executors.append(executor.pid)


def kill(kafka, folder: Path, *, lives: int, executors: int, times: int) -> int:
    """Kill so many executors in each life of a driver; all but the last one end with a kill as well.

    Returns how many of the executors had tasks of a batch when they were killed.
    """
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    settings = prepare(kafka, folder)
    expected = send(kafka, settings["in"], times)
    run = Run(folder, random.Random(seed))
    for life in range(lives):
        run.live(executors, to_the_end=life == lives - 1)
    under_tasks = len(re.findall(r"^batch \d+, .*: lost executor", (folder / "driver.log").read_text(), re.M))
    print(
        f"killed: {len(run.executors)} executors, {under_tasks} of them under tasks; drivers at {run.drivers}; "
        f"{committed(folder) + 1} batches, {sum(map(len, expected.values()))} rows"
    )
    assert len(set(run.executors)) == lives * executors
    check(kafka, settings["out"], expected)
    return under_tasks


@pytest.mark.timeout(900)
def test_executors_are_killed(kafka, tmp_path):
    kill(kafka, tmp_path, lives=2, executors=2, times=320)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_executors_are_killed(kafka, tmp_path):
    assert kill(kafka, tmp_path, lives=4, executors=6, times=1600) > 4
