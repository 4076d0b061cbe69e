"""Puts plans in force: asks the rebalance loop between batches, and tells reporters what changed.

The batch thread and the replicator share it. `lock` guards it, the cluster's state and the journal, and is never held
while a job runs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from taskplace.errors import ConfigError, InputError
from taskplace.explanation import Removal, can_remove
from taskplace.model.events import ExecutorLost, InstanceView, Rebalanced, Reporter
from taskplace.model.problem import Problem, Task
from taskplace.rebalance import Decision, RebalanceLoop, Trigger
from taskplace.spark.cluster import Cluster, Executor
from taskplace.spark.driver.cluster_state import ClusterState
from taskplace.spark.driver.journal import Journal
from taskplace.spark.driver.stats import Stats
from taskplace.spark.instances import instance_name
from taskplace.spark.worker.program import Program
from taskplace.validation import MOST_NUMBER, nearest
from topology import BuiltTopology, TaskId

log = logging.getLogger(__name__)

#: After a batch, executors count as free only when so long no other has begun.
PAUSE_SECONDS = 1.0


class Rebalancer:
    """Plans for one placed stream, from what `state` knows, and answers what depends on a plan.

    Lifetime: one for each driver. `loop.plan` is the assignment in force, None before the first.
    """

    def __init__(
        self,
        bridge: Cluster,
        journal: Journal,
        loop: RebalanceLoop,
        built: BuiltTopology,
        programs: Sequence[Program],
        stats: Stats,
        *,
        reporter: Reporter | None = None,
        tags: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.bridge, self.journal, self.loop = bridge, journal, loop
        self.stats, self.reporter = stats, reporter
        self._running, self._ended = False, float("-inf")
        logged = {p.subtopology: any(s.logged for s in p.stores.values()) for p in programs}
        self._tasks = [
            Task(t.id, stateful=t.stateful, logged=logged[t.id.subtopology] or not t.stateful)
            for t in built.tasks()
        ]
        self.state = ClusterState(journal, loop, self._tasks, tags=tags)
        self.task_ids = frozenset(task.id for task in self._tasks)

    # -- asking

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Say that a batch runs within this block."""
        self._running = True
        try:
            yield
        finally:
            self._running, self._ended = False, time.monotonic()

    def busy(self) -> bool:
        """Return whether a batch runs, or has just ended: the next one may follow it at once."""
        return self._running or time.monotonic() - self._ended < PAUSE_SECONDS

    def owners(self) -> dict[TaskId, Executor | None]:
        """Return the executor of each task's active copy; None for one that is gone."""
        with self.lock:
            return self.state.owners()

    def behind(self) -> frozenset[TaskId]:
        """Return the tasks whose active copy is not known to be where its changelog ends."""
        with self.lock:
            return self.state.behind()

    def placement(self) -> tuple[InstanceView, ...]:
        """Return what each member runs and follows, and how many records its followers have still to apply."""
        with self.lock:
            return self.state.placement()

    def instance(self, executor: str | int) -> str:
        """Return the instance that "3" or "executor-3" names. Errors: `InputError` naming the members."""
        name = instance_name(executor)
        known = sorted(self.state.members)
        if name not in known:
            raise InputError(
                "executor", found=executor, expected=f"one of {known}", hint=nearest(name, known)
            )
        return name

    def can_remove(self, executor: str | int) -> bool:
        """Return whether an executor has no role any more, and no copy that the others lack; true once it has gone."""
        with self.lock:
            if instance_name(executor) in self.state.gone:
                return True
            name = self.instance(executor)
            return not any(self.state.roles(name)) and self.removal(name).can_remove

    def removal(self, executor: str | int) -> Removal:
        """Return what still has to catch up elsewhere before an executor can go; nothing once it has gone."""
        with self.lock:
            if instance_name(executor) in self.state.gone:
                return Removal(instance_name(executor))
            instances = self.loop.with_roles(self.state.instances())
            problem = Problem(tuple(self._measured()), instances, self.loop.config)
            return can_remove(problem, self.instance(executor))

    # -- changing

    def weigh(self, weights: Mapping[str, float]) -> None:
        """Set the weights of tasks ("1_3") and of all tasks of a subtopology ("1"); see `check_weights`."""
        self._tasks = [
            task._replace(
                weight=float(weights.get(str(task.id), weights.get(str(task.id.subtopology), task.weight)))
            )
            for task in self._tasks
        ]

    def drain(self, executor: str | int, *, on: bool = True) -> None:
        """Begin or end the draining of an executor; the next rebalance acts on it."""
        with self.lock:
            change = self.state.draining.add if on else self.state.draining.discard
            change(self.instance(executor))

    def keep(self, *, cancelled: bool = False) -> bool:
        """Forget the members that have gone; return whether any is left."""
        with self.lock:
            alive = self.bridge.alive()
            for member in self.state.keep(self.bridge.usable()):
                name, leaving = member.executor.instance, member.executor.id in alive
                self.stats.losses += not leaving
                if self.reporter is not None:
                    active = len(self.state.roles(name).active)
                    self.reporter.failure(
                        ExecutorLost(name, self.journal.last_batch + 1, active, cancelled, leaving)
                    )
            return bool(self.state.members)

    def rebalance(self, batch_id: int, because: Sequence[Trigger] = ()) -> bool:
        """Plan, if there is a reason to, and put the plan in force; return whether the assignment changed."""
        with self.lock:
            decision = self.loop.look(self._measured(), self.state.instances(), because=because)
            if decision is None or not decision.changed:
                return False
            self._report(batch_id, decision)
            return True

    def _measured(self) -> list[Task]:
        return [task._replace(end_offset=self.journal.end_offset(task.id)) for task in self._tasks]

    def _report(self, batch_id: int, decision: Decision) -> None:
        plan = decision.plan
        promotions = sum(move.forced for move in plan.moves)
        self.stats.rebalances += 1
        self.stats.promotions += promotions
        for warning in plan.warnings:
            log.warning("%s", warning)
        log.info("generation %d (%s): %d moves", decision.generation, decision.reason, len(plan.moves))
        if self.reporter is not None:
            warmups = sum(len(roles.warmup) for roles in plan.assignment.values())
            moves = tuple(map(str, plan.moves))
            self.reporter.rebalance(
                Rebalanced(
                    generation=decision.generation,
                    batch_id=batch_id,
                    reason=decision.reason,
                    moves=moves,
                    promotions=promotions,
                    warmups=warmups,
                    followup=plan.followup,
                )
            )

    def assignment(self) -> Mapping[str, object]:
        """Return the assignment in force as JSON data, for the manifest."""
        return self.loop.plan.to_dict()["assignment"] if self.loop.plan else {}


def check_weights(weights: Mapping[str, float], built: BuiltTopology) -> None:
    """Raise `InputError` for the weight of a task, or subtopology, that there is not, or that is no number above 0."""
    tasks = [task.id for task in built.tasks()]
    known = {*map(str, tasks), *(str(task.subtopology) for task in tasks)}
    for name, weight in weights.items():
        if name not in known:
            raise ConfigError.unknown_key("weights", name, known)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < MOST_NUMBER:
            raise InputError(f"weights.{name}", found=weight, expected="a number above 0")
