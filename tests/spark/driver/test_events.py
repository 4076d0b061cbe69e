"""The events of a whole `Placed` without Spark: for reporters, as lines of JSON, and in the log."""

from __future__ import annotations

import io
import json
import logging

import pytest

from taskplace.logs import JsonFormatter
from taskplace.model.plan import Roles
from taskplace.record.events import BatchDone, ExecutorLost, Rebalanced
from taskplace.record.json_lines import JsonReporter
from taskplace.spark.driver.rebalancer import warmup_changes
from tests.support.operators import run, stream
from tests.support.word_counts import counts, words
from topology import TaskId

A, B = TaskId(0, 0), TaskId(0, 1)
STANDBY = {"num.standby.replicas": 1, "acceptable.recovery.lag": 0}
KEYS = [f"secret-key-{number}" for number in range(40)]


class Listener:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.batches: list[BatchDone] = []
        self.rebalances: list[Rebalanced] = []
        self.losses: list[ExecutorLost] = []
        self.batch, self.rebalance, self.failure = (
            self.batches.append,
            self.rebalances.append,
            self.losses.append,
        )


@pytest.fixture
def listener(world):
    return Listener()


@pytest.fixture
def placed(world, listener):
    """Two executors with a task and a standby each, after a first batch."""
    world.come(1)
    placed = world.open(counts(world), config=STANDBY, reporter=listener)
    world.batch(placed, 0, **{"in": words(*KEYS)})
    return placed


def test_a_rebalance_has_its_assignment_its_changes_and_its_balance(placed, listener):
    [told] = listener.rebalances
    plan = placed.loop.plan
    assert told.assignment == {
        name: {role: tuple(map(str, tasks)) for role, tasks in roles._asdict().items()}
        for name, roles in plan.assignment.items()
    }
    assert [(one.task, one.why) for one in told.changes] == [(str(one.task), one.why) for one in plan.moves]
    assert (told.to_go, told.imbalance) == (0, placed.metrics()["imbalance-max-mean"])
    assert told.seconds > 0
    assert placed.rebalancer.in_force().assignment == told.assignment


def test_a_batch_has_the_lags_of_its_followers(world, placed, listener):
    world.batch(placed, 1, **{"in": words(*KEYS)})
    told = listener.batches[-1]
    by_instance = {view.id: view.lag for view in told.placement}
    assert {name: sum(told.lags.get(name, {}).values()) for name in by_instance} == by_instance
    assert sum(by_instance.values()) > 0, "no job has run there yet"
    assert told.behind == sum(map(len, told.lags.values()))
    world.follow(placed)
    world.batch(placed, 2, **{"in": words("a")})
    assert (listener.batches[-1].lags, listener.batches[-1].behind) == ({}, 0)


def test_a_batch_after_a_loss_has_what_was_replayed(world, placed, listener):
    world.follow(placed)
    before = placed.summary()
    world.lose("1")
    world.batch(placed, 1, **{"in": words(*KEYS)})
    [loss] = listener.losses
    assert (loss.instance, loss.batch_id) == ("executor-1", 1)
    told, after = listener.batches[-1].recovery, placed.summary()
    assert told.replayed == after.replayed_records - before.replayed_records
    assert told.restored == after.snapshot_records - before.snapshot_records
    assert told.scratch == after.scratch_restores - before.scratch_restores
    lost = set(listener.rebalances[0].assignment["executor-1"]["active"])
    assert {change.task for change in listener.rebalances[1].changes if change.role == "promotion"} == lost


def test_a_task_that_moves_warms_up_and_becomes_active(world):
    out = io.StringIO()
    placed = stream(world, reporter=JsonReporter(out))
    world.come()
    for batch in (1, 2):
        world.follow(placed)
        run(world, placed, batch)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    begun, became = (line for line in lines if line["event"] == "warm-up")
    assert (begun["executor"], begun["state"]) == ("executor-2", "begun")
    assert (became["executor"], became["state"], became["task"]) == ("executor-2", "active", begun["task"])
    for line in (begun, became):
        change = lines[lines.index(line) - 1]
        assert (change["event"], change["generation"]) == ("rebalance", line["generation"])


@pytest.mark.parametrize(
    ("after", "states"),
    [
        (Roles(active=(A,)), ["active"]),
        (Roles(standby=(A,)), ["standby"]),
        (Roles(active=(B,)), ["ended"]),
        (None, ["ended"]),  # its executor is gone
        (Roles(warmup=(A,)), []),
    ],
)
def test_how_a_warmup_ends(after, states):
    then = {} if after is None else {"executor-2": after}
    changes = warmup_changes({"executor-2": Roles(warmup=(A,))}, then)
    assert [(one.task, one.instance, one.state) for one in changes] == [
        ("0_0", "executor-2", state) for state in states
    ]


def test_the_log_has_a_line_for_each_rebalance_and_each_move_and_no_row_or_key(world, placed, caplog):
    caplog.set_level(logging.DEBUG)
    world.follow(placed)
    world.come(1)
    world.follow(placed)
    world.batch(placed, 1, **{"in": words(*KEYS)})
    world.lose("1")
    world.batch(placed, 2, **{"in": words(*KEYS)})
    placed.close()
    lines = [json.loads(JsonFormatter().format(each)) for each in caplog.records]
    joined, left = (line for line in lines if line["logger"] == "taskplace")
    assert joined["message"].startswith("rebalance at batch 1, generation 2: membership: executor-3 joined; ")
    assert joined["message"].endswith(" ms")
    assert (joined["level"], joined["event"], joined["batch"], joined["generation"]) == (
        "INFO",
        "rebalance",
        1,
        2,
    )
    assert joined.keys() >= {"moves_planned", "warmups", "followup", "latency_ms"}
    assert "executor-1 left" in left["reason"] and left["moves_forced"] == placed.stats.promotions == 1
    moves = [line for line in lines if line["logger"] == "taskplace.tasks"]
    (forced,) = (line for line in moves if line["role"] == "promotion")
    assert (forced["level"], forced["event"], forced["from"], forced["to"]) == (
        "DEBUG",
        "move",
        None,
        "executor-2",
    )
    assert forced["message"] == f"generation 3: {forced['task']}: executor-2 takes over ({forced['why']})"
    assert "secret-key" not in "\n".join(map(str, lines))
