"""A worker of Spark freezes the modules that it has loaded, whenever it did; other processes are left as they are."""

from __future__ import annotations

import gc
import json
import subprocess
import sys

import pytest

from taskplace.spark.worker import identity

CALLS = """
import gc, sys
{worker}
from taskplace.spark.worker import bins, identity
counts = []
for task in range(6):
    identity.begin()
    counts.append(gc.get_freeze_count())
    if task == 2:
        import xml.dom.minidom, ftplib
print(counts)
"""


@pytest.mark.parametrize("worker", ["import pyspark.worker", ""])
def test_only_workers_freeze_and_only_when_modules_were_loaded(worker):
    done = subprocess.run(
        [sys.executable, "-c", CALLS.format(worker=worker)], capture_output=True, text=True, check=True
    )
    counts = json.loads(done.stdout)
    if not worker:
        assert set(counts) == {0}
        return
    assert counts[0] == counts[1] == counts[2] > 10_000
    assert counts[3] == counts[4] == counts[5] > counts[2]


def test_a_process_of_a_test_keeps_its_garbage_collected(monkeypatch):
    monkeypatch.setattr(identity, "_frozen_modules", 0)
    before = gc.get_freeze_count()
    identity.begin()
    assert gc.get_freeze_count() == before


#: What takes long to load, and only drivers need.
OF_DRIVERS = (
    "taskplace.planner",
    "taskplace.explanation",
    "taskplace.spark.driver",
    "networkx",
    "ortools",
    "pandas",
)


def test_a_worker_loads_nothing_that_only_the_driver_needs():
    code = "import sys, pyspark.worker, taskplace.spark.worker.bins, taskplace.spark.worker.follow; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "taskplace.spark.worker.bins" in done.stdout.split()
    assert not set(OF_DRIVERS) & set(done.stdout.split())
