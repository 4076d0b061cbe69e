"""The steering loop: see where tasks ran, decide where they belong, and send a few of them there.

The engine decides where (`taskplace.planner`), and where weights differ, `relief` lets counts give way to load; this
decides when, how many at a time, and whether it is worth it.
It is driven from outside, after each batch, knows nothing of Spark, and keeps no thread and no clock.

Properties:
- A goal is planned once, and pursued until it is reached or the world has changed (instances, drains, tasks, weights);
  planning anew after each step could go in circles where weights differ.
- At most `max.moves.per.batch` tasks leave a running instance between two batches that ran, however often is looked in
  between. Tasks whose instance is gone or gets no tasks any more, or that have run nowhere yet, load anyway: they are
  sent at once, and are not counted.
- Tasks leave a draining instance whatever it costs; all other moves are made only if they are worth it.
- Without overrules the goal is reached after ceil(moves / `max.moves.per.batch`) batches, and then nothing moves.
- Queries that are steered side by side rest only where all their tasks together are balanced: when others have moved
  since the goal was planned, and nothing of this query is on its way, the goal is planned anew. Tasks of one that has
  stood down stay where they were then, in the goal and in what it gains; the others even out around them.
- After a stand-down nothing is sent any more, until `resume`.

There are no copies but the active one, so the engine sees tasks with a copy where they ran and none elsewhere, and
its target is what counts: no step behind a warm-up is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from taskplace.model.config import PlacementConfig
from taskplace.model.plan import Move, Plan
from taskplace.model.problem import Instance, Problem, Task
from taskplace.planner import plan
from taskplace.rebalance.triggers import Situation, Trigger, drain, membership, start, tasks
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spark.steering.decision import Decision, Other, Seen, instances, joint, reason
from taskplace.spark.steering.load_leveling import by_load
from taskplace.spark.steering.move_benefit import Verdict, judge
from taskplace.spark.steering.overrides import OverrideWatch, StandDown, hopeless
from taskplace.spark.steering.task_weights import Calm, LoadHistory
from topology.ids import TaskId

RULES = (start, membership, drain, tasks)
_ENGINE = PlacementConfig(acceptable_recovery_lag=0)


class SteeringLoop:
    """Holds the goal of one query, and decides after each batch.

    Lifetime: `goal` and `verdict` change together, when there is a reason to; `stood_down` stays until `resume`;
    `_spent` counts the moves sent since a batch ran.

    >>> from taskplace.spark.steering.move_benefit import Prices
    >>> tasks, slots = [TaskId(0, p) for p in range(4)], {"executor-0": 2, "executor-1": 2}
    >>> loop = SteeringLoop(SteeringConfig(max_moves_per_batch=1))
    >>> piled = dict.fromkeys(tasks, "executor-0")
    >>> print(loop.look(Seen(0, slots, piled, prices=Prices(task=1.0, reload=0.1))))
    batch 0: 1 move now, 1 later; start: 4 tasks on 2 instances; 2 moves gain 2.000 s a batch, \
