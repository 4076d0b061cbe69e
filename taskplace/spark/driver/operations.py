"""What operators see and ask of a running driver: a thread that keeps its status file, and answers requests.

It also reports the stream's long work (`stream_work`).

    <checkpoint>/status.json            see `taskplace.spark.operator_messages`
    <checkpoint>/waiting.json           likewise
    <checkpoint>/requests/, answers/    see `taskplace.spark.driver.requests`

Properties:
- Beside the batches: a batch only notes what happened (`RecentEvents`). An error here is logged, at growing intervals
  if it repeats, and never fails a batch.
- The status is written after each batch and each rebalance, but at most once per `LEAST_SECONDS`; and every
  `HEARTBEAT_SECONDS`, which shows that the driver runs. Its last status says that it has ended.
- A driver that another one has replaced writes and answers nothing more.
- Before its first batch, a driver is not in charge: it only says that it waits, in a file of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from msgspec.structs import replace

from taskplace.errors import Fenced
from taskplace.lag.ranking import Seen
from taskplace.logs import RepeatedWarnings
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.driver.event_log import RecentEvents
from taskplace.spark.driver.logged_errors import log_failure
from taskplace.spark.driver.operations import StreamWork
from taskplace.spark.driver.requests import RequestDesk
from taskplace.spark.driver.status import StatusBoard
from taskplace.spark.operator_messages import (
    STATUS_FILE,
    WAITING_FILE,
    DriverIdentity,
    Status,
    WaitingDriver,
    write,
)
from taskplace.spark.stuck import seen_of, stuck
from topology import TaskId

log = logging.getLogger(__name__)

#: The least time between two statuses.
LEAST_SECONDS = 1.0
#: The most time between two statuses.
HEARTBEAT_SECONDS = 2.0
#: The time between two looks for requests and for news.
POLL_SECONDS = 0.5
#: Makes the thread. Tests replace it.
new_thread: type[threading.Thread] = threading.Thread


class Operations:
    """The thread of one driver. Lifetime: from the start of its query, or its first batch, until it ends.

    - `written`: counts the statuses
    - `stuck_copies`: how many copies the last status names as stuck
    """

    def __init__(
        self,
        root: Path,
        journal: Journal,
        recent: RecentEvents,
        *,
        board: Callable[[float], StatusBoard],
        desk: RequestDesk,
        work: StreamWork | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.written = self.stuck_copies = 0
        self._root, self._journal, self._recent, self._desk = root, journal, recent, desk
        self._make_board, self._work = board, work
        self._board: StatusBoard | None = None
        self._status: Status | None = None
        self._monotonic = monotonic
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen, self._last, self._looked = -1, float("-inf"), float("-inf")
        self._repeated = RepeatedWarnings()
        #: Held while the file of a waiting driver is written or removed, and while the thread is started.
        self._waiting = threading.Lock()
        self._waits = False
        self._driver: DriverIdentity | None = None

    @property
    def began(self) -> bool:
        """Whether the driver is in charge: its first batch has begun."""
        return self._board is not None

    def status(self) -> Status:
        """Return the status now, without writing it."""
        return (self._board or self._make_board(HEARTBEAT_SECONDS)).status()

    def seen(self) -> dict[tuple[str, TaskId], Seen]:
        """Return what is known now of the copies that catch up, by instance and task."""
        return seen_of(self.status(), runs=True, checkpoint=self._root)

    def batch(
        self, number: int, stopped: Callable[[BaseException], bool] = lambda error: False
    ) -> AbstractContextManager[None]:
        """Note that a batch runs within this block. `stopped`: see `RecentEvents.batch`."""
        self.begin()
        return self._recent.batch(number, stopped)

    def wait(self) -> None:
        """Note that the query was started. Until its first batch, operators see that this driver waits for it.

        A driver that is in charge already, because its query was stopped and started again, goes on.
        """
        if self.began:
            self.begin()
            return
        with self._waiting:
            self._waits = not self.began  # else the first batch came before
        self._say_waiting()
        self._run_thread()

    def begin(self) -> None:
        """Note that the driver is in charge: its first batch has come."""
        if self.began and self._thread is not None:
            return
        try:
            self._desk.open()
            self._board = self._board or self._make_board(HEARTBEAT_SECONDS)
            self._no_longer_waits()
            self._run_thread()
        except Exception as error:
            log_failure(log, "operators will not see the state of the stream", error=error)

    def _say_waiting(self) -> None:
        with self._waiting:
            if not self._waits:
                return
            try:
                self._last = self._monotonic()
                self._driver = self._driver or self._make_board(HEARTBEAT_SECONDS).driver
                write(self._root / WAITING_FILE, WaitingDriver(self._driver, time.time()))
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
            if self._monotonic() - self._last >= HEARTBEAT_SECONDS:
                self._say_waiting()
            return
        try:
            self._journal.check_epoch()
            self._desk.look(self.seen)
            self._look_at_work()
            waited = self._monotonic() - self._last
            news = self._recent.changes != self._seen
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

    def _look_at_work(self) -> None:
        if self._work is not None and self._monotonic() - self._looked >= LEAST_SECONDS:
            self._looked = self._monotonic()
            self._work.look()

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
        if self._board is None:
            return
        self._seen, self._last = self._recent.changes, self._monotonic()
        self._status = status = self._board.status(ended=ended)
        self.stuck_copies = sum(1 for _ in stuck(status))
        write(self._root / STATUS_FILE, status)
        self.written += 1
