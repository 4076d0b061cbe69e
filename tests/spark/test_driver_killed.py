"""The driver dies by SIGKILL, with its executors, and another one continues from the checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.killed_driver import stream
from tests.support.placed_harness import check, data, wait_until

pytestmark = pytest.mark.spark

BATCHES = 8


def write_events(folder: Path, batches: int) -> list[tuple[str, str, int]]:
    """Write one file a batch, and return all rows."""
    (folder / "events").mkdir()
    rows = []
    for batch in range(batches):
        keys, groups, values = zip(*data(batch), strict=True)
        file = folder / "events" / f"{batch}.parquet"
        pq.write_table(pa.table({"key": keys, "group": groups, "value": values}), file)
        os.utime(file, (1e9 + batch, 1e9 + batch))  # Spark reads files in this order
        rows += data(batch)
    return rows


def drive(folder: Path, more: Mapping[str, str] = MappingProxyType({})) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **more}
    log = (folder / "driver.log").open("ab")
    command = [sys.executable, "-m", "tests.support.killed_driver", str(folder)]
    # A group of its own: JVM and executors die with it, whatever happens to this test.
    return subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)


def end(driver: subprocess.Popen) -> None:
    """Kill what is left of a driver, its JVM and its executors."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def drive_and_kill(folder: Path) -> None:
    """Have a driver commit three batches, and kill it with its executors before it has committed all."""
    manifests = folder / "checkpoint" / "manifests"
    first = drive(folder)
    try:
        wait_until(
            lambda: len(list(manifests.glob("*.json"))) >= 3, "three batches are committed", seconds=240
        )
    finally:
        end(first)
    committed = len(list(manifests.glob("*.json")))
    assert committed < BATCHES, "it was too fast to be killed in the middle"


def test_a_killed_driver_is_continued_on_another_cluster(cluster, tmp_path):
    rows = write_events(tmp_path, BATCHES)
    drive_and_kill(tmp_path)
    placed = stream(cluster, tmp_path).placed
    try:
        check(tmp_path, rows)
        assert placed.stats.scratch == 0
    finally:
        placed.close()
