"""Runs the rounds of one query: observe, decide, publish, send, log.

Only this module connects the parts: `decide` is pure, the decision is published to the other queries and sent to Spark.
The state from one round to the next is one immutable value, which a round replaces after its decision. So a failed
round leaves no partial change and may be repeated for the same batch, and other threads read a consistent state without
a lock.

Spark's map of state stores shows a task on its new executor as soon as it is sent. So the map alone does not show where
a task really runs, nor which tasks load their state in the next batch; `SentMoves` remembers what is needed for both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from taskplace.model.plan import Move
from taskplace.spark.steering.application import PublishedTasks, SteeredApplication
from taskplace.spark.steering.config import LoadBy, SteeringConfig
from taskplace.spark.steering.decide import SteeringState, decide, dry_run
from taskplace.spark.steering.layout import QueryLayout
from taskplace.spark.steering.measurements import Load, LoadSampling, MeasuredCosts, measure_load
from taskplace.spark.steering.observation import ExecutorSlots, Observation
from taskplace.spark.steering.status import Decision, StandDown, SteeringPhase
from topology.tasks import TaskId

Places = Mapping[TaskId, str | None]
LogEvent = Callable[[str, tuple[Move, ...]], None]

UNCERTAIN_BATCHES = 3
"""After moves that were sent while a batch was running, the loads of a batch are known again this many batches after
the last one that had ended. The tasks load in the running batch or in the next one, and the map does not show which.
"""


@dataclass(frozen=True)
class SentMoves:
    """The tasks that were sent and have not run. Immutable.

    `expected`: Spark's map after the last send. `origins`: for each task that was sent elsewhere since the last batch,
    its place before. `undisturbed`: the map was as expected in all rounds since a batch was observed. `certain_from`:
    the first batch for which it is known which tasks load their state. `moved`: the number of tasks that have run
    where they were sent.
    """

    expected: Places = field(default_factory=dict)
    origins: Places = field(default_factory=dict)
    undisturbed: bool = False
    certain_from: int = 0
    moved: int = 0

    @property
    def on_the_way(self) -> int:
        """The number of tasks that will load their state elsewhere in the next batch; there and back is no move."""
        return sum(self.expected.get(task) != at for task, at in self.origins.items())

    def observed(self, places: Places) -> SentMoves:
        """Return the moves after a round has read Spark's map."""
        return replace(self, undisturbed=self.undisturbed and places == self.expected)

    def loaded_in(self, batch: int, *, after: int) -> int | None:
        """Return how many tasks loaded their state in `batch`, None if unknown. `after`: the batch observed before."""
        certain = self.undisturbed and batch == after + 1 and batch >= self.certain_from
        return self.on_the_way if certain else None

    def after_batch(self, places: Places) -> SentMoves:
        """Return the moves that are left after a batch; `places`: where its tasks ran."""
        ran = [task for task, at in self.origins.items() if places.get(task) not in (None, at)]
        arrived = sum(places[task] == self.expected.get(task) for task in ran)
        return replace(self, origins={}, undisturbed=True, moved=self.moved + arrived)

    def send(self, places: Places, moves: Mapping[TaskId, str]) -> SentMoves:
        """Return these moves with new ones; `places`: Spark's map before."""
        origins = {**{task: places[task] for task in moves}, **self.origins}
        return replace(self, expected={**places, **moves}, origins=origins)

    def to_return(self, now: Places, usable: Collection[str]) -> dict[TaskId, str]:
        """Return the tasks to send back, each with its origin: those that `now` are still where they were sent."""
        sent = {task: name for task, name in now.items() if name and name == self.expected.get(task)}
        return {
            task: at for task, at in self.origins.items() if at and at in usable and sent.get(task, at) != at
        }


