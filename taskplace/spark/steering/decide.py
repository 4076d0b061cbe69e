"""Decides, after a batch, where each task runs next: a pure function from a state and an observation.

    decision, state = decide(config, state, observed)

All values are immutable, and there is no clock, no thread and no Spark. The same arguments give the same result,
and a dry run is a call with a fresh state whose result is dropped.

Properties:
- A target is planned once. It stays until it is reached, or until executors, drains, tasks or weights have changed.
  With different weights, a new target after each step could move tasks in circles.
- At most `max.moves.per.batch` tasks leave a running executor between two batches that ran, however many rounds there
  are in between. Tasks without a running executor load their state anyway: they are sent at once and not counted.
- Tasks leave a draining executor at any cost. All other moves are made only if they are worth it.
- If Spark obeys, the target is reached after ceil(moves / `max.moves.per.batch`) batches, and then nothing moves.
- Steered queries stop moving tasks only when all their tasks together are balanced. If tasks of other queries have
  moved since the target was planned, and no task of this query is on its way, a new target is planned. The tasks of a
  query that has stood down stay where they were at the stand-down; the other queries are balanced around them.
- After a stand-down no task moves until `SteeringState.resumed`.

A preferred location is only a preference. Spark overrules it when the executor has no free slot within
`spark.locality.wait`, and the task then reloads its state elsewhere. Sending the task back once is right. If Spark
overrules it again and again, it only costs reloads. So steering stands down, with the reason, after
`patience.batches` batches in a row in which Spark overruled the same task, or `SHARE` of all tasks. A single straggler
among hundreds of tasks is not a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from taskplace.rebalance.triggers import Trigger
from taskplace.spark.steering.config import LoadBy, SteeringConfig
from taskplace.spark.steering.layout import SparkSettings
from taskplace.spark.steering.measurements import TaskWeights, WeightBackoff
from taskplace.spark.steering.moves import Verdict, choose_moves, judge, move_of, pending_moves
from taskplace.spark.steering.observation import NeighbourTask, Observation
from taskplace.spark.steering.status import Decision, StandDown
from taskplace.spark.steering.target import Target, plan_target, reasons_to_replan
from topology.tasks import TaskId

SHORT_WAIT_MS = 1000
"""A shorter wait usually ends before a slot is free."""

SHARE = 0.25
"""If this share of all tasks ran elsewhere, they are more than stragglers."""


@dataclass(frozen=True)
class OverrideWatch:
    """Counts, batch after batch, the tasks that Spark ran elsewhere than intended. Immutable.

    `sent`: where each task was intended to run in the next batch. `overruled`: the tasks that ran elsewhere in the
    last batch. `streaks`: for each of them, the batches in a row. `many`: batches in a row with `SHARE` of all
    tasks elsewhere. `total`: overruled tasks so far.

    >>> watch, task = OverrideWatch(), TaskId(0, 0)
    >>> for _ in range(2):
    ...     watch = watch.send({task: "a"}).verify({task: "b"}, ["a", "b"])
    >>> str(watch.verdict(SparkSettings(locality_wait_ms=0), patience=2))  # doctest: +ELLIPSIS
    'spark.locality.wait is 0 ms: Spark ran 1 of 1 tasks elsewhere, 2 batches in a row; remedy: ...'
    """

    sent: Mapping[TaskId, str] = field(default_factory=dict)
    overruled: tuple[TaskId, ...] = ()
    streaks: Mapping[TaskId, int] = field(default_factory=dict)
    many: int = 0
    total: int = 0

    def send(self, intended: Mapping[TaskId, str]) -> OverrideWatch:
        """Return the watch after the places for the next batch were sent."""
        return replace(self, sent=dict(intended))

    def verify(self, places: Mapping[TaskId, str | None], alive: Collection[str]) -> OverrideWatch:
        """Return the watch after a batch that began after the last send. `places`: where the tasks ran.

        A task whose executor is not among `alive` counts as obeyed: Spark had to run it elsewhere.
        """
        elsewhere = (
            t for t, name in self.sent.items() if name in alive and places.get(t) not in (None, name)
        )
        overruled = tuple(sorted(elsewhere))
        many = bool(overruled) and len(overruled) >= SHARE * len(self.sent)
        return replace(
            self,
            overruled=overruled,
            streaks={task: self.streaks.get(task, 0) + 1 for task in overruled},
            many=self.many + 1 if many else 0,
            total=self.total + len(overruled),
        )

    def verdict(self, settings: SparkSettings, *, patience: int) -> StandDown | None:
        """Return why to stand down, None while fewer than `patience` batches in a row were overruled."""
        streak = max([self.many, *self.streaks.values()])
        if streak < patience:
            return None
        counts = f"{len(self.overruled)} of {len(self.sent)} tasks elsewhere, {streak} batches in a row"
        wait = settings.locality_wait_ms
        if wait < SHORT_WAIT_MS:
            return StandDown(
                f"spark.locality.wait is {wait} ms: Spark ran {counts}",
                "set spark.locality.wait to 3s or more when the application starts, then resume()",
            )
        return StandDown(
            f"Spark ran {counts}: their executors had no free slot within spark.locality.wait ({wait} ms), or "
            "batches follow each other faster than they can be steered",
            "give the query free slots, a longer spark.locality.wait or a trigger interval, then resume()",
        )


@dataclass(frozen=True)
class SteeringState:
    """The state that one round passes to the next.

    Learned: `weights`, and `backoff`, how long changed weights wait. Decided: `target`, with the `verdict` on the
    moves to it, and `stood_down`, which stays until `resumed`. Sent: `watch`, where tasks were sent and whether
    Spark obeyed, and `spent`, the moves since the last batch ran.
    """

    weights: TaskWeights = field(default_factory=TaskWeights)
    backoff: WeightBackoff = field(default_factory=WeightBackoff)
    target: Target = field(default_factory=Target)
    verdict: Verdict = field(default_factory=Verdict)
    stood_down: StandDown | None = None
    watch: OverrideWatch = field(default_factory=OverrideWatch)
    spent: int = 0

    def resumed(self) -> SteeringState:
        """Return the state that ends a stand-down: patience is full again, and the next round plans a target."""
        return replace(self, stood_down=None, watch=OverrideWatch(), target=replace(self.target, plan=None))


def decide(
    config: SteeringConfig, state: SteeringState, observed: Observation
) -> tuple[Decision, SteeringState]:
    """Return the decision after a batch, and the state for the next round.

    >>> from taskplace.spark.steering.measurements import Costs
    >>> from taskplace.spark.steering.observation import ExecutorSlots
    >>> piled = {TaskId(0, p): "executor-0" for p in range(4)}
    >>> cluster = ExecutorSlots({"executor-0": 2, "executor-1": 2})
    >>> observed = Observation(batch=0, cluster=cluster, places=piled, costs=Costs(task=1.0, reload=0.1))
    >>> decision, state = decide(SteeringConfig(max_moves_per_batch=1), SteeringState(), observed)
    >>> print(decision)
    batch 0: 1 move now, 1 later; start: 4 tasks on 2 instances; 2 moves gain 2.000 s a batch, \
