"""How it is known whether a driver runs: epochs, the last status, its age, and whether it changes."""

from __future__ import annotations

import os
import time

import msgspec
import pytest

from taskplace.errors import CheckpointError
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


def seen(root, *, after=0.0, then=None):
    """Look, `after` seconds later; `then` is called while the status is watched."""
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if then is not None and len(waits) == 3:
            then()

    return driver_of(root, clock=lambda: NOW + after, sleep=sleep)


def test_a_young_status_of_the_newest_driver(root):
    write(root / STATUS_FILE, status())
    found = seen(root, after=3)
    assert found.runs
    assert found.why == "driver 2 (app-1, process 7 on host-1) wrote its status 3 s ago"


def test_an_old_status_that_does_not_change(root):
    write(root / STATUS_FILE, status())
    found = seen(root, after=75)
    assert not found.runs
    assert found.why.endswith(
        "last wrote its status 1 min 15 s ago (normal: every 2 s); it was probably killed"
    )


def test_an_old_status_that_changes_is_of_a_host_with_another_clock(root):
    write(root / STATUS_FILE, status())
    news = status(written=NOW + 2, number=2)
    found = seen(root, after=500, then=lambda: write(root / STATUS_FILE, news))
    assert found.runs
    assert "the clocks of its host and of this one differ by 498 s" in found.why
    assert found.status == news


def test_a_driver_that_has_ended(root):
    write(root / STATUS_FILE, status(ended=True))
    found = seen(root, after=7300)
    assert (found.runs, found.why.rpartition(") ")[2]) == (False, "has ended, 2 h 1 min ago")


def test_a_driver_that_was_replaced(root):
    write(root / STATUS_FILE, status(epoch=1))
    found = seen(root)
    assert not found.runs
    assert found.why == "driver 2 has taken over from driver 1, and has written no status"
    found = seen(root, then=lambda: write(root / STATUS_FILE, status()))
    assert found.runs


def test_no_status_and_no_driver(root):
    assert seen(root).why == "driver 2 has taken over last, and there is no status.json of it"
    for path in (root / "epochs").iterdir():
        path.unlink()
    assert seen(root).why == "no driver has taken this checkpoint over yet"


def test_a_driver_that_has_just_taken_over_is_waited_for(root):
    path = root / "epochs" / f"{2:010d}"
    os.utime(path, (NOW, NOW))
    assert seen(root, then=lambda: write(root / STATUS_FILE, status())).runs


def waiting(root, written=NOW):
    write(root / WAITING_FILE, WaitingDriver(DriverIdentity("host-2", 9, "app-2", NOW - 30), written))


WAITS = (
    "; another driver (app-2, process 9 on host-2) was started 30 s ago, and waits for its first batch, with which "
    "it takes over"
)


def test_a_driver_that_waits_for_its_first_batch_is_named(root):
    write(root / STATUS_FILE, status(ended=True))
    waiting(root)
    found = seen(root)
    assert not found.runs
    assert found.why.endswith(f" has ended, just now{WAITS}")
    assert found.status == status(ended=True)
    for path in (root / "epochs").iterdir():
        path.unlink()
    assert seen(root).why == f"no driver has taken this checkpoint over yet{WAITS}"


def test_a_driver_that_waited_and_was_killed_is_not_named(root):
    write(root / STATUS_FILE, status(ended=True))
    waiting(root, NOW - 11)
    assert seen(root).why.endswith(" has ended, just now")
    (root / WAITING_FILE).write_text("{")
    assert seen(root).why.endswith(" has ended, just now"), "damage"


def test_while_a_driver_runs_nobody_else_is_named(root):
    write(root / STATUS_FILE, status())
    waiting(root)
    assert seen(root).why.endswith("wrote its status just now")


def test_a_status_that_cannot_be_read(root):
    (root / STATUS_FILE).write_text('{"body": {}, "seal": ""}')
    with pytest.raises(CheckpointError, match=r"status\.json: damaged \(its checksum does not match\)"):
        driver_of(root)
    from taskplace.spark.codec import sealed

    newer = {**msgspec.to_builtins(status()), "schema": "taskplace.status/2", "more": time.time()}
    (root / STATUS_FILE).write_bytes(sealed(newer))
    with pytest.raises(
        CheckpointError, match=r"found a file with the schema 'taskplace\.status/2', expected"
    ):
        driver_of(root)
