"""Steers one running query: the handle that users hold, with the thread that runs its rounds.

The thread polls the query's last progress (two short calls, twenty times a second) instead of listening. A Python
listener needs a callback server in the driver, and its delays and errors land in Spark's own event bus. Here an error
stays in this thread: it is logged and counted, and after three in a row steering stands down.

A round is due once after each batch. While the query waits, a round is also due in these cases: one was requested;
drains were requested or taken back on any handle; the executors have changed; the round after the last batch failed. No
round is due in the middle of a batch, because its tasks hold the stores that would move.

Spark may take seconds for a round, and the round holds a lock. The status is a separate value, which the round replaces
at its end. So `status` and requests for drains do not wait for a round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from taskplace.errors import InputError, UnsupportedSpark
from taskplace.model.plan import Move
from taskplace.spark.steering.application import SteeredApplication
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.layout import WORKS
from taskplace.spark.steering.rounds import SteeringRounds
from taskplace.spark.steering.status import Decision, StandDown, SteeringPhase, SteeringStatus

if TYPE_CHECKING:
    from taskplace.spark.steering.bridge import StateBridge

log = logging.getLogger("taskplace.spark.steering")

MOST_ERRORS = 3
"""Steering stands down after this many failed rounds in a row."""
STOP_SECONDS = 30.0
"""`stop` waits at most this long for a running round."""
EVENTS_KEPT = 20
POLL_SECONDS = 0.05
PAUSE_SECONDS = 1.0
"""After an error."""


def steer(query: Any, config: SteeringConfig | Mapping[str, Any] | None = None) -> Steering:
    """Steer a running `StreamingQuery`: place the state of its stateful operators, from now until it ends.

    `config`: a `SteeringConfig`, or its keys as a mapping. Returns at once. The results of the query are the same
    with and without steering. A query is steered by one handle at a time.

    Errors: `UnsupportedSpark` for Spark Connect, continuous mode, or a Spark version that cannot be steered;
    `InputError` for anything that is not a running query, or is steered already; `ConfigError` for a bad key.
    """
    if config is None or isinstance(config, Mapping):
        config = SteeringConfig.from_properties(config or {})
    if not isinstance(config, SteeringConfig):
        raise InputError("config", found=config, expected="a SteeringConfig or a mapping of its keys")
    try:
        from taskplace.spark.steering.bridge import StateBridge
    except ImportError as error:  # a PySpark for Spark Connect alone has no classic part
        raise UnsupportedSpark(f"classic PySpark cannot be imported ({error}); {WORKS}") from error
    bridge = StateBridge(query)
    if not bridge.active():
        raise InputError("query", found="a query that has ended", expected="a running StreamingQuery")
    steering = Steering(bridge, config)
    steering.start()
    return steering


class Steering:
    """The handle: `status`, `plan`, `drain`, `undrain`, `drained`, `decommission`, `resume`, `stop`.

    Lifetime: one run of one query. Call `steer` again for a query that was started again. After the
    handle was stopped or its query has ended, `status` and `drained` return the last known values, and all other
    methods raise `InputError`. Executors are given as "3", 3 or "executor-3". All methods may be called from any
    thread. `plan`, `resume` and `stop` wait for a running round, the others do not.
    """

    def __init__(self, bridge: StateBridge, config: SteeringConfig) -> None:
        self._app = SteeredApplication(bridge, self._log_event)
        self._rounds = SteeringRounds(self._app, config, self._log_event)
        self._schedule = RoundSchedule(self._app)
        self._changes: deque[str] = deque(maxlen=EVENTS_KEPT)
        self._event_count = 0
        self._ended: SteeringPhase | None = None
        self._shown, self._seconds = self._rounds.memory, 0.0  # as of the last round that has succeeded
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=self._poll, name=f"taskplace-steer-{self._app.query_name}", daemon=True
        )
        self._lock = threading.RLock()  # held over a round, which may take long
        self._events_lock = threading.Lock()  # held for a moment

    # -- what users call

    @property
    def config(self) -> SteeringConfig:
        """The configuration of this handle."""
        return self._rounds.config

    def start(self) -> None:
        """Start the thread; `steer` does this. Errors: `InputError` if another handle steers the query."""
        self._app.queries.join(self._app.run_id, self._app.query_name)
        self._thread.start()

    def status(self) -> SteeringStatus:
        """Return the status as of the last round; does not wait for a running round."""
        now, shown = self._rounds.memory, self._shown
        state, weights = shown.state, shown.state.weights
        running, intended = Counter(shown.places.values()), Counter(state.target.places.values())
        with self._events_lock:
            changes, event_count = tuple(self._changes), self._event_count
        return SteeringStatus(
            self._app.query_name,
            self._ended or now.phase,
            batch=shown.batch,
            operators=shown.layout.described,
            executors={
                name: (running[name], intended[name])
                for name in sorted({*self._app.present, *(name for name in running if name)})
            },
            draining=tuple(sorted(self._app.queries.draining | self._app.ending)),
            kept=self._app.kept(),
            moved=shown.sent.moved + shown.sent.on_the_way,
            waiting=shown.decision.waiting if shown.decision else 0,
            overruled=state.watch.total,
            reason=str(now.state.stood_down or ""),
            verdict=str(state.verdict) if state.verdict.moves else "",
            load=shown.sampling.note,
            weights={str(task): weights.of(task) for task in shown.places if weights.of(task) != 1.0},
            rows=shown.costs.rows,
            bytes=shown.costs.bytes,
            errors=self._schedule.errors + self._app.errors,
            seconds=self._seconds,
            changes=changes,
            event_count=event_count,
        )

    def plan(self) -> Decision:
        """Return the decision that a fresh start would make now; nothing moves. Errors: `InputError` after the end."""
        self._require_open()
        with self._lock:
            before = self._app.present.keys()
            decision = self._rounds.plan()
            if self._app.present.keys() != before:  # refreshed here, so the thread would see no change
                self._schedule.requested = True
            return replace(decision, kept=self._app.kept())

    def drain(self, executor: str | int) -> None:
        """Empty an executor for all steered queries: a few tasks after each batch, and while a query waits.

        The drain lasts until `undrain`, and applies to queries that are steered later as well. A query that has stood
        down moves no tasks; `status` and the log name the query that keeps tasks on the executor. Errors: `InputError`
        for an executor that does not exist, if no other executor would be left, or after the end.
        """
        self._drain(executor, remove=False)

    def decommission(self, executor: str | int) -> None:
        """Drain an executor, and ask the cluster manager to remove it once it is empty. Errors: as `drain`.

        Any handle of the application may make the request. The removal is given up, with an event, when the last
        handle has ended, or when three requests to Spark have failed.
        """
        self._drain(executor, remove=True)

    def undrain(self, executor: str | int) -> None:
        """Take back a drain and a removal, whichever handle they were requested on.

        Errors: `InputError` for an executor that never existed, or after the end.
        """
        self._require_open()
        self._app.undrain(executor)
        self._request_round()

    def drained(self, executor: str | int) -> bool:
        """Return whether no task of a steered query belongs on this executor, nor ran there in its last batch.

        A move counts once it has run. So a waiting query keeps an executor from being drained until its next batch,
        and a query without a batch keeps it until its first batch. An executor that has ended is drained. After a
        stand-down for errors it is unknown where a query's tasks run, so no executor is drained; the handle of that
        query also answers so after it was stopped. The status names the queries that keep an executor.
        Errors: `InputError` for an executor that never existed.
        """
        name = self._app.name_of(executor, gone=True, ask=not self._ended)
        if name in self._app.gone:
            return True
        if not self._ended and name.removeprefix("executor-") not in self._app.bridge.alive():
            return True
        return not self._app.queries.blockers(name) and self._rounds.memory.empty_of(name)

    def resume(self) -> None:
        """End a stand-down. Errors: `InputError` after the end."""
        self._require_open()
        with self._lock:
            self._rounds.resume()
            self._schedule.forgive()
        self._log_event("resumed")
        self._request_round()

    def stop(self) -> None:
        """Stop steering. The query runs on, and its state stays where it is.

        If the query waits, moves that were sent and have not run are taken back, unless the executor that a task
        left is gone or drains. In the middle of a batch they are not taken back, because they may have run. If a batch
        begins within the milliseconds of taking them back, some tasks may still run where they were sent.
        """
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=STOP_SECONDS)
        self._end(SteeringPhase.STOPPED)

    # -- the thread

    def _poll(self) -> None:
        while not self._stopped.is_set():
            pause = self._step()
            if pause is None:
                return
            self._wake.wait(pause)
            self._wake.clear()

    def _step(self) -> float | None:
        """Poll once; return the seconds to wait, None once the query has ended."""
        try:
            runs = False
            with suppress(ConnectionError):  # Spark itself has ended, and its queries with it
                runs = self._app.bridge.active()
            if not runs:
                self._end(SteeringPhase.ENDED)
                return None
            self._turn()
        except Exception as error:  # no error may reach the query or end this thread
            self._failed(error)
            return PAUSE_SECONDS
        return POLL_SECONDS

    def _turn(self) -> bool:
        """Follow up on drains, and run a round if one is due; return whether it was."""
        began = time.perf_counter()
        self._app.follow_drains()
        due = self._schedule.due(self._rounds.memory.batch)
        if due is None:
            return False
        with self._lock:
            if self._ended:  # stopped meanwhile: nothing may be sent or published now
                return False
            self._schedule.begin(due)
            self._rounds.run(due.batch, ran=due.ran)
            self._schedule.succeeded(due)
            self._shown, self._seconds = self._rounds.memory, time.perf_counter() - began
        if self._shown.sampling.sizes_due:
            sizes, note = self._rounds.read_sizes()
            with self._lock:
                self._rounds.note_sizes(sizes, note)
                self._shown = self._rounds.memory
        return True

    def _failed(self, error: Exception) -> None:
        """Count a failure; repeat the round once the query waits, or stand down."""
        with self._lock:
            batch = self._schedule.failed_batch
            self._schedule.failed()
            self._rounds.failed()
            if self._schedule.in_a_row == 1:
                log.warning(
                    "steering of query %s failed; the query continues", self._app.run_id, exc_info=True
                )
            if not self._schedule.requested and not self._ended:
                last = f"{type(error).__name__}: {error}"
                reason = f"{MOST_ERRORS} errors in a row inside steering, the last {last}"
                self._rounds.give_up(
                    batch, StandDown(reason, "see the log for the first of them, then resume()")
                )

    def _end(self, phase: SteeringPhase) -> None:
        with self._lock:
            if self._ended:
                return
            if phase is SteeringPhase.STOPPED:
                try:
                    self._rounds.take_back()
                except Exception:
                    self._schedule.errors += 1
                    log.warning("cannot revert moves that have not run yet", exc_info=True)
            self._ended = phase
            for name in self._app.queries.leave(self._app.run_id):
                self._log_event(f"{name} will not be removed: no steered query is left to request it")
            self._log_event(str(phase))

    # -- helpers

    def _drain(self, executor: str | int, *, remove: bool) -> None:
        self._require_open()
        self._app.drain(executor, remove=remove)
        self._request_round()

    def _request_round(self) -> None:
        self._schedule.requested = True
        self._wake.set()

    def _log_event(self, text: str, moves: tuple[Move, ...] = ()) -> None:
        with self._events_lock:
            self._changes.append(text)
            self._event_count += 1
        log.info("query %s: %s", self._app.query_name, text)
        for move in moves:
            log.info("  %s: %s -> %s (%s)", move.task, move.from_ or "-", move.to, move.why)

    def _require_open(self) -> None:
        if self._ended:
            found = f"a handle that {'is' if self._ended == SteeringPhase.STOPPED else 'has'} {self._ended}"
            hint = "call steer(query) again"
            raise InputError("steering", found=found, expected="a handle that is steering", hint=hint)


class DueRound(NamedTuple):
    """A round that is due after `batch`. `ran`: the batch has ended since the last round."""

    batch: int
    ran: bool


class RoundSchedule:
    """Decides when rounds of one query are due, and counts the rounds that failed.

    Lifetime: any thread sets `requested`; the start of a round clears it. `failed_batch` is the batch whose
    round is running, or has failed last. `_drains_version` is that of the last round. `errors` counts all failures;
    `in_a_row`, those since the last success that counts. Once a round after a batch has failed, only the success of
    such a round counts, because a round between batches may have nothing to send.
    """

    def __init__(self, app: SteeredApplication) -> None:
        self.requested = True  # run one round as soon as possible
        self.failed_batch: int | None = None
        self.errors = self.in_a_row = 0
        self._failed_after_batch = False
        self._app = app
        self._drains_version = app.queries.drains_version

    def due(self, last: int) -> DueRound | None:
        """Return the round that is due now, None if none is. `last`: the batch of the last round, -1 without."""
        finished = self._app.finished_batch()
        new = finished not in (-1, last)
        if not new or finished == self.failed_batch:
            # A failed round is repeated once the query waits, so that it does not disturb a running batch.
            waits = (last < 0 and not new) or self._app.bridge.between_batches()
            if not (waits and (new or self._is_requested())):
                return None
        return DueRound(last if finished < 0 else finished, new)

    def begin(self, due: DueRound) -> None:
        """Note that a round begins; it serves all requests so far."""
        self._drains_version = self._app.queries.drains_version
        self.requested = False
        self.failed_batch = due.batch if due.ran else None

    def succeeded(self, due: DueRound) -> None:
        """Note that the round has succeeded."""
        self.failed_batch = None
        if due.ran or not self._failed_after_batch:
            self.forgive()

    def failed(self) -> None:
        """Note that the round has failed. It is requested again, unless too many have failed."""
        self.errors, self.in_a_row = self.errors + 1, self.in_a_row + 1
        self._failed_after_batch |= self.failed_batch is not None
        self.requested = self.in_a_row < MOST_ERRORS

    def forgive(self) -> None:
        """Count failures in a row anew."""
        self.in_a_row, self._failed_after_batch = 0, False

    def _is_requested(self) -> bool:
        drains = self._app.queries.drains_version != self._drains_version
        return self.requested or drains or self._app.changed()
