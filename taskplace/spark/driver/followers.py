"""Keeps standbys and warm-ups up to date: has executors follow the changelog, beside the batches.

A follow job is one pinned job on one executor. Standbys and warm-ups apply the committed changelog, due snapshots are
made, left-over copies are removed, and the position of every copy is reported. An executor becomes a member with its
first report.

- `Followers` decides which executors get a job, with which requests, and takes in the reports;
- `Replicator` runs the jobs, at most one for each executor. No job waits for another, and one whose executor is lost is
  cancelled at once, because nothing that it does counts any more. While no batch runs, its thread also rebalances.

The jobs have their own scheduler pool. They change nothing that a batch decides: a failed job makes standbys fall
behind, but never makes a result wrong.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from taskplace.errors import TaskplaceError
from taskplace.logs import RepeatedWarnings
from taskplace.spark.cluster import DECOMMISSION_POLLS, Cluster, Executor, Job
from taskplace.spark.driver.cluster_state import Load, Member
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.event_log import FollowErrors
from taskplace.spark.driver.logged_errors import log_repeated_failure
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.instances import instance_name
from taskplace.spark.messages import EMPTY, FollowReport, FollowRequest, Position
from taskplace.spark.worker.follow import follow_all
from topology import TaskId

POOL = "taskplace-replication"
#: Seconds between two checks of which executors are alive, while jobs run.
POLL_SECONDS = 0.1

log = logging.getLogger(__name__)
WAIT_FOR_EXECUTORS_SECONDS = 60.0
WELCOMES = 5
#: The most snapshots that one job is asked for. Its budget ends it before that, unless copies are small: a job on an
#: executor with hundreds of them costs more than one small snapshot.
SNAPSHOTS_PER_JOB = 32
#: Seconds of work per job: about how long a batch may have to wait for its slot, if copies are small.
JOB_SECONDS: float | None = 0.5
SWEEP_SECONDS = 60.0
"""The least interval between two searches for directories of dead executors; otherwise `state.cleanup.delay.ms`."""
#: Stands for "snapshots" among the tasks that take turns; sorted after all tasks.
SNAPSHOTS = TaskId(sys.maxsize, 0)
#: The last turn before the first job; sorted before all tasks.
NOTHING = TaskId(-1, -1)
#: Seconds between two checks for work if nothing wakes the replicator.
TICK_SECONDS = 0.5
#: Seconds without jobs for an executor whose job has failed.
PAUSE_SECONDS = 1.0
#: The key of a warning about a turn; those about jobs have the instance.
TURN = ""


@dataclass(eq=False)
class FollowJob:
    """A job that has one executor follow.

    - `files`: closed at the job's end; until then, the files that the request names are not pruned
    - `made`: when its request was made, by the monotonic clock
    - `awaited`: whether a caller of `Replicator.make` waits for it, and sees its error
    - `job`: Spark's; None until it is started
    - `over`: set at its end, when its report is taken in
    - `progress`: whether another job may be useful at once
    - `lost`: whether its executor is lost; then it has no error
    """

    executor: Executor
    request: FollowRequest
    files: ExitStack = field(default_factory=ExitStack)
    made: float = field(default_factory=lambda: time.monotonic())
    awaited: bool = False
    job: Job | None = None
    over: threading.Event = field(default_factory=threading.Event)
    progress: bool = False
    lost: bool = False
    error: Exception | None = None

    @property
    def instance(self) -> str:
        """The executor's name as an instance."""
        return self.executor.instance

    @property
    def ended(self) -> bool:
        """Whether Spark's job has ended, or could not be started."""
        return self.job.done.is_set() if self.job is not None else self.error is not None


