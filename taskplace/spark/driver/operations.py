"""What operators see and ask of a running driver: a thread that keeps its status file, and answers requests.

It also reports the stream's long work (`StreamWork`).

    <checkpoint>/status.json            see `taskplace.spark.operator_messages`
    <checkpoint>/waiting.json           likewise
    <checkpoint>/requests/, answers/    see `taskplace.spark.driver.requests`

Properties:
- Beside the batches: a batch only notes what happened (`EventLog`). An error here is logged, at growing intervals
  if it repeats, and never fails a batch.
- The status is written after each batch and each rebalance, but at most once per `LEAST_SECONDS`; and every
  `HEARTBEAT_SECONDS`, which shows that the driver runs. Its last status says that it has ended.
- A driver that another one has replaced writes and answers nothing more.
- Before its first batch, a driver is not in charge: it only says that it waits, in a file of its own.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

from msgspec.structs import replace

from taskplace.errors import Fenced
from taskplace.lag.ranking import Seen
from taskplace.logs import RepeatedWarnings
from taskplace.model.work import Show, Work
from taskplace.record.events import BatchDone, ExecutorLost, Rebalanced
from taskplace.spark.driver.cluster_state import CopyKey, Member
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.followers import Followers
from taskplace.spark.driver.logged_errors import log_failure
from taskplace.spark.driver.rebalancer import Rebalancer
from taskplace.spark.driver.requests import Requests
from taskplace.spark.operator_messages import (
    STATUS_FILE,
    WAITING_FILE,
    DriverIdentity,
    ExecutorStatus,
    Status,
    TopicStatus,
    WaitingDriver,
    WarmupStatus,
    write,
)
from taskplace.spark.stuck import seen_of
from taskplace.wording import count
from topology import TaskId

#: A batch is reported when it has run for so long.
LONG_BATCH_SECONDS = 5.0
#: By role of the plan, what its copies do until they are caught up.
NAMES = {
    "active": "restoring active tasks",
    "standby": "catching up standbys",
    "warmup": "catching up warm-ups",
}

log = logging.getLogger(__name__)
#: The least time between two statuses.
LEAST_SECONDS = 1.0
#: The most time between two statuses.
HEARTBEAT_SECONDS = 2.0
#: The time between two checks for requests and for news.
POLL_SECONDS = 0.5
#: Makes the thread. Tests replace it.
new_thread: type[threading.Thread] = threading.Thread


class StreamWork:
    """Reports the long work of a stream: restores, followers that catch up, snapshots, a batch that takes long.

    **Idea.** A copy that is not caught up is work. The most that it lacked is the amount, and what it lacks less now is
    done. All copies of one role are one piece of work, which ends when the last of them is caught up; so there are few
    pieces, however many tasks there are. The part of a snapshot that a follower has loaded counts as done
    (`ClusterState.left`). An attempt does not say how far its restore is until it ends.

    `report` takes about a microsecond per copy, under the lock of the `Rebalancer`. The thread of `operations` calls
    it; a batch notes nothing. Used by one thread at a time.
    """

    def __init__(self, rebalancer: Rebalancer, followers: Followers, show: Show) -> None:
        self._rebalancer, self._followers, self._show = rebalancer, followers, show
        self._shown: dict[str, Work] = {}  # by name, the work that is shown
        self._most: dict[str, dict[CopyKey, int]] = {}  # by name, the most records that each copy has lacked
        self._made = 0  # the snapshots before those that are shown

    def report(self) -> None:
        """Show what has changed since the last call."""
        rebalancer = self._rebalancer
        with rebalancer.lock:
            lacking = {name: self._lacking(role) for role, name in NAMES.items()}
            rates = {name: member.restore_rate for name, member in rebalancer.state.members.items()}
            waiting, made = self._followers.snapshots_waiting(), self._followers.snapshots_made
        for name, copies in lacking.items():
            self._catching_up(name, copies, rates)
        self._snapshots(waiting, made)
        self._batch()

    def close(self) -> None:
        """End all work that is shown."""
        for name in list(self._shown):
            self._end(name)

    def _lacking(self, role: str) -> dict[CopyKey, int]:
        """Return the records that each copy of a role lacks; 0 for one that is caught up."""
        state, lacking = self._rebalancer.state, {}
        for name in sorted(state.members):
            for task in getattr(state.roles(name), role):
                if state.lags.is_caught_up(name, task):
                    left = 0
                elif (
                    role == "active"
                ):  # its attempt reads all of the changelog, the last batch's part as well
                    left = state.lags.lacking(name, task, self._rebalancer.journal.end_offset(task))
                else:
                    left = max(1, state.left(name, task))  # also if it has loaded all of its snapshot
                lacking[name, task] = left
        return lacking

    def _catching_up(
        self, name: str, lacking: Mapping[CopyKey, int], rates: Mapping[str, float | None]
    ) -> None:
        """Show how many records the copies of one role have read."""
        before, behind = self._most.pop(name, {}), {copy: left for copy, left in lacking.items() if left}
        most = {copy: max(n, before.get(copy, 0)) for copy, n in lacking.items() if n or copy in before}
        total = sum(most.values())
        if not behind:
            self._end(name, total)
            return
        self._most[name] = most
        executors = sorted({executor for executor, _ in behind})
        where = executors[0] if len(executors) == 1 else count(len(executors), "executor")
        self._work(name, "records").to(
            total - sum(behind.values()),
            total,
            detail=f"{count(len(behind), 'copy', 'copies')} on {where}",
            eta=_estimate(behind, rates),
        )

    def _snapshots(self, waiting: int, made: int) -> None:
        """Show the snapshots that are due or being made. `made`: since the driver began."""
        name = "making snapshots"
        if not waiting:
            self._end(name, made - self._made)
            return
        if name not in self._shown:
            self._made = made
        self._work(name, "snapshots").to(made - self._made, made - self._made + waiting)

    def _batch(self) -> None:
        running = self._rebalancer.events.running
        own = f"batch {running.batch}" if running else ""
        for name in [name for name in self._shown if name.startswith("batch ") and name != own]:
            self._end(name)
        if running and (seconds := time.time() - running.since) >= LONG_BATCH_SECONDS:
            self._work(own, since=time.monotonic() - seconds).to(0)

    def _work(self, name: str, unit: str = "", since: float | None = None) -> Work:
        if name not in self._shown:
            self._shown[name] = Work(name, unit, show=self._show, since=since, clock=time.monotonic)
        return self._shown[name]

    def _end(self, name: str, done: int | None = None) -> None:
        if (work := self._shown.pop(name, None)) is not None:
            if done is not None:
                work.done = done
            work.end()


def _estimate(behind: Mapping[CopyKey, int], rates: Mapping[str, float | None]) -> float | None:
    """Return the seconds that the slowest executor needs, by its measured rate; None if one has no rate."""
    waiting: dict[str, int] = {}
    for (name, _), records in behind.items():
        waiting[name] = waiting.get(name, 0) + records
    seconds = [records / rate if (rate := rates.get(name)) else None for name, records in waiting.items()]
    return None if None in seconds else max(filter(None, seconds), default=None)


class StatusBoard:
    """Makes the statuses of one driver: what operators see of the running stream. Lifetime: one for each driver.

    Reads the driver's view of its cluster under the lock of the `Rebalancer`, for about a microsecond per copy.
    `input`: returns by topic how far it was read
    """

    def __init__(
        self,
        definition: StreamDefinition,
        rebalancer: Rebalancer,
        followers: Followers,
        input: Callable[[], Mapping[str, TopicStatus]] = dict,
    ) -> None:
        self._definition, self._rebalancer, self._followers = definition, rebalancer, followers
        self._input = input
        #: The process, for people.
        self.driver = DriverIdentity(socket.gethostname(), os.getpid(), rebalancer.bridge.app_id, time.time())
        self._names = {task: str(task) for task in rebalancer.task_ids}
        self._stateless = frozenset(task.id for task in rebalancer.tasks if not task.stateful)
        self._fixed: dict[str, Any] = {
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
                interval=HEARTBEAT_SECONDS,
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
                config=rebalancer.loop.config.to_properties(),
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


class Operations:
    """The thread of one driver. Lifetime: from the start of its query, or its first batch, until it ends.

    - `began`: whether the driver is in charge: its first batch has begun
    - `topics`: returns by topic how far it was read
    """

    def __init__(
        self,
        definition: StreamDefinition,
        rebalancer: Rebalancer,
        followers: Followers,
        topics: Callable[[], Mapping[str, TopicStatus]],
    ) -> None:
        self.began = False
        self._root, self._journal = definition.checkpoint, rebalancer.journal
        self._events, self._requests = rebalancer.events, Requests(definition.checkpoint, rebalancer)
        self._board = StatusBoard(definition, rebalancer, followers, topics)
        # A reporter of one's own need not have it, and there may be none.
        show = getattr(rebalancer.reporter, "progress", None)
        self._work = None if show is None else StreamWork(rebalancer, followers, show)
        self._status: Status | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._written, self._last, self._reported = -1, float("-inf"), float("-inf")
        self._repeated = RepeatedWarnings()
        #: Held while the file of a waiting driver is written or removed, and while the thread is started.
        self._waiting = threading.Lock()
        self._waits = False

    def status(self) -> Status:
        """Return the status now, without writing it."""
        return self._board.status()

    def progress(self) -> dict[tuple[str, TaskId], Seen]:
        """Return what is known now of the copies that catch up, by instance and task."""
        return seen_of(self.status(), runs=True, checkpoint=self._root)

    def batch(
        self, number: int, stopped: Callable[[BaseException], bool] = lambda error: False
    ) -> AbstractContextManager[None]:
        """Note that a batch runs within this block. `stopped`: see `EventLog.batch`."""
        self.begin()
        return self._events.batch(number, stopped)

    def wait(self) -> None:
        """Note that the query was started. Until its first batch, operators see that this driver waits for it.

        A driver that is in charge already, because its query was stopped and started again, goes on.
        """
        if self.began:
            self.begin()
            return
        with self._waiting:
            self._waits = not self.began  # else the first batch came before
            self._board.driver = replace(self._board.driver, started=time.time())
        self._say_waiting()
        self._run_thread()

    def begin(self) -> None:
        """Note that the driver is in charge: its first batch has come."""
        if self.began and self._thread is not None:
            return
        try:
            self._requests.open()
            if not (self.began or self._waits):
                self._board.driver = replace(self._board.driver, started=time.time())
            self.began = True
            self._no_longer_waits()
            self._run_thread()
        except Exception as error:
            log_failure(log, "operators will not see the state of the stream", error=error)

    def _say_waiting(self) -> None:
        with self._waiting:
            if not self._waits:
                return
            try:
                self._last = time.monotonic()
                write(self._root / WAITING_FILE, WaitingDriver(self._board.driver, time.time()))
            except Exception as error:
                log.debug("operators do not see that a driver waits: %s: %s", type(error).__name__, error)

    def _no_longer_waits(self) -> None:
        with self._waiting:
            if self._waits:
                self._waits, self._last = False, float("-inf")
                with suppress(OSError):
                    (self._root / WAITING_FILE).unlink()

    def turn(self) -> None:
        """Answer requests, and write the status if it is time; before the first batch, only say that the driver waits.

        An error is logged, at growing intervals if it repeats.
        """
        if not self.began:
            if time.monotonic() - self._last >= HEARTBEAT_SECONDS:
                self._say_waiting()
            return
        try:
            self._journal.check_epoch()
            self._requests.answer(self.progress)
            if self._work is not None and time.monotonic() - self._reported >= LEAST_SECONDS:
                self._reported = time.monotonic()
                self._work.report()
            waited = time.monotonic() - self._last
            news = self._events.changes != self._written
            if waited >= HEARTBEAT_SECONDS or (news and waited >= LEAST_SECONDS):
                self._write()
        except Fenced:
            self._stopped.set()
        except Exception as error:
            said = "operators do not see the state of the stream, which is not affected: %s: %s"
            self._repeated.warn(log, said, type(error).__name__, error, kind=type(error))
        else:
            self._repeated.settle(log, "operators see the state of the stream again")

    def stop(self) -> None:
        """Stop the thread, and write a last status. May be called again; does nothing if it never ran."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        replaced = self._stopped.is_set()
        self._stopped.set()
        if thread is not threading.current_thread():
            thread.join(2 * HEARTBEAT_SECONDS)
        self._no_longer_waits()
        if not self.began:
            return
        try:
            if self._work is not None:
                self._work.close()
            if not replaced:
                self._journal.check_epoch()
                self._write_end()
        except Exception as error:
            log.debug("the last status was not written: %s: %s", type(error).__name__, error)

    def _run_thread(self) -> None:
        with self._waiting:
            if self._thread is None:
                self._stopped.clear()
                self._thread = new_thread(target=self._loop, name="taskplace-operations", daemon=True)
                self._thread.start()

    def _loop(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            self.turn()

    def _write_end(self) -> None:
        """Write that the driver has ended, with what was known before if Spark cannot be asked any more."""
        try:
            self._write(ended=True)
        except Exception:
            if self._status is None:
                raise
            last = replace(self._status, ended=True, number=self._status.number + 1, written=time.time())
            write(self._root / STATUS_FILE, last)

    def _write(self, *, ended: bool = False) -> None:
        self._written, self._last = self._events.changes, time.monotonic()
        self._status = status = self._board.status(ended=ended)
        write(self._root / STATUS_FILE, status)
