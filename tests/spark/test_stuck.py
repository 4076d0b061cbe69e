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
TASK = TaskId(0, 3)


def status(warmup: WarmupStatus | None = None, **executor) -> Status:
    more = executor.pop("more", {})
    warm = {} if warmup is None else {"0_3": warmup}
    there = ExecutorStatus("host-2", 1, warmup=warm, **{"visited": NOW - 1, **executor})
    return Status(
        checkpoint="id",
        topology="t",
        epoch=1,
        driver=DriverIdentity("h", 7, "app", NOW - 999),
        written=NOW,
        number=1,
        interval=2.0,
        executors={"executor-2": there},
        **more,
    )


def seen(warmup: WarmupStatus | None = None, *, runs: bool = True, **executor) -> Seen:
    return seen_of(status(warmup, **executor), runs=runs)["executor-2", TASK]


LATE = WarmupStatus(900, caught_up=False, seconds=720.0, idle_seconds=700.0)


@pytest.mark.parametrize(
    ("warmup", "executor", "stalled", "remedy"),
    [
        (
            LATE,
            {"errors": {"0_3": "DiskFull: /d: full"}},
            "cannot follow: DiskFull: /d: full",
            "make room on",
        ),
        (LATE, {"errors": {"0_3": "CheckpointError: x"}}, "cannot follow: CheckpointError: x", "--verify"),
        (LATE, {"error": "ValueError"}, "visits to executor-2 fail: ValueError", "the log of executor-2"),
        (LATE, {"visited": NOW - SILENT_SECONDS - 60}, "has not answered a visit for 3 min", "(host-2)"),
        (LATE, {}, "executor-2 has read no record of it for 11 min 40 s", "follower.share"),
        (
            LATE,
            {"standby": {"0_1": 0}},
            "11 min 40 s; 1 other copy there takes turns with it",
            "follower.share",
        ),
        (
            WarmupStatus(900, caught_up=False, seconds=IDLE_SECONDS, idle_seconds=1.0),
            {},
            "reads it no faster than the stream writes, so its lag of 900 records does not shrink",
            "raise follower.share",
        ),
    ],
)
def test_a_cause_and_its_remedy(warmup, executor, stalled, remedy):
    found = seen(warmup, **executor)
    assert found.remaining is None
    assert stalled in found.stalled
    assert remedy in found.remedy
    assert [task for _, task, _ in stuck(status(warmup, **executor))] == ["0_3"]


def test_what_may_be_a_slow_start_is_not_called_stuck():
    young = WarmupStatus(900, caught_up=False, seconds=IDLE_SECONDS - 1, idle_seconds=IDLE_SECONDS - 1)
    assert seen(young) == Seen(None)
    assert list(stuck(status(young))) == []


def test_a_snapshot_that_is_loaded_is_no_standstill():
    loading = WarmupStatus(900, caught_up=False, restoring=True, seconds=720.0, idle_seconds=700.0)
    found = seen(loading)
    assert (found.remaining, found.stalled) == (None, "")
    assert found.unknown == "executor-2 loads a snapshot, and its lag counts the whole changelog until then"
    assert list(stuck(status(loading))) == []


def test_progress_has_a_time():
    assert seen(WarmupStatus(900, caught_up=False, seconds=720.0, eta_seconds=30.0)) == Seen(30.0)
    assert seen(WarmupStatus(9, caught_up=True, seconds=720.0)) == Seen(0.0)


STARTED = WarmupStatus(900, caught_up=False, seconds=5.0)


def test_nothing_catches_up_without_a_driver():
    found = seen(STARTED, runs=False)
    assert (found.stalled, found.remedy) == (
        "no driver runs, so nothing catches up",
        "start the stream again",
    )
    failed = FailedBatch(NOW, 7, "DiskFull: /checkpoint: full. Free space there")
    found = seen(STARTED, runs=False, more={"failed": failed})
    assert (
        found.stalled == "no driver runs, so nothing catches up; batch 7 failed (DiskFull: /checkpoint: full)"
    )
    assert found.remedy == "mend the cause, and start the stream again"
    assert seen(WarmupStatus(9, caught_up=True), runs=False) == Seen(0.0)
    assert seen(standby={"0_3": 40}, runs=False).stalled == "no driver runs, so nothing catches up"


