"""Makes the requests for visits to executors, and takes in their reports.

A visit is one pinned job on one executor (`visits`). It lets standbys and warm-ups follow the changelog, makes
snapshots, removes left-over copies, and reports the position of every copy.
"""

from __future__ import annotations

import logging
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from taskplace.errors import TaskplaceError
from taskplace.logs import RepeatedWarnings
from taskplace.model.placed_options import PlacedOptions
from taskplace.spark.cluster import Executor
from taskplace.spark.driver.cluster_state import Member
from taskplace.spark.driver.event_log import Troubles, shown_text
from taskplace.spark.driver.followers import Order, Visit, raise_error
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.instances import instance_name
from taskplace.spark.messages import EMPTY, FollowReport, FollowRequest, Position
from taskplace.spark.worker.program import Program
from topology import TaskId

log = logging.getLogger(__name__)

WAIT_FOR_EXECUTORS_SECONDS = 60.0
WELCOMES = 5
#: The most snapshots that one visit is asked for. Its budget ends it before that, unless copies are small: a visit of
#: an executor with hundreds of them costs more than one small snapshot.
SNAPSHOTS_PER_VISIT = 32
#: Seconds of work per visit: about how long a batch may have to wait for the visited slot, if copies are small.
VISIT_SECONDS: float | None = 0.5
SWEEP_SECONDS = 60.0
"""The least interval between two searches for directories of dead executors; otherwise `state.cleanup.delay.ms`."""
#: Stands for "snapshots" among the tasks that take turns; sorted after all tasks.
SNAPSHOTS = TaskId(sys.maxsize, 0)
#: The last turn before the first visit; sorted before all tasks.
NOTHING = TaskId(-1, -1)


