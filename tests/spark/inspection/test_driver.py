"""How it is known whether a driver runs: epochs, the last status, its age, and whether it changes."""

from __future__ import annotations

import os

import msgspec
import pytest

from taskplace.errors import CheckpointError
from taskplace.spark.codec import sealed
from taskplace.spark.inspection.driver import driver_of
from taskplace.spark.operator_messages import (
    STATUS_FILE,
    WAITING_FILE,
    DriverIdentity,
    Status,
    WaitingDriver,
    write,
)

NOW = 1_000_000.0
WAITS = (
    "; another driver (app-2, process 9 on host-2) was started 30 s ago, and waits for its first batch, with which "
    "it takes over"
)


def status(**more) -> Status:
    driver = DriverIdentity("host-1", 7, "app-1", NOW - 60)
    fields = {"epoch": 2, "written": NOW, "number": 1, **more}
    return Status(checkpoint="id", topology="t", driver=driver, interval=2.0, **fields)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "epochs").mkdir()
    for epoch in (1, 2):
        path = tmp_path / "epochs" / f"{epoch:010d}"
        path.touch()
        os.utime(path, (NOW - 3600, NOW - 3600))
    return tmp_path


def state(root, *, after=0.0, then=None):
    """Return what is known `after` seconds later; `then` is written while the status is watched."""
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if then is not None and len(waits) == 3:
            write(root / STATUS_FILE, then)

    return driver_of(root, clock=lambda: NOW + after, sleep=sleep)


@pytest.mark.parametrize(
    ("written", "after", "runs", "why"),
    [
        ({}, 3, True, "driver 2 (app-1, process 7 on host-1) wrote its status 3 s ago"),
        ({}, 75, False, "last wrote its status 1 min 15 s ago (normal: every 2 s); it was probably killed"),
        ({"ended": True}, 7300, False, "driver 2 (app-1, process 7 on host-1) has ended, 2 h 1 min ago"),
        ({"epoch": 1}, 0, False, "driver 2 has taken over from driver 1, and has written no status"),
        (None, 0, False, "driver 2 has taken over last, and there is no status.json of it"),
    ],
)
def test_whether_a_driver_runs_and_how_that_is_known(root, written, after, runs, why):
    if written is not None:
        write(root / STATUS_FILE, status(**written))
    found = state(root, after=after)
    assert (found.runs, found.why.endswith(why)) == (runs, True), found.why


def test_an_old_status_that_changes_is_of_a_host_with_another_clock(root):
    write(root / STATUS_FILE, status())
    news = status(written=NOW + 2, number=2)
    found = state(root, after=500, then=news)
    assert found.runs and found.status == news
    assert "the clocks of its host and of this one differ by 498 s" in found.why


def test_a_driver_that_has_just_taken_over_is_waited_for(root):
    os.utime(root / "epochs" / f"{2:010d}", (NOW, NOW))
    assert state(root, then=status()).runs
    write(root / STATUS_FILE, status(epoch=1))
    assert state(root, then=status()).runs


@pytest.mark.parametrize(
    ("ended", "waited", "why"),
    [
        (True, NOW, f" has ended, just now{WAITS}"),
        (True, NOW - 11, " has ended, just now"),
        (True, None, " has ended, just now"),
        (False, NOW, " wrote its status just now"),
    ],
)
def test_a_driver_that_waits_for_its_first_batch_is_named_while_none_runs(root, ended, waited, why):
    write(root / STATUS_FILE, status(ended=ended))
    (root / WAITING_FILE).write_text("{")  # damage
    if waited is not None:
        write(root / WAITING_FILE, WaitingDriver(DriverIdentity("host-2", 9, "app-2", NOW - 30), waited))
    found = state(root)
    assert (found.runs, found.why.endswith(why)) == (not ended, True), found.why


def test_before_the_first_driver(root):
    for path in (root / "epochs").iterdir():
        path.unlink()
    assert state(root).why == "no driver has taken this checkpoint over yet"


def test_a_status_that_cannot_be_read(root):
    (root / STATUS_FILE).write_text('{"body": {}, "seal": ""}')
    with pytest.raises(CheckpointError, match=r"status\.json: damaged \(its checksum does not match\)"):
        driver_of(root)
    newer = {**msgspec.to_builtins(status()), "schema": "taskplace.status/2", "more": 1}
    (root / STATUS_FILE).write_bytes(sealed(newer))
    with pytest.raises(CheckpointError, match=r"a file with the schema 'taskplace\.status/2', expected"):
        driver_of(root)
