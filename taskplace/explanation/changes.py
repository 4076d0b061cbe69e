"""Finds what would have to change for a task to be elsewhere, and confirms each claim by a plan.

**Idea.** A few changes of the problem are candidates, the likeliest first. Each is applied, the changed problem is
planned, and what this plan does differently with the task is what is said. A change without such a difference is not
mentioned. So no claim can be wrong, whatever the assignor.

Properties: at most `MOST_PLANS` plans for a task, which is about eight times the cost of a plan. Changes that do not
name the task, such as a drain, are planned once for all tasks of a problem. Non-goals: this is no search for the best
change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import mode

from taskplace.errors import InputError, InvalidPlan
from taskplace.explanation.edits import Edit
from taskplace.explanation.explained import Change
from taskplace.explanation.fates import Fate, effect, fate
from taskplace.explanation.outlook import Timetable
from taskplace.lag.ranking import Seen, lacking
from taskplace.model.plan import Plan
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import NO_COPY, UNKNOWN
from taskplace.planner import plan as plan_once
from taskplace.wording import count
from topology.tasks import TaskId

#: The most plans for one task; half as many for a problem of more than `MANY_TASKS`, whose plans take a second.
MOST_PLANS = 8
MANY_TASKS = 20_000
#: The most plans that are kept for other tasks.
MOST_KEPT = 12
#: Names of an instance that joins: before and behind all others. A rule that breaks ties may depend on the name.
NEW = ("!new", "~new")
#: The most copies that have to catch up before one, for a claim about it.
MOST_BEFORE = 64


@dataclass
class Changes:
    """What would have to change for tasks of one plan. `plan` has to be the engine's plan of `problem`."""

    problem: Problem
    plan: Plan
    timetable: Timetable
    planner: Callable[[Problem], Plan] = plan_once
    _plans: dict[Edit, Plan | None] = field(default_factory=dict)

    def of(self, task: TaskId) -> tuple[Change, ...]:
        """Return the confirmed changes for a task, the likeliest first."""
        before = fate(self.plan, task)
        budget = MOST_PLANS if len(self.problem.tasks) <= MANY_TASKS else MOST_PLANS // 2
        if not before.active:
            return ()
        found: list[Change] = []
        for edits in self._candidates(task, before):
            if budget < len(edits):
                break
            budget -= sum(edit not in self._plans for edit in edits)
            changes = [self._confirmed(edit, task, before) for edit in edits]
            first = changes[0]
            if first is not None and all(
                each is not None and each.effect.kind == first.effect.kind for each in changes
            ):
                found.append(first)
        return tuple(found)

    def _confirmed(self, edit: Edit, task: TaskId, before: Fate) -> Change | None:
        plan = self._planned(edit)
        found = None if plan is None else effect(before, fate(plan, task))
        if found is None or (edit.kind == "join" and found.instance != edit.instance):
            return None
        if plan is not None and found.kind == "runs":
            seen = self.timetable.seen.get((found.instance, task), Seen())
            found = found._replace(text=_with_restore(found.text, plan, task, found.instance, seen))
        if found.kind == "belongs":
            seen = self.timetable.seen.get((found.instance, task), Seen())
            if seen.stalled and not seen.no_driver:
                text = f"it is to move to {found.instance}, but the copy there is stuck"
                found = found._replace(text=text)
        if edit.kind == "join":
            found = found._replace(text=found.text.replace(edit.instance, "the new instance"))
        return Change(edit, found)

    def _planned(self, edit: Edit) -> Plan | None:
        if edit in self._plans:
            return self._plans[edit]
        try:
            plan: Plan | None = self.planner(edit.apply(self.problem))
        except (InvalidPlan, InputError):
            plan = None
        if edit.task is None and len(self._plans) < MOST_KEPT:
            self._plans[edit] = plan
        return plan

    # -- candidates: each is a list of edits that have to agree

    def _candidates(self, task: TaskId, before: Fate) -> Iterator[list[Edit]]:
        c = self.problem.columns
        t = c.ids.index(task)
        if c.stateful[t]:
            coming = [before.goal] if before.goal != before.active else []
            for name in [*coming, *sorted(set(before.goal_standbys) - set(before.standbys))]:
                yield from self._to_get_there(task, name)
            yield from ([Edit("release", c.names[p % c.m], task)] for p in c.parked.tolist() if p // c.m == t)
        active = self.problem.instance(before.active)
        open_ = [i for i in self.problem.instances if i.capacity and not i.draining]
        if active.draining:
            yield [Edit("undrain", active.id)]
        elif len(open_) > 1:
            yield [Edit("drain", active.id)]
        if len(self.problem.instances) > 1:
            yield [Edit("lose", active.id)]
        yield from self._for_another_place(before)

    def _to_get_there(self, task: TaskId, name: str) -> Iterator[list[Edit]]:
        """Yield what lets a copy on an instance take its role: it catches up, gets a turn, or needs less."""
        config, instance = self.problem.config, self.problem.instance(name)
        due = self.timetable.due(name, task)
        if due is None or due.before is None:
            yield [Edit("lag", name, task, value=self._acceptable(name))]
        else:
            if due.before <= MOST_BEFORE:
                copies = self.timetable.up_to(name, task)
                yield [Edit("lags", value=tuple((i, each, self._acceptable(i)) for i, each in copies))]
            yield [Edit("config", key="max.warmup.replicas", value=due.before + 1)]
        lag = instance.lags.get(task, NO_COPY)
        if lag > config.acceptable_recovery_lag and config.acceptable_recovery_seconds is None:
            yield [Edit("config", key="acceptable.recovery.lag", value=lag)]

    def _acceptable(self, name: str) -> int:
        return self.problem.config.acceptable.at(self.problem.instance(name).restore_rate)

    def _for_another_place(self, before: Fate) -> Iterator[list[Edit]]:
        """Yield changes of the cluster and of the configuration, which may concern any task."""
        config, instances = self.problem.config, self.problem.instances
        for name in before.standbys[:1]:
            other = self.problem.instance(name)
            if other.draining:
                yield [Edit("undrain", name)]
            else:
                yield [Edit("capacity", name, value=other.capacity + 1)]
        if config.rack_aware_assignment_tags:
            yield [Edit("config", key="rack.aware.assignment.tags", value=())]
        elif config.rack_aware_assignment_strategy == "none":
            slots = mode(each.capacity for each in instances)
            if slots and not {each.id for each in instances} & set(NEW):
                yield [Edit("join", name, value=slots) for name in NEW]
        if len(instances) > config.num_standby_replicas + 1 and not before.goal_standbys:
            yield [Edit("config", key="num.standby.replicas", value=config.num_standby_replicas + 1)]


def _with_restore(text: str, plan: Plan, task: TaskId, name: str, seen: Seen) -> str:
    """Return the text of an effect, with what has to be read before the task runs on an instance."""
    if plan.problem is None:
        return text
    c = plan.problem.columns
    t, i = c.ids.index(task), c.names.index(name)
    rows = range(int(c.start[t]), int(c.start[t + 1]))
    row = next((k for k in rows if c.inst[k] == i), None)
    if not c.stateful[t] or c.at_once[t] or (row is not None and c.caught[row]):
        return text
    records = int(lacking(NO_COPY if row is None else int(c.lag[row]), int(c.end[t])))
    what = "all its state" if records == UNKNOWN else count(records, "record")
    follows = f", if {name} can follow by then" if seen.stalled else ""
    after = f" after it has read {what}{follows}"
    return text.replace(f"it moves to {name}", f"{name} takes it over").replace(" at once", after)
