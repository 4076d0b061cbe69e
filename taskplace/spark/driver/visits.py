"""Runs visits to executors: each visit is a job of its own, and an executor has at most one visit at a time.

No visit waits for another. A visit ends with its job. If its executor is lost, it ends at once: its job is cancelled,
and nothing waits for the end of its tasks, because nothing that they do counts.

The caller's threads do the work (`begin`, `collect`); the jobs run in threads of the bridge, one for each visit.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from taskplace.spark.cluster import DECOMMISSION_POLLS, Cluster, Executor, Job
from taskplace.spark.messages import FollowReport, FollowRequest
from taskplace.spark.worker.follow import visit_all

POOL = "taskplace-replication"
#: Seconds between two looks at which executors are alive, while visits run.
POLL_SECONDS = 0.1


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
