"""Runs steering rounds: observe, decide, publish, send, log.

Only this module connects the parts: `observe` reads Spark, `decide` is pure, the decision is published to the other
queries and sent to Spark. `schedule` decides when a round is due. `steering` handles errors: any call to Spark may
fail, and a round that failed before its decision may be repeated for the same batch.

Not thread-safe: the caller holds the handle's lock. `memory` is immutable and may be read without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from taskplace.model.plan import Move
from taskplace.spark.steering.application import SteeredApplication
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.decide import StandDown, SteeringState, decide, dry_run
from taskplace.spark.steering.measurements import Load, measure_load
from taskplace.spark.steering.rounds import Observed, RoundMemory, observe
from taskplace.spark.steering.status import Decision, LoggedDecisions, SteeringStatus

LogEvent = Callable[[str, tuple[Move, ...]], None]


class SteeringRounds:
    """The rounds of one query. Lifetime: `memory` is replaced by each round."""

    def __init__(self, app: SteeredApplication, config: SteeringConfig, log_event: LogEvent) -> None:
        self.config = config
        self.memory = RoundMemory.empty(config)
        self._app = app
        self._log_event = log_event

    def run(self, batch: int, *, ran: bool) -> None:
        """Run one round after `batch`. `ran`: the batch has ended since the last round."""
        if not self.memory.observed.layout_final:
            self._discover(ran=ran)
        if not self.memory.observed.layout.tasks:
            self._remember(replace(self.memory.observed, batch=batch))
            if self.memory.observed.layout_final:
                self._app.queries.publish(self._app.run_id, {}, {})
            return
        # Read the version first: this round may miss a drain that is requested after this line.
        drains_version = self._app.queries.drains_version
        seen, observed, learned = observe(self._app, self.config, self.memory, batch=batch, ran=ran)
        decision, state = decide(self.config, self.memory.state, seen)
        # The decision is remembered here: if the rest of the round fails, the batch is not observed again.
        self.memory = replace(self.memory, observed=observed, learned=learned, state=state)
        self._publish(decision, drains_version)
        self._send(decision)
        self._log(decision)

    def plan(self) -> Decision:
        """Return the decision that a fresh start would make now; nothing is sent or remembered."""
        batch = self.memory.observed.batch
        seen, _, _ = observe(self._app, self.config, self.memory, batch=batch, ran=False)
        return dry_run(self.config, self.memory.state, seen)

    def resume(self) -> None:
        """End a stand-down."""
        logged = LoggedDecisions(self.memory.logged.decision)
        self.memory = replace(self.memory, state=self.memory.state.resumed(), logged=logged)

    # -- errors

    def failed(self) -> None:
        """Remember that a round has failed: changes until the next round are not used for learning."""
        observed = self.memory.observed
        self._remember(replace(observed, sent=observed.sent.disturbed()))

    def give_up(self, batch: int | None, why: StandDown) -> None:
        """Stand down, without observing `batch`. From now on it is unknown where tasks run."""
        observed = replace(self.memory.observed, ran=None)
        if batch is not None:
            observed = replace(observed, batch=batch, sent=observed.sent.abandoned())
        self._remember(observed)
        self._app.queries.publish_unknown(self._app.run_id, str(why))
        if self.memory.state.stood_down is None:
            self.memory = replace(
                self.memory,
                state=replace(self.memory.state, stood_down=why),
                logged=replace(self.memory.logged, stood_down=why),
            )
            self._log_event(f"stood down: {why}", ())

    # -- sizes of states, which take long to list

    def read_sizes(self) -> tuple[Load | None, str]:
        """List the sizes of states. Needs no lock; the result is for `note_sizes`."""
        return measure_load(self._app.bridge, self.memory.observed.layout, self.config.load_by)

    def note_sizes(self, sizes: Load | None, note: str) -> None:
        """Remember the sizes of states for the next batch."""
        learned = self.memory.learned
        learned = replace(learned, sampling=learned.sampling.with_sizes(sizes, note))
        self.memory = replace(self.memory, learned=learned)

    # -- the end

    def take_back(self) -> None:
        """Send back the tasks that were sent elsewhere and have not run since. Does nothing unless the query waits."""
        app, observed = self._app, self.memory.observed
        if not (app.bridge.active() and app.waits_after(observed.batch)):
            return
        app.executors.refresh()
        usable = {n: e for n, e in app.executors.present.items() if n not in app.queries.draining}
        origins = observed.sent.to_return(app.bridge.places(observed.layout), usable)
        if origins and app.waits_after(observed.batch):  # again, since reading the places took a while
            app.bridge.send(observed.layout, [(task, usable[name]) for task, name in origins.items()])
            self._log_event(f"{len(origins)} moves that have not run yet are reverted", ())

    def describe(self, before: SteeringStatus, seconds: float) -> SteeringStatus:
        """Return the status after a round that took so many seconds."""
        observed, state = self.memory.observed, self.memory.state
        costs, last = self.memory.learned.costs, self.memory.logged.decision
        running, intended = Counter(observed.places.values()), Counter(state.goal.places.values())
        names = sorted({*self._app.executors.present, *(name for name in running if name)})
        weights = {str(task): state.weights.of(task) for task in observed.places}
        return replace(
            before,
            batch=observed.batch,
            operators=observed.layout.described,
            executors={name: (running[name], intended[name]) for name in names},
            moved=observed.sent.moved + observed.sent.on_the_way,
            waiting=last.waiting if last else 0,
            overruled=state.watch.total,
            verdict=str(state.verdict) if state.verdict.moves else "",
            load=self.memory.learned.sampling.note,
            weights={name: weight for name, weight in weights.items() if weight != 1.0},
            rows=costs.rows,
            bytes=costs.bytes,
            seconds=seconds,
        )

    # -- the steps of a round

    def _discover(self, *, ran: bool) -> None:
        """Read the layout: an approximation before the first batch, the exact one after a batch."""
        layout = self._app.bridge.layout(planned=ran)
        if layout is None:
            return
        state = SteeringState(stood_down=self.memory.state.stood_down)  # which lasts until it is resumed
        self.memory = replace(self.memory, state=state)
        self._remember(replace(self.memory.observed, layout=layout, layout_final=ran))
        if layout.tasks or ran:
            self._log_event("; ".join(layout.described) or "no stateful operators", ())

    def _publish(self, decision: Decision, drains_version: int) -> None:
        """Publish to the other queries where the tasks of this query belong, and where they ran."""
        observed, executors = self.memory.observed, self._app.executors
        alive = executors.present.keys() | executors.ending
        ran = None if observed.ran is None else {n for n in observed.ran.values() if n and n in alive}
        self._app.queries.publish(
            self._app.run_id,
            {**dict.fromkeys(observed.places), **decision.intended},
            {task: self.memory.state.weights.of(task) for task in observed.places},
            ran=ran,
            stood_down=str(decision.stood_down or ""),
            drains_version=drains_version,
            alive=alive,
        )

    def _send(self, decision: Decision) -> None:
        """Send the tasks that should run elsewhere. They are remembered first, because sending may fail half-way."""
        app, observed = self._app, self.memory.observed
        moves = {
            task: name
            for task, name in decision.intended.items()
            if observed.places[task] != name and name in app.executors.present
        }
        sent = observed.sent.send(observed.places, moves)
        self._remember(replace(observed, sent=sent))
        app.bridge.send(observed.layout, [(t, app.executors.present[name]) for t, name in moves.items()])
        if moves and not app.waits_after(observed.batch):
            self._remember(replace(observed, sent=sent.sent_late(app.finished_batch())))

    def _log(self, decision: Decision) -> None:
        logged = self.memory.logged
        if text := logged.text_to_log(decision):
            self._log_event(text, decision.moves)
        self.memory = replace(self.memory, logged=logged.add(decision))

    def _remember(self, observed: Observed) -> None:
        self.memory = replace(self.memory, observed=observed)
