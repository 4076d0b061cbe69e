"""Decides, after a batch, where each task runs next: a pure function from a state and an observation.

    decision, state = decide(config, state, seen)

All values are immutable, and there is no clock, no thread and no Spark. The same arguments give the same result,
and a dry run is a call with a fresh state whose result is dropped.

Properties:
- A goal is planned once. It stays until it is reached, or until executors, drains, tasks or weights have changed.
  With different weights, a new goal after each step could move tasks in circles.
- At most `max.moves.per.batch` tasks leave a running executor between two batches that ran, however many rounds there
  are in between. Tasks without a running executor load their state anyway: they are sent at once and not counted.
- Tasks leave a draining executor at any cost. All other moves are made only if they are worth it.
- If Spark obeys, the goal is reached after ceil(moves / `max.moves.per.batch`) batches, and then nothing moves.
- Steered queries stop moving tasks only when all their tasks together are balanced. If tasks of other queries have
  moved since the goal was planned, and no task of this query is on its way, a new goal is planned. The tasks of a
  query that has stood down stay where they were at the stand-down; the other queries are balanced around them.
- After a stand-down no task moves until `SteeringState.resumed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from taskplace.rebalance.triggers import Trigger
from taskplace.spark.steering.config import LoadBy, SteeringConfig
from taskplace.spark.steering.decide import OverrideWatch, StandDown, hopeless
from taskplace.spark.steering.measurements import TaskWeights, WeightBackoff
from taskplace.spark.steering.moves import Verdict, choose_moves, judge, move_of, pending_moves
from taskplace.spark.steering.observation import NeighbourTask, Observation
from taskplace.spark.steering.status import Decision
from taskplace.spark.steering.target import Goal, plan_goal, reasons_to_replan
from topology.tasks import TaskId


@dataclass(frozen=True)
class SteeringState:
    """The state that one round passes to the next.

    Learned: `weights`, and `backoff`, how long changed weights wait. Decided: `goal`, with the `verdict` on the
    moves to it, and `stood_down`, which stays until `resumed`. Sent: `watch`, where tasks were sent and whether
    Spark obeyed, and `spent`, the moves since the last batch ran.
    """

    weights: TaskWeights = field(default_factory=TaskWeights)
    backoff: WeightBackoff = field(default_factory=WeightBackoff)
    goal: Goal = field(default_factory=Goal)
    verdict: Verdict = field(default_factory=Verdict)
    stood_down: StandDown | None = None
    watch: OverrideWatch = field(default_factory=OverrideWatch)
    spent: int = 0

    def resumed(self) -> SteeringState:
        """Return the state that ends a stand-down: patience is full again, and the next round plans a goal."""
        return replace(self, stood_down=None, watch=OverrideWatch(), goal=replace(self.goal, plan=None))


def decide(config: SteeringConfig, state: SteeringState, seen: Observation) -> tuple[Decision, SteeringState]:
    """Return the decision after a batch, and the state for the next round.

    >>> from taskplace.spark.steering.measurements import Costs
    >>> from taskplace.spark.steering.observation import ExecutorSlots
    >>> piled = {TaskId(0, p): "executor-0" for p in range(4)}
    >>> cluster = ExecutorSlots({"executor-0": 2, "executor-1": 2})
    >>> seen = Observation(batch=0, cluster=cluster, places=piled, costs=Costs(task=1.0, reload=0.1))
    >>> decision, state = decide(SteeringConfig(max_moves_per_batch=1), SteeringState(), seen)
    >>> print(decision)
    batch 0: 1 move now, 1 later; start: 4 tasks on 2 instances; 2 moves gain 2.000 s a batch, \
