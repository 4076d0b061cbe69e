"""Keeps standbys and warm-ups up to date: has executors visited, beside the batches.

A visit is one pinned job on one executor. Standbys and warm-ups follow the changelog, due snapshots are made, left-over
copies are removed, and the position of every copy is reported. An executor becomes a member with its first visit.

- `Followers` decides which executors are visited, with which requests, and takes in the reports;
- `Visits` runs the jobs, at most one for each executor. No visit waits for another, and one whose executor is lost ends
  at once: its job is cancelled, because nothing that it does counts any more;
- `Replicator` is the thread that begins visits; while no batch runs, it also rebalances.

Visits have their own scheduler pool. They change nothing that a batch decides: a failed visit makes standbys fall
behind, but never makes a result wrong.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taskplace.errors import TaskplaceError
from taskplace.logs import RepeatedWarnings
from taskplace.model.placed_options import PlacedOptions
from taskplace.spark.cluster import DECOMMISSION_POLLS, Cluster, Executor, Job
from taskplace.spark.driver.cluster_state import Member
from taskplace.spark.driver.event_log import FollowErrors
from taskplace.spark.driver.logged_errors import log_repeated_failure, shown_text
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.instances import instance_name
from taskplace.spark.messages import EMPTY, FollowReport, FollowRequest, Position
from taskplace.spark.worker.follow import visit_all
from taskplace.spark.worker.program import Program
from topology import TaskId

POOL = "taskplace-replication"
#: Seconds between two looks at which executors are alive, while visits run.
POLL_SECONDS = 0.1

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
#: Seconds between two looks for work if nothing wakes the replicator.
TICK_SECONDS = 0.5
#: Seconds without visits to an executor whose visit has failed.
PAUSE_SECONDS = 1.0
#: The key of a warning about a turn; those about visits have the instance.
TURN = ""


@dataclass(frozen=True)
class Order:
    """A visit to make. `files` is closed at its end: until then, the files that the request names are not pruned."""

    executor: Executor
    request: FollowRequest
    files: ExitStack = field(default_factory=ExitStack)


@dataclass(eq=False)
class Visit:
    """A visit that was begun.

    - `began`: by the monotonic clock
    - `awaited`: whether a caller of `make` waits for it, and sees its error
    - `job`: None until it is started
    - `over`: set at its end, when its report is taken in
    - `progress`: whether another visit may be useful at once
    - `lost`: whether its executor is lost; then it has no error
    """

    order: Order
    began: float
    awaited: bool = False
    job: Job | None = None
    over: threading.Event = field(default_factory=threading.Event)
    progress: bool = False
    lost: bool = False
    error: Exception | None = None

    @property
    def executor(self) -> Executor:
        """The visited executor."""
        return self.order.executor


class Visits:
    """The visits that run.

    `absorb` takes in reports, and returns the instances whose visits made progress. `failed` gets the instance and the
    error of each visit that has failed.
    """

    def __init__(
        self,
        bridge: Cluster,
        absorb: Callable[[Sequence[FollowReport]], Collection[str]],
        failed: Callable[[str, Exception], None] = lambda instance, error: None,
    ) -> None:
        self._bridge, self._absorb, self._failed = bridge, absorb, failed
        self._numbers, self._polls = itertools.count(1), itertools.count(1)
        self._lock = threading.Lock()  # one thread begins or collects visits
        self._running: dict[str, Visit] = {}  # by instance
        self._changed = threading.Condition()  # notified when a job has ended, and by `notify`

    def running(self) -> frozenset[str]:
        """Return the instances that have a visit."""
        return frozenset(self._running.copy())

    def begin(self, orders: Callable[[Collection[str]], Sequence[Order]]) -> list[Visit]:
        """Begin visits. `orders` gets the instances that have a visit, and returns visits to others."""
        with self._lock:
            begun = [Visit(order, time.monotonic()) for order in orders(self.running())]
            self._running |= {visit.executor.instance: visit for visit in begun}
        for visit in begun:
            self._start(visit)
        return begun

    def make(self, orders: Sequence[Order]) -> list[Visit]:
        """Make visits, and return them when they have ended. If an executor has a visit already, wait for that one."""
        begun, visits = [], []
        with self._lock:
            for order in orders:
                name = order.executor.instance
                if name in self._running:
                    order.files.close()
                else:
                    self._running[name] = Visit(order, time.monotonic())
                    begun.append(self._running[name])
                visits.append(self._running[name])
                visits[-1].awaited = True
        for visit in begun:
            self._start(visit)
        while True:
            self.collect()
            if all(visit.over.is_set() for visit in visits):
                return visits
            self.wait(POLL_SECONDS)

    def collect(self) -> list[Visit]:
        """End the visits whose job has ended, or whose executor is lost. Take in their reports, and return them."""
        with self._lock:
            started = [(visit, visit.job) for visit in self._running.values() if visit.job is not None]
            waiting = any(not job.done.is_set() for _, job in started)
            present = self._executors_now() if waiting else frozenset()
            ended = [each for each in started if each[1].done.is_set() or each[0].executor.id not in present]
            if ended:
                self._end(ended)
            return [visit for visit, _ in ended]

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until a visit's job has ended or `until` is true, at most `seconds`. See `notify`."""
        with self._changed:
            self._changed.wait_for(lambda: until() or self._any_done(), seconds)

    def notify(self) -> None:
        """Make `wait` check its condition now."""
        with self._changed:
            self._changed.notify_all()

    def abandon(self) -> None:
        """End all visits without their reports, and cancel their jobs."""
        with self._lock:
            visits, self._running = list(self._running.values()), {}
        for visit in visits:
            visit.order.files.close()
            visit.over.set()
            if visit.job is not None:
                with suppress(Exception):  # the session may have been stopped
                    visit.job.cancel()

    def _start(self, visit: Visit) -> None:
        executor, request = visit.executor, visit.order.request
        try:
            location = None if self._bridge.local else executor.location
            job = self._bridge.pinned([request.encode()], [location], visit_all)
            tag = f"taskplace-visit-{next(self._numbers)}"
            visit.job = self._bridge.start(job, [0], tag=tag, pool=POOL, on_done=self.notify)
        except Exception as error:
            visit.job = _NotStarted(error)
        if visit.over.is_set():  # abandoned meanwhile
            visit.job.cancel()

    def _any_done(self) -> bool:
        return any(
            visit.job is not None and visit.job.done.is_set() for visit in list(self._running.values())
        )

    def _executors_now(self) -> frozenset[str]:
        """Return the ids of the executors that run visits. Asks about decommissioning only every tenth time."""
        polled = next(self._polls) % DECOMMISSION_POLLS
        return self._bridge.alive() if polled else self._bridge.usable()

    def _end(self, ended: Sequence[tuple[Visit, Job]]) -> None:
        try:
            reports = [report for visit, job in ended for report in self._reports(visit, job)]
            progress = self._absorb(reports) if reports else ()
            for visit, _ in ended:
                visit.progress = visit.executor.instance in progress
        finally:
            for visit, _ in ended:
                del self._running[visit.executor.instance]
                visit.order.files.close()
                visit.over.set()

    def _reports(self, visit: Visit, job: Job) -> list[FollowReport]:
        """Return the report of an ended visit; none if it has failed or its executor is lost."""
        if not job.done.is_set():
            visit.lost = True
            job.cancel()
            return []
        try:
            return [FollowReport.decode(answer) for answer in job.result()]
        except Exception as error:
            visit.lost = visit.executor.id not in self._bridge.usable()
            visit.error = None if visit.lost else error
            if not visit.lost:
                self._failed(visit.executor.instance, error)
            return []


