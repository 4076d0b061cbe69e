"""Lines of JSON: each event of a run has its type, and everything that is written fits the published schema."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from taskplace.record import reporter_for
from taskplace.record.events import (
    BatchDone,
    ExecutorLost,
    InstanceView,
    Rebalanced,
    Summary,
    WarmupChange,
    WorkProgress,
)
from taskplace.record.json_lines import LINES, SCHEMA, JsonReporter, schema

from topology import Topology

VIEWS = (InstanceView("executor-1", 3, 2, 1, 40), InstanceView("executor-2", 0, 0, 0, 0, alive=False))
WORK = WorkProgress("verifying", 5, 20, "files", seconds=4.0, rate=1.25, eta=12.0)
SUMMARY = Summary(
    batches=2,
    rows=10,
    rebalances=1,
    promotions=1,
    replayed_records=0,
    snapshot_records=0,
    scratch_restores=0,
    elsewhere=0,
    phases={"state": 0.5},
    check="right",
    ok=True,
    bad_records={"orders": 1},
)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def reporter(stream: io.StringIO) -> JsonReporter:
    return JsonReporter(stream, clock=lambda: 1.5)


def start(reporter: JsonReporter) -> None:
    topology = Topology("shop")
    topology.source("orders", partitions=4).sink("out")
    reporter.start(application="shop", checkpoint="/data/checkpoint", built=topology.build())


def written(stream: io.StringIO) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    for line in lines:
        jsonschema.validate(line, schema(), cls=jsonschema.Draft202012Validator)
    return lines


def test_each_event_of_a_run_is_a_line(reporter: JsonReporter, stream: io.StringIO) -> None:
    start(reporter)
    reporter.note("starting Spark")
    reporter.progress(WORK)
    reporter.batch(BatchDone(0, 27, 13_000, 5.5, {"state": 3.0}, VIEWS, 2))
    reporter.rebalance(
        Rebalanced(
            generation=3,
            batch_id=1,
            reason="membership",
            moves=("0_3: warmup -> executor-1",),
            warmups=1,
            followup=True,
            warmup_changes=(
                WarmupChange("0_3", "executor-1", "begun"),
                WarmupChange("0_2", "executor-1", "active"),
            ),
        )
    )
    reporter.failure(ExecutorLost("executor-2", 1, 8, cancelled=True))
    reporter.summary(SUMMARY)
    reporter.close()
    reporter.finish(0)
    lines = written(stream)
    assert [line["event"] for line in lines] == [
        "start", "note", "work", "batch", "rebalance", "warm-up", "warm-up", "loss", "finish",
    ]  # fmt: skip
    assert {line["event"] for line in lines} == {line.__struct_config__.tag for line in LINES}
    assert {line["time"] for line in lines} == {"1970-01-01T00:00:01.500Z"}
    first, note, work, batch, rebalance, begun, became, loss, finish = lines
    assert first["schema"] == SCHEMA
    assert (first["topology"], first["tasks"], first["checkpoint"]) == ("shop", 4, "/data/checkpoint")
    assert note["text"] == "starting Spark"
    assert (work["name"], work["done"], work["total"], work["unit"]) == ("verifying", 5, 20, "files")
    assert (work["seconds"], work["rate"], work["eta_seconds"], work["ended"]) == (4.0, 1.25, 12.0, False)
    assert (batch["batch"], batch["total"], batch["rows"], batch["phases"]) == (0, 27, 13_000, {"state": 3.0})
    assert batch["executors"][1] == {
        "id": "executor-2", "active": 0, "standby": 0, "warmup": 0, "lag": 0, "alive": False,
    }  # fmt: skip
    assert (rebalance["generation"], rebalance["reason"], rebalance["followup"]) == (3, "membership", True)
    assert (begun["task"], begun["executor"], begun["state"], begun["generation"]) == (
        "0_3",
        "executor-1",
        "begun",
        3,
    )
    assert (became["task"], became["state"]) == ("0_2", "active")
    assert (loss["executor"], loss["active_tasks"], loss["cancelled"]) == ("executor-2", 8, True)
    assert (finish["exit_code"], finish["error"]) == (0, None)
    assert finish["totals"]["check"] == "right" and finish["totals"]["bad_records"] == {"orders": 1}


def test_long_work_has_few_lines_and_one_at_its_end(reporter: JsonReporter, stream: io.StringIO) -> None:
    """Short work has no line, unless it is not counted: then it has a line at its begin and at its end."""
    for seconds in range(60):
        reporter.progress(replace(WORK, seconds=float(seconds)))
    reporter.progress(replace(WORK, seconds=60.0, ended=True))
    long = written(stream)
    assert [line["seconds"] for line in long] == [2, 7, 12, 18, 27, 41, 60]
    assert [line["ended"] for line in long] == [*[False] * 6, True]
    reporter.progress(replace(WORK, seconds=1.0, ended=True))
    for ended in (False, True):
        reporter.progress(WorkProgress("starting Spark", seconds=1.0, ended=ended))
    assert [line["name"] for line in written(stream)[len(long) :]] == ["starting Spark", "starting Spark"]


def test_a_run_that_failed_says_why_without_secrets(reporter: JsonReporter, stream: io.StringIO) -> None:
    reporter.note("connecting with\n password=hunter2")
    reporter.finish(1, "batch 3 failed:\n  token=hunter2")
    note, finish = written(stream)
    assert note["text"] == "connecting with password=(hidden)"
    assert finish["error"] == "batch 3 failed: token=(hidden)"
    assert finish["totals"] is None


def test_a_reader_that_is_gone_ends_nothing(reporter: JsonReporter, stream: io.StringIO) -> None:
    stream.close()
    reporter.note("still running")


def test_the_configuration_names_it(stream: io.StringIO) -> None:
    assert isinstance(reporter_for("json", stream), JsonReporter)


def test_every_field_has_a_meaning() -> None:
    parts = schema()["$defs"]
    for line in LINES:
        for name, field in parts[line.__name__]["properties"].items():
            assert name == "event" or field.get("description"), (line, name)
        assert line.__doc__