cost 0.200 s of reloading: worth it
    """
    state = _check_overrides(config, state, seen)
    state, weights_changed = _weigh(config, state, seen)
    if state.stood_down or not seen.cluster.slots or not seen.places:
        return _stay(state, seen)
    state, why = _aim(config, state, seen, weights_changed=weights_changed)
    return _step(config, state, seen, why)


def dry_run(config: SteeringConfig, state: SteeringState, seen: Observation) -> Decision:
    """Return the decision that a fresh state with the current weights would give."""
    decision, _ = decide(config, SteeringState(weights=state.weights), replace(seen, ran=False, load=None))
    return decision


# -- the steps of a decision, in order


def _check_overrides(config: SteeringConfig, state: SteeringState, seen: Observation) -> SteeringState:
    """Compare where tasks ran with where they were sent; stand down if Spark has overruled too much."""
    if seen.ran:
        state = replace(state, watch=state.watch.verify(seen.places, seen.cluster.slots), spent=0)
    overruled = state.watch.verdict(seen.facts, patience=config.patience_batches)
    return replace(state, stood_down=state.stood_down or hopeless(seen.facts) or overruled)


def _weigh(config: SteeringConfig, state: SteeringState, seen: Observation) -> tuple[SteeringState, bool]:
    """Update the weights from the measured load; return whether they may change the goal."""
    before = state.weights.only(seen.places)
    if seen.load is None or config.load_by == LoadBy.EVEN:
        return replace(state, weights=before), False
    weights = before.measured(seen.load)
    counts, backoff = state.backoff.tick(changed=weights.unusual != before.unusual)
    return replace(state, weights=weights, backoff=backoff), counts


def _stay(state: SteeringState, seen: Observation) -> tuple[Decision, SteeringState]:
    """Leave every task where it is."""
    decision = Decision(
        seen.batch,
        intended={task: name for task, name in seen.places.items() if name is not None},
        goal=dict(state.goal.places),
        overruled=state.watch.overruled if seen.ran else (),
        stood_down=state.stood_down,
    )
    return decision, replace(state, watch=state.watch.send({}))


def _aim(
    config: SteeringConfig, state: SteeringState, seen: Observation, *, weights_changed: bool
) -> tuple[SteeringState, tuple[Trigger, ...]]:
    """Plan a new goal if there is a reason, and judge the moves to it; return the reasons."""
    why = reasons_to_replan(state.goal, seen, state.weights, weights_changed=weights_changed)
    goal = state.goal
    if why or _neighbours_moved(state, seen):
        goal = plan_goal(seen, state.weights, tolerance=config.load_tolerance)
        if not why and goal.places != state.goal.places:
            why = (Trigger("queries", "tasks of others moved, or their queries stood down or resumed"),)
    state = replace(state, goal=goal)
    if why or seen.load is not None or not state.verdict.worth:
        state = replace(state, verdict=_judge(config, state, seen))
    return state, why


def _step(
    config: SteeringConfig, state: SteeringState, seen: Observation, why: tuple[Trigger, ...]
) -> tuple[Decision, SteeringState]:
    """Choose the moves of this batch."""
    goal, pending = state.goal, pending_moves(state.goal, seen)
    due = pending.due(worth=state.verdict.worth)
    limit = config.max_moves_per_batch - state.spent
    chosen = choose_moves(due, goal=goal, seen=seen, weights=state.weights, limit=limit)
    moving = {*pending.free, *chosen}
    decision = Decision(
        seen.batch,
        intended={t: goal.places[t] if t in moving else str(seen.places[t]) for t in goal.places},
        goal=dict(goal.places),
        moves=tuple(move_of(task, goal=goal, seen=seen) for task in sorted(moving)),
        waiting=len(due) - len(chosen),
        why=why,
        verdict=state.verdict,
        overruled=state.watch.overruled if seen.ran else (),
    )
    watch = state.watch.send(decision.intended)
    return decision, replace(state, watch=watch, spent=state.spent + len(chosen))


# -- helpers of the steps


def _neighbours_moved(state: SteeringState, seen: Observation) -> bool:
    """Return whether tasks of other queries moved since the goal was planned, and no own task is on its way."""
    pending = pending_moves(state.goal, seen)
    on_the_way = pending.free or pending.due(worth=state.verdict.worth)
    return not on_the_way and _where(seen.neighbours.tasks) != _where(state.goal.neighbours)


def _where(neighbours: Sequence[NeighbourTask]) -> dict[TaskId, tuple[str | None, bool]]:
    return {other.task.id: (other.place, other.fixed) for other in neighbours}


def _judge(config: SteeringConfig, state: SteeringState, seen: Observation) -> Verdict:
    """Judge the optional moves, together with the moves that the goal expects of other queries.

    The goal covers all queries, so the moves of one query alone may gain nothing. The tasks of other queries are
    assumed to cost as much as the tasks of this query.
    """
    optional = pending_moves(state.goal, seen).optional
    if not optional:
        return Verdict()
    placed = {t.id: at for t, at, _ in seen.neighbours.tasks if at is not None and at in seen.cluster.slots}
    aims = {task: state.goal.neighbour_places.get(task, at) for task, at in placed.items()}
    weights = {seen.joint(task): state.weights.of(task) for task in state.goal.places}
    weights |= {other.task.id: other.task.weight for other in seen.neighbours.tasks}
    own = {seen.joint(task): at for task, at in seen.places.items() if at is not None}
    return judge(
        seconds={task: seen.costs.task * weight for task, weight in weights.items()},
        places={**placed, **own},
        goal={**aims, **{seen.joint(task): name for task, name in state.goal.places.items()}},
        optional=[*map(seen.joint, optional), *(task for task in aims if aims[task] != placed[task])],
        slots=seen.cluster.usable,
        costs=seen.costs,
        batches=config.worth_batches,
    )
