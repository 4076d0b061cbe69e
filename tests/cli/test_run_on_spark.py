"""`taskplace run --output json` on Spark: the lines of a whole run, with nothing else between them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from taskplace.record.json_lines import schema
from tests.support.pages import ROOT

pytestmark = pytest.mark.spark
RUN = "import sys; from taskplace.cli import main; sys.exit(main())"


@pytest.mark.parametrize("group", [False, True], ids=["process", "group"])
def test_sigterm_ends_a_run_in_order(tmp_path: Path, group: bool) -> None:
    """As a container does it, or a service manager to all processes: the status says that the driver has ended."""
    pytest.importorskip("pyspark")
    from examples.table_join import FILE, write_input
    from taskplace.spark.inspection.driver import driver_of

    write_input(tmp_path)
    places = {"input.orders.path": "orders", "input.customers.path": "customers"}
    places |= {"output.shipments.path": "shipments", "checkpoint.dir": "checkpoint", "state.dir": "state"}
    places = {key: f"{tmp_path / name}" for key, name in places.items()} | {"spark.trigger.interval": "1 s"}
    overrides = [part for key, value in places.items() for part in ("--set", f"{key}={value}")]
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, "run", str(FILE), "--output", "json", *overrides],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert run.stdout is not None
        lines = []
        for text in run.stdout:
            lines.append(json.loads(text))
            if lines[-1]["event"] == "batch" and len(lines) > 1:
                os.killpg(run.pid, signal.SIGTERM) if group else run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 130
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    assert lines[-1]["event"] == "finish"
    assert (lines[-1]["exit_code"], lines[-1]["error"]) == (130, "interrupted")
    seen = driver_of(tmp_path / "checkpoint")
    assert not seen.runs and " has ended, " in seen.why


def test_the_lines_of_a_run(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from examples.table_join import FILE, write_input

    write_input(tmp_path)
    places = {"input.orders.path": "orders", "input.customers.path": "customers"}
    places |= {"output.shipments.path": "shipments", "checkpoint.dir": "checkpoint", "state.dir": "state"}
    overrides = [part for key, name in places.items() for part in ("--set", f"{key}={tmp_path / name}")]
    done = subprocess.run(
        [sys.executable, "-c", RUN, "run", str(FILE), "--output", "json", *overrides],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for line in lines:
        jsonschema.validate(line, schema(), cls=jsonschema.Draft202012Validator)
    assert lines[0]["event"] == "start" and lines[0]["application"] == "table-join"
    assert [line["batch"] for line in lines if line["event"] == "batch"] == [0, 1, 2]
    assert sum(line["rows"] for line in lines if line["event"] == "batch") == 11  # 7 orders, 4 customers
    (first,) = [line for line in lines if line["event"] == "rebalance"]
    assert first["reason"].startswith("start: ")
    assert lines[-1]["event"] == "finish"
    assert lines[-1]["exit_code"] == 0 and lines[-1]["totals"]["batches"] == 3