class Followers:
    """Makes the requests of follow jobs, and takes in their reports. `errors`: what keeps copies from following."""

    def __init__(self, rebalancer: Rebalancer, definition: StreamDefinition) -> None:
        self._rebalancer, self._state = rebalancer, rebalancer.state
        self._journal, self._options = rebalancer.journal, definition.options
        self._cleanup_seconds = rebalancer.loop.config.state_cleanup_delay_ms / 1000
        # By instance: the first item of its last job; the end of its pause while a batch runs; the time of its next
        # search for orphaned directories.
        self._first: dict[str, TaskId] = {}
        self._rests: dict[str, float] = {}
        self._sweeps: dict[str, float] = {}
        self.errors = FollowErrors()
        self._repeated = RepeatedWarnings()
        self._snapshots_left = 0  # due, but not requested yet
        #: The snapshots that follow jobs have made.
        self.snapshots_made = 0
        self._common: dict[str, Any] = {
            "checkpoint": str(definition.checkpoint),
            "state_root": str(definition.state_root),
            "spark_app": rebalancer.bridge.app_id,
            "stores": {p.subtopology: tuple(sorted(p.databases)) for p in definition.programs},
            "logged": {p.subtopology: tuple(sorted(p.logged)) for p in definition.programs},
            "compression": self._options.compression,
            "budget": JOB_SECONDS,
        }

    def welcome(self, make: Callable[[Sequence[FollowJob]], Sequence[FollowJob]]) -> None:
        """Wait for executors, and make members of them: before the first batch, and when no member is left.

        `make`: `Replicator.make`. If Spark ran a job on another executor, all executors get one more: otherwise the
        tasks of the missing one would be restored.
        Errors: `TaskplaceError` if no executor came in time, or none answered in `WELCOMES` rounds; the error of a job
        that failed.
        """
        lost: set[str] = set()
        for attempt in range(WELCOMES):
            executors = self._rebalancer.bridge.wait_for_executors(WAIT_FOR_EXECUTORS_SECONDS)
            if not executors:
                raise TaskplaceError(
                    f"no executor became available within {WAIT_FOR_EXECUTORS_SECONDS:.0f} s"
                )
            jobs = make([self._job(executor) for executor in executors])
            if gone := {job.executor.id for job in jobs if job.lost}:
                lost |= gone
                log.warning("lost during their first job: %s", ", ".join(map(instance_name, sorted(gone))))
            answered = self._state.members.keys()
            if answered >= {executor.instance for executor in executors} or (answered and attempt):
                return
        why = f"executors lost: {', '.join(sorted(lost))}" if lost else "no executor was lost"
        raise TaskplaceError(
            f"executors came, but none answered in {WELCOMES} rounds of jobs; {why}; Spark's logs of the executors "
            "say why they ended, or ran their jobs elsewhere"
        )

    def jobs(self, resting: Collection[str] = ()) -> list[FollowJob]:
        """Return the useful jobs: for new executors, followers behind, due snapshots, and copies to remove.

        A job completes at least its first item, and more while there is time. Followers and snapshots of an executor
        take turns at being first: with N items waiting, each is first at least once in N jobs. While a batch runs, an
        executor gets no job until its jobs have used no more than `follower_share` of its slots. The `resting`
        instances get none either. The files that a request names are not pruned until `FollowJob.files` is closed.
        """
        executors = [one for one in self._rebalancer.bridge.executors() if one.instance not in resting]
        with self._rebalancer.lock:  # it is also held while files are pruned
            self._forget_the_gone()
            self._spare_what_is_restored()
            due, unused = self._snapshots_due(), self._state.without_role(self._cleanup_seconds)
            jobs = []
            for executor in executors:
                name = executor.instance
                if job := self._useful(executor, due.get(name, ()), unused.get(name, ())):
                    job.files.enter_context(self._journal.protected(job.request))
                    jobs.append(job)
            requested = sum(len(job.request.snapshot) for job in jobs)
            self._snapshots_left = sum(map(len, due.values())) - requested
            return jobs

    def _useful(
        self, executor: Executor, due: Sequence[TaskId], unused: Sequence[TaskId]
    ) -> FollowJob | None:
        """Return a useful job, if any. `due`: the tasks to snapshot there; `unused`: the copies to remove."""
        name, history = executor.instance, self._journal.history
        member = self._state.members.get(name)
        if member is None:
            return self._job(executor, orphans_after=self._cleanup_seconds)
        if self._rebalancer.busy() and time.monotonic() < self._rests.get(name, 0.0):
            return None
        behind, snapshots = self._in_turn(name, self._behind(name, member), due)
        what: dict[str, Any] = {
            "follow": {task: history[task] for task in behind},
            "snapshot": {task: history[task] for task in snapshots},
            "remove": tuple(unused),
        }
        useful = any(what.values())
        if time.monotonic() >= self._sweeps.get(name, 0.0):
            self._sweeps[name] = time.monotonic() + max(self._cleanup_seconds, SWEEP_SECONDS)
            what["orphans_after"], useful = self._cleanup_seconds, True
        return self._job(executor, **what) if useful else None

    def _job(self, executor: Executor, **what: Any) -> FollowJob:
        return FollowJob(executor, FollowRequest(instance=executor.instance, **self._common, **what))

    def snapshots_waiting(self) -> int:
        """Return how many snapshots are due or being made."""
        return self._snapshots_left + self._journal.snapshots_running()

    def absorb(self, reports: Sequence[FollowReport]) -> frozenset[str]:
        """Take in the reports of jobs; return the instances whose copies made progress."""
        by_name = {executor.instance: executor for executor in self._rebalancer.bridge.executors()}
        with self._rebalancer.lock:
            progress = {
                report.instance
                for report in reports
                if report.here
                and report.instance in by_name
                and self._take_in(report, by_name[report.instance])
            }
            self._spare_what_is_restored()
        return frozenset(progress)

    def _take_in(self, report: FollowReport, executor: Executor) -> bool:
        """Take in a report; return whether its copies made progress."""
        name, state = report.instance, self._state
        member = state.members.get(name)
        report.copies |= self._committed(report.attempted)
        copies = report.copies if member is None else self._merged(report, member)
        parked = (task for instance, task in self._rebalancer.loop.parked if instance == name)
        before = frozenset(self.errors.of(name))
        self.errors.answered(
            report, {} if member is None else member.copies, {*state.following(name), *parked}
        )
        self._log_errors(report, before)
        # A piece of a snapshot is progress as well: more pieces will follow.
        new = member is None or copies != member.copies or report.snapshots or report.restored
        state.join(executor, copies, report.pid, report.followed)
        # A job takes one slot, so this is the share of that slot.
        share = min(1.0, self._options.follower_share * executor.cores)
        self._rests[name] = time.monotonic() + report.seconds * (1 / share - 1)
        self._rebalancer.stats.followed += report.replayed + report.restored
        state.caught_up_by(name, report.replayed + report.restored, report.seconds)
        self._journal.add_snapshots(report.snapshots)
        self.snapshots_made += len(report.snapshots)
        for task in report.copies:  # a copy that has a position loads nothing any more
            state.loads.pop((name, task), None)
        for task, attempt in report.restoring.items():
            state.loads[name, task] = Load(attempt, report.loaded.get(task, 0.0))
        return bool(new)

    def _log_errors(self, report: FollowReport, before: frozenset[TaskId]) -> None:
        """Log the copies that cannot follow, at growing intervals, and those that follow again.

        `before`: the tasks whose copies could not follow before this report.
        """
        name = report.instance
        for task, error in sorted(report.errors.items()):
            kind = error.partition(":")[0]
            self._repeated.warn(
                log, "%s: %s cannot follow: %s", name, task, error, key=(name, task), kind=kind
            )
        for task in sorted(before - self.errors.of(name).keys()):
            times = self._repeated.over((name, task))
            if times is not None and task in self._state.following(name):
                log.warning("%s: %s follows again%s", name, task, times)

    def _forget_the_gone(self) -> None:
        """Drop the notes about executors that are not members, so that the notes do not grow with the stream's life."""
        there = self._state.members.keys()
        for notes in (self._first, self._rests, self._sweeps):
            for name in notes.keys() - there:
                del notes[name]
        self.errors.keep(there)

    def _spare_what_is_restored(self) -> None:
        """Keep the snapshots that followers are restoring from; pruning them would restart those restores for ever."""
        state = self._state
        for name, task in list(state.loads):
            if name not in state.members or task not in state.following(name):
                del state.loads[name, task]
        self._journal.spared = frozenset((task, load.attempt) for (_, task), load in state.loads.items())

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

    def _merged(self, report: FollowReport, member: Member) -> dict[TaskId, Position]:
        """Return a member's copies after a job.

        For an active copy, the position that a batch has reported meanwhile is newer than the job's. Unknown copies
        come from attempts that lost; they are noted so that they can be removed.
        """
        gone = {*self._state.following(report.instance), *report.removed}
        kept = {task: at for task, at in member.copies.items() if task not in gone}
        ours = member.copies.keys() - self._state.following(report.instance)
        return {**kept, **{task: at for task, at in report.copies.items() if task not in ours}}

    def _in_turn(
        self, name: str, behind: Sequence[TaskId], snapshots: Sequence[TaskId]
    ) -> tuple[Sequence[TaskId], Sequence[TaskId]]:
        """Return the tasks that follow in a job, in order, and the tasks that it snapshots after that.

        If it is the snapshots' turn, no task follows in this job.
        """
        if not behind:
            return behind, snapshots
        turns = in_turn([*behind, *([SNAPSHOTS] if snapshots else ())], self._first.get(name, NOTHING))
        self._first[name] = turns[0]
        follow = () if turns[0] == SNAPSHOTS else [task for task in turns if task != SNAPSHOTS]
        return follow, snapshots

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
        for task, history in self._journal.history.items():
            newest = history.snapshots[-1].version if history.snapshots else -1
            since = [change.size for change in history.changes if change.version > newest]
            if (
                (len(since) < self._options.snapshot_interval and sum(since) < self._options.snapshot_bytes)
                or task not in self._rebalancer.task_ids  # a task of a removed subtopology
                or self._journal.snapshot_pending(task)
                or self._journal.snapshot_running(task)
            ):
                continue
            holders = [
                name
                for name, member in self._state.members.items()
                if member.copies.get(task) == history.end and len(due.get(name, ())) < SNAPSHOTS_PER_JOB
            ]
            if holders:
                best = min(
                    holders, key=lambda n: (task not in self._state.following(n), len(due.get(n, ())), n)
                )
                due.setdefault(best, []).append(task)
        return due


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