class Followers:
    """Makes the requests for visits, and takes in their reports. `troubles`: what keeps copies from following."""

    def __init__(
        self,
        rebalancer: Rebalancer,
        programs: Sequence[Program],
        *,
        checkpoint: Path,
        state_root: Path,
        options: PlacedOptions,
    ) -> None:
        self._rebalancer, self._state = rebalancer, rebalancer.state
        self._journal = rebalancer.journal
        self._options = options
        self._cleanup_seconds = rebalancer.loop.config.state_cleanup_delay_ms / 1000
        # By instance: the first item of its last visit; the end of its pause while a batch runs; the time of its next
        # search for orphaned directories.
        self._began: dict[str, TaskId] = {}
        self._rests: dict[str, float] = {}
        self._sweeps: dict[str, float] = {}
        self.troubles = Troubles()
        self._repeated = RepeatedWarnings()
        self._loads = rebalancer.loads
        self._snapshots_left = 0  # due, but not ordered yet
        #: The snapshots that visits have made.
        self.snapshots_made = 0
        self._common: dict[str, Any] = {
            "checkpoint": str(checkpoint),
            "state_root": str(state_root),
            "spark_app": rebalancer.bridge.app_id,
            "stores": {p.subtopology: tuple(sorted(p.databases)) for p in programs},
            "logged": {p.subtopology: tuple(sorted(p.logged)) for p in programs},
            "compression": options.compression,
            "budget": VISIT_SECONDS,
        }

    def welcome(self, visit: Callable[[Sequence[Order]], Sequence[Visit]]) -> None:
        """Wait for executors and visit all of them: before the first batch, and when no member is left.

        `visit` makes the visits, each for itself, and waits for their end (`Visits.make`). If Spark ran a visit on
        another executor, all executors are visited once more: otherwise the tasks of the missing one would be restored.
        Errors: `TaskplaceError` if no executor came in time, or none answered in `WELCOMES` rounds of visits; the error
        of a visit that failed.
        """
        bridge = self._rebalancer.bridge
        lost: set[str] = set()
        for attempt in range(WELCOMES):
            executors = bridge.wait_for_executors(WAIT_FOR_EXECUTORS_SECONDS)
            if not executors:
                raise TaskplaceError(
                    f"no executor became available within {WAIT_FOR_EXECUTORS_SECONDS:.0f} s"
                )
            visits = visit([Order(executor, self._to(executor)) for executor in executors])
            raise_error(visits)
            if gone := {visit.executor.id for visit in visits if visit.lost}:
                lost |= gone
                log.warning("lost during their first visit: %s", ", ".join(map(instance_name, sorted(gone))))
            answered = self._state.members.keys()
            if answered >= {executor.instance for executor in executors} or (answered and attempt):
                return
        why = f"executors lost: {', '.join(sorted(lost))}" if lost else "no executor was lost"
        raise TaskplaceError(
            f"executors came, but none answered in {WELCOMES} rounds of visits; {why}; Spark's logs of the executors "
            "say why they ended, or ran their visits elsewhere"
        )

    def orders(self, busy: Collection[str] = ()) -> list[Order]:
        """Return the useful visits: to new executors, for followers behind, for due snapshots, for copies to remove.

        A visit completes at least its first item, and more while there is time. Followers and snapshots of an executor
        take turns at being first: with N items waiting, each is first at least once in N visits. While a batch runs,
        an executor gets no visit until its visits have used no more than `follower_share` of its slots. The instances
        in `busy` get none either. The files that a visit names are not pruned until `Order.files` is closed.
        """
        executors = [one for one in self._rebalancer.bridge.executors() if one.instance not in busy]
        with self._rebalancer.lock:  # it is also held while files are pruned
            due = self._snapshots_due()
            orders = [Order(executor, request) for executor, request in self._requests(executors, due)]
            for order in orders:
                order.files.enter_context(self._journal.visit(order.request))
            ordered = sum(len(order.request.snapshot) for order in orders)
            self._snapshots_left = sum(map(len, due.values())) - ordered
            return orders

    def _requests(
        self, executors: Sequence[Executor], due: Mapping[str, Sequence[TaskId]]
    ) -> Iterator[tuple[Executor, FollowRequest]]:
        """Yield the requests of the useful visits. `due`: by instance, the tasks to snapshot there."""
        names = self._state.members
        self._forget_the_gone()
        left_over = self._state.without_role(self._cleanup_seconds)
        self._spare_what_is_restored()
        for executor in executors:
            name = executor.instance
            member = names.get(name)
            if member is None:
                yield executor, self._to(executor, orphans_after=self._cleanup_seconds)
                continue
            if self._rebalancer.busy() and time.monotonic() < self._rests.get(name, 0.0):
                continue
            behind, snapshots = self._in_turn(name, self._behind(name, member), due.get(name, ()))
            what: dict[str, Any] = {
                "follow": {task: self._journal.history[task] for task in behind},
                "snapshot": {task: self._journal.history[task] for task in snapshots},
                "remove": tuple(left_over.get(name, ())),
            }
            if time.monotonic() >= self._sweeps.get(name, 0.0):
                self._sweeps[name] = time.monotonic() + max(self._cleanup_seconds, SWEEP_SECONDS)
                what["orphans_after"] = self._cleanup_seconds
            if "orphans_after" in what or any(what.values()):
                yield executor, self._to(executor, **what)

    def restores(self, instance: str, task: TaskId) -> bool:
        """Return whether a copy loads a snapshot, which its next visit continues."""
        return (instance, task) in self._loads

    def snapshots_waiting(self) -> int:
        """Return how many snapshots are due or being made."""
        return self._snapshots_left + self._journal.snapshots_running()

    def absorb(self, visits: Sequence[FollowReport]) -> frozenset[str]:
        """Take in the reports of visits; return the instances whose visits made progress."""
        rebalancer = self._rebalancer
        by_name = {executor.instance: executor for executor in rebalancer.bridge.executors()}
        progress: set[str] = set()
        with rebalancer.lock:
            for visit in visits:
                executor = by_name.get(visit.instance)
                if not visit.here or executor is None:
                    continue
                member = self._state.members.get(visit.instance)
                visit.copies |= self._committed(visit.attempted)
                copies = visit.copies if member is None else self._merged(visit, member)
                wanted = {*self._state.following(visit.instance), *self._parked(visit.instance)}
                before = frozenset(self.troubles.of(visit.instance))
                self.troubles.answered(visit, {} if member is None else member.copies, wanted)
                self._log_troubles(visit, before)
                new = member is None or copies != member.copies
                if new or visit.snapshots or visit.restored:  # a piece of a snapshot; more pieces will follow
                    progress.add(visit.instance)
                self._state.join(executor, copies, visit.pid, visit.followed)
                share = min(
                    1.0, self._options.follower_share * executor.cores
                )  # a visit takes one slot, so this is the share of that slot
                self._rests[visit.instance] = time.monotonic() + visit.seconds * (1 / share - 1)
                rebalancer.stats.followed += visit.replayed + visit.restored
                self._state.caught_up_by(visit.instance, visit.replayed + visit.restored, visit.seconds)
                self._journal.add_snapshots(visit.snapshots)
                self.snapshots_made += len(visit.snapshots)
                self._loads.absorb(visit)
            self._spare_what_is_restored()
        return frozenset(progress)

    def _log_troubles(self, visit: FollowReport, before: frozenset[TaskId]) -> None:
        """Log the copies that cannot follow, at growing intervals, and those that follow again.

        `before`: the tasks whose copies could not follow before this visit.
        """
        name = visit.instance
        for task, error in sorted(visit.errors.items()):
            shown = shown_text(error)
            kind = shown.partition(":")[0]
            self._repeated.warn(
                log, "%s: %s cannot follow: %s", name, task, shown, key=(name, task), kind=kind
            )
        for task in sorted(before - self.troubles.of(name).keys()):
            times = self._repeated.over((name, task))
            if times is not None and task in self._state.following(name):
                log.warning("%s: %s follows again%s", name, task, times)

    def _parked(self, name: str) -> list[TaskId]:
        return [task for instance, task in self._rebalancer.loop.parked if instance == name]

    def _forget_the_gone(self) -> None:
        """Drop the notes about executors that are not members, so that the notes do not grow with the stream's life."""
        there = self._state.members
        for notes in (self._began, self._rests, self._sweeps):
            for name in notes.keys() - there.keys():
                del notes[name]
        self.troubles.keep(there.keys())

    def _spare_what_is_restored(self) -> None:
        """Keep the snapshots that followers are restoring from; pruning them would restart those restores for ever."""
        there = self._state.members
        self._loads.keep(lambda name, task: name in there and task in self._state.following(name))
        self._journal.spared = self._loads.snapshots()

    def _committed(self, attempted: Mapping[TaskId, Position]) -> dict[TaskId, Position]:
        """Return the positions that the journal has committed. An executor cannot know that of its last attempt.

        Without it, a driver that starts after the first batch would take the active copies for empty.
        """
        history = self._journal.history
        return {
            task: at
            for task, at in attempted.items()
            if task in history and any(change.attempt == at.attempt for change in history[task].changes)
        }

    def _merged(self, visit: FollowReport, member: Member) -> dict[TaskId, Position]:
        """Return a member's copies after a visit.

        For an active copy, the position that a batch has reported meanwhile is newer than the visit's. Unknown copies
        come from attempts that lost; they are noted so that they can be removed.
        """
        following = set(self._state.following(visit.instance))
        kept = {
            task: at
            for task, at in member.copies.items()
            if task not in following and task not in visit.removed
        }
        news = {
            task: at for task, at in visit.copies.items() if task in following or task not in member.copies
        }
        return {**kept, **news}

    def _in_turn(
        self, name: str, behind: Sequence[TaskId], snapshots: Sequence[TaskId]
    ) -> tuple[Sequence[TaskId], Sequence[TaskId]]:
        """Return the tasks that follow in a visit, in order, and the tasks that it snapshots after that.

        If it is the snapshots' turn, no task follows in this visit.
        """
        if not behind:
            return behind, snapshots
        waiting = [*behind, SNAPSHOTS] if snapshots else behind
        turns = in_turn(waiting, self._began.get(name, NOTHING))
        self._began[name] = turns[0]
        if turns[0] == SNAPSHOTS:
            return (), snapshots
        return [task for task in turns if task != SNAPSHOTS], snapshots

    def _behind(self, name: str, member: Member) -> list[TaskId]:
        history = self._journal.history
        return [
            task
            for task in self._state.following(name)
            if task in history and member.copies.get(task, EMPTY) != history[task].end
        ]

    def _snapshots_due(self) -> dict[str, list[TaskId]]:
        """Return, by instance, the tasks to snapshot there: on an up-to-date follower, or else on the active."""
        due: dict[str, list[TaskId]] = {}
        rebalancer = self._rebalancer
        for task, history in self._journal.history.items():
            newest = history.snapshots[-1].version if history.snapshots else -1
            since = [change.size for change in history.changes if change.version > newest]
            if (
                (len(since) < self._options.snapshot_interval and sum(since) < self._options.snapshot_bytes)
                or task not in rebalancer.task_ids  # a task of a removed subtopology
                or self._journal.snapshot_pending(task)
                or self._journal.snapshot_running(task)
            ):
                continue
            holders = [
                name
                for name, member in self._state.members.items()
                if member.copies.get(task) == history.end and len(due.get(name, ())) < SNAPSHOTS_PER_VISIT
            ]
            if holders:
                best = min(
                    holders, key=lambda n: (task not in self._state.following(n), len(due.get(n, ())), n)
                )
                due.setdefault(best, []).append(task)
        return due

    def _to(self, executor: Executor, **what: Any) -> FollowRequest:
        return FollowRequest(instance=executor.instance, **self._common, **what)


def in_turn(waiting: Iterable[TaskId], last: TaskId) -> list[TaskId]:
    """Return the waiting tasks in a rotated order: the first one is the next after `last`.

    If `last` is always the first task of the call before, each of N tasks that always wait is first within N calls:
    the order is a circle, which skips only tasks that do not wait.

    >>> [str(task) for task in in_turn([TaskId(0, 2), TaskId(0, 1), TaskId(1, 0)], last=TaskId(0, 1))]
    ['0_2', '1_0', '0_1']
    """
    circle = sorted(waiting)
    first = bisect_right(circle, last)
    return circle[first:] + circle[:first]