cost 0.200 s of reloading: worth it
    """

    def __init__(self, config: SteeringConfig) -> None:
        self.config = config
        self.loads = LoadHistory()
        self._calm = Calm()
        self.watch = OverrideWatch(config.patience_batches)
        self.goal: dict[TaskId, str] = {}
        self.verdict = Verdict()
        self.stood_down: StandDown | None = None
        self._plan: Plan | None = None
        self._planned_for: tuple[Instance, ...] = ()
        self._planned_tasks: frozenset[TaskId] = frozenset()
        self._planned_others: list[Other] = []
        self._others_goal: dict[TaskId, str] = {}
        self._by_load: frozenset[TaskId] = frozenset()  # tasks whose goal is not the engine's
        self._spent = 0

    def look(self, seen: Seen, *, dry: bool = False) -> Decision:
        """Return what to do after a batch; with `dry`, what would be done, from scratch, changing nothing."""
        if dry:
            trial = SteeringLoop(self.config)
            trial.loads = self.loads
            return trial.look(replace(seen, ran=False, load=None))
        overruled = self.watch.verify(seen.places, seen.slots) if seen.ran else ()
        self._spent = 0 if seen.ran else self._spent
        self.stood_down = self.stood_down or hopeless(seen.facts) or self.watch.verdict(seen.facts)
        heavier = self._observe(seen)
        if self.stood_down or not seen.slots or not seen.places:
            staying = {task: name for task, name in seen.places.items() if name is not None}
            self.watch.send({})
            return Decision(seen.batch, staying, self.goal, overruled=overruled, stood_down=self.stood_down)
        why = self._reasons(seen, heavier)
        if why:
            self._set_goal(seen)
        elif self._others_moved(seen):
            before = self.goal
            self._set_goal(seen)
            if self.goal != before:
                why = (Trigger("queries", "tasks of others moved, or their queries stood down or resumed"),)
        if why or seen.load is not None or not self.verdict.worth:
            self.verdict = self._judge(seen)
        decision = self._step(seen, why, overruled)
        self.watch.send(decision.intended)
        return decision

    def resume(self) -> None:
        """Steer again after a stand-down, with all patience."""
        self.stood_down = None
        self.watch = OverrideWatch(self.config.patience_batches)
        self._plan = None

    def stand_down(self, why: StandDown) -> None:
        """Stop moving anything."""
        self.stood_down = why

    # -- the parts of a look

    def _observe(self, seen: Seen) -> bool:
        self.loads.keep(seen.places)
        if seen.load is None or self.config.load_by == "even":
            return False
        return self._calm.tick(self.loads.observe(seen.load))

    def _reasons(self, seen: Seen, heavier: bool) -> tuple[Trigger, ...]:
        now = Situation(
            config=_ENGINE,
            plan=self._plan,
            planned_instances=self._planned_for,
            planned_tasks=self._planned_tasks,
            instances=instances(seen),
            tasks=self._tasks(seen),
            probing_due=False,
        )
        found = [trigger for rule in RULES for trigger in rule(now)]
        gone = {i.id for i in self._planned_for} - seen.slots.keys()
        if gone and gone <= seen.ending:  # so they did not leave, not yet
            left = f"{', '.join(sorted(gone))} left"
            found = [trigger for trigger in found if trigger.detail != left]
            found.insert(0, Trigger("decommissioned", ", ".join(sorted(gone))))
        if heavier and self._plan is not None:
            heavy = [t for t in sorted(seen.places) if self.loads.weight(t) > 1]
            named = ", ".join(f"{t} weighs {self.loads.weight(t):.1f}" for t in heavy[:5])
            found.append(Trigger("load", named or "all tasks weigh the same again"))
        return tuple(found)

    def _others_moved(self, seen: Seen) -> bool:
        """Return whether others are or stay elsewhere than planned with, while nothing of this query is on its way."""
        free, forced, optional = self._pending(seen)
        on_the_way = free or forced or (optional and self.verdict.worth)
        return not on_the_way and _elsewhere(seen.others) != _elsewhere(self._planned_others)

    def _tasks(self, seen: Seen) -> tuple[Task, ...]:
        own = (
            # Any copy is better than none: one record of changelog, and nobody but the owner has it.
            Task(joint(t, seen), end_offset=1, weight=self.loads.weight(t))
            for t in sorted(seen.places)
        )
        return (*own, *(other.task for other in seen.beside))

    def _set_goal(self, seen: Seen) -> None:
        problem = Problem(self._tasks(seen), instances(seen), _ENGINE)
        self._plan = plan(problem)
        self._planned_for = tuple(problem.instances)
        self._planned_tasks = frozenset(task.id for task in problem.tasks)
        self._planned_others = list(seen.others)
        target = {task: name for name, roles in self._plan.target.items() for task in roles.active}
        others = seen.beside
        wanted = by_load(
            {task.id: task.weight for task in problem.tasks},
            {
                **{other.task.id: other.place for other in others},
                **{joint(t, seen): n for t, n in seen.places.items()},
            },
            target,
            {i.id: i.capacity for i in problem.instances if not i.draining},
            self.config.load_tolerance,
            fixed={other.task.id for other in others if other.fixed},
        )
        self._others_goal = {other.task.id: wanted[other.task.id] for other in others}
        self.goal = {t: wanted[joint(t, seen)] for t in sorted(seen.places)}
        self._by_load = frozenset(t for t, name in self.goal.items() if target[joint(t, seen)] != name)

    def _judge(self, seen: Seen) -> Verdict:
        # The goal is one of all queries, and one's moves alone may gain nothing: with others' moves they are judged
        # together. Others' tasks are taken to cost what this one's do.
        _, _, optional = self._pending(seen)
        if not optional:
            return Verdict()
        others: dict[TaskId, str] = {}
        aims: dict[TaskId, str] = {}
        for task, name, _ in seen.others:
            if name is not None and name in seen.slots:
                others[task.id] = name
                aims[task.id] = self._others_goal.get(task.id, name)
        weights = {joint(t, seen): self.loads.weight(t) for t in self.goal}
        weights |= {task.id: task.weight for task, _, _ in seen.others}
        return judge(
            {t: seen.prices.task * weight for t, weight in weights.items()},
            {**others, **{joint(t, seen): name for t, name in seen.places.items() if name is not None}},
            {**aims, **{joint(t, seen): name for t, name in self.goal.items()}},
            [*(joint(t, seen) for t in optional), *(t for t in aims if aims[t] != others[t])],
            {name: max(1, count) for name, count in seen.slots.items() if name not in seen.draining},
            seen.prices,
            self.config.worth_batches,
        )

    def _pending(self, seen: Seen) -> tuple[list[TaskId], list[TaskId], list[TaskId]]:
        """Return the tasks that are not where they belong: without a place, on a draining instance, others."""
        free: list[TaskId] = []
        forced: list[TaskId] = []
        optional: list[TaskId] = []
        for task, name in self.goal.items():
            at = seen.places[task]
            if at is None or at not in seen.slots:
                free.append(task)
            elif at != name:
                (forced if at in seen.draining else optional).append(task)
        return free, forced, optional

    def _step(self, seen: Seen, why: tuple[Trigger, ...], overruled: tuple[TaskId, ...]) -> Decision:
        free, forced, optional = self._pending(seen)
        due = forced + (optional if self.verdict.worth else [])
        chosen = self._choose(seen, due)
        sent = {*free, *chosen}
        intended = {t: self.goal[t] if t in sent else str(seen.places[t]) for t in self.goal}
        self._spent += len(chosen)
        moves = tuple(
            Move(t, "active", seen.places[t], self.goal[t], reason(t, seen, by_load=t in self._by_load))
            for t in sorted(sent)
        )
        return Decision(
            seen.batch,
            intended,
            dict(self.goal),
            moves,
            waiting=len(due) - len(chosen),
            why=why,
            verdict=self.verdict,
            overruled=overruled,
        )

    def _choose(self, seen: Seen, due: Sequence[TaskId]) -> list[TaskId]:
        """Return the moves of this batch: each from the busiest instance to the idlest, as things then are."""
        load = dict.fromkeys(seen.slots, 0.0)
        for task, name in seen.places.items():
            if name in load:
                load[name] += self.loads.weight(task) / max(1, seen.slots[name])
        left = sorted(due)
        chosen: list[TaskId] = []
        while left and self._spent + len(chosen) < self.config.max_moves_per_batch:

            def relief(task: TaskId) -> tuple[float, float, TaskId]:
                at = seen.places[task]
                # An instance that drains comes first, whatever it runs.
                urgent = load[str(at)] + (1e9 if at in seen.draining else 0.0)
                return (load[self.goal[task]] - urgent, -self.loads.weight(task), task)

            best = min(left, key=relief)
            left.remove(best)
            chosen.append(best)
            at, to = str(seen.places[best]), self.goal[best]
            load[at] -= self.loads.weight(best) / max(1, seen.slots[at])
            load[to] += self.loads.weight(best) / max(1, seen.slots[to])
        return chosen


def _elsewhere(others: Sequence[Other]) -> dict[TaskId, tuple[str | None, bool]]:
    return {other.task.id: (other.place, other.fixed) for other in others}
