"""Why a copy makes no progress, read from a status: each cause with its remedy."""

from __future__ import annotations

import pytest

from taskplace.explanation import Seen
from taskplace.spark.operator_messages import (
    DriverIdentity,
    ExecutorStatus,
    FailedBatch,
    Status,
    WarmupStatus,
)
from taskplace.spark.stuck import IDLE_SECONDS, SILENT_SECONDS, seen_of, stuck
from topology import TaskId

NOW = 1_000_000.0
FULL = {"errors": {"0_3": "DiskFull: /d: full. Free space there"}}
LOST = {"errors": {"0_3": "CheckpointError: /d/snapshots/job/changelog/1.segment: x"}}
SILENT = {"visited": NOW - SILENT_SECONDS - 60}
LOADS = "executor-2 loads a snapshot, and its lag counts the whole changelog until then"
CANNOT = "executor-2 cannot follow: DiskFull: /d: full"
LOG = "the log of executor-2 says more"
FAILED = FailedBatch(NOW, 7, "DiskFull: /checkpoint: full. Free space there")
LATE = WarmupStatus(900, caught_up=False, seconds=720.0, idle_seconds=700.0)
SLOW = WarmupStatus(900, caught_up=False, seconds=IDLE_SECONDS, idle_seconds=1.0)
STARTED = WarmupStatus(900, caught_up=False, seconds=IDLE_SECONDS - 1, idle_seconds=IDLE_SECONDS - 1)
LOADING = WarmupStatus(900, caught_up=False, restoring=True, seconds=720.0, idle_seconds=700.0)
START = "start the stream again"


def of(error: str) -> dict[str, dict[str, str]]:
    return {"errors": {"0_3": error}}


def status(warmup: WarmupStatus | None = None, failed: FailedBatch | None = None, **executor) -> Status:
    warm = {} if warmup is None else {"0_3": warmup}
    there = {"executor-2": ExecutorStatus("host-2", 1, warmup=warm, **{"visited": NOW - 1, **executor})}
    driver = DriverIdentity("h", 7, "app", NOW - 999)
    return Status("id", "t", 1, driver, NOW, 1, 2.0, executors=there, failed=failed)


def seen(warmup: WarmupStatus | None = None, *, runs: bool = True, **more) -> Seen:
    return seen_of(status(warmup, **more), runs=runs)["executor-2", TaskId(0, 3)]


@pytest.mark.parametrize(
    ("warmup", "executor", "stalled", "remedy"),
    [
        (LATE, FULL, CANNOT, "make room on the disk of executor-2 (host-2)"),
        (LATE, LOST, "executor-2 cannot follow: CheckpointError: changelog/1.segment: x", "`taskplace inspect CHECK"),
        (LATE, of("OSError: /x/snapshots/1: no space"), "executor-2 cannot follow: OSError: /x/snapshots/1", LOG),
        (LATE, of("DamagedEntry: x"), "executor-2 cannot follow: DamagedEntry: x", "nothing needs to be done: the dam"),
        (LATE, {"error": "ValueError"}, "follow jobs on executor-2 fail: ValueError", LOG),
        (LATE, SILENT, "executor-2 has not answered a follow job for 3 min", "look whether it hangs: its log, or"),
        (LATE, {}, "executor-2 has read no record of it for 11 min 40 s", "the driver's log says more"),
        (LATE, {"standby": {"0_1": 0}}, "11 min 40 s; 1 other copy there takes turns with it", "the driver's log says"),
        (SLOW, {}, "executor-2 reads it no faster than the stream writes, so its lag of 900", "raise follower.share"),
        (None, {"standby": {"0_3": 40}, **FULL}, CANNOT, "make room on"),
        (None, {"parked": ("0_3",), **FULL}, "executor-2 could not follow (DiskFull: /d: full)", "when the cause is"),
    ],
)  # fmt: skip
def test_a_cause_and_its_remedy(warmup, executor, stalled, remedy):
    found = seen(warmup, **executor)
    assert (found.remaining, stalled in found.stalled) == (None, True)
    assert found.remedy.startswith(remedy)
    assert [(task, why) for _, task, why in stuck(status(warmup, **executor))] == [("0_3", found)]


@pytest.mark.parametrize(
    ("warmup", "found"),
    [
        (STARTED, Seen(None)),
        (LOADING, Seen(unknown=LOADS)),
        (WarmupStatus(900, caught_up=False, seconds=720.0, eta_seconds=30.0), Seen(30.0)),
        (WarmupStatus(9, caught_up=True, seconds=720.0), Seen(0.0)),
    ],
)
def test_what_starts_slowly_loads_or_makes_progress_is_not_stuck(warmup, found):
    assert seen(warmup) == found
    assert list(stuck(status(warmup))) == []
    assert seen_of(status(standby={"0_3": 40}), runs=True) == {}


NO_DRIVER = "no driver runs, so nothing catches up"


@pytest.mark.parametrize(
    ("found", "stalled", "remedy"),
    [
        (seen(STARTED, runs=False), NO_DRIVER, START),
        (seen(standby={"0_3": 40}, runs=False), NO_DRIVER, START),
        (seen(STARTED, runs=False, failed=FAILED), f"{NO_DRIVER}; batch 7 failed (DiskFull: /checkpoint: full)",
            f"mend the cause, and {START}"),
        (seen(LATE, runs=False, **FULL), f"{NO_DRIVER}; its last status says: {CANNOT}",
            f"make room on the disk of executor-2 (host-2), and {START}"),
        (seen(runs=False, parked=("0_3",), **FULL), "executor-2 could not follow (DiskFull: /d: full)",
            f"when the cause is gone, {START}"),
    ],
)  # fmt: skip
def test_without_a_driver_what_was_the_matter_before_is_still_named(found, stalled, remedy):
    assert (found.stalled, found.remedy) == (stalled, remedy)
    assert seen(WarmupStatus(9, caught_up=True), runs=False) == Seen(0.0)


@pytest.mark.parametrize("error", ["DiskFull: full", "DamagedEntry: x", "CheckpointError: x", "OSError: x"])
@pytest.mark.parametrize("failed", [None, FAILED])
def test_without_a_driver_a_remedy_starts_the_stream_and_promises_nothing_before(error, failed):
    remedy = seen(LATE, runs=False, failed=failed, errors={"0_3": error}).remedy
    assert remedy.count(START) == 1
    assert not any(words in remedy for words in ("by itself", "follow jobs go on", "nothing needs"))
    assert remedy.startswith("mend the cause of that, and ") == bool(failed)


def test_a_remedy_names_the_checkpoint_where_it_is_known():
    [(_, _, found)] = stuck(status(LATE, errors={"0_3": "CheckpointError: segment 7"}), "/data/my checkpoint")
    assert found.remedy.startswith("`taskplace inspect '/data/my checkpoint' --verify` names damaged files")