def raise_error(visits: Iterable[Visit]) -> None:
    """Raise the error of the first visit that has failed, if any. A lost executor is no error."""
    for visit in visits:
        if visit.error is not None:
            raise visit.error


class _NotStarted:
    """The job of a visit that could not be started."""

    def __init__(self, error: Exception) -> None:
        self.done, self._error = threading.Event(), error
        self.done.set()

    def result(self) -> list[Any]:
        raise self._error

    def cancel(self) -> None:
        """Do nothing."""


class Followers:
    """Makes the requests for visits, and takes in their reports. `errors`: what keeps copies from following."""

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
        self.errors = FollowErrors()
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
                before = frozenset(self.errors.of(visit.instance))
                self.errors.answered(visit, {} if member is None else member.copies, wanted)
                self._log_errors(visit, before)
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

    def _log_errors(self, visit: FollowReport, before: frozenset[TaskId]) -> None:
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
        for task in sorted(before - self.errors.of(name).keys()):
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
        self.errors.keep(there.keys())

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


#: Returns the visits to make now, to other instances than these.
OrdersFor = Callable[[Collection[str]], Sequence[Order]]


class Replicator:
    """Has executors visited whenever there is something to do there.

    One thread begins visits and takes in their reports, as they come. An executor is visited again at once if its visit
    made progress. Otherwise it is visited after `wake` or the next tick; after a failed visit, not before a pause.
    `rebalance` is called with each look for work; what it changes counts for the visits that begin then.
    """

    def __init__(
        self,
        bridge: Cluster,
        orders_for: OrdersFor,
        visits: Visits,
        rebalance: Callable[[], object] = lambda: None,
    ) -> None:
        self._bridge, self._orders_for, self._visits = bridge, orders_for, visits
        self._rebalance = rebalance
        self._woken = self._looked = 0.0  # the times of the last `wake`, and of the last look for work
        self._in_vain: set[str] = set()  # without progress in their last visit; until the next tick
        self._pauses: dict[str, float] = {}  # by instance: the end of its pause after a failed visit
        self._repeated = RepeatedWarnings()
        self._stopped = threading.Event()
        self._deadline = 0.0  # after a stop: until then, running visits may end
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, also after a stop. Does nothing while the thread runs."""
        if self._thread is None or not self._thread.is_alive():
            self._stopped.clear()
            self._thread = self._bridge.thread(self._loop, "taskplace-replicator")
            self._thread.start()

    def wake(self) -> None:
        """Look for work at once: there may be something to do."""
        self._woken = time.monotonic()
        self._visits.notify()

    def stop(self, timeout: float = 30.0) -> None:
        """Begin no more visits, and wait for the running visits. After `timeout` seconds, they are cancelled."""
        self._deadline = time.monotonic() + timeout
        self._stopped.set()
        self._visits.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout + TICK_SECONDS)

    def round(self) -> bool:
        """Make all useful visits in this thread; return whether one made progress, so that more may be useful.

        Errors: the first one of a visit. A lost executor is no error.
        """
        made = self._visits.make(self._orders_for(()))
        raise_error(made)
        return any(visit.progress for visit in made)

    # -- the thread

    def _loop(self) -> None:
        while not self._stopped.is_set():
            try:
                self._turn()
                self._repeated.settle(log, "replication works again", key=TURN)
            except Exception as error:
                if not self._stopped.wait(TICK_SECONDS):
                    log_repeated_failure(
                        log, self._repeated, TURN, "replication failed and is retried", error=error
                    )
        try:
            while self._visits.running() and time.monotonic() < self._deadline:
                self._visits.wait(min(POLL_SECONDS, max(0.0, self._deadline - time.monotonic())))
                self._visits.collect()
        except Exception as error:  # the session may have been stopped
            log.debug("the last visits are abandoned: %s", error)
        finally:
            self._visits.abandon()

    def _turn(self) -> None:
        """Wait for something to happen, take in reports, and begin visits if there may be work."""
        pause = POLL_SECONDS if self._visits.running() else TICK_SECONDS
        self._visits.wait(pause, lambda: self._woken > self._looked or self._stopped.is_set())
        if self._stopped.is_set():
            return
        ended = self._ended()
        now = time.monotonic()
        if self._woken > self._looked or now >= self._looked + TICK_SECONDS:
            self._looked = now
            self._in_vain.clear()
            self._rebalance()
        elif not ended:
            return
        self._pauses = {name: end for name, end in self._pauses.items() if end > now}
        resting = self._in_vain | self._pauses.keys()
        self._visits.begin(lambda running: self._orders_for({*running, *resting}))

    def _ended(self) -> int:
        """Take in the reports of the visits that have ended, and return their number."""
        ended = self._visits.collect()
        for visit in ended:
            name = visit.executor.instance
            if visit.lost:
                self._repeated.over(name)
                log.info("the visit to %s ended with its executor", name)
            elif visit.error is not None:
                self._pauses[name] = time.monotonic() + PAUSE_SECONDS
                if not visit.awaited:
                    said = "a visit to %s failed and is retried"
                    log_repeated_failure(log, self._repeated, name, said, name, error=visit.error)
            else:
                self._repeated.settle(log, "visits to %s succeed again", name, key=name)
                if not visit.progress and visit.began > self._woken:
                    self._in_vain.add(name)
        return len(ended)
