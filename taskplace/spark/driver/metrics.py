"""Computes the metrics of a stream (`taskplace.record.metrics`): a fold over its status and counters.

**Idea.** The status and a few references are read under the driver's lock, and the values are computed without it. So a
batch waits for microseconds. If the lock is not free within `PATIENCE_SECONDS`, because the driver plans or commits,
the values are computed from the status that was read before. So nobody waits long, and no batch is delayed.

Counters of `Stats` and times are read without the lock: each is one value.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from taskplace.model.plan import Plan, Roles
from taskplace.model.shares import imbalance
from taskplace.record.events import WHOLE
from taskplace.record.metrics import ROLES, Series
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.messages import EMPTY, History
from taskplace.spark.operator_messages import Status
from taskplace.spark.stuck import stuck
from topology import TaskId

#: How long a reader waits for the driver's lock before it uses the status that was read before.
PATIENCE_SECONDS = 0.1


class _Read(NamedTuple):
    """What is read of the driver at one time: its status, and what no status has."""

    status: Status
    plan: Plan | None
    restoring: int
    history: Mapping[TaskId, History]


class DriverMetrics:
    """Reads the metrics of one stream. May be called from any thread.

    - `status`: returns the status now
    """

    def __init__(self, rebalancer: Rebalancer, status: Callable[[], Status]) -> None:
        self._rebalancer, self._status = rebalancer, status
        self._began = time.monotonic()
        self._stateful = frozenset(task.id for task in rebalancer.tasks if task.stateful)
        with rebalancer.lock:
            self._last = self._now()

    def read(self) -> dict[str, Any]:
        """Return the metrics by name: a number, None if it is not known yet, or a list of series."""
        if self._rebalancer.lock.acquire(timeout=PATIENCE_SECONDS):
            try:
                self._last = self._now()
            finally:
                self._rebalancer.lock.release()
        now = self._last
        return {
            **self._of_stream(now.status),
            **_of_input(now.status),
            **self._of_rebalances(now),
            **self._of_executors(now.status),
            **self._of_copies(now),
            "state-bytes": _state_bytes(now.history),
        }

    def _now(self) -> _Read:
        """Return the situation now. The caller holds the lock."""
        rebalancer = self._rebalancer
        restoring = _restoring(rebalancer, self._stateful)
        return _Read(self._status(), rebalancer.loop.plan, restoring, rebalancer.journal.history)

    def _ago(self, at: float | None) -> float | None:
        return None if at is None else max(0.0, time.monotonic() - at)

    def _of_stream(self, status: Status) -> dict[str, Any]:
        stats, totals = self._rebalancer.stats, status.totals
        # Copying a deque is one step for the interpreter, so the batch's thread does not change it meanwhile.
        whole, commits = (list(stats.phases.get(name, ())) for name in (WHOLE, "commit"))
        return {
            "batches-total": status.batch + 1,
            "rows-total": totals.rows if totals else 0,
            "late-rows-total": totals.late if totals else 0,
            "last-batch-seconds-ago": self._ago(stats.last_commit or self._began),
            **_latency("batch-latency", whole),
            **_latency("commit-latency", commits),
        }

    def _of_rebalances(self, now: _Read) -> dict[str, Any]:
        stats = self._rebalancer.stats
        count, milliseconds = stats.rebalances, 1000 * stats.rebalance_seconds
        running = {(task, name) for name, one in now.status.executors.items() for task in one.active}
        target = now.plan.target if now.plan else {}
        wanted = {(str(task), name) for name, roles in target.items() for task in roles.active}
        return {
            "rebalance-total": count,
            "rebalance-latency-avg": milliseconds / count if count else None,
            "rebalance-latency-max": 1000 * stats.longest_rebalance if count else None,
            "rebalance-latency-total": milliseconds,
            "last-rebalance-seconds-ago": self._ago(stats.last_rebalance),
            "failed-rebalance-total": self._rebalancer.loop.failed,
            "generation": now.status.generation,
            "moves-planned-total": stats.moved,
            "moves-forced-total": stats.promotions,
            "moves-pending": len(wanted - running),
        }

    def _of_executors(self, status: Status) -> dict[str, Any]:
        assigned: Series = [
            {"executor": name, "role": role, "value": len(getattr(one, role))}
            for name, one in status.executors.items()
            for role in ROLES
        ]
        there = status.executors
        slots = {name: one.cores for name, one in there.items() if one.cores and not one.draining}
        weights = {task.id: task.weight for task in self._rebalancer.tasks}
        active = {name: Roles(tuple(map(TaskId.parse, one.active))) for name, one in there.items()}
        return {
            "executors": len(there),
            "executors-draining": sum(one.draining for one in there.values()),
            "executor-losses-total": self._rebalancer.stats.losses,
            "assigned-tasks": assigned,
            "imbalance-max-mean": imbalance(weights, slots, active),
        }

    def _of_copies(self, now: _Read) -> dict[str, Any]:
        there, stats = now.status.executors.values(), self._rebalancer.stats
        standbys = sum(len(one.standby) for one in there)
        planned = now.plan is not None and now.plan.assignment
        wanted = self._rebalancer.loop.config.num_standby_replicas * len(self._stateful) if planned else 0
        return {
            "active-restoring-tasks": now.restoring,
            "standby-updating-tasks": standbys,
            "standbys-missing": max(0, wanted - standbys),
            "warmup-tasks": sum(len(one.warmup) for one in there),
            "warmup-waiting-tasks": int(now.plan.metrics.get("warmups_waiting", 0)) if now.plan else 0,
            "stuck-copies": sum(1 for _ in stuck(now.status)),
            "parked-copies": sum(len(one.parked) for one in there),
            "copy-lag": _lags(now.status),
            "warmup-remaining-seconds": _remaining(now.status),
            "restore-total": stats.replayed + stats.restored,
            "update-total": stats.followed,
            "scratch-restores-total": stats.scratch,
            "elsewhere-total": stats.elsewhere,
            "damaged-files-total": stats.damaged,
        }


def _latency(name: str, seconds: list[float]) -> dict[str, float | None]:
    """Return the mean and the maximum in milliseconds; None without batches."""
    return {
        f"{name}-avg": 1000 * sum(seconds) / len(seconds) if seconds else None,
        f"{name}-max": 1000 * max(seconds) if seconds else None,
    }


def _of_input(status: Status) -> dict[str, Any]:
    lags, ages = (
        [
            {"topic": topic, "partition": str(partition), "value": value}
            for topic, of in status.input.items()
            for partition, one in of.partitions.items()
            if (value := getattr(one, name)) is not None
        ]
        for name in ("lag", "seconds")
    )
    bad = status.totals.bad if status.totals else {}
    return {
        "records-lag": lags,
        "records-lag-max": max((one["value"] for one in lags), default=None),
        "records-lag-seconds": ages,
        "records-consumed-rate": [{"topic": topic, "value": of.rate} for topic, of in status.input.items()],
        "watermark-timestamp-seconds": None if status.watermark is None else status.watermark / 1_000_000,
        "dead-letters-total": [{"topic": topic, "value": number} for topic, number in bad.items()],
    }


def _lags(status: Status) -> Series:
    """Return, for each stateful task and role, the lag of the copy that lacks most."""
    lags: dict[tuple[TaskId, str], int] = {}
    for one in status.executors.values():
        warm = {task: copy.lag for task, copy in one.warmup.items()}
        for role, copies in zip(ROLES, (one.active, one.standby, warm), strict=True):
            for task in copies.keys() - status.stateless:
                key = TaskId.parse(task), role
                lags[key] = max(lags.get(key, 0), copies[task])
    order = sorted(lags.items(), key=lambda one: (one[0][0], ROLES.index(one[0][1])))
    return [{"task": str(task), "role": role, "value": lag} for (task, role), lag in order]


def _remaining(status: Status) -> Series:
    """Return, for each task with a warm-up, the seconds until the slowest one has caught up, if they are known."""
    slowest: dict[TaskId, float] = {}
    for one in status.executors.values():
        for name, copy in one.warmup.items():
            if copy.eta_seconds is not None:
                task = TaskId.parse(name)
                slowest[task] = max(slowest.get(task, 0.0), copy.eta_seconds)
    return [{"task": str(task), "value": round(seconds, 3)} for task, seconds in sorted(slowest.items())]


def _restoring(rebalancer: Rebalancer, stateful: frozenset[TaskId]) -> int:
    """Return how many tasks with state have an active copy that is missing or behind the end of its changelog."""
    state, history = rebalancer.state, rebalancer.journal.history
    at = {
        task: member.copies.get(task, EMPTY)
        for name, member in state.members.items()
        for task in state.roles(name).active
    }
    return sum(at.get(task, EMPTY).version < history[task].end.version for task in stateful & history.keys())


def _state_bytes(history: Mapping[TaskId, History]) -> Series:
    changelog = sum(change.size for each in history.values() for change in each.changes)
    snapshots = sum(snapshot.size for each in history.values() for snapshot in each.snapshots)
    return [{"kind": "changelog", "value": changelog}, {"kind": "snapshot", "value": snapshots}]
