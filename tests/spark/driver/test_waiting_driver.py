"""A driver that was started says that it waits for its first batch; no Spark needed."""

from __future__ import annotations

import os

import pytest

from taskplace.spark.driver import operations
from taskplace.spark.driver.status import StatusBoard
from taskplace.spark.inspection.driver import driver_of
from taskplace.spark.operator_messages import WAITING_FILE, WaitingDriver, read
from tests.support.operators import run, stream, write_status
from tests.support.word_counts import counts


def test_a_driver_waits_until_its_first_batch_or_its_end(world):
    placed = stream(world)
    placed.close()
    file = placed.checkpoint / WAITING_FILE
    assert not file.exists()
    again = world.open(counts(world))
    again._runner.operations.wait()
    assert read(file, WaitingDriver).driver.pid == os.getpid()
    assert " has ended, " in driver_of(placed.checkpoint).why
    assert "waits for its first batch, with which it takes over" in driver_of(placed.checkpoint).why
    run(world, again, 1)
    assert not file.exists()
    again._runner.operations.wait()
    assert not file.exists(), "its first batch came before"
    again.close()
    third = world.open(counts(world))
    third._runner.operations.wait()
    assert file.exists()
    third.close()
    assert not file.exists()


def test_a_driver_in_charge_is_so_before_it_has_rows_of_its_own(world):
    """Its first batch was committed by the driver before it, which ended before Spark knew."""
    stream(world).close()
    again = world.open(counts(world))
    run(world, again, 0)
    write_status(again)
    assert driver_of(again.checkpoint).runs
    world.follow(again)
    write_status(again)
    seen = driver_of(again.checkpoint).status
    assert (seen.epoch, seen.batch, seen.ended) == (2, 0, False)
    again.close()
    assert " has ended, " in driver_of(again.checkpoint).why


def test_a_query_that_is_stopped_and_started_again_stays_in_charge(world):
    placed = stream(world)
    placed.close()
    assert not driver_of(placed.checkpoint).runs
    placed._runner.operations.wait()
    write_status(placed)
    assert driver_of(placed.checkpoint).runs
    assert not (placed.checkpoint / WAITING_FILE).exists()


def test_a_waiting_driver_says_so_again_and_again(world, monkeypatch):
    stream(world).close()
    again = world.open(counts(world))
    again._runner.operations.wait()
    first = read(again.checkpoint / WAITING_FILE, WaitingDriver)
    monkeypatch.setattr(operations, "HEARTBEAT_SECONDS", 0.0)
    again._runner.operations.turn()
    second = read(again.checkpoint / WAITING_FILE, WaitingDriver)
    assert second.driver == first.driver and second.written > first.written


def test_a_last_status_is_written_without_spark_too(world, monkeypatch):
    placed = stream(world)
    write_status(placed)

    def gone(*_, **__):
        raise ConnectionRefusedError("Spark's process is gone")

    monkeypatch.setattr(StatusBoard, "status", gone)
    monkeypatch.setattr(placed._runner.replicator, "stop", gone)
    with pytest.raises(ConnectionRefusedError):
        placed.close()
    seen = driver_of(placed.checkpoint)
    assert not seen.runs and " has ended, " in seen.why
