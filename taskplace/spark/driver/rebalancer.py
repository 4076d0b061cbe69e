"""Puts plans in force: runs the rebalance loop between batches, and reports changes to the reporter.

The batch thread and the replicator share the rebalancer. `lock` guards it, the cluster's state and the journal. It is
never held while a job runs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

from msgspec import structs

from taskplace.errors import ConfigError, InputError
from taskplace.explanation import Removal
from taskplace.lag.ranking import Seen
from taskplace.model.config import PlacementConfig
from taskplace.model.plan import Plan, Roles, texts_of
from taskplace.model.problem import Task
from taskplace.model.shares import imbalance_of
from taskplace.rebalance import RebalanceLoop, Trigger
from taskplace.record.events import (
    Change,
    ExecutorLost,
    InstanceView,
    Rebalanced,
    Reporter,
    Totals,
    WarmupChange,
    WarmupState,
    tell,
)
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.cluster import Cluster
from taskplace.spark.driver.cluster_state import ClusterState, Warmups
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.event_log import EventLog
from taskplace.spark.driver.stats import Stats
from taskplace.spark.instances import instance_name, one_of_executors
from taskplace.validation import MOST_NUMBER
from taskplace.wording import listed
from topology import BuiltTopology, TaskId

log = logging.getLogger(__name__)
#: Executors are idle once no batch has started for this long.
PAUSE_SECONDS = 1.0


def warmup_changes(
    before: Mapping[str, Roles], after: Mapping[str, Roles], *, generation: int = 0, batch_id: int = 0
) -> tuple[WarmupChange, ...]:
    """Return the warm-ups that began or ended from one assignment to the next, by executor and task.

    >>> task = TaskId(0, 3)
    >>> warming, moved = Roles(warmup=(task,)), Roles(active=(task,))
    >>> [change.state for change in warmup_changes({}, {"executor-2": warming})]
    ['begun']
    >>> [change.state for change in warmup_changes({"executor-2": warming}, {"executor-2": moved})]
    ['active']
    """
    changes: list[WarmupChange] = []
    states: dict[TaskId, WarmupState]
    for name in sorted({*before, *after}):
        was, now = before.get(name, Roles()), after.get(name, Roles())
        states = {task: "begun" for task in now.warmup if task not in was.warmup}
        states |= {task: _role(task, now) for task in was.warmup if task not in now.warmup}
        changes += [WarmupChange(str(task), name, how, generation, batch_id) for task, how in states.items()]
    return tuple(changes)


def _role(task: TaskId, roles: Roles) -> WarmupState:
    return "active" if task in roles.active else "standby" if task in roles.standby else "ended"


def spread(config: PlacementConfig, hosts: Sequence[str]) -> PlacementConfig:
    """Return the configuration that also keeps standbys on other hosts; `hosts`: that of each executor.

    Executors of one host fail together. So if there are several hosts, and several executors on one of them, the tag
    `host` counts without being named in `rack.aware.assignment.tags`.

    >>> spread(PlacementConfig(rack_aware_assignment_tags=("zone",)), ["a", "a", "b"]).rack_aware_assignment_tags
    ('zone', 'host')
    """
    tags = config.rack_aware_assignment_tags
    if not 1 < len(set(hosts)) < len(hosts) or "host" in tags:
        return config
    return structs.replace(config, rack_aware_assignment_tags=(*tags, "host"))


class Rebalancer:
    """Plans for one placed stream from `state`, and answers questions about the plan in force.

    Lifetime: one for each driver. `loop.plan` is the assignment in force, None before the first. `tasks` are those to
    place, with their weights.
    """

    def __init__(
        self, bridge: Cluster, journal: Journal, definition: StreamDefinition, reporter: Reporter | None
    ) -> None:
        built, programs, options = definition.built, definition.programs, definition.options
        self.lock = threading.RLock()
        self.bridge, self.journal, self.reporter = bridge, journal, reporter
        generation = journal.last.generation if journal.last else 0
        self._config = definition.config
        self.loop = RebalanceLoop(definition.config, generation=generation)
        self.stats, self.events = Stats(totals=Totals.of(journal.last)), EventLog()
        self._running, self._ended = False, float("-inf")
        self._warned: frozenset[str] = frozenset()
        logged = {p.subtopology: any(s.logged for s in p.stores.values()) for p in programs}
        weights = options.weights or {}
        self.tasks = [
            Task(
                t.id,
                stateful=t.stateful,
                logged=logged[t.id.subtopology] or not t.stateful,
                weight=float(weights.get(str(t.id), weights.get(str(t.id.subtopology), 1.0))),
            )
            for t in built.tasks()
        ]
        unlogged = {p.subtopology for p in programs if not all(s.logged for s in p.stores.values())}
        self.state = ClusterState(journal, self.loop, self.tasks, tags=options.tags, unlogged=unlogged)
        self.warmups = Warmups(self.state, follower_share=options.follower_share, busy=self.busy)
        self.task_ids = frozenset(task.id for task in self.tasks)

    # -- questions

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Mark a batch as running within this block."""
        self._running = True
        try:
            yield
        finally:
            self._running, self._ended = False, time.monotonic()

    def busy(self) -> bool:
        """Return whether a batch runs or ended less than `PAUSE_SECONDS` ago: the next one may follow at once."""
        return self._running or time.monotonic() - self._ended < PAUSE_SECONDS

    def placement(self) -> tuple[InstanceView, ...]:
        """Return the tasks that each member runs and follows, and its followers' lag; see `ClusterState.placement`."""
        with self.lock:
            return self.state.placement()

    def instance(self, executor: str | int) -> str:
        """Return the instance that "3" or "executor-3" names.

        Errors: `InputError`, which names the members.
        """
        name = instance_name(executor)
        known = sorted(self.state.members)
        if name not in known:
            raise InputError("executor", found=executor, expected=one_of_executors(known))
        return name

    def removal(
        self, executor: str | int, progress: Mapping[tuple[str, TaskId], Seen] = MappingProxyType({})
    ) -> Removal:
        """Return whether an executor can be removed now, and if not, why. `progress`: as for `ClusterState.removal`."""
        with self.lock:
            if instance_name(executor) in self.state.gone:
                return Removal(instance_name(executor), gone=True)
            found = self.state.removal(self.instance(executor), progress)
            return found.timed(self.warmups.remaining) if found.waits else found

    # -- changes

    def drain(self, executor: str | int, *, on: bool = True, lose_unlogged: bool = False) -> None:
        """Start or end the draining of an executor. It takes effect with the next rebalance.

        Errors: `InputError` if it has the only entries of stores that are not logged, without `lose_unlogged`.
        """
        with self.lock:
            name = self.instance(executor)
            if on and not lose_unlogged:
                self.check_unlogged(name)
            for names, wanted in ((self.state.draining, on), (self.state.losing, on and lose_unlogged)):
                (names.add if wanted else names.discard)(name)

    def check_unlogged(self, instance: str) -> None:
        """Refuse a drain that would lose the entries of stores that are not logged. Errors: `InputError`."""
        if kept := self.state.kept(self.state.members[instance]):
            raise InputError(
                "executor",
                found=instance,
                expected="an executor whose tasks may move",
                hint=f"it has the only entries of the stores with logged=False of {_named(kept)}; to give them up, set "
                "lose_unlogged=True (taskplace drain --lose-unlogged)",
            )

    def preview(self, draining: Collection[str]) -> Plan:
        """Return the plan that would be made if these executors drained as well; nothing is put in force."""
        with self.lock:
            tasks = self._measured()
            instances = [
                replace(one, draining=one.draining or one.id in draining) for one in self.state.instances()
            ]
        return self.loop.preview(tasks, instances)

    def release(self, executor: str | int | None = None) -> tuple[tuple[str, TaskId], ...]:
        """Let parked copies try again, those of one executor or all; the next rebalance acts on it."""
        with self.lock:
            return self.loop.release(None if executor is None else self.instance(executor))

    def keep(self, *, cancelled: bool = False) -> bool:
        """Remove the members that are gone. Return whether any is left."""
        with self.lock:
            alive = self.bridge.alive()
            for member in self.state.keep(self.bridge.usable()):
                name, leaving = member.executor.instance, member.executor.id in alive
                self.stats.losses += not leaving
                if kept := self.state.kept(member):
                    log.warning(
                        "%s went with the entries of stores that are not logged, of %s", name, _named(kept)
                    )
                active = len(self.state.roles(name).active)
                self._record(ExecutorLost(name, self.journal.last_batch + 1, active, cancelled, leaving))
            return bool(self.state.members)

    def rebalance(self, batch_id: int, because: Sequence[Trigger] = ()) -> bool:
        """Plan if there is a reason, and put the plan in force. Return whether the assignment changed."""
        with self.lock:
            start, before = time.perf_counter(), self.state.assignment
            self.loop.config = spread(self._config, [m.executor.host for m in self.state.members.values()])
            decision = self.loop.rebalance_if_needed(
                self._measured(), self.state.instances(), because=because, lags=self.state.lags
            )
            if decision is None:
                return False
            for warning in decision.plan.warnings:  # a plan that changes nothing may have them, too
                if warning not in self._warned:
                    log.warning("%s", warning)
            self._warned = frozenset(decision.plan.warnings)
            if not decision.changed:
                return False
            event = self._event(decision.plan, batch_id, decision.reason, time.perf_counter() - start)
            self.stats.count_rebalance(event)
            self._record(event)
            if self.reporter:
                after, generation = decision.plan.assignment, decision.generation
                for change in warmup_changes(before, after, generation=generation, batch_id=batch_id):
                    tell(self.reporter, change)
            return True

    def rebalance_between_batches(self) -> bool:
        """Rebalance if no batch runs, so that a stream without rows follows its executors. Return whether it changed.

        Executors that come, go or drain need no rows, and neither do copies that catch up. Before the first plan of
        this driver, and while no executor is there, it does nothing.
        """
        with self.lock:  # the next batch begins with a rebalance, so it waits for this one
            if self.busy() or self.loop.plan is None or not self.keep():
                return False
            return self.rebalance(self.journal.last_batch + 1)

    def _measured(self) -> list[Task]:
        return [task._replace(end_offset=self.journal.end_offset(task.id)) for task in self.tasks]

    def _record(self, event: Rebalanced | ExecutorLost) -> None:
        self.events.add(event)
        if self.reporter:
            tell(self.reporter, event)

    def _event(self, plan: Plan, batch_id: int, reason: str, seconds: float = 0.0) -> Rebalanced:
        """Return the event of the plan in force."""
        return Rebalanced(
            generation=self.loop.generation,
            batch_id=batch_id,
            reason=reason,
            promotions=sum(move.forced for move in plan.moves),
            warmups=sum(len(roles.warmup) for roles in plan.assignment.values()),
            followup=plan.followup,
            changes=tuple(map(Change.of, plan.moves)),
            assignment=texts_of(plan.assignment),
            to_go=plan.to_go,
            seconds=seconds,
            imbalance=imbalance_of(self.tasks, self.state.instances(), plan.assignment),
        )

    def in_force(self) -> Rebalanced | None:
        """Return the last rebalance of this driver again, for a reporter that came later; None before the first."""
        with self.lock:
            plan, batch = self.loop.plan, self.journal.last_batch
            return None if plan is None else self._event(plan, batch, "in force")

    def assignment(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """Return the assignment in force as plain values: by instance and role, the tasks as text."""
        return {
            name: {role: tuple(map(str, tasks)) for role, tasks in roles._asdict().items()}
            for name, roles in sorted(self.state.assignment.items())
        }


def _named(tasks: Sequence[TaskId]) -> str:
    return listed([f"task {task}" for task in tasks], most=10)


def check_weights(weights: Mapping[str, float], built: BuiltTopology) -> None:
    """Raise `InputError` for an unknown task or subtopology, or for a weight that is too large to plan with."""
    tasks = [task.id for task in built.tasks()]
    known = {*map(str, tasks), *(str(task.subtopology) for task in tasks)}
    for name, weight in weights.items():
        if name not in known:
            raise ConfigError.unknown_key("weights", name, known)
        if not weight < MOST_NUMBER:
            raise InputError(f"weights.{name}", found=weight, expected=f"a number below {MOST_NUMBER:g}")
