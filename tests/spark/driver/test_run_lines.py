"""A stream's events as lines of JSON: a warm-up has a line when it begins and one when it ends."""

from __future__ import annotations

import io
import json

import pytest

pytest.importorskip("pyspark")

from taskplace.model.plan import Roles
from taskplace.record.json_lines import JsonReporter
from taskplace.spark.driver.rebalancer import warmup_changes
from tests.support.operators import run, stream
from tests.support.placed_without_spark import World
from topology import TaskId

A, B = TaskId(0, 0), TaskId(0, 1)


@pytest.fixture
def world(tmp_path, monkeypatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_task_that_moves_warms_up_and_becomes_active(world):
    out = io.StringIO()
    placed = stream(world, reporter=JsonReporter(out))
    world.come()
    for batch in (1, 2):
        world.follow(placed)
        run(world, placed, batch)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    warmups = [line for line in lines if line["event"] == "warm-up"]
    assert [(line["executor"], line["state"]) for line in warmups] == [
        ("executor-2", "begun"),
        ("executor-2", "active"),
    ]
    assert warmups[0]["task"] == warmups[1]["task"]
    for line in warmups:
        change = lines[lines.index(line) - 1]
        assert (change["event"], change["generation"]) == ("rebalance", line["generation"])
    assert [line["batch"] for line in lines if line["event"] == "batch"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("after", "state"),
    [
        (Roles(active=(A,)), "active"),
        (Roles(standby=(A,)), "standby"),
        (Roles(active=(B,)), "ended"),
        (None, "ended"),  # its executor is gone
    ],
)
def test_how_a_warmup_ends(after, state):
    then = {} if after is None else {"executor-2": after}
    [change] = warmup_changes({"executor-2": Roles(warmup=(A,))}, then)
    assert (change.task, change.instance, change.state) == ("0_0", "executor-2", state)


def test_what_stays_is_no_change():
    roles = {"executor-2": Roles(active=(B,), warmup=(A,))}
    assert warmup_changes(roles, roles) == ()