@dataclass(frozen=True)
class RoundMemory:
    """Everything that one round passes to the next. Immutable.

    Observed: `layout`, the operators and their tasks; `layout_final`: it was read after a batch, so it does not change.
    `batch`: the last batch after which a round decided, or that was given up; -1 before the first. `places`: Spark's
    map of tasks at the last round. `ran`: where the tasks ran in the last batch, None if unknown. `sent`: the moves
    that have not run. Learned: `costs` and `sampling`. Decided: `state`, and the last `decision`. Logged: the text of
    the last decision that was logged, and the stand-down, None after a decision without one.
    """

    costs: MeasuredCosts
    sampling: LoadSampling = field(default_factory=LoadSampling)
    layout: QueryLayout = field(default_factory=QueryLayout)
    layout_final: bool = False
    batch: int = -1
    places: Places = field(default_factory=dict)
    ran: Places | None = None
    sent: SentMoves = field(default_factory=SentMoves)
    state: SteeringState = field(default_factory=SteeringState)
    decision: Decision | None = None
    logged: str = ""
    logged_stand_down: StandDown | None = None

    @property
    def phase(self) -> SteeringPhase:
        """The phase of steering: waiting, steering, stood down, or without anything to steer."""
        if self.layout_final and not self.layout.tasks:
            return SteeringPhase.NOTHING_TO_STEER
        if self.state.stood_down:
            return SteeringPhase.STOOD_DOWN
        return SteeringPhase.STEERING if self.layout.tasks else SteeringPhase.WAITING

    def empty_of(self, instance: str) -> bool:
        """Return whether no task ran on `instance` in the last batch; False if that is unknown."""
        if self.ran is None:
            return self.phase is SteeringPhase.NOTHING_TO_STEER
        return instance not in self.ran.values()


