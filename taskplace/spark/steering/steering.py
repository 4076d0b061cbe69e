"""Steering one running query: a thread that looks after each batch, and the handle that users hold.

The thread polls the query's last progress (two short calls, twenty times a second) instead of listening: a Python
listener needs a callback server in the driver, and its delays and errors land in Spark's own event bus. Here an error
stays in this thread: it is logged, counted, and after `MOST_ERRORS` in a row steering stands down.

Reports are sent when a batch has just ended, so that they are there before the next one asks where its state is, or
while the query waits: never on purpose in the middle of a batch, when tasks hold the stores that would move.

A look may take Spark seconds, and one lock is held over it. What is told of it is a value of its own, put in place
when the look is over, so nobody who asks for the status, or asks for a drain, waits for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from taskplace.errors import InputError, UnsupportedSpark
from taskplace.model.plan import Move
from taskplace.spark.steering.config import WORKS, SteeringConfig
from taskplace.spark.steering.decision import Decision
from taskplace.spark.steering.drains import Drains
from taskplace.spark.steering.executors import Executors
from taskplace.spark.steering.overrides import StandDown
from taskplace.spark.steering.status import SteeringStatus
from taskplace.spark.steering.steered_queries import SteeredQueries
from taskplace.spark.steering.steering_round import SteeringRounds

if TYPE_CHECKING:
    from taskplace.spark.bridge_state import StateBridge

log = logging.getLogger("taskplace.spark.steering")

POLL_SECONDS = 0.05
PAUSE_SECONDS = 1.0
"""After an error."""
MOST_ERRORS = 3
CHANGES_KEPT = 20


def steer(query: Any, config: SteeringConfig | Mapping[str, Any] | None = None) -> Steering:
    """Steer a running `StreamingQuery`: place the state of its stateful operators, from now until it ends.

    `config`: a `SteeringConfig`, or its keys as a mapping. Returns at once; results of the query are the same with
    and without it. A query is steered by one handle at a time.

    Errors: `UnsupportedSpark` for Spark Connect, continuous mode, or a Spark version that cannot be steered;
    `InputError` for anything that is not a running query, or is steered already; `ConfigError` for a bad key.
    """
    if config is None or isinstance(config, Mapping):
        config = SteeringConfig.from_properties(config or {})
    if not isinstance(config, SteeringConfig):
        raise InputError("config", found=config, expected="a SteeringConfig or a mapping of its keys")
    try:
        from taskplace.spark.bridge_state import StateBridge
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

    Lifetime: one run of one query. A query that is started again is steered by a new call of `steer`. Once the handle
    is stopped or its query has ended, `status` and `drained` say what was last known, and the others are refused.
    Executors are given as "3", 3 or "executor-3". All methods may be called from any thread; `plan`, `resume` and
    `stop` wait for a look under way, the others do not.
    """

    def __init__(self, bridge: StateBridge, config: SteeringConfig) -> None:
        self.config = config
        self._bridge = bridge
        self._fleet = SteeredQueries.of(bridge.app_id)
        self._executors = Executors(bridge)
        self._looks = SteeringRounds(bridge, config, self._fleet, self._executors, self._say)
        self._drains = Drains(self._fleet, bridge, self._say)
        self._tried: int | None = None  # the batch whose look is under way, or failed last
        self._errors = 0
        self._errors_in_a_row = 0
        self._batch_failed = (
            False  # one of them in a look after a batch: only another one tells that all is well
        )
        self._changes: deque[str] = deque(maxlen=CHANGES_KEPT)
        self._said = 0
        self._version = self._fleet.version  # of the fleet, at the last look
        self._over = ""  # "ended" or "stopped"
        # What the last look has found.
        self._shown = SteeringStatus(bridge.name or bridge.id, self._looks.state)
        self._lock = threading.RLock()  # held over a look, which may take long
        self._telling = threading.Lock()  # held for a moment
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._asked = True  # look once as soon as there is anything to see
        self._thread = threading.Thread(
            target=self._run, name=f"taskplace-steer-{bridge.name or bridge.id}", daemon=True
        )

    # -- what users call

    def start(self) -> None:
        """Start looking; `steer` does this. Errors: `InputError` if another handle steers the query."""
        self._fleet.join(self._bridge.run_id, self._shown.query)
        self._thread.start()

    def status(self) -> SteeringStatus:
        """Return how things stand, as of the last look; does not wait for one under way."""
        down, state = self._looks.loop.stood_down, self._looks.state
        with self._telling:
            changes, said = tuple(self._changes), self._said
        return replace(
            self._shown,
            state=self._over or ("stood down" if down and state == "steering" else state),
            draining=tuple(sorted(self._fleet.draining | self._executors.ending)),
            kept=self._kept(),
            reason=str(down) if down else "",
            errors=self._errors + self._drains.errors,
            changes=changes,
            said=said,
        )

    def plan(self) -> Decision:
        """Return what would be done now, from scratch, and do nothing of it. Errors: `InputError` after the end."""
        self._open()
        with self._lock:
            before = self._executors.there.keys()
            decision = self._looks.plan()
            # Seen here, so the thread would see no change.
            self._asked = self._asked or self._executors.there.keys() != before
            return replace(decision, kept=self._kept())

    def drain(self, executor: str | int) -> None:
        """Empty an executor for all steered queries: a few tasks after each batch, and while a query waits.

        It holds until `undrain`, for queries that are steered later too. A query that has stood down moves nothing;
        `status` and the log say which one keeps the executor.
        Errors: `InputError` for an executor that is not there, if no other one would be left, or after the end.
        """
        self._drain(executor)

    def _drain(self, executor: str | int, *, end: bool = False) -> None:
        self._open()
        name = self._executors.known(executor)
        others = {f"executor-{e.id}" for e in self._bridge.executors()} - self._fleet.draining - {name}
        if not others:
            raise InputError("drain", found=name, expected="that another executor is left to take its tasks")
        self._drains.drain(name, end=end)
        self._ask()

    def undrain(self, executor: str | int) -> None:
        """Let an executor have work again, and not end, whoever asked for that.

        Errors: `InputError` for one that never was there, or after the end.
        """
        self._open()
        name = self._executors.known(executor, gone=True, ask=not self._over)
        self._drains.undrain(name)
        self._ask()

    def drained(self, executor: str | int) -> bool:
        """Return whether no task of any steered query belongs on this executor, nor ran there in its last batch.

        A move that was sent counts once it has run, so a query that waits keeps an executor from being drained until
        its next batch, and one that is steered since before its first batch until that. An executor that has ended is
        drained. Of a query that has stood down after errors nobody knows, so none is; nor, by its own handle, once
        that is stopped. What keeps one is in the status.
        Errors: `InputError` for one that never was there.
        """
        name = self._executors.known(executor, gone=True, ask=not self._over)
        if name in self._executors.gone:
            return True
        if not self._over and name.removeprefix("executor-") not in self._bridge.alive():
            return True
        return self._fleet.empty(name) and self._looks.empty(name)

    def decommission(self, executor: str | int) -> None:
        """Drain an executor, and once it is empty, ask the cluster manager to end it. Errors: as `drain`.

        Any steered query asks, so it may be one that has nothing there. It is given up, and said so, when the last
        handle of the application has ended, or when Spark did not take the question three times.
        """
        self._drain(executor, end=True)

    def resume(self) -> None:
        """Steer again after a stand-down. Errors: `InputError` after the end."""
        self._open()
        with self._lock:
            self._looks.resume()
            self._errors_in_a_row, self._batch_failed = 0, False
        self._say("resumed")
        self._ask()

    def stop(self) -> None:
        """Stop steering; the query runs on, and its state stays where it is.

        If the query waits, moves that were sent and have not run are taken back, unless the executor that they left is
        gone or drains. In the middle of a batch they may run already, and stay. A batch that begins in the
        milliseconds in which they are sent back may still run some there.
        """
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=30)
        self._end("stopped")

    # -- the thread

    def _run(self) -> None:
        while not self._stopped.is_set():
            pause = POLL_SECONDS
            try:
                if not self._active():
                    self._end("ended")
                    return
                self._turn()
            except Exception as error:  # whatever it is, it must not reach the query, nor end this thread
                self._failed(error)
                pause = PAUSE_SECONDS
            self._wake.wait(pause)
            self._wake.clear()

    def _turn(self) -> bool:
        """Look if a batch has ended, or if there is a reason to while the query waits; return whether it did."""
        failed, self._tried = self._tried, None
        self._drains.poll()
        finished = self._bridge.finished_batch()
        began = time.perf_counter()
        new = finished is not None and finished != self._looks.batch
        if not new or finished == failed:  # one that failed is looked at once more as soon as the query waits
            self._tried = failed
            waits = (self._looks.batch < 0 and not new) or self._bridge.between_batches()
            if not (waits and (new or self._is_asked())):
                return False
        with self._lock:
            if self._over:  # stopped meanwhile: nothing is sent or published any more
                return False
            self._version = self._fleet.version
            self._asked = False
            self._tried = finished if new else None
            self._looks.look(self._looks.batch if finished is None else finished, ran=new)
            self._tried = None
            if new or not self._batch_failed:
                self._errors_in_a_row, self._batch_failed = 0, False
            self._shown = self._looks.show(self._shown, time.perf_counter() - began)
        if self._looks.to_measure:
            note = self._looks.measure()
            with self._lock:
                note()
                self._shown = self._looks.show(self._shown, self._shown.seconds)
        return True

    def _is_asked(self) -> bool:
        drains = self._fleet.version != self._version  # this handle or another was told
        return self._asked or drains or self._executors.changed()

    def _active(self) -> bool:
        try:
            return self._bridge.active()
        except ConnectionError:  # Spark itself has ended, and its queries with it
            return False

    # -- small things

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._errors += 1
            self._errors_in_a_row += 1
            self._batch_failed = self._batch_failed or self._tried is not None
            self._looks.missed()
            if self._errors_in_a_row == 1:
                log.warning("steering of %s failed; the query runs on", self._bridge.run_id, exc_info=True)
            self._asked = self._errors_in_a_row < MOST_ERRORS  # once more, as soon as the query waits
            if self._asked or self._over:
                return
            last = f"{type(error).__name__}: {error}"
            reason = f"{MOST_ERRORS} errors in a row inside steering, the last {last}"
            down = StandDown(reason, "see the log for the first of them, then resume()")
            self._looks.give_up(self._tried, down)

    def _end(self, state: str) -> None:
        with self._lock:
            if self._over:
                return
            if state == "stopped":
                try:
                    self._looks.take_back()
                except Exception:
                    self._errors += 1
                    log.warning("moves that have not run could not be taken back", exc_info=True)
            self._over = state
            for name in self._fleet.leave(self._bridge.run_id):
                self._say(f"{name} does not end: no query is steered any more that could ask for it")
            self._say(state)

    def _kept(self) -> dict[str, tuple[str, ...]]:
        """Return what keeps draining executors that are not known to have gone."""
        gone = self._executors.gone
        return {name: why for name, why in self._drains.kept().items() if name not in gone}

    def _ask(self) -> None:
        self._asked = True
        self._wake.set()

    def _say(self, text: str, moves: tuple[Move, ...] = ()) -> None:
        with self._telling:
            self._changes.append(text)
            self._said += 1
        log.info("query %s: %s", self._shown.query, text)
        for move in moves:
            log.info("  %s: %s -> %s (%s)", move.task, move.from_ or "-", move.to, move.why)

    def _open(self) -> None:
        if self._over:
            raise InputError(
                "steering",
                found=f"a handle that {'is' if self._over == 'stopped' else 'has'} {self._over}",
                expected="one that steers; call steer(query)",
            )


__all__ = ["Steering", "steer"]