def test_what_was_the_matter_before_the_driver_ended_is_still_named():
    found = seen(LATE, runs=False, errors={"0_3": "DiskFull: /d: full. Free space there"})
    assert found.stalled == (
        "no driver runs, so nothing catches up; its last status says: executor-2 cannot follow: DiskFull: /d: full"
    )
    assert found.remedy == "make room on the disk of executor-2 (host-2), and start the stream again"
    parked = seen(runs=False, parked=("0_3",), errors={"0_3": "DiskFull: /d: full"})
    assert parked.stalled == "executor-2 could not follow (DiskFull: /d: full)"
    assert parked.remedy == "when the cause is gone, start the stream again"


@pytest.mark.parametrize("error", ["DiskFull: full", "DamagedEntry: x", "CheckpointError: x", "OSError: x"])
@pytest.mark.parametrize("failed", [False, True])
def test_without_a_driver_a_remedy_starts_the_stream_and_promises_nothing_before(error, failed):
    more = {"failed": FailedBatch(NOW, 7, "DiskFull: full")} if failed else {}
    remedy = seen(LATE, runs=False, more=more, errors={"0_3": error}).remedy
    assert remedy.count("start the stream again") == 1
    assert "by itself" not in remedy and "visits go on" not in remedy and "nothing needs" not in remedy
    assert remedy.startswith("mend the cause of that, and ") == failed


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "CheckpointError: /d/snapshots/job/changelog/1.segment: found x",
            "CheckpointError: changelog/1.segment: found x",
        ),
        ("CheckpointError: /d/cp/manifests/7: found x", "CheckpointError: manifests/7: found x"),
        ("OSError: /state/x/snapshots/1: no space", "OSError: /state/x/snapshots/1: no space"),
    ],
)
def test_a_file_of_the_checkpoint_is_named_relative_to_it(error, said):
    assert seen(LATE, errors={"0_3": error}).stalled == f"executor-2 cannot follow: {said}"


def test_a_standby_that_lags_and_a_parked_copy_are_named():
    found = seen(standby={"0_3": 40}, errors={"0_3": "DiskFull: /d: full"})
    assert found.stalled == "executor-2 cannot follow: DiskFull: /d: full"
    assert seen_of(status(standby={"0_3": 40}), runs=True) == {}
    parked = seen(parked=("0_3",), errors={"0_3": "DiskFull: /d: full"})
    assert parked.stalled == "executor-2 could not follow (DiskFull: /d: full)"
    assert 'placed.release("executor-2")' in parked.remedy


def test_a_remedy_names_the_checkpoint_where_it_is_known():
    damaged = status(LATE, errors={"0_3": "CheckpointError: segment 7"})
    (unknown,) = [seen.remedy for _, _, seen in stuck(damaged)]
    (known,) = [seen.remedy for _, _, seen in stuck(damaged, "/data/my checkpoint")]
    assert unknown.startswith("`taskplace inspect CHECKPOINT --verify` names damaged files")
    assert known.startswith("`taskplace inspect '/data/my checkpoint' --verify` names damaged files")


def test_damage_of_a_local_copy_needs_no_file_of_the_checkpoint():
    """The checkpoint is sound: the copy is made anew from it."""
    ((_, _, found),) = stuck(status(LATE, errors={"0_3": "DamagedEntry: an entry with a key of 9 bytes"}))
    assert found.remedy.startswith(
        "nothing needs to be done: the damage is in the copy on executor-2 (host-2) alone"
    )
    assert "inspect" not in found.remedy and "backup" not in found.remedy