class SteeringRounds:
    """The rounds of one query. Lifetime: each round replaces `memory`. Not thread-safe: the caller holds a lock."""

    def __init__(self, app: SteeredApplication, config: SteeringConfig, log_event: LogEvent) -> None:
        self.config = config
        self.memory = RoundMemory(MeasuredCosts(config.reload_bytes_per_second))
        self._app = app
        self._log_event = log_event

    def run(self, batch: int, *, ran: bool) -> None:
        """Run one round after `batch`. `ran`: the batch has ended since the last round."""
        if not self.memory.layout_final:
            self._discover(ran=ran)
        if not self.memory.layout.tasks:
            self._remember(batch=batch)
            if self.memory.layout_final:
                self._app.queries.publish(self._app.run_id, PublishedTasks(ran=frozenset()))
            return
        # Read the version first: this round may miss a drain that is requested after this line.
        drains_version = self._app.queries.drains_version
        observation, memory = self._observe(batch, ran=ran)
        decision, state = decide(self.config, memory.state, observation)
        # The decision is remembered here: if the rest of the round fails, the batch is not observed again.
        self.memory = replace(memory, state=state)
        self._publish(decision, drains_version)
        self._send(decision)
        self._log(decision)

    def plan(self) -> Decision:
        """Return the decision that a fresh start would make now; nothing is sent or remembered."""
        observation, _ = self._observe(self.memory.batch, ran=False)
        return dry_run(self.config, self.memory.state, observation)

    def resume(self) -> None:
        """End a stand-down."""
        self._remember(state=self.memory.state.resumed(), logged="", logged_stand_down=None)

    def failed(self) -> None:
        """Remember that a round has failed: changes until the next round are not used for learning."""
        self._remember(sent=replace(self.memory.sent, undisturbed=False))

    def give_up(self, batch: int | None, why: StandDown) -> None:
        """Stand down, without observing `batch`. From now on it is unknown where tasks run."""
        self._remember(ran=None)
        if batch is not None:  # it is unknown whether the moves ran in it
            self._remember(batch=batch, sent=replace(self.memory.sent, origins={}))
        self._app.queries.publish_unknown(self._app.run_id, str(why))
        if self.memory.state.stood_down is None:
            self._remember(state=replace(self.memory.state, stood_down=why), logged_stand_down=why)
            self._log_event(f"stood down: {why}", ())

    def read_sizes(self) -> tuple[Load | None, str]:
        """List the sizes of states, which takes long and needs no lock; the result is for `note_sizes`."""
        return measure_load(self._app.bridge, self.memory.layout, self.config.load_by)

    def note_sizes(self, sizes: Load | None, note: str) -> None:
        """Remember the sizes of states for the next batch."""
        self._remember(sampling=replace(self.memory.sampling, sizes_due=False, sizes=sizes, note=note))

    def take_back(self) -> None:
        """Send back the tasks that were sent elsewhere and have not run since. Does nothing unless the query waits."""
        app, memory = self._app, self.memory
        if not (app.bridge.active() and app.waits_after(memory.batch)):
            return
        app.refresh()
        usable = {n: e for n, e in app.present.items() if n not in app.queries.draining}
        origins = memory.sent.to_return(app.bridge.places(memory.layout), usable)
        if origins and app.waits_after(memory.batch):  # again, since reading the places took a while
            app.bridge.send(memory.layout, [(task, usable[name]) for task, name in origins.items()])
            self._log_event(f"{len(origins)} moves that have not run yet are reverted", ())

    # -- the steps of a round

    def _discover(self, *, ran: bool) -> None:
        """Read the layout: an approximation before the first batch, the exact one after a batch."""
        layout = self._app.bridge.layout(planned=ran)
        if layout is None:
            return
        state = SteeringState(stood_down=self.memory.state.stood_down)  # which lasts until it is resumed
        self._remember(state=state, layout=layout, layout_final=ran)
        if layout.tasks or ran:
            self._log_event("; ".join(layout.described) or "no stateful operators", ())

    def _observe(self, batch: int, *, ran: bool) -> tuple[Observation, RoundMemory]:
        """Return the observation for a round after `batch`, and the memory updated with it. Spark may take seconds.

        Refreshes the executors; changes nothing else. Errors: any of Spark's.
        """
        app, before = self._app, self.memory
        app.refresh()
        places, settings = app.bridge.places(before.layout), app.bridge.settings()
        sent = before.sent.observed(places)
        memory, load = replace(before, batch=batch, places=places, sent=sent), None
        if ran:
            load, sampling = before.sampling.after_batch(app.bridge, before.layout, self.config)
            costs = before.costs.after_batch(
                app.bridge.state_operators(),
                tasks=len(before.layout.tasks),
                loaded=sent.loaded_in(batch, after=before.batch),
                seconds=tuple(load.values()) if load and self.config.load_by == LoadBy.TASK_TIME else (),
            )
            memory = replace(
                memory, ran=places, sent=sent.after_batch(places), costs=costs, sampling=sampling
            )
        observation = Observation(
            batch=batch,
            cluster=ExecutorSlots(
                slots={name: executor.cores for name, executor in app.present.items()},
                draining=app.queries.draining & app.present.keys(),
                ending=app.ending,
            ),
            places=places,
            load=load,
            costs=memory.costs.costs,
            settings=settings,
            ran=ran,
            neighbours=app.queries.neighbours(app.run_id),
        )
        return observation, memory

    def _publish(self, decision: Decision, drains_version: int) -> None:
        """Publish to the other queries where the tasks of this query belong, and where they ran."""
        memory, alive = self.memory, self._app.present.keys() | self._app.ending
        tasks = PublishedTasks(
            places={**dict.fromkeys(memory.places), **decision.intended},
            weights={task: memory.state.weights.of(task) for task in memory.places},
            ran=None if memory.ran is None else frozenset(n for n in memory.ran.values() if n in alive and n),
            stood_down=str(decision.stood_down or ""),
            drains_version=drains_version,
        )
        self._app.queries.publish(self._app.run_id, tasks, alive)

    def _send(self, decision: Decision) -> None:
        """Send the tasks that should run elsewhere. They are remembered first, because sending may fail half-way."""
        app, memory = self._app, self.memory
        moves = {
            task: name
            for task, name in decision.intended.items()
            if memory.places[task] != name and name in app.present
        }
        sent = memory.sent.send(memory.places, moves)
        self._remember(sent=sent)
        app.bridge.send(memory.layout, [(t, app.present[name]) for t, name in moves.items()])
        if moves and not app.waits_after(memory.batch):  # a batch may have been running meanwhile
            self._remember(sent=replace(sent, certain_from=app.finished_batch() + UNCERTAIN_BATCHES))

    def _log(self, decision: Decision) -> None:
        """Log the decision if it adds something to what was logged."""
        memory, text, down = self.memory, str(decision), decision.stood_down
        new = down != memory.logged_stand_down if down else decision.moves or decision.why
        if new and text != memory.logged:
            self._log_event(text, decision.moves)
            self._remember(logged=text)
        self._remember(decision=decision, logged_stand_down=down)

    def _remember(self, **values: Any) -> None:
        self.memory = replace(self.memory, **values)
