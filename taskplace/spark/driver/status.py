"""Collects what operators see of a running stream: its `Status`.

Reads the driver's view of its cluster under the lock of the `Rebalancer`, for about a microsecond per copy.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from taskplace.record.events import BatchDone, ExecutorLost, Rebalanced
from taskplace.spark.driver.cluster_state import CopyKey, Member
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.followers import Followers
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.operator_messages import (
    DriverIdentity,
    ExecutorStatus,
    Status,
    TopicStatus,
    WarmupStatus,
)


class StatusBoard:
    """Makes the statuses of one driver. Lifetime: one for each driver; `interval` as in `Status`."""

    def __init__(
        self,
        definition: StreamDefinition,
        rebalancer: Rebalancer,
        followers: Followers,
        *,
        interval: float,
        input: Callable[[], Mapping[str, TopicStatus]] = dict,
    ) -> None:
        self._definition, self._rebalancer, self._followers = definition, rebalancer, followers
        self._interval, self._input = interval, input
        #: The process, for people.
        self.driver = DriverIdentity(socket.gethostname(), os.getpid(), rebalancer.bridge.app_id, time.time())
        self._names = {task: str(task) for task in rebalancer.task_ids}
        self._stateless = frozenset(task.id for task in rebalancer.tasks if not task.stateful)
        self._fixed: dict[str, Any] = {
            "config": rebalancer.loop.config.to_properties(),
            "weights": {str(task.id): task.weight for task in rebalancer.tasks if task.weight != 1.0},
            "stateless": tuple(str(task) for task in sorted(self._stateless)),
            "unlogged": tuple(str(task.id) for task in rebalancer.tasks if not task.logged),
        }
        self._number = 0

    def status(self, *, ended: bool = False) -> Status:
        """Return the status now. `ended`: whether the driver ends."""
        rebalancer, events = self._rebalancer, self._rebalancer.events
        self._number += 1
        with rebalancer.lock:
            state, loop, journal = rebalancer.state, rebalancer.loop, rebalancer.journal
            warm = rebalancer.warmups.status()
            executors = {
                name: self._executor(name, member, warm) for name, member in sorted(state.members.items())
            }
            run = {task for name in executors for task in state.roles(name).active}
            homeless = sorted(rebalancer.task_ids - run) if loop.plan else []
            probing = loop.probing.next_at
            return Status(
                checkpoint=journal.declaration.id,
                topology=self._definition.built.name,
                epoch=journal.epoch,
                driver=self.driver,
                written=time.time(),
                number=self._number,
                interval=self._interval,
                batch=journal.last_batch,
                generation=loop.generation,
                ended=ended,
                running=events.running,
                failed=events.failed,
                stopped=events.stopped,
                followup=bool(loop.plan and loop.plan.followup),
                next_probing=None if probing is None else max(0.0, probing - time.monotonic()),
                executors=executors,
                homeless=tuple(self._names[task] for task in homeless),
                rebalances=events.last(Rebalanced),
                losses=events.last(ExecutorLost),
                batches=events.last(BatchDone),
                totals=rebalancer.stats.totals,
                late_here=rebalancer.stats.late,
                input=self._input(),
                watermark=self._definition.watermark_after(journal.last),
                **self._fixed,
            )

    def _executor(self, name: str, member: Member, warmups: Mapping[CopyKey, WarmupStatus]) -> ExecutorStatus:
        state, names = self._rebalancer.state, self._names
        lag = state.lag
        active, standby, warmup = state.roles(name)
        lags = state.lags.lags(name)
        roles = {*active, *standby, *warmup}
        answered, error = self._followers.errors.contact(name)
        parked = (task for instance, task in self._rebalancer.loop.parked if instance == name)
        return ExecutorStatus(
            host=member.executor.host,
            cores=member.executor.cores,
            active={names[task]: lag(name, task) for task in active},
            standby={names[task]: lag(name, task) for task in standby},
            warmup={names[task]: warmups[name, task] for task in warmup},
            draining=name in state.draining,
            restore_rate=member.restore_rate,
            follow_rate=self._rebalancer.warmups.rate(member),
            tags=state.tags(member),
            left={str(task): lags[task] for task in sorted(lags.keys() - roles)},
            empty=tuple(str(task) for task in sorted(roles - lags.keys() - self._stateless)),
            parked=tuple(str(task) for task in sorted(parked)),
            keeps=tuple(map(str, state.kept(member))),
            errors={str(task): why for task, why in self._followers.errors.of(name).items()},
            error=error,
            visited=answered,
        )
