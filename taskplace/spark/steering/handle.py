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
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from taskplace.errors import InputError, UnsupportedSpark
from taskplace.model.plan import Move
from taskplace.spark.steering.config import WORKS, SteeringConfig
from taskplace.spark.steering.decision import Decision, Seen
from taskplace.spark.steering.drains import Drains
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

if TYPE_CHECKING:
    from taskplace.spark.bridge_state import StateBridge

log = logging.getLogger("taskplace.spark.steering")

POLL_SECONDS = 0.05
MOST_ERRORS = 3
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
        self._fleet = Fleet.of(bridge.app_id)
        self._loop = SteeringLoop(config)
        self._book = PriceBook(config.reload_bytes_per_second)
        self._prices = Prices()
        self._layout = Layout()
        self._planned = False  # whether the layout is that of a batch that ran
        self._executors = Executors(bridge)
        self._drains = Drains(self._fleet, bridge, self._say)
        self._places: dict[TaskId, str | None] = {}  # the coordinator's map at the last look
        # The same when a batch had just ended: where it ran. None while nobody knows.
        self._ran: dict[TaskId, str | None] | None = None
        self._expected: dict[TaskId, str | None] = {}  # the map as the last look has left it
        self._as_sent = True  # since the last batch the map has been what was expected
        self._decision: Decision | None = None
        self._batch = -1  # the last batch that was looked at, or given up
        self._tried: int | None = None  # the batch whose look is under way, or failed last
        self._looks = 0
        self._moved = 0
        self._loaded = 0  # tasks that load their state in the batch to come
        self._errors = 0
        self._errors_in_a_row = 0
        self._load_note = ""
        self._to_measure = False  # sizes are listed once all is sent, and count from the next batch on
        self._sizes: dict[TaskId, float] | None = None
        self._changes: deque[str] = deque(maxlen=CHANGES_KEPT)
        self._said = 0
        self._said_down: StandDown | None = None
        self._version = self._fleet.version  # of the fleet, at the last look
        self._state = "waiting for the first batch"
        self._shown = SteeringStatus(bridge.name or bridge.id, self._state)  # what the last look has found
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
        down = self._loop.stood_down
        with self._telling:
            changes, said = tuple(self._changes), self._said
        return replace(
            self._shown,
            state="stood down" if down and self._state == "steering" else self._state,
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
            seen = self._see(self._batch, ran=False)
            self._asked = (
                self._asked or seen.slots.keys() != before
            )  # seen here, so the thread would see no change
            return replace(self._loop.look(seen, dry=True), kept=self._kept())

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
        name = self._executors.known(executor, gone=True, ask=self._state not in OVER)
        self._drains.undrain(name)
        self._ask()

    def drained(self, executor: str | int) -> bool:
        """Return whether no task of any steered query belongs on this executor, nor ran there in its last batch.

        A move that was sent counts once it has run, so a query that waits keeps an executor from being drained until
        its next batch, and one that is steered since before its first batch until that. An executor that has ended is
        drained. Of a query that has stood down after errors nobody knows, so none is. What keeps one is in the status.
        Errors: `InputError` for one that never was there.
        """
        name = self._executors.known(executor, gone=True, ask=self._state not in OVER)
        if self._state not in OVER and name.removeprefix("executor-") not in self._bridge.alive():
            return True
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
            self._said_down = None
        self._say("resumed")
        self._ask()

    def stop(self) -> None:
        """Stop steering; the query runs on, and its state stays where it is.

        If the query waits, moves that were sent and have not run are taken back, unless the executor that they left is
        gone or drains. In the middle of a batch they may run already, and stay.
        """
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
                self._turn()
            except Exception as error:  # whatever it is, it must not reach the query, nor end this thread
                self._failed(error)
            self._wake.wait(POLL_SECONDS if self._errors_in_a_row == 0 else 1.0)
            self._wake.clear()

    def _turn(self) -> bool:
        """Look if a batch has ended, or if there is a reason to while the query waits; return whether it did."""
        failed, self._tried = self._tried, None
        self._drains.poll()
        finished = self._bridge.finished_batch()
        began = time.perf_counter()
        new = finished is not None and finished != self._batch
        if not new or finished == failed:  # one that failed is looked at once more as soon as the query waits
            self._tried = failed
            waits = (self._batch < 0 and not new) or self._bridge.between_batches()
            if not (waits and (new or self._is_asked())):
                return False
        with self._lock:
            if self._state in OVER:  # stopped meanwhile: nothing is sent or published any more
                return False
            self._version = self._fleet.version
            self._asked = False
            self._tried = finished if new else None
            self._look(self._batch if finished is None else finished, ran=new)
            self._tried = None
            self._errors_in_a_row = 0
            self._show(time.perf_counter() - began)
        if self._to_measure:
            self._measure()
        return True

    def _is_asked(self) -> bool:
        drains = self._fleet.version != self._version  # this handle or another was told
        return self._asked or drains or self._executors.changed()

    def _active(self) -> bool:
        try:
            return self._bridge.active()
        except ConnectionError:  # Spark itself has ended, and its queries with it
            return False

    def _look(self, batch: int, *, ran: bool) -> None:
        if not self._planned:
            self._discover(ran)
        if not self._layout.tasks:
            self._batch = batch
            if self._planned:
                self._fleet.publish(self._bridge.run_id, {}, {})
            return
        seen = self._see(batch, ran=ran)
        self._places = dict(seen.places)
        self._ran = self._places if ran else self._ran
        decision = self._loop.look(seen)
        self._batch = batch  # seen: whatever fails from here on, it is not looked at again
        self._decision = decision
        self._send(decision)
        alive = self._executors.there.keys() | self._executors.ending
        self._fleet.publish(
            self._bridge.run_id,
            decision.intended,
            {t: self._loop.loads.weight(t) for t in self._places},
            None if self._ran is None else {name for name in self._ran.values() if name in alive and name},
            str(decision.stood_down or ""),
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

    def _see(self, batch: int, *, ran: bool) -> Seen:
        self._executors.look()
        places, facts = self._bridge.places(self._layout), self._bridge.facts()
        self._as_sent = self._as_sent and places == self._expected
        load = None
        if ran:
            operators = self._bridge.state_operators()
            self._looks += 1
            load = self._observe()
            self._learn(batch, operators, load)
        base, others = self._fleet.beside(self._bridge.run_id)
        return Seen(
            batch=batch,
            slots={name: executor.cores for name, executor in self._executors.there.items()},
            places=places,
            draining=self._fleet.draining & self._executors.there.keys(),
            load=load,
            prices=self._prices,
            facts=facts,
            ran=ran,
            others=others,
            base=base,
            ending=self._executors.ending,
        )

    def _learn(
        self, batch: int, operators: list[Mapping[str, Any]], load: Mapping[TaskId, float] | None
    ) -> None:
        """Learn prices from a batch; of reloads only if all that loaded state in it are the tasks that were sent."""
        known = self._ran is not None and self._as_sent and batch == self._batch + 1
        loaded = self._loaded if known else None
        self._loaded, self._as_sent = 0, True
        seconds = list(load.values()) if load and self.config.load_by == "task.time" else None
        self._prices = self._book.observe(operators, len(self._layout.tasks), loaded, seconds)

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
            self._show(self._shown.seconds)

    def _send(self, decision: Decision) -> None:
        sent = [
            (task, self._executors.there[name])
            for task, name in decision.intended.items()
            if self._places[task] != name and name in self._executors.there
        ]
        self._expected = {**self._places, **{task: executor.instance for task, executor in sent}}
        self._bridge.send(self._layout, sent)
        self._moved += len(sent)
        self._loaded += len(sent)
        if decision.stood_down:
            news = decision.stood_down != self._said_down
        else:
            news = bool(decision.moves or decision.why)
        self._said_down = decision.stood_down
        text = str(decision)
        if news and (not self._changes or self._changes[-1] != text):
            self._say(text, decision.moves)

    def _take_back(self) -> None:
        """Send back the tasks that were sent elsewhere and have not run since; the query waits, or nothing is done."""
        bridge = self._bridge
        waits = bridge.active() and bridge.between_batches() and bridge.finished_batch() == self._batch
        if self._ran is None or not waits:
            return
        self._executors.look()
        may_have = {n: e for n, e in self._executors.there.items() if n not in self._fleet.draining}
        now = bridge.places(self._layout)
        back = [
            (task, may_have[name])
            for task, name in self._ran.items()
            if name in may_have
            and now.get(task) not in (None, name)
            and now[task] == self._expected.get(task)
        ]
        bridge.send(self._layout, back)
        if back:
            self._say(f"{len(back)} moves that have not run are taken back")

    # -- small things

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._errors += 1
            self._errors_in_a_row += 1
            self._as_sent = False
            if self._errors_in_a_row == 1:
                log.warning("steering of %s failed; the query runs on", self._bridge.run_id, exc_info=True)
            if self._errors_in_a_row < MOST_ERRORS:
                self._asked = True  # once more, as soon as the query waits
                return
            self._asked = False
            self._batch = self._batch if self._tried is None else self._tried
            self._ran = None
            if self._state in OVER:
                return
            last = f"{type(error).__name__}: {error}"
            reason = f"{MOST_ERRORS} errors in a row inside steering, the last {last}"
            down = StandDown(reason, "see the log for the first of them, then resume()")
            self._fleet.lose(self._bridge.run_id, str(down))
            self._state = "steering"
            if self._loop.stood_down is None:
                self._loop.stand_down(down)
                self._said_down = down
                self._say(f"stood down: {down}")

    def _end(self, state: str) -> None:
        with self._lock:
            if self._state in OVER:
                return
            if state == "stopped":
                try:
                    self._take_back()
                except Exception:
                    self._errors += 1
                    log.warning("moves that have not run could not be taken back", exc_info=True)
            self._state = state
            for name in self._fleet.leave(self._bridge.run_id):
                self._say(f"{name} does not end: no query is steered any more that could ask for it")
            self._say(state)

    def _show(self, seconds: float) -> None:
        """Put in place what the status says of the look that has just ended."""
        now, goal = Counter(self._places.values()), Counter(self._loop.goal.values())
        names = sorted({*self._executors.there, *(name for name in now if name)})
        weights = {str(t): self._loop.loads.weight(t) for t in self._places}
        self._shown = replace(
            self._shown,
            batch=self._batch,
            operators=self._layout.described,
            executors={name: (now[name], goal[name]) for name in names},
            moved=self._moved,
            waiting=self._decision.waiting if self._decision else 0,
            overruled=self._loop.watch.total,
            verdict=str(self._loop.verdict) if self._loop.verdict.moves else "",
            load=self._load_note,
            weights={name: weight for name, weight in weights.items() if weight != 1.0},
            rows=self._book.rows,
            bytes=self._book.bytes,
            seconds=seconds,
        )

    def _kept(self) -> dict[str, tuple[str, ...]]:
        """Return what keeps draining executors that are not known to have gone."""
        gone = self._executors.met - self._executors.there.keys() - self._executors.ending
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
        if self._state in OVER:
            raise InputError(
                "steering",
                found=f"a handle that {'is' if self._state == 'stopped' else 'has'} {self._state}",
                expected="one that steers; call steer(query)",
            )


__all__ = ["Steering", "steer"]
