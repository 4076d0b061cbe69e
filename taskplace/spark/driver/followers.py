"""What followers are asked to do, and what becomes of their answers."""

from __future__ import annotations

import logging
import sys
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from taskplace.errors import TaskplaceError
from taskplace.model.placed_options import PlacedOptions
from taskplace.spark.cluster import Executor, JobLostError
from taskplace.spark.driver.cluster_state import Member
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.driver.replication import send
from taskplace.spark.messages import EMPTY, Orders, Position, Visit
from taskplace.spark.worker.program import Program
from topology import TaskId

log = logging.getLogger(__name__)

WAIT_FOR_EXECUTORS_SECONDS = 60.0
WELCOMES = 5
SNAPSHOTS_PER_VISIT = 4
SWEEP_SECONDS = 60.0
"""Directories of dead executors are looked for as often as they are kept, but not more often than this."""
#: Stands for an executor's snapshots where it is told whose turn it is; in order, it comes after all tasks.
SNAPSHOTS = TaskId(sys.maxsize, 0)
#: What was begun with before the first visit; in order, it comes before all tasks.
NOTHING = TaskId(-1, -1)


class Followers:
    """Makes the orders for visits, and takes in what they report."""

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
        # By instance: what its last visit began with; until when it is left alone while a batch runs; when it is to
        # look for orphans again.
        self._began: dict[str, TaskId] = {}
        self._rests: dict[str, float] = {}
        self._sweeps: dict[str, float] = {}
        self._restoring: dict[tuple[str, TaskId], str] = {}  # by instance and task, the attempt of a snapshot
        self._common: dict[str, Any] = {
            "checkpoint": str(checkpoint),
            "state_root": str(state_root),
            "spark_app": rebalancer.bridge.app_id,
            "stores": {p.subtopology: tuple(sorted(p.databases)) for p in programs},
            "logged": {p.subtopology: tuple(sorted(p.logged)) for p in programs},
            "compression": options.compression,
        }

    def welcome(self) -> None:
        """Wait for executors and visit them all: at the first batch, and when no member is left."""
        bridge = self._rebalancer.bridge
        for attempt in range(WELCOMES):
            executors = bridge.wait_for_executors(WAIT_FOR_EXECUTORS_SECONDS)
            if not executors:
                break
            orders = [(executor, self._to(executor)) for executor in executors]
            try:
                self.absorb(send(bridge, orders, tag=f"taskplace-welcome-{self._journal.epoch}-{attempt}"))
            except JobLostError as loss:
                log.warning("executor %s was lost while it was welcomed; asking those that remain", loss)
            if self._state.members:
                return
        raise TaskplaceError(f"no executor has come and stayed within {WAIT_FOR_EXECUTORS_SECONDS:.0f} s")

    def orders(self) -> list[tuple[Executor, Orders]]:
        """Return the visits that are worth making now: newcomers, followers behind, snapshots due, what can go.

        A visit does what there is time for, and at least what it begins with. Followers and snapshots of an executor
        take turns at that: of N that always wait, each is served within N visits. While a batch runs, an executor is
        left alone after a visit for so long that visits take no more than their share of its slots.
        """
        rebalancer = self._rebalancer
        executors = rebalancer.bridge.executors()
        with rebalancer.lock:
            names = self._state.members
            self._forget_the_gone()
            left_over = self._state.without_role(self._cleanup_seconds)
            due = self._snapshots_due()
            self._spare_what_is_restored()
            found = []
            for executor in executors:
                name = executor.instance
                member = names.get(name)
                if member is None:
                    found.append((executor, self._to(executor, orphans_after=self._cleanup_seconds)))
                    continue
                if rebalancer.busy() and time.monotonic() < self._rests.get(name, 0.0):
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
                    found.append((executor, self._to(executor, **what)))
            return found

    @contextmanager
    def visit(self) -> Iterator[None]:
        """Keep the files that orders name from being pruned within this block; see `Journal.visit`."""
        with ExitStack() as visit:
            with self._rebalancer.lock:
                visit.enter_context(self._journal.visit())
            yield

    def absorb(self, visits: Sequence[Visit]) -> bool:
        """Take in what visits report; return whether they got anything done."""
        rebalancer = self._rebalancer
        by_name = {executor.instance: executor for executor in rebalancer.bridge.executors()}
        progress = False
        with rebalancer.lock:
            for visit in visits:
                executor = by_name.get(visit.instance)
                if not visit.here or executor is None:
                    continue
                member = self._state.members.get(visit.instance)
                copies = visit.copies if member is None else self._merged(visit, member)
                progress = progress or member is None or copies != member.copies or bool(visit.snapshots)
                progress = progress or visit.restored > 0  # of a snapshot, of which more is to come
                self._state.join(executor, copies, visit.pid)
                share = min(
                    1.0, self._options.follower_share * executor.cores
                )  # of the one slot that a visit takes
                self._rests[visit.instance] = time.monotonic() + visit.seconds * (1 / share - 1)
                rebalancer.stats.followed += visit.replayed + visit.restored
                self._state.caught_up_by(visit.instance, visit.replayed + visit.restored, visit.seconds)
                self._journal.add_snapshots(visit.snapshots)
                for task, error in visit.errors.items():
                    log.warning("%s: %s cannot follow: %s", visit.instance, task, error)
                for task in visit.copies:
                    self._restoring.pop((visit.instance, task), None)
                self._restoring |= {(visit.instance, task): a for task, a in visit.restoring.items()}
            self._spare_what_is_restored()
        return progress

    def _forget_the_gone(self) -> None:
        """Keep notes of members only: executors come and go for as long as the stream runs."""
        there = self._state.members
        for notes in (self._began, self._rests, self._sweeps):
            for name in notes.keys() - there.keys():
                del notes[name]

    def _spare_what_is_restored(self) -> None:
        """Have snapshots kept that a follower has begun to restore, or on a busy stream it would begin for ever."""
        there = self._state.members
        self._restoring = {
            (name, task): attempt
            for (name, task), attempt in self._restoring.items()
            if name in there and task in self._state.following(name)
        }
        self._journal.spared = frozenset((task, attempt) for (_, task), attempt in self._restoring.items())

    def _merged(self, visit: Visit, member: Member) -> dict[TaskId, Position]:
        """Return a member's copies after a visit.

        Of an active copy, what a batch has said meanwhile is newer than what the visit saw. Copies that nobody
        knew of come from attempts that lost, and are there to be cleaned up.
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
        """Return whom a visit lets follow, in order, and what it snapshots after that: followers wait in their turn."""
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
        """Return by instance the tasks to snapshot there: by a standby that is up to date, else by the active."""
        due: dict[str, list[TaskId]] = {}
        rebalancer = self._rebalancer
        for task, history in self._journal.history.items():
            newest = history.snapshots[-1].version if history.snapshots else -1
            since = [change.size for change in history.changes if change.version > newest]
            if (
                (len(since) < self._options.snapshot_interval and sum(since) < self._options.snapshot_bytes)
                or task not in rebalancer.task_ids  # of a subtopology that an earlier version had
                or self._journal.snapshot_pending(task)
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

    def _to(self, executor: Executor, **what: Any) -> Orders:
        return Orders(instance=executor.instance, **self._common, **what)


def in_turn(waiting: Iterable[TaskId], last: TaskId) -> list[TaskId]:
    """Return those that wait, beginning with the one that comes after `last`, and round.

    Given each time what it began with the last time, it begins with each of N that always wait within N times: it
    goes round in one order, and passes over those alone that do not wait.

    >>> [str(task) for task in in_turn([TaskId(0, 2), TaskId(0, 1), TaskId(1, 0)], last=TaskId(0, 1))]
    ['0_2', '1_0', '0_1']
    """
    circle = sorted(waiting)
    first = bisect_right(circle, last)
    return circle[first:] + circle[:first]