cost 0.200 s of reloading: worth it
    """
    state = _check_overrides(config, state, observed)
    state, weights_changed = _weigh(config, state, observed)
    if state.stood_down or not observed.cluster.slots or not observed.places:
        return _stay(state, observed)
    state, why = _aim(config, state, observed, weights_changed=weights_changed)
    return _step(config, state, observed, why)


def dry_run(config: SteeringConfig, state: SteeringState, observed: Observation) -> Decision:
    """Return the decision that a fresh state with the current weights would give."""
    fresh = SteeringState(weights=state.weights)
    return decide(config, fresh, replace(observed, ran=False, load=None))[0]


# -- the steps of a decision, in order


def _check_overrides(config: SteeringConfig, state: SteeringState, observed: Observation) -> SteeringState:
    """Compare where tasks ran with where they were sent; stand down if Spark has overruled too much."""
    if observed.ran:
        state = replace(state, watch=state.watch.verify(observed.places, observed.cluster.slots), spent=0)
    overruled = state.watch.verdict(observed.settings, patience=config.patience_batches)
    return replace(state, stood_down=state.stood_down or hopeless(observed.settings) or overruled)


def _weigh(config: SteeringConfig, state: SteeringState, observed: Observation) -> tuple[SteeringState, bool]:
    """Update the weights from the measured load; return whether they may change the target."""
    before = state.weights.only(observed.places)
    if observed.load is None or config.load_by == LoadBy.EVEN:
        return replace(state, weights=before), False
    weights = before.measured(observed.load)
    counts, backoff = state.backoff.tick(changed=weights.unusual != before.unusual)
    return replace(state, weights=weights, backoff=backoff), counts


def _stay(state: SteeringState, observed: Observation) -> tuple[Decision, SteeringState]:
    """Leave every task where it is."""
    decision = Decision(
        observed.batch,
        intended={task: name for task, name in observed.places.items() if name is not None},
        target=dict(state.target.places),
        overruled=state.watch.overruled if observed.ran else (),
        stood_down=state.stood_down,
    )
    return decision, replace(state, watch=state.watch.send({}))


def _aim(
    config: SteeringConfig, state: SteeringState, observed: Observation, *, weights_changed: bool
) -> tuple[SteeringState, tuple[Trigger, ...]]:
    """Plan a new target if there is a reason, and judge the moves to it; return the reasons."""
    why = reasons_to_replan(state.target, observed, state.weights, weights_changed=weights_changed)
    target = state.target
    if why or _neighbours_moved(state, observed):
        target = plan_target(observed, state.weights, tolerance=config.load_tolerance)
        if not why and target.places != state.target.places:
            why = (Trigger("queries", "tasks of others moved, or their queries stood down or resumed"),)
    state = replace(state, target=target)
    if why or observed.load is not None or not state.verdict.worth:
        state = replace(state, verdict=_judge(config, state, observed))
    return state, why


def _step(
    config: SteeringConfig, state: SteeringState, observed: Observation, why: tuple[Trigger, ...]
) -> tuple[Decision, SteeringState]:
    """Choose the moves of this batch."""
    target, pending = state.target, pending_moves(state.target, observed)
    due = pending.due(worth=state.verdict.worth)
    limit = config.max_moves_per_batch - state.spent
    chosen = choose_moves(due, target=target, observed=observed, weights=state.weights, limit=limit)
    moving = {*pending.free, *chosen}
    decision = Decision(
        observed.batch,
        intended={t: target.places[t] if t in moving else str(observed.places[t]) for t in target.places},
        target=dict(target.places),
        moves=tuple(move_of(task, target=target, observed=observed) for task in sorted(moving)),
        waiting=len(due) - len(chosen),
        why=why,
        verdict=state.verdict,
        overruled=state.watch.overruled if observed.ran else (),
    )
    watch = state.watch.send(decision.intended)
    return decision, replace(state, watch=watch, spent=state.spent + len(chosen))


# -- helpers of the steps


def _neighbours_moved(state: SteeringState, observed: Observation) -> bool:
    """Return whether tasks of other queries moved since the target was planned, and no own task is on its way."""
    pending = pending_moves(state.target, observed)
    on_the_way = pending.free or pending.due(worth=state.verdict.worth)
    return not on_the_way and _where(observed.neighbours.tasks) != _where(state.target.neighbours)


def _where(neighbours: Sequence[NeighbourTask]) -> dict[TaskId, tuple[str | None, bool]]:
    return {other.task.id: (other.place, other.fixed) for other in neighbours}


def _judge(config: SteeringConfig, state: SteeringState, observed: Observation) -> Verdict:
    """Judge the optional moves, together with the moves that the target expects of other queries.

    The target covers all queries, so the moves of one query alone may gain nothing. The tasks of other queries are
    assumed to cost as much as the tasks of this query.
    """
    optional = pending_moves(state.target, observed).optional
    if not optional:
        return Verdict()
    placed = {
        t.id: at for t, at, _ in observed.neighbours.tasks if at is not None and at in observed.cluster.slots
    }
    aims = {task: state.target.neighbour_places.get(task, at) for task, at in placed.items()}
    weights = {observed.joint(task): state.weights.of(task) for task in state.target.places}
    weights |= {other.task.id: other.task.weight for other in observed.neighbours.tasks}
    own = {observed.joint(task): at for task, at in observed.places.items() if at is not None}
    return judge(
        seconds={task: observed.costs.task * weight for task, weight in weights.items()},
        places={**placed, **own},
        target={**aims, **{observed.joint(task): name for task, name in state.target.places.items()}},
        optional=[*map(observed.joint, optional), *(task for task in aims if aims[task] != placed[task])],
        slots=observed.cluster.usable,
        costs=observed.costs,
        batches=config.worth_batches,
    )


def hopeless(settings: SparkSettings) -> StandDown | None:
    """Return why steering cannot work with these settings, None if it can.

    >>> hopeless(SparkSettings(unload_on_commit=True)).remedy
    'set it to false and restart the query'
    """
    if not settings.unload_on_commit:
        return None
    reason = "spark.sql.streaming.stateStore.unloadOnCommit=true drops every store after every batch"
    return StandDown(reason, "set it to false and restart the query")
