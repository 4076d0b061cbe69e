"""Computes the metrics of a stream from the driver's state: the values of `taskplace.record.metrics`.

**Idea.** The driver's state is looked at under its lock, and the values are computed without it. A look only copies
references and a few dictionaries, so a batch waits for microseconds. If the lock is not free within `PATIENCE_SECONDS`,
because the driver plans or commits, the values are computed from the look before. So nobody waits long, and no batch is
delayed.

Counters of `Stats`, times, and counters of the checkpoint are read without the lock: each is one value.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from taskplace.model.config import PlacementConfig
from taskplace.model.plan import Roles
from taskplace.model.problem import Task
from taskplace.model.shares import imbalance
from taskplace.record.events import WHOLE, Totals
from taskplace.record.metrics import ROLES, Series
from taskplace.spark.checkpoint.history import settled_offset
from taskplace.spark.driver.cluster_state import Copy, Warmup
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.messages import EMPTY, History, Manifest, Position
from taskplace.spark.operator_messages import TopicStatus
from topology import TaskId

#: How long a reader waits for the driver's lock before it uses the look before.
PATIENCE_SECONDS = 0.1


@dataclass(frozen=True)
class MemberView:
    """An executor: its slots, and its copies with their lags."""

    slots: int
    copies: Mapping[TaskId, Position]
    lags: Mapping[TaskId, int]


@dataclass(frozen=True)
class View:
    """The state of the driver at one time. All values are frozen, or copies."""

    tasks: tuple[Task, ...] = ()
    members: Mapping[str, MemberView] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()
    assignment: Mapping[str, Roles] = field(default_factory=dict)
    target: Mapping[str, Roles] = field(default_factory=dict)
    generation: int = 0
    failed: int = 0
    parked: int = 0
    waiting: int = 0
    warmups: Mapping[Copy, Warmup] = field(default_factory=dict)
    history: Mapping[TaskId, History] = field(default_factory=dict)
    last: Manifest | None = None

    @classmethod
    def of(cls, rebalancer: Rebalancer) -> View:
        """Return the present state. The caller holds the lock."""
        state, loop, journal = rebalancer.state, rebalancer.loop, rebalancer.journal
        plan = loop.plan
        return cls(
            tasks=rebalancer.tasks,
            members={
                name: MemberView(member.executor.cores, dict(member.copies), state.lags.lags(name))
                for name, member in state.members.items()
            },
            draining=frozenset(state.draining),
            assignment=state.assignment,
            target=plan.target if plan else {},
            generation=loop.generation,
            failed=loop.failed,
            parked=len(loop.parked),
            waiting=int(plan.metrics.get("warmups_waiting", 0)) if plan else 0,
            warmups=rebalancer.warmups.look(),
            history=journal.history,
            last=journal.last,
        )

    def roles(self) -> Iterator[tuple[str, MemberView, str, tuple[TaskId, ...]]]:
        """Yield the tasks of each member in each role: name, member, role, tasks."""
        for name, member in sorted(self.members.items()):
            for role, tasks in self.assignment.get(name, Roles())._asdict().items():
                yield name, member, role, tasks

    def lag(self, member: MemberView, task: TaskId) -> int:
        """Return the lag of a copy in records; the whole changelog, up to the commit before the last, without one."""
        if task in member.lags:
            return member.lags[task]
        return settled_offset(task, self.history, self.last)


class DriverMetrics:
    """Reads the metrics of one stream. May be called from any thread.

    - `stuck`: returns how many copies the last status names as stuck; `input`: how far topics were read
    - `clock`: the monotonic clock of `Stats`
    """

    def __init__(
        self,
        rebalancer: Rebalancer,
        config: PlacementConfig,
        *,
        stuck: Callable[[], int] = lambda: 0,
        input: Callable[[], Mapping[str, TopicStatus]] = dict,
        watermark: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rebalancer, self._config = rebalancer, config
        self._stuck, self._clock = stuck, clock
        self._input, self._watermark = input, watermark
        self._began = clock()
        with rebalancer.lock:
            self._view = View.of(rebalancer)

    def read(self) -> dict[str, Any]:
        """Return the metrics by name: a number, None if it is not known yet, or a list of series."""
        view = self._look()
        return {
            **self._of_stream(view),
            **self._of_input(view),
            **self._of_rebalances(view),
            **self._of_executors(view),
            **self._of_copies(view),
            **self._of_recovery(),
            "state-bytes": _state_bytes(view.history),
        }

    def _look(self) -> View:
        if self._rebalancer.lock.acquire(timeout=PATIENCE_SECONDS):
            try:
                self._view = View.of(self._rebalancer)
            finally:
                self._rebalancer.lock.release()
        return self._view

    def _ago(self, at: float | None) -> float | None:
        return None if at is None else max(0.0, self._clock() - at)

    def _of_stream(self, view: View) -> dict[str, Any]:
        stats, totals = self._rebalancer.stats, Totals.of(view.last)
        # Copying a deque is one step for the interpreter, so the batch's thread does not change it meanwhile.
        whole, commits = (list(stats.phases.get(name, ())) for name in (WHOLE, "commit"))
        return {
            "batches-total": view.last.batch + 1 if view.last else 0,
            "rows-total": totals.rows,
            "late-rows-total": totals.late,
            "last-batch-seconds-ago": self._ago(stats.last_commit or self._began),
            **_latency("batch-latency", whole),
            **_latency("commit-latency", commits),
        }

    def _of_input(self, view: View) -> dict[str, Any]:
        topics, watermark = self._input(), self._watermark()
        each = [
            ({"topic": topic, "partition": str(partition)}, one)
            for topic, of in topics.items()
            for partition, one in of.partitions.items()
        ]
        lags: Series = [{**labels, "value": one.lag} for labels, one in each if one.lag is not None]
        return {
            "records-lag": lags,
            "records-lag-max": max((one["value"] for one in lags), default=None),
            "records-lag-seconds": [
                {**labels, "value": one.seconds} for labels, one in each if one.seconds is not None
            ],
            "records-consumed-rate": [{"topic": topic, "value": of.rate} for topic, of in topics.items()],
            "watermark-timestamp-seconds": None if watermark is None else watermark / 1_000_000,
            "dead-letters-total": [
                {"topic": topic, "value": number} for topic, number in Totals.of(view.last).bad.items()
            ],
        }

    def _of_rebalances(self, view: View) -> dict[str, Any]:
        stats = self._rebalancer.stats
        count, milliseconds = stats.rebalances, 1000 * stats.rebalance_seconds
        running = {task: name for name, roles in view.assignment.items() for task in roles.active}
        pending = [
            task for name, roles in view.target.items() for task in roles.active if running.get(task) != name
        ]
        return {
            "rebalance-total": count,
            "rebalance-latency-avg": milliseconds / count if count else None,
            "rebalance-latency-max": 1000 * stats.longest_rebalance if count else None,
            "rebalance-latency-total": milliseconds,
            "last-rebalance-seconds-ago": self._ago(stats.last_rebalance),
            "failed-rebalance-total": view.failed,
            "generation": view.generation,
            "moves-planned-total": stats.moved,
            "moves-forced-total": stats.promotions,
            "moves-pending": len(pending),
        }

    def _of_executors(self, view: View) -> dict[str, Any]:
        assigned: Series = [
            {"executor": name, "role": role, "value": len(tasks)} for name, _, role, tasks in view.roles()
        ]
        return {
            "executors": len(view.members),
            "executors-draining": len(view.draining),
            "executor-losses-total": self._rebalancer.stats.losses,
            "assigned-tasks": assigned,
            "imbalance-max-mean": _imbalance(view),
        }

    def _of_copies(self, view: View) -> dict[str, Any]:
        stateful = [task.id for task in view.tasks if task.stateful]
        known = set(stateful)
        lags: dict[tuple[TaskId, str], int] = {}
        for _, member, role, tasks in view.roles():
            for task in known.intersection(tasks):
                lags[task, role] = max(lags.get((task, role), 0), view.lag(member, task))
        counts = {
            role: sum(len(tasks) for _, _, its_role, tasks in view.roles() if its_role == role)
            for role in ROLES
        }
        wanted = self._config.num_standby_replicas * len(stateful) if view.assignment else 0
        series: Series = [
            {"task": str(task), "role": role, "value": lag}
            for (task, role), lag in sorted(lags.items(), key=lambda one: (one[0][0], ROLES.index(one[0][1])))
        ]
        return {
            "active-restoring-tasks": len(list(_restoring(view, known))),
            "standby-updating-tasks": counts["standby"],
            "standbys-missing": max(0, wanted - counts["standby"]),
            "warmup-tasks": counts["warmup"],
            "warmup-waiting-tasks": view.waiting,
            "stuck-copies": self._stuck(),
            "parked-copies": view.parked,
            "copy-lag": series,
            "warmup-remaining-seconds": _remaining(view),
        }

    def _of_recovery(self) -> dict[str, Any]:
        stats = self._rebalancer.stats
        return {
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


def _remaining(view: View) -> Series:
    """Return, for each task with a warm-up, the seconds until the slowest one has caught up, if they are known."""
    slowest: dict[TaskId, float] = {}
    for (_, task), warmup in view.warmups.items():
        if warmup.remaining is not None:
            slowest[task] = max(slowest.get(task, 0.0), warmup.remaining)
    return [{"task": str(task), "value": round(seconds, 3)} for task, seconds in sorted(slowest.items())]


def _imbalance(view: View) -> float | None:
    """Return the imbalance of the active tasks. Executors that drain or have no slots do not count."""
    slots = {
        name: member.slots
        for name, member in view.members.items()
        if member.slots and name not in view.draining
    }
    return imbalance({task.id: task.weight for task in view.tasks}, slots, view.assignment)


def _restoring(view: View, stateful: set[TaskId]) -> Iterator[TaskId]:
    """Yield the tasks with state whose active copy is missing or behind the end of its changelog."""
    at = {
        task: member.copies.get(task, EMPTY)
        for _, member, role, tasks in view.roles()
        if role == "active"
        for task in tasks
    }
    for task, history in view.history.items():
        if task in stateful and at.get(task, EMPTY).version < history.end.version:
            yield task


def _state_bytes(history: Mapping[TaskId, History]) -> Series:
    changelog = sum(change.size for each in history.values() for change in each.changes)
    snapshots = sum(snapshot.size for each in history.values() for snapshot in each.snapshots)
    return [{"kind": "changelog", "value": changelog}, {"kind": "snapshot", "value": snapshots}]
