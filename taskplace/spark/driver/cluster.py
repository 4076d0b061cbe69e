"""Who takes part and who runs what: the members, the assignment in force, and how both change.

The batch thread and the replicator share it; `lock` guards it, the journal and the loop, and is never held
while a job runs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from taskplace.errors import ConfigError, InputError, TaskplaceError
from taskplace.explanation import Removal, can_remove
from taskplace.group.executors import ExecutorGroup, LagReport, Work
from taskplace.model.events import ExecutorLost, InstanceView, Rebalanced, Reporter
from taskplace.model.plan import Plan, Roles
from taskplace.model.problem import Problem, Task
from taskplace.model.reading import MOST, MOST_NUMBER, nearest
from taskplace.rebalance import Decision, RebalanceLoop, Trigger
from taskplace.spark.bridge import Bridge, Executor
from taskplace.spark.driver.journal import Journal
from taskplace.spark.driver.members import Members
from taskplace.spark.driver.stats import Stats
from taskplace.spark.worker.program import Program
from topology import BuiltTopology, TaskId

log = logging.getLogger(__name__)

#: After a batch, executors count as free only when so long no other has begun.
PAUSE_SECONDS = 1.0


class Cluster:
    """Members and assignment of one placed stream.

    The members' lag reports are what is planned from; the plan goes out as their work, under the group's next
    generation, and a copy refuses work of an older one.

    Lifetime: `members` follows the executors; `loop.plan` is the assignment in force, None before the first.
    """

    def __init__(
        self,
        bridge: Bridge,
        journal: Journal,
        loop: RebalanceLoop,
        built: BuiltTopology,
        programs: Sequence[Program],
        stats: Stats,
        reporter: Reporter | None,
    ) -> None:
        self.lock = threading.RLock()
        self._running, self._ended = False, float("-inf")
        self.bridge, self.journal, self.loop, self.stats, self.reporter = (
            bridge,
            journal,
            loop,
            stats,
            reporter,
        )
        self._work: dict[str, Work] = {}
        group = ExecutorGroup(built.name, generation=loop.generation)
        self.members = Members(journal, loop.config.acceptable_recovery_lag, group)
        logged = {p.subtopology: any(s.logged for s in p.stores.values()) for p in programs}
        self._tasks = [
            Task(t.id, stateful=t.stateful, logged=logged[t.id.subtopology] or not t.stateful)
            for t in built.tasks()
        ]
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

    def roles(self, instance: str) -> Roles:
        """Return the work that the group has handed out to an instance; none for one that is no member."""
        work = self._work.get(instance)
        return Roles(work.active, work.standby, work.warmup) if work else Roles()

    def following(self, instance: str) -> list[TaskId]:
        """Return the tasks that an instance is a standby or a warm-up for."""
        roles = self.roles(instance)
        return [*roles.standby, *roles.warmup]

    def owners(self) -> dict[TaskId, Executor | None]:
        """Return the executor of each task's active copy; None for one that is gone."""
        with self.lock:
            found: dict[TaskId, Executor | None] = {}
            for name, work in self._work.items():
                member = self.members.by_instance.get(name)
                found.update(dict.fromkeys(work.active, member.executor if member else None))
            return found

    def behind(self) -> frozenset[TaskId]:
        """Return the tasks whose active copy is not known to be where its changelog ends."""
        with self.lock:
            copies = {name: member.copies for name, member in self.members.by_instance.items()}
            there = {
                (task, at)
                for name, work in self._work.items()
                for task in work.active
                if (at := copies.get(name, {}).get(task)) is not None
            }
            return frozenset(t for t, h in self.journal.history.items() if (t, h.end) not in there)

    def placement(self) -> tuple[InstanceView, ...]:
        """Return what each member runs and follows, and how far its followers are behind."""
        with self.lock:
            views = []
            for name in sorted(self.members.by_instance):
                active, standby, warmup = self.roles(name)
                lag = sum(self.members.lag(name, task) or 0 for task in self.following(name))
                views.append(InstanceView(name, len(active), len(standby), len(warmup), lag))
            return tuple(views)

    def instance(self, executor: str | int) -> str:
        """Return the instance that "3" or "executor-3" names. Errors: `InputError` naming the members."""
        name = _named(executor)
        known = sorted(self.members.by_instance)
        if name not in known:
            raise InputError(
                "executor", found=executor, expected=f"one of {known}", hint=nearest(name, known)
            )
        return name

    def can_remove(self, executor: str | int) -> bool:
        """Return whether an executor has no role any more, and no copy that the others lack; true once it has gone."""
        with self.lock:
            if _named(executor) in self.members.gone:
                return True
            name = self.instance(executor)
            return not any(self.roles(name)) and self.removal(name).can_remove

    def removal(self, executor: str | int) -> Removal:
        """Return what still has to catch up elsewhere before an executor can go; nothing once it has gone."""
        with self.lock:
            if _named(executor) in self.members.gone:
                return Removal(_named(executor))
            instances = self.loop.with_roles(self.members.instances())
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
            change = self.members.draining.add if on else self.members.draining.discard
            change(self.instance(executor))

    def keep(self, *, cancelled: bool = False) -> bool:
        """Forget the members that have gone; return whether any is left."""
        with self.lock:
            alive = self.bridge.alive()
            for member in self.members.keep(self.bridge.usable()):
                name, leaving = member.executor.instance, member.executor.id in alive
                self.stats.losses += not leaving
                if self.reporter is not None:
                    active = len(self.roles(name).active)
                    self.reporter.failure(
                        ExecutorLost(name, self.journal.last_batch + 1, active, cancelled, leaving)
                    )
            return bool(self.members.by_instance)

    def rebalance(self, batch_id: int, because: Sequence[Trigger] = ()) -> bool:
        """Plan, if there is a reason to, and put the plan in force; return whether the assignment changed."""
        with self.lock:
            decision = self.loop.look(self._measured(), self.members.instances(), because=because)
            if decision is None or not decision.changed:
                return False
            self._hand_out(decision.plan)
            self._tell(batch_id, decision)
            return True

    def _measured(self) -> list[Task]:
        return [task._replace(end_offset=self.journal.end_offset(task.id)) for task in self._tasks]

    def _hand_out(self, plan: Plan) -> None:
        """Put a plan in force in the group: all members get their work, under its next generation."""
        at = self.loop.probing.next_at
        due = 0 if at is None else max(1, round(1000 * (at - time.monotonic())))

        def work(reports: Mapping[str, LagReport]) -> dict[str, Work]:
            given = {name: plan.assignment.get(name, Roles()) for name in reports}
            return {name: Work(*roles, probing_ms=due) for name, roles in given.items()}

        states = self.members.group.rebalance(time.monotonic(), work)
        self._work = {name: Work.decode(state) for name, state in states.items()}
        if self.members.group.generation != self.loop.generation:
            raise TaskplaceError(
                f"the group is at generation {self.members.group.generation}, the plan at {self.loop.generation}"
            )

    def _tell(self, batch_id: int, decision: Decision) -> None:
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
                    decision.generation, batch_id, decision.reason, moves, promotions, warmups, plan.followup
                )
            )

    def assignment(self) -> Mapping[str, object]:
        """Return the assignment in force as JSON data, for the manifest."""
        return self.loop.plan.to_dict()["assignment"] if self.loop.plan else {}


def _named(executor: object) -> str:
    """Return the instance that is meant by "3", 3 or "executor-3". Errors: `InputError` for anything else."""
    number = isinstance(executor, int) and not isinstance(executor, bool) and 0 <= executor < MOST
    if not number and not isinstance(executor, str):
        raise InputError("executor", found=executor, expected="an id like '3' or 'executor-3'")
    name = str(executor)
    return name if name.startswith("executor-") else f"executor-{name}"


def check_weights(weights: Mapping[str, float], built: BuiltTopology) -> None:
    """Raise `InputError` for the weight of a task, or subtopology, that there is not, or that is no number above 0."""
    tasks = [task.id for task in built.tasks()]
    known = {*map(str, tasks), *(str(task.subtopology) for task in tasks)}
    for name, weight in weights.items():
        if name not in known:
            raise ConfigError.unknown_key("weights", name, known)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < MOST_NUMBER:
            raise InputError(f"weights.{name}", found=weight, expected="a number above 0")
