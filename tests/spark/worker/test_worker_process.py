"""A worker of Spark freezes what it has loaded, and nothing later; other processes are left as they are."""

from __future__ import annotations

import gc
import json
import subprocess
import sys

import pytest

from taskplace.spark.worker import worker_process

CALLS = """
import gc, sys
{worker}
from taskplace.spark.worker import bins, worker_process
counts = []
for _ in range(5):
    worker_process.begin()
    counts.append(gc.get_freeze_count())
print(counts)
"""


@pytest.mark.parametrize("worker", ["import pyspark.worker", ""])
def test_only_workers_freeze_and_only_what_the_first_tasks_load(worker):
    done = subprocess.run(
        [sys.executable, "-c", CALLS.format(worker=worker)], capture_output=True, text=True, check=True
    )
    first, second, third, *later = json.loads(done.stdout)
    if not worker:
        assert {first, second, third, *later} == {0}
        return
    assert first == second > 10_000
    assert third >= second
    assert set(later) == {third}


def test_a_process_of_a_test_keeps_its_garbage_collected(monkeypatch):
    monkeypatch.setattr(worker_process, "_begun", 0)
    before = gc.get_freeze_count()
    worker_process.begin()
    assert gc.get_freeze_count() == before
