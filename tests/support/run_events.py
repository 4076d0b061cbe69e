"""The events of a short run: a start, an executor that is lost in batch 1, and its recovery until batch 3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from taskplace.record.events import (
    BatchDone,
    BatchRecovery,
    Change,
    ExecutorLost,
    InstanceView,
    LateRows,
    Rebalanced,
    Summary,
)

BEGAN = 1_795_368_000.0
START = {
    "executor-0": {"active": ("0_0", "0_1"), "standby": ("0_2",), "warmup": ()},
    "executor-1": {"active": ("0_2", "0_3"), "standby": ("0_0", "0_1"), "warmup": ()},
    "executor-2": {"active": (), "standby": ("0_3",), "warmup": ()},
}
PROMOTED = {
    "executor-0": {"active": ("0_0", "0_1", "0_2"), "standby": ("0_3",), "warmup": ()},
    "executor-2": {"active": ("0_3",), "standby": ("0_0", "0_1", "0_2"), "warmup": ()},
}
SUMMARY = Summary(
    batches=4,
    rows=4_600,
    rebalances=2,
    promotions=2,
    replayed_records=70,
    snapshot_records=300,
    scratch_restores=0,
    elsewhere=0,
    phases={"whole batch": 3.0, "commit": 0.2},
    seconds=31.0,
    check="result equals the batch query",
    ok=True,
    late_rows=3,
    late=LateRows(1_200, 3),
)


def views(assignment: dict[str, Any], lag: int = 0) -> tuple[InstanceView, ...]:
    """The instances of an assignment; the last one lags."""
    last = max(assignment)
    return tuple(
        InstanceView(name, *(len(tasks) for tasks in roles.values()), lag=lag if name == last else 0)
        for name, roles in assignment.items()
    )


def events() -> Iterator[tuple[float, Any]]:
    """Yield (seconds since the start, event)."""
    yield (
        1.0,
        Rebalanced(1, 0, "start: 4 tasks on 3 instances", assignment=START, to_go=0, imbalance=1.5),
    )
    yield (
        5.0,
        BatchDone(
            0, 4, 1_000, 3.0, {"subtopology 0": 2.5, "commit": 0.2}, views(START), 1, {}, 0, BatchRecovery()
        ),
    )
    yield 8.0, ExecutorLost("executor-1", 1, 2, cancelled=True)
    changes = (
        Change("0_2", "promotion", "executor-1", "executor-0", "the owner is gone"),
        Change("0_3", "promotion", "executor-1", "executor-2", "the owner is gone"),
        Change("0_0", "standby", None, "executor-2", "a standby was missing"),
    )
    yield (
        8.5,
        Rebalanced(
            2,
            1,
            "lost: executor-1 died within batch 1",
            moves=tuple(f"{one.task} moves" for one in changes),
            promotions=2,
            followup=True,
            changes=changes,
            assignment=PROMOTED,
            to_go=0,
            seconds=0.01,
            imbalance=1.5,
        ),
    )
    lags = {"executor-2": {"0_0": 250, "0_1": 150}}
    recovery = BatchRecovery(replayed=70, restored=300)
    yield (
        12.0,
        BatchDone(1, 4, 1_200, 5.0, {"subtopology 0": 4.5}, views(PROMOTED, 400), 2, lags, 2, recovery),
    )
    yield (
        16.0,
        BatchDone(
            2,
            4,
            1_200,
            3.0,
            {"subtopology 0": 2.5},
            views(PROMOTED, 90),
            2,
            {"executor-2": {"0_0": 90}},
            1,
            BatchRecovery(),
        ),
    )
    yield 18.0, Rebalanced(3, 3, "probing", assignment=PROMOTED, to_go=0, imbalance=1.5)
    yield (
        20.0,
        BatchDone(
            3,
            4,
            1_200,
            3.0,
            {"subtopology 0": 2.5},
            views(PROMOTED),
            3,
            {},
            0,
            BatchRecovery(),
            LateRows(1_200, 3),
        ),
    )


def tell(reporter: Any, at: Any, *, until: float = float("inf"), after: float = -1.0) -> None:
    """Tell a reporter the events in a time; `at` gets the time of each, in seconds since 1970."""
    passed = {BatchDone: reporter.batch, Rebalanced: reporter.rebalance, ExecutorLost: reporter.failure}
    for moment, event in events():
        if after < moment <= until:
            at(BEGAN + moment)
            passed[type(event)](event)


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> float:
        return self.now

    def set(self, now: float) -> None:
        self.now = now
