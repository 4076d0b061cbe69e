"""Collects what operators see of a running stream: its `Status`.

Reads the driver's view of its cluster under the lock of the `Rebalancer`, for about a microsecond per copy.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from taskplace.spark.driver.cluster_state import Member
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.followers import Followers
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.driver.recent_events import RecentEvents
from taskplace.spark.driver.warmup_progress import WarmupProgress
from taskplace.spark.operator_messages import DriverIdentity, ExecutorStatus, Status, WarmupStatus
from topology import TaskId


class StatusBoard:
    """Makes the statuses of one driver. Lifetime: from its takeover on; `interval` as in `Status`."""

    def __init__(
        self,
        definition: StreamDefinition,
        rebalancer: Rebalancer,
        followers: Followers,
        recent: RecentEvents,
        *,
        interval: float,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._definition, self._rebalancer, self._followers = definition, rebalancer, followers
        self._recent, self._interval = recent, interval
        self._clock, self._monotonic = clock, monotonic
        self._driver = DriverIdentity(socket.gethostname(), os.getpid(), rebalancer.bridge.app_id, clock())
        self._progress = WarmupProgress()
        self._names = {task: str(task) for task in rebalancer.task_ids}
        self._number = 0

    def status(self, *, ended: bool = False) -> Status:
        """Return the status now. `ended`: whether the driver ends."""
        rebalancer, recent = self._rebalancer, self._recent
        self._number += 1
        with rebalancer.lock:
            state, loop, journal = rebalancer.state, rebalancer.loop, rebalancer.journal
            warm = [
                (name, task)
                for name, roles in state.assignment.items()
                for task in roles.warmup
                if name in state.members
            ]
            self._progress.keep(warm)
            executors = {name: self._executor(name, member) for name, member in sorted(state.members.items())}
            run = {task for name in executors for task in state.roles(name).active}
            homeless = sorted(rebalancer.task_ids - run) if loop.plan else []
            due = loop.probing.next_at
            return Status(
                checkpoint=journal.declaration.id,
                topology=self._definition.built.name,
                epoch=journal.epoch,
                driver=self._driver,
                written=self._clock(),
                number=self._number,
                interval=self._interval,
                batch=journal.last_batch,
                generation=loop.generation,
                ended=ended,
                running=recent.running,
                failed=recent.failed,
                followup=bool(loop.plan and loop.plan.followup),
                next_probing=None if due is None else max(0.0, due - self._monotonic()),
                executors=executors,
                homeless=tuple(self._names[task] for task in homeless),
                rebalances=recent.rebalances(),
                losses=recent.losses(),
                batches=recent.batches(),
            )

    def _executor(self, name: str, member: Member) -> ExecutorStatus:
        state, names = self._rebalancer.state, self._names
        active, standby, warmup = state.roles(name)
        lags = {task: self._lag(name, task) for task in (*standby, *warmup)}
        waiting, now = sum(lags.values()), self._monotonic()
        warm = {}
        for task in warmup:
            self._progress.observe((name, task), lags[task], now=now)
            caught_up = state.lags.is_caught_up(name, task)
            eta = self._progress.eta((name, task), rate=member.restore_rate, waiting=waiting)
            warm[names[task]] = WarmupStatus(
                lag=lags[task],
                caught_up=caught_up,
                restoring=self._followers.restores(name, task),
                seconds=self._progress.seconds((name, task)),
                eta_seconds=0.0 if caught_up else eta,
            )
        return ExecutorStatus(
            host=member.executor.host,
            cores=member.executor.cores,
            active={names[task]: self._lag(name, task) for task in active},
            standby={names[task]: lags[task] for task in standby},
            warmup=warm,
            draining=name in state.draining,
            restore_rate=member.restore_rate,
        )

    def _lag(self, name: str, task: TaskId) -> int:
        """Return a copy's lag; without a copy, the length of the changelog."""
        lag = self._rebalancer.state.lags.lag(name, task)
        return self._rebalancer.journal.settled_offset(task) if lag is None else lag
