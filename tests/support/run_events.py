"""The events of a short run: a start, an executor that is lost in batch 1, and its recovery until batch 3."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from msgspec.structs import replace

from taskplace.record.events import (
    BatchDone,
    BatchRecovery,
    Change,
    ExecutorLost,
    InstanceView,
    LateRows,
    Rebalanced,
    Summary,
    tell,
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
    """Yield (seconds since the start, event); each event has its time."""
    for moment, event in _events():
        yield moment, replace(event, time=datetime.fromtimestamp(BEGAN + moment, timezone.utc))


def _batch(number: int, rows: int, seconds: float, lag: int = 0, **more: Any) -> BatchDone:
    """A batch that took so long, after which the last instance lags."""
    phases = {"subtopology 0": seconds - 0.5}
    placement = views(PROMOTED if number else START, lag)
    lags = more.pop("lags", {})
    given = {"recovery": BatchRecovery(), "behind": sum(map(len, lags.values())), **more}
    return BatchDone(number, 4, rows, seconds, phases, placement, min(number, 2) or 1, lags, **given)


def _rebalance(number: int, batch: int, reason: str, assignment: dict[str, Any], **more: Any) -> Rebalanced:
    return Rebalanced(number, batch, reason, assignment=assignment, to_go=0, imbalance=1.5, **more)


def _events() -> Iterator[tuple[float, Any]]:
    yield 1.0, _rebalance(1, 0, "start: 4 tasks on 3 instances", START)
    yield 5.0, _batch(0, 1_000, 3.0)
    yield 8.0, ExecutorLost("executor-1", 1, 2, cancelled=True)
    changes = (
        Change("0_2", "promotion", "executor-1", "executor-0", "the owner is gone"),
        Change("0_3", "promotion", "executor-1", "executor-2", "the owner is gone"),
        Change("0_0", "standby", None, "executor-2", "a standby was missing"),
    )
    lost = "lost: executor-1 died within batch 1"
    yield 8.5, _rebalance(2, 1, lost, PROMOTED, promotions=2, followup=True, changes=changes, seconds=0.01)
    recovery = BatchRecovery(replayed=70, restored=300)
    yield 12.0, _batch(1, 1_200, 5.0, 400, lags={"executor-2": {"0_0": 250, "0_1": 150}}, recovery=recovery)
    yield 16.0, _batch(2, 1_200, 3.0, 90, lags={"executor-2": {"0_0": 90}})
    yield 18.0, _rebalance(3, 3, "probing", PROMOTED)
    yield 20.0, _batch(3, 1_200, 3.0, late=LateRows(1_200, 3))


def tell_events(reporter: Any, *, until: float = float("inf"), after: float = -1.0) -> None:
    """Tell a reporter the events in a time."""
    for moment, event in events():
        if after < moment <= until:
            tell(reporter, event)


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> float:
        return self.now

    def set(self, now: float) -> None:
        self.now = now
