"""A driver that was started says that it waits for its first batch; no Spark needed."""

from __future__ import annotations

import os

from taskplace.spark.inspection.driver_seen import look
from taskplace.spark.operator_messages import WAITING_FILE, WaitingDriver, read
from tests.support.operators import run, stream
from tests.support.word_counts import counts


def test_a_driver_waits_until_its_first_batch_or_its_end(world):
    placed = stream(world)
    placed.close()
    file = placed.checkpoint / WAITING_FILE
    assert not file.exists()
    again = world.open(counts(world))
    again._runner.operations.wait()
    assert read(file, WaitingDriver).driver.pid == os.getpid()
    assert " has ended, " in look(placed.checkpoint).why
    assert "waits for rows: it takes over with its first batch" in look(placed.checkpoint).why
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