class Replicator:
    """Runs the follow jobs, at most one for each executor: its thread has executors follow whenever there is work.

    An executor gets another job at once if its last one made progress. Otherwise it gets one after `wake` or the next
    tick; after a failed job, not before a pause. `rebalance` is called with each check for work; what it changes counts
    for the jobs that begin then.
    """

    def __init__(self, bridge: Cluster, followers: Followers, rebalance: Callable[[], object]) -> None:
        self._bridge, self._followers, self._rebalance = bridge, followers, rebalance
        self._numbers, self._polls = itertools.count(1), itertools.count(1)
        self._lock = threading.Lock()  # one thread begins or collects jobs
        self.running: dict[str, FollowJob] = {}  # by instance
        self._changed = threading.Condition()  # notified when a job has ended, after `wake`, and at a stop
        self._woken = self._checked = 0.0  # the times of the last `wake`, and of the last check for work
        self._in_vain: set[str] = set()  # without progress in their last job; until the next tick
        self._pauses: dict[str, float] = {}  # by instance: the end of its pause after a failed job
        self._repeated = RepeatedWarnings()
        self._stopped = threading.Event()
        self._deadline = 0.0  # after a stop: until then, running jobs may end
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, also after a stop. Does nothing while the thread runs."""
        if self._thread is None or not self._thread.is_alive():
            self._stopped.clear()
            self._thread = self._bridge.thread(self._loop, "taskplace-replicator")
            self._thread.start()

    def wake(self) -> None:
        """Check for work at once: there may be something to do."""
        self._woken = time.monotonic()
        self._notify()

    def stop(self, timeout: float = 30.0) -> None:
        """Begin no more jobs, and wait for the running ones. After `timeout` seconds, they are cancelled."""
        self._deadline = time.monotonic() + timeout
        self._stopped.set()
        self._notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout + TICK_SECONDS)

    # -- jobs

    def begin(self, resting: Collection[str] = ()) -> list[FollowJob]:
        """Begin the useful jobs, for instances that have none and are not `resting`."""
        with self._lock:
            begun = self._followers.jobs({*self.running, *resting})
            self.running |= {job.instance: job for job in begun}
        self._start(begun)
        return begun

    def make(self, jobs: Sequence[FollowJob]) -> list[FollowJob]:
        """Run jobs, and return them when they have ended. If an executor has a job already, wait for that one.

        Errors: that of the first job that has failed. A lost executor is no error.
        """
        with self._lock:
            made = [self.running.setdefault(job.instance, job) for job in jobs]
            for job, running in zip(jobs, made, strict=True):
                running.awaited = True
                if running is not job:
                    job.files.close()
        self._start([job for job in jobs if job in made])
        while True:
            self.collect()
            if all(job.over.is_set() for job in made):
                break
            self._wait(POLL_SECONDS)
        for job in made:
            if job.error is not None:
                raise job.error
        return made

    def collect(self) -> list[FollowJob]:
        """End the jobs that have ended, or whose executor is lost. Take in their reports, and return them."""
        with self._lock:
            started = [job for job in self.running.values() if job.job is not None or job.error is not None]
            present = frozenset[str]()
            if not all(job.ended for job in started):
                present = self._executors_now()
            ended = [job for job in started if job.ended or job.executor.id not in present]
            if ended:
                self._end(ended)
            return ended

    def _start(self, jobs: Iterable[FollowJob]) -> None:
        for job in jobs:
            try:
                location = None if self._bridge.local else job.executor.location
                pinned = self._bridge.pinned([job.request.encode()], [location], follow_all)
                tag = f"taskplace-follow-{next(self._numbers)}"
                job.job = self._bridge.start(pinned, [0], tag=tag, pool=POOL, on_done=self._notify)
            except Exception as error:
                job.error = error
            if job.over.is_set() and job.job is not None:  # abandoned meanwhile
                job.job.cancel()

    def _executors_now(self) -> frozenset[str]:
        """Return the ids of the executors that run jobs. Asks about decommissioning only every tenth time."""
        polled = next(self._polls) % DECOMMISSION_POLLS
        return self._bridge.alive() if polled else self._bridge.usable()

    def _end(self, ended: Sequence[FollowJob]) -> None:
        try:
            reports = [report for job in ended for report in self._reports(job)]
            progress = self._followers.absorb(reports) if reports else ()
            for job in ended:
                job.progress = job.instance in progress
        finally:
            for job in ended:
                del self.running[job.instance]
                job.files.close()
                job.over.set()

    def _reports(self, job: FollowJob) -> list[FollowReport]:
        """Return the report of an ended job; none if it has failed or its executor is lost."""
        error = job.error
        if job.job is not None:
            if not job.job.done.is_set():
                job.lost = True
                job.job.cancel()
                return []
            try:
                return [FollowReport.decode(answer) for answer in job.job.result()]
            except Exception as failed:
                error = failed
        job.lost = job.executor.id not in self._bridge.usable()
        job.error = None if job.lost else error
        if job.error is not None:
            self._followers.errors.failed(job.instance, job.error)
        return []

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until a job has ended or `until` is true, at most `seconds`."""
        with self._changed:
            self._changed.wait_for(
                lambda: until() or any(job.ended for job in list(self.running.values())), seconds
            )

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
            while self.running and time.monotonic() < self._deadline:
                self._wait(min(POLL_SECONDS, max(0.0, self._deadline - time.monotonic())))
                self.collect()
        except Exception as error:  # the session may have been stopped
            log.debug("the last follow jobs are abandoned: %s", error)
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """End all jobs without their reports, and cancel them."""
        with self._lock:
            abandoned, self.running = list(self.running.values()), {}
        for job in abandoned:
            job.files.close()
            job.over.set()
            if job.job is not None:
                with suppress(Exception):  # the session may have been stopped
                    job.job.cancel()

    def _turn(self) -> None:
        """Wait for something to happen, take in reports, and begin jobs if there may be work."""
        pause = POLL_SECONDS if self.running else TICK_SECONDS
        self._wait(pause, lambda: self._woken > self._checked or self._stopped.is_set())
        if self._stopped.is_set():
            return
        ended = self.collect()
        for job in ended:
            self._note_end(job)
        now = time.monotonic()
        if self._woken > self._checked or now >= self._checked + TICK_SECONDS:
            self._checked = now
            self._in_vain.clear()
            self._rebalance()
        elif not ended:
            return
        self._pauses = {name: end for name, end in self._pauses.items() if end > now}
        self.begin(self._in_vain | self._pauses.keys())

    def _note_end(self, job: FollowJob) -> None:
        """Log how a job has ended, and note when its executor gets the next one."""
        name = job.instance
        if job.lost:
            self._repeated.over(name)
            log.info("the follow job on %s ended with its executor", name)
        elif job.error is not None:
            self._pauses[name] = time.monotonic() + PAUSE_SECONDS
            if not job.awaited:
                said = "a follow job on %s failed and is retried"
                log_repeated_failure(log, self._repeated, name, said, name, error=job.error)
        else:
            self._repeated.settle(log, "follow jobs on %s succeed again", name, key=name)
            if not job.progress and job.made > self._woken:
                self._in_vain.add(name)
