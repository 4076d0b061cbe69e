"""A look: what there is to see after a batch, what to do about it, and what is sent.

This joins the parts: the bridge says what is there, the loop decides, the fleet is told, and prices and loads are
learned on the way. When to look is the handle's business, and so is what to do about an error: it may come from any
call to Spark, and a look that failed before its decision may be taken once more for the same batch.

Not thread-safe: whoever calls a method holds the handle's lock. Attributes may be read without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from taskplace.model.plan import Move
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.decision import Decision, Seen
from taskplace.spark.steering.executors import Executors
from taskplace.spark.steering.layout import Layout
from taskplace.spark.steering.loop import SteeringLoop
from taskplace.spark.steering.measured_costs import MeasuredCosts
from taskplace.spark.steering.move_benefit import Prices
from taskplace.spark.steering.observe import observed_load
from taskplace.spark.steering.overrides import StandDown
from taskplace.spark.steering.status import SteeringStatus
from taskplace.spark.steering.steered_queries import SteeredQueries
from topology.ids import TaskId

if TYPE_CHECKING:
    from taskplace.spark.bridge_state import StateBridge

EARLY_LOOKS = (2, 3, 4, 5, 6)
"""Batches whose load is observed whatever the interval, so that there is something to go by; the first one warms up."""


class SteeringRounds:
    """The looks at one query, and what is remembered from one to the next.

    Lifetime: `loop` and `layout` are replaced together, when the operators have been read. `batch` is the last one
    that was looked at, or given up. `ran` is where its tasks ran, None while nobody knows; `places` is the
    coordinator's map at the last look, and `_expected` as that has left it; `_as_sent` is whether it has been so since
    a batch was seen. `_left` is where tasks were that have been sent elsewhere since then; `_sure_from` is the first
    batch of which is known what it loads. `state` is "waiting for the first batch", "steering" or "nothing to steer".
    """

    def __init__(
        self,
        bridge: StateBridge,
        config: SteeringConfig,
        fleet: SteeredQueries,
        executors: Executors,
        say: Callable[[str, tuple[Move, ...]], None],
    ) -> None:
        self.loop = SteeringLoop(config)
        self.layout = Layout()
        self.book = MeasuredCosts(config.reload_bytes_per_second)
        self.prices = Prices()
        self.state = "waiting for the first batch"
        self.batch = -1
        self.places: dict[TaskId, str | None] = {}
        self.ran: dict[TaskId, str | None] | None = None
        self.to_measure = False  # sizes are listed once all is sent, and count from the next batch on
        self._config, self._bridge, self._fleet, self._executors = config, bridge, fleet, executors
        self._say = say
        self._planned = False  # whether the layout is that of a batch that ran
        self._expected: dict[TaskId, str | None] = {}
        self._as_sent = False
        self._decision: Decision | None = None
        self._count = 0
        self._moved = 0
        self._left: dict[TaskId, str | None] = {}
        self._sure_from = 0
        self._sizes: dict[TaskId, float] | None = None
        self._load_note = ""
        self._said = ""
        self._said_down: StandDown | None = None

    def look(self, batch: int, *, ran: bool) -> None:
        """Look once, after `batch`; `ran`: it has ended since the last look."""
        if not self._planned:
            self._discover(ran)
        if not self.layout.tasks:
            self.batch = batch
            if self._planned:
                self._fleet.publish(self._bridge.run_id, {}, {})
            return
        version = self._fleet.version  # a drain that is asked for from here on may be overlooked
        seen = self._see(batch, ran=ran)
        self.places = dict(seen.places)
        if ran:
            self.ran = self.places
            went = (t for t, at in self._left.items() if self.places.get(t) not in (None, at))
            self._moved += sum(self.places[t] == self._expected.get(t) for t in went)
            self._left = {}
        decision = self.loop.look(seen)
        self.batch = batch  # seen: whatever fails from here on, it is not looked at again
        self._decision = decision
        alive = self._executors.there.keys() | self._executors.ending
        self._fleet.publish(
            self._bridge.run_id,
            {**dict.fromkeys(self.places), **decision.intended},
            {t: self.loop.loads.weight(t) for t in self.places},
            None if self.ran is None else {name for name in self.ran.values() if name in alive and name},
            str(decision.stood_down or ""),
            version,
            alive,
        )
        self._send(decision)

    def plan(self) -> Decision:
        """Return what would be done now, from scratch."""
        return self.loop.look(self._see(self.batch, ran=False), dry=True)

    def resume(self) -> None:
        """Steer again after a stand-down."""
        self.loop.resume()
        self._said, self._said_down = "", None

    def empty(self, instance: str) -> bool:
        """Return whether no task ran on `instance` in the last batch; False while nobody knows."""
        known = self.ran is not None or self.state == "nothing to steer"
        return known and instance not in (self.ran or {}).values()

    def missed(self) -> None:
        """Take note that a look has failed: what happens until the next one teaches nothing."""
        self._as_sent = False

    def give_up(self, batch: int | None, down: StandDown) -> None:
        """Stand down, and look at `batch` no more; nobody knows any longer where tasks run."""
        if batch is not None:
            self.batch, self._left = batch, {}  # what was sent before has run in it, or has not
        self.ran = None
        self.state = "steering"
        self._fleet.lose(self._bridge.run_id, str(down))
        if self.loop.stood_down is None:
            self.loop.stand_down(down)
            self._said_down = down
            self._say(f"stood down: {down}", ())

    def _discover(self, ran: bool) -> None:
        """Find out what there is to steer: roughly before the first batch, exactly after it."""
        found = self._bridge.layout(planned=ran)
        if found is None:
            return
        self._planned = ran
        stood_down = self.loop.stood_down
        self.layout, self.loop = found, SteeringLoop(self._config)
        self.loop.stood_down = stood_down  # until resume, whatever was found out since
        if found.tasks or ran:
            self.state = "steering" if found.tasks else "nothing to steer"
            self._say("; ".join(found.described) or "no stateful operators", ())

    def _see(self, batch: int, *, ran: bool) -> Seen:
        self._executors.look()
        places, facts = self._bridge.places(self.layout), self._bridge.facts()
        self._as_sent = self._as_sent and places == self._expected
        load = None
        if ran:
            operators = self._bridge.state_operators()
            self._count += 1
            load = self._observe()
            self._learn(batch, operators, load)
        base, others = self._fleet.beside(self._bridge.run_id)
        return Seen(
            batch=batch,
            slots={name: executor.cores for name, executor in self._executors.there.items()},
            places=places,
            draining=self._fleet.draining & self._executors.there.keys(),
            load=load,
            prices=self.prices,
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
        known = self._as_sent and batch == self.batch + 1 and batch >= self._sure_from
        loaded = self._on_the_way() if known else None
        self._as_sent = True
        seconds = list(load.values()) if load and self._config.load_by == "task.time" else None
        self.prices = self.book.observe(operators, len(self.layout.tasks), loaded, seconds)

    def _observe(self) -> dict[TaskId, float] | None:
        """Return what is observed of each task in the batch that has just ended, if it is due."""
        due = self._count in EARLY_LOOKS or self._count % self._config.load_every_batches == 0
        if self._config.load_by == "state.size":
            self.to_measure = due
            found, self._sizes = self._sizes, None
            return found
        if not due:
            return None
        found, self._load_note = observed_load(self._bridge, self.layout, self._config.load_by)
        return found

    def measure(self) -> Callable[[], None]:
        """List the sizes of states, which takes long; return what takes note of them, to be called under the lock."""
        found, note = observed_load(self._bridge, self.layout, self._config.load_by)

        def note_sizes() -> None:
            self.to_measure, self._sizes, self._load_note = False, found, note

        return note_sizes

    def _send(self, decision: Decision) -> None:
        sent = [
            (task, self._executors.there[name])
            for task, name in decision.intended.items()
            if self.places[task] != name and name in self._executors.there
        ]
        self._expected = {**self.places, **{task: executor.instance for task, executor in sent}}
        self._left = {**{task: self.places[task] for task, _ in sent}, **self._left}
        self._bridge.send(self.layout, sent)
        if sent and not self._waits():
            # The batch that runs may have asked before, so they load in it or in the next one, and the map, which says
            # what was sent, does not tell.
            self._sure_from = self._finished() + 3
        if decision.stood_down:
            news = decision.stood_down != self._said_down
        else:
            news = bool(decision.moves or decision.why)
        self._said_down = decision.stood_down
        text = str(decision)
        if news and text != self._said:
            self._say(text, decision.moves)
            self._said = text

    def _on_the_way(self) -> int:
        """Return how many tasks are to load their state elsewhere in the batch to come; there and back is no move."""
        return sum(self._expected.get(task) != at for task, at in self._left.items())

    def _finished(self) -> int:
        finished = self._bridge.finished_batch()
        return -1 if finished is None else finished

    def _waits(self) -> bool:
        """Return whether no batch has begun since the one that was looked at."""
        return self._bridge.between_batches() and self._finished() == self.batch

    def take_back(self) -> None:
        """Send back the tasks that were sent elsewhere and have not run since; the query waits, or nothing is done."""
        bridge = self._bridge
        if not (bridge.active() and self._waits()):
            return
        self._executors.look()
        may_have = {n: e for n, e in self._executors.there.items() if n not in self._fleet.draining}
        now = bridge.places(self.layout)
        back = [
            (task, may_have[name])
            for task, name in self._left.items()
            if name in may_have
            and now.get(task) not in (None, name)
            and now[task] == self._expected.get(task)
        ]
        if back and self._waits():  # still: all that was asked for has taken a while
            bridge.send(self.layout, back)
            self._say(f"{len(back)} moves that have not run are taken back", ())

    def show(self, before: SteeringStatus, seconds: float) -> SteeringStatus:
        """Return what the status says of the look that has just ended."""
        now, goal = Counter(self.places.values()), Counter(self.loop.goal.values())
        names = sorted({*self._executors.there, *(name for name in now if name)})
        weights = {str(t): self.loop.loads.weight(t) for t in self.places}
        return replace(
            before,
            batch=self.batch,
            operators=self.layout.described,
            executors={name: (now[name], goal[name]) for name in names},
            moved=self._moved + self._on_the_way(),
            waiting=self._decision.waiting if self._decision else 0,
            overruled=self.loop.watch.total,
            verdict=str(self.loop.verdict) if self.loop.verdict.moves else "",
            load=self._load_note,
            weights={name: weight for name, weight in weights.items() if weight != 1.0},
            rows=self.book.rows,
            bytes=self.book.bytes,
            seconds=seconds,
        )
