"""Steering one running query: a thread that looks after each batch, and the handle that users hold.

The thread polls the query's last progress (two short calls, twenty times a second) instead of listening: a Python
listener needs a callback server in the driver, and its delays and errors land in Spark's own event bus. Here an error
stays in this thread: it is logged, counted, and after `MOST_ERRORS` in a row steering stands down.

Reports are sent when a batch has just ended, so that they are there before the next one asks where its state is, or
while the query waits: never on purpose in the middle of a batch, when tasks hold the stores that would move.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from functools import partial
from typing import Any

from py4j.protocol import Py4JNetworkError

from taskplace.errors import InputError
from taskplace.model.plan import Move
from taskplace.spark.bridge_state import StateBridge
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.decision import Decision, Seen
from taskplace.spark.steering.executors import Executors
from taskplace.spark.steering.fleet import Fleet
from taskplace.spark.steering.layout import Layout
from taskplace.spark.steering.loop import SteeringLoop
from taskplace.spark.steering.observe import observed_load
from taskplace.spark.steering.prices import PriceBook
from taskplace.spark.steering.status import SteeringStatus
from taskplace.spark.steering.watch import StandDown
from taskplace.spark.steering.worth import Prices
from topology.ids import TaskId

log = logging.getLogger("taskplace.spark.steering")

POLL_SECONDS = 0.05
MOST_ERRORS = 3
RETRY_POLLS = 20
"""An executor's end that could not be asked for is asked for again after so many polls: a second."""
EARLY_LOOKS = (2, 3, 4, 5, 6)
"""Batches whose load is observed whatever the interval, so that there is something to go by; the first one warms up."""
CHANGES_KEPT = 20
OVER = ("ended", "stopped")


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
    Executors are given as "3", 3 or "executor-3". All methods may be called from any thread.
    """

    def __init__(self, bridge: StateBridge, config: SteeringConfig) -> None:
        self.config = config
        self._bridge = bridge
        self._fleet = Fleet.of(bridge.app_id)
        self._loop = SteeringLoop(config)
        self._book = PriceBook(config.reload_bytes_per_second)
        self._prices = Prices()
        self._layout = Layout()
        self._planned = False  # whether the layout is that of a batch that ran
        self._executors = Executors(bridge)
        self._places: dict[TaskId, str | None] = {}  # the coordinator's map at the last look
        # The same when a batch had just ended: where it ran.
        self._ran: dict[TaskId, str | None] | None = None
        self._decision: Decision | None = None
        self._batch = -1
        self._looks = 0
        self._moved = 0
        self._loaded = 0  # tasks that load their state in the batch to come
        self._errors = 0
        self._errors_in_a_row = 0
        self._seconds = 0.0
        self._load_note = ""
        self._to_measure = False  # sizes are listed once all is sent, and count from the next batch on
        self._sizes: dict[TaskId, float] | None = None
        self._changes: deque[str] = deque(maxlen=CHANGES_KEPT)
        self._said = 0
        self._version = self._fleet.version  # of the fleet, at the last look
        self._polls = 0
        # Ends that could not be asked for: how often, and when again.
        self._unasked: dict[str, tuple[int, int]] = {}
        self._state = "waiting for the first batch"
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._asked = True  # look once as soon as there is anything to see
        self._thread = threading.Thread(
            target=self._run, name=f"taskplace-steer-{bridge.name or bridge.id}", daemon=True
        )

    # -- what users call

    def start(self) -> None:
        """Start looking; `steer` does this. Errors: `InputError` if another handle steers the query."""
        self._fleet.join(self._bridge.run_id)
        self._thread.start()

    def status(self) -> SteeringStatus:
        """Return how things stand, as of the last batch."""
        with self._lock:
            now, goal = Counter(self._places.values()), Counter(self._loop.goal.values())
            names = sorted({*self._executors.there, *(name for name in now if name)})
            down = self._loop.stood_down
            weights = {str(t): self._loop.loads.weight(t) for t in self._places}
            return SteeringStatus(
                query=self._bridge.name or self._bridge.id,
                state="stood down" if down and self._state == "steering" else self._state,
                batch=self._batch,
                operators=self._layout.described,
                executors={name: (now[name], goal[name]) for name in names},
                draining=tuple(sorted(self._fleet.draining | self._executors.ending)),
                moved=self._moved,
                waiting=self._decision.waiting if self._decision else 0,
                overruled=self._loop.watch.total,
                reason=str(down) if down else "",
                verdict=str(self._loop.verdict) if self._loop.verdict.moves else "",
                load=self._load_note,
                weights={name: weight for name, weight in weights.items() if weight != 1.0},
                rows=self._book.rows,
                bytes=self._book.bytes,
                errors=self._errors,
                seconds=self._seconds,
                changes=tuple(self._changes),
                said=self._said,
            )

    def plan(self) -> Decision:
        """Return what would be done now, from scratch, and do nothing of it. Errors: `InputError` after the end."""
        self._open()
        with self._lock:
            before = self._executors.there.keys()
            seen = self._see(ran=False)
            self._asked = (
                self._asked or seen.slots.keys() != before
            )  # seen here, so the thread would see no change
            return self._loop.look(seen, dry=True)

    def drain(self, executor: str | int) -> None:
        """Empty an executor for all steered queries: a few tasks after each batch, and while a query waits.

        It holds until `undrain`, for queries that are steered later too.
        Errors: `InputError` for an executor that is not there, if no other one would be left, or after the end.
        """
        self._drain(executor)

    def _drain(self, executor: str | int, *, end: bool = False) -> None:
        self._open()
        name = self._executors.known(executor)
        others = {f"executor-{e.id}" for e in self._bridge.executors()} - self._fleet.draining - {name}
        if not others:
            raise InputError("drain", found=name, expected="that another executor is left to take its tasks")
        self._fleet.drain(name, end=end)
        self._say(f"drain of {name} asked for" + (", and its end once it is empty" if end else ""))
        self._ask()

    def undrain(self, executor: str | int) -> None:
        """Let an executor have work again, and not end, whoever asked for that.

        Errors: `InputError` for one that never was there, or after the end.
        """
        self._open()
        name = self._executors.known(executor, gone=True, ask=self._state not in OVER)
        self._fleet.drain(name, on=False)
        self._ask()

    def drained(self, executor: str | int) -> bool:
        """Return whether no task of any steered query belongs on this executor, nor ran there in its last batch.

        A move that was sent counts once it has run, so a query that waits keeps an executor from being drained until
        its next batch, and one that is steered since before its first batch until that. An executor that has ended is
        drained. Errors: `InputError` for one that never was there.
        """
        name = self._executors.known(executor, gone=True, ask=self._state not in OVER)
        if self._state not in OVER and name.removeprefix("executor-") not in self._bridge.alive():
            return True
        with self._lock:
            return self._fleet.empty(name) and name not in (self._ran or {}).values()

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
            self._loop.resume()
            self._errors_in_a_row = 0
        self._say("resumed")
        self._ask()

    def stop(self) -> None:
        """Stop steering; the query runs on, and its state stays where it is."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=30)
        self._end("stopped")

    # -- the thread

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self._active():
                    self._end("ended")
                    return
                if self._turn():
                    self._errors_in_a_row = 0
            except Exception as error:  # whatever it is, it must not reach the query, nor end this thread
                self._failed(error)
            self._wake.wait(POLL_SECONDS if self._errors_in_a_row == 0 else 1.0)
            self._wake.clear()

    def _turn(self) -> bool:
        """Look if a batch has ended, or if there is a reason to while the query waits; return whether it did."""
        self._dismiss()
        finished = self._bridge.finished_batch()
        began = time.perf_counter()
        new = finished is not None and finished != self._batch
        if not new:
            waits = self._batch < 0 or self._bridge.between_batches()
            if not (waits and self._is_asked()):
                return False
        with self._lock:
            if self._state in OVER:  # stopped meanwhile: nothing is sent or published any more
                return False
            self._version = self._fleet.version
            self._batch = self._batch if finished is None else finished
            self._asked = False
            self._look(ran=new)
            self._seconds = time.perf_counter() - began
        if self._to_measure:
            self._measure()
        return True

    def _is_asked(self) -> bool:
        drains = self._fleet.version != self._version  # this handle or another was told
        return self._asked or drains or self._executors.changed()

    def _active(self) -> bool:
        try:
            return self._bridge.active()
        except (ConnectionError, Py4JNetworkError):  # Spark itself has ended, and its queries with it
            return False

    def _look(self, *, ran: bool) -> None:
        if not self._planned:
            self._discover(ran)
        if not self._layout.tasks:
            if self._planned:
                self._fleet.publish(self._bridge.run_id, {}, {})
            return
        seen = self._see(ran=ran)
        self._places = dict(seen.places)
        self._ran = self._places if ran else self._ran
        decision = self._loop.look(seen)
        self._send(decision)
        self._decision = decision
        alive = self._executors.there.keys() | self._executors.ending
        self._fleet.publish(
            self._bridge.run_id,
            decision.intended,
            {t: self._loop.loads.weight(t) for t in self._places},
            None if self._ran is None else {name for name in self._ran.values() if name in alive and name},
        )

    def _discover(self, ran: bool) -> None:
        """Find out what there is to steer: roughly before the first batch, exactly after it."""
        found = self._bridge.layout(planned=ran)
        if found is None:
            return
        self._planned = ran
        stood_down = self._loop.stood_down
        self._layout, self._loop = found, SteeringLoop(self.config)
        self._loop.stood_down = stood_down  # until resume, whatever was found out since
        if found.tasks or ran:
            self._state = "steering" if found.tasks else "nothing to steer"
            self._say("; ".join(found.described) or "no stateful operators")

    def _see(self, *, ran: bool) -> Seen:
        self._executors.look()
        places = self._bridge.places(self._layout)
        if ran:
            self._looks += 1
        load = self._observe() if ran else None
        if ran:
            loaded, self._loaded = self._loaded, 0
            seconds = list(load.values()) if load and self.config.load_by == "task.time" else None
            self._prices = self._book.observe(
                self._bridge.state_operators(), len(self._layout.tasks), loaded, seconds
            )
        base, others = self._fleet.beside(self._bridge.run_id)
        return Seen(
            batch=self._batch,
            slots={name: executor.cores for name, executor in self._executors.there.items()},
            places=places,
            draining=self._fleet.draining & self._executors.there.keys(),
            load=load,
            prices=self._prices,
            facts=self._bridge.facts(),
            ran=ran,
            others=others,
            base=base,
            ending=self._executors.ending,
        )

    def _observe(self) -> dict[TaskId, float] | None:
        """Return what is observed of each task in the batch that has just ended, if it is due."""
        due = self._looks in EARLY_LOOKS or self._looks % self.config.load_every_batches == 0
        if self.config.load_by == "state.size":
            self._to_measure = due
            found, self._sizes = self._sizes, None
            return found
        if not due:
            return None
        found, self._load_note = observed_load(self._bridge, self._layout, self.config.load_by)
        return found

    def _measure(self) -> None:
        """List the sizes of states, which takes long: not before the moves are sent, and while nobody waits for it."""
        found, note = observed_load(self._bridge, self._layout, self.config.load_by)
        with self._lock:
            self._to_measure, self._sizes, self._load_note = False, found, note

    def _send(self, decision: Decision) -> None:
        sent = [
            (task, self._executors.there[name])
            for task, name in decision.intended.items()
            if self._places[task] != name and name in self._executors.there
        ]
        self._bridge.send(self._layout, sent)
        self._moved += len(sent)
        self._loaded += len(sent)
        if decision.moves or decision.why or decision.stood_down:
            text = str(decision)
            if not self._changes or self._changes[-1] != text:
                self._say(text, decision.moves)

    def _dismiss(self) -> None:
        """Ask for the end of executors that are to end and are empty: whoever was told, whatever this query does."""
        self._polls += 1
        for name in sorted(self._fleet.leaving):
            tried, again = self._unasked.get(name, (0, 0))
            if again > self._polls:
                continue
            try:
                took = self._fleet.end(name, partial(self._ask_to_end, name.removeprefix("executor-")))
            except Exception as error:
                log.warning("the end of %s could not be asked for", name, exc_info=True)
                self._errors += 1
                self._unasked[name] = (tried + 1, self._polls + RETRY_POLLS)
                left = tried + 1 < MOST_ERRORS
                if not left:
                    self._fleet.keep(name)
                    del self._unasked[name]
                self._say(
                    f"{name} is empty: {type(error).__name__}, {'once more' if left else 'its end is given up'}"
                )
                continue
            if took is not None:
                self._unasked.pop(name, None)
                self._say(f"{name} is empty: {'asked for its end' if took else 'nobody took its end'}")

    def _ask_to_end(self, id_: str) -> bool | None:
        """Ask for the end of an executor; None if it has ended by itself."""
        return self._bridge.remove(id_) if id_ in self._bridge.alive() else None

    # -- small things

    def _failed(self, error: Exception) -> None:
        self._errors += 1
        self._errors_in_a_row += 1
        self._asked = self._errors_in_a_row < MOST_ERRORS  # once more, as soon as the query waits
        if self._errors_in_a_row == 1:
            log.warning("steering of %s failed; the query runs on", self._bridge.run_id, exc_info=True)
        if self._errors_in_a_row == MOST_ERRORS:
            with self._lock:
                last = f"{type(error).__name__}: {error}"
                reason = f"{MOST_ERRORS} errors in a row inside steering, the last {last}"
                self._loop.stand_down(StandDown(reason, "see the log for the first of them, then resume()"))
                self._state = self._state if self._state in OVER else "steering"
                self._say(str(self._loop.stood_down))

    def _end(self, state: str) -> None:
        with self._lock:
            if self._state not in OVER:
                self._state = state
                for name in self._fleet.leave(self._bridge.run_id):
                    self._say(f"{name} does not end: no query is steered any more that could ask for it")
                self._say(state)

    def _ask(self) -> None:
        self._asked = True
        self._wake.set()

    def _say(self, text: str, moves: tuple[Move, ...] = ()) -> None:
        with self._lock:
            self._changes.append(text)
            self._said += 1
        log.info("query %s: %s", self._bridge.name or self._bridge.id, text)
        for move in moves:
            log.info("  %s: %s -> %s (%s)", move.task, move.from_ or "-", move.to, move.why)

    def _open(self) -> None:
        if self._state in OVER:
            raise InputError(
                "steering",
                found=f"a handle that {'is' if self._state == 'stopped' else 'has'} {self._state}",
                expected="one that steers; call steer(query)",
            )


__all__ = ["Steering", "steer"]
