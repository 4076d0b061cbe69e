"""Explains a task: where it is and why, its copies, the refused instances, when it moves, and what to do.

**Idea.** The planner records the reason of each active and the queue of warm-ups (`Plan.decision`); the share or the
cost behind a place comes from `binding`. The text is one paragraph for people. Below it are the facts.

Non-goals: what would happen if the cluster were another one. `taskplace.simulate` answers that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any, NamedTuple

from taskplace.errors import InputError
from taskplace.explanation.binding import Binding
from taskplace.explanation.removal import CatchingUp
from taskplace.lag.ranking import Copy, Seen, lacking
from taskplace.model.placement import Decision, Reason
from taskplace.model.plan import Plan, Roles
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import NO_COPY, ROLE_NAMES, UNKNOWN, Columns
from taskplace.validation import of_type
from taskplace.wording import about, count, listed, noun, one_of, sentence, wrapped
from topology.tasks import TaskId

SCHEMA = "taskplace.explanation/1"
WIDTH = 110
ROLE_WORDS = {"active": "active", "standby": "standby", "warmup": "warm-up"}


class Role(NamedTuple):
    """A role that the plan gives to an instance, with the reason."""

    role: str
    instance: str
    why: str


class Refusal(NamedTuple):
    """An instance with a copy, or with one in the plan, and the reason why the task is not active there now."""

    instance: str
    why: str


class Progress(NamedTuple):
    """When a task is where it belongs.

    - `state`: "settled" (nothing is planned), "now" (this plan moves it), "catching up" (a copy is on its way), or
      "waiting" (for a turn to warm up, for other tasks, or for what the plan itself waits for)
    - `seconds`: until it is there; None if nothing is planned, or if that is not known
    - `text`: the same as a clause
    - `stopped`: why it waits, as a clause, if that is more than records to read; else ""
    - `remedy`: what to do about it, as a clause; "" if nothing is known
    """

    state: str
    seconds: float | None
    text: str
    stopped: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class TaskExplanation:
    """The explanation of one task.

    - `text`: one paragraph: where the task is, why it is there or waits, when it moves, and what to do
    - `nature`: stateless, or stateful with the length of its changelog
    - `roles`: its roles in this step, the active first
    - `target`, `held`: its (role, instance) pairs in the target, and in force before this step
    - `copies`: (instance, state of the copy) pairs
    - `refused`: the instances where it is not active, with reasons
    - `waits_for`: what this step waits for, as a clause; "" if for nothing that is known

    `str()` is the paragraph with the facts below it, and `to_dict` the same for programs.
    """

    task: TaskId
    text: str
    nature: str
    roles: tuple[Role, ...]
    target: tuple[tuple[str, str], ...]
    copies: tuple[tuple[str, str], ...]
    refused: tuple[Refusal, ...]
    progress: Progress
    held: tuple[tuple[str, str], ...] = ()
    waits_for: str = ""

    @property
    def role(self) -> str:
        """The first of `roles`, "active" in a valid plan; "" if the plan does not place the task."""
        return self.roles[0].role if self.roles else ""

    @property
    def instance(self) -> str:
        """The instance of the task's first role in this step."""
        return self.roles[0].instance if self.roles else ""

    @property
    def why(self) -> str:
        """The reason why the task is active there."""
        return self.roles[0].why if self.role == "active" else "the plan does not place it"

    def __str__(self) -> str:
        return self.shown(WIDTH)

    def shown(self, width: int) -> str:
        """Return the paragraph with the facts below it, in lines of at most `width` letters."""
        return "\n".join([*wrapped(self.text, width), self._facts(width)])

    def _facts(self, width: int) -> str:
        now, step = _named(self.held), _named((r.role, r.instance) for r in self.roles)
        facts = [("task", self.nature), ("now", now)]
        if step != now:
            facts.append(("next", f"{step}, {self.waits_for}".removesuffix(", ")))
        if self.target:
            facts.append(("target", _named(self.target)))
        facts += [("copy", f"{name}: {text}") for name, text in self.copies]
        facts += [("refused", f"{refusal.instance}: {refusal.why}") for refusal in self.refused]
        lines = (wrapped(text, width, f"  {name:<8}", " " * 10) for name, text in facts)
        return "\n".join(line for each in lines for line in each)

    def _repr_html_(self) -> str:
        """Return the paragraph and the facts, for notebooks."""
        return f"<p>{escape(self.text)}</p><pre>{escape(self._facts(WIDTH))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Return an entry of "taskplace.explanation/1"."""
        return {
            "task": str(self.task),
            "text": self.text,
            "nature": self.nature,
            "role": self.role,
            "instance": self.instance,
            "why": self.why,
            "followers": [r._asdict() for r in self.roles[1:]],
            "held": [{"role": role, "instance": name} for role, name in self.held],
            "waits_for": self.waits_for,
            "target": [{"role": role, "instance": name} for role, name in self.target],
            "copies": [{"instance": name, "state": text} for name, text in self.copies],
            "refused": [r._asdict() for r in self.refused],
            "progress": self.progress._asdict(),
        }


def _named(roles: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{ROLE_WORDS[role]} on {name}" for role, name in roles) or "nowhere"


def explain(problem: Problem, plan: Plan, task: TaskId | str) -> str:
    """Return why a task is where it is, why it does not move, and when it will.

    The first lines are one paragraph. Below it are the facts: the task's copies, its target, and the refused instances.
    For many tasks of one plan, one `Explainer` is faster. Errors: `InputError` for a task that is not in the problem.

    >>> from taskplace.model.problem import Instance, Task
    >>> a, b = TaskId(0, 0), TaskId(0, 1)
    >>> ran = Instance("a", active=[a, b], lags={a: 0, b: 0})
    >>> problem = Problem([Task(a, end_offset=50_000), Task(b, end_offset=50_000)], [ran, Instance("b")])
    >>> from taskplace.planner import plan
    >>> print(explain(problem, plan(problem), "0_1"))
    0_1 is active on a, and b begins a warm-up. It is to move to b so that a has 1 of the 2 tasks (it has 2 now),
    but b still lacks 50,000 records. It moves once b lacks at most 10,000 records; the time is not known: no
    restore rate of b has been measured.
      task    stateful, changelog of 50,000 records
      now     active on a
      next    active on a, warm-up on b
      target  active on b
      copy    a: caught up, active
      copy    b: none
      refused b: it lacks 50,000 records, and a is caught up
    """
    return str(Explainer(problem, plan).task(task))


class _One(NamedTuple):
    """One task: its position, its roles by instance (in force, in the step, in the target), and its copy rows."""

    t: int
    id: TaskId
    held: Mapping[str, str]
    now: Mapping[str, str]
    goal: Mapping[str, str]
    rows: Mapping[int, int]

    @property
    def active(self) -> str:
        """The instance where it is active in the step; "" if the plan does not place it."""
        return next((name for name, role in self.now.items() if role == "active"), "")

    @property
    def wanted(self) -> str:
        """The instance where it belongs."""
        return next((name for name, role in self.goal.items() if role == "active"), self.active)

    @property
    def standbys_to_come(self) -> list[str]:
        """The instances of its standbys in the target that are none in the step."""
        standbys = [name for name, role in self.goal.items() if role == "standby"]
        return [name for name in standbys if self.now.get(name, "warmup") == "warmup"]


@dataclass
class Explainer:
    """Explains the tasks of one plan. Values that tasks share are computed once.

    - `seen`: of the copies that catch up, what the driver of a stream has seen, by instance and task
    - `rates`: by instance, the records per second that its copies get now; None: not known. Without an entry, the
      problem's `restore_rate` counts
    - `plan_name`: what the text calls the plan; `waits_for`: what it waits for before it is in force, as a clause

    The reasons of a plan that the engine did not make for this problem are not known. Cost: O(tasks + copies) once, and
    O(copies of the task) for each `task`. Errors: `InputError` if the plan names an instance that the problem does not
    have.
    """

    problem: Problem
    plan: Plan
    seen: Mapping[Copy, Seen] = field(default_factory=dict)
    rates: Mapping[str, float | None] = field(default_factory=dict)
    plan_name: str = "this plan"
    waits_for: str = ""

    def __post_init__(self) -> None:
        plan, problem = of_type(self.plan, Plan, "plan"), of_type(self.problem, Problem, "problem")
        self._c: Columns = problem.columns
        for name in sorted({*plan.assignment, *plan.target} - set(self._c.names))[:1]:
            raise InputError("plan", found=name, expected="only instances of the problem")
        self._task = {t: k for k, t in enumerate(self._c.ids)}
        self._inst = {name: k for k, name in enumerate(self._c.names)}
        self._held = _places(in_force(problem))
        self._now, self._goal = _places(plan.assignment), _places(plan.target)
        self._kept, self._parked = frozenset(self._c.kept.tolist()), frozenset(self._c.parked.tolist())
        self._binding = Binding(problem, plan)

    def task(self, task: TaskId | str) -> TaskExplanation:
        """Return where a task is and why. Errors: `InputError` if it is not in the problem."""
        one = self._find(task)
        c, now = self._c, _ordered(one.now)
        named = (self._inst[n] for n in (*one.now, *one.goal) if n in self._inst)
        there = sorted({*one.rows, *named}) if c.stateful[one.t] else []
        progress = self._progress(one)
        return TaskExplanation(
            task=one.id,
            text=self._paragraph(one, progress) if one.active else f"{one.id} has no place in the plan.",
            nature=_nature(c, one.t),
            roles=tuple(
                Role(role, n, self._place(one) if role == "active" else self._follower(one, role, n))
                for role, n in now
            ),
            target=tuple(_ordered(one.goal)),
            copies=tuple((c.names[i], _copy_text(c, one.rows.get(i))) for i in there),
            refused=tuple(self._refusals(one, there)),
            progress=progress,
            held=tuple(_ordered(one.held)),
            waits_for=self.waits_for,
        )

    def on_their_way(self) -> set[TaskId]:
        """Return the tasks whose roles are not those of the target, or change, or have a copy that is stuck.

        Without a driver no copy catches up. That is no reason to call a copy stuck.
        """
        placed = {*self._now, *self._goal}
        moving = {task for task in placed if self._now.get(task) != self._goal.get(task)}
        stuck = {task for (_, task), seen in self.seen.items() if seen.stalled and not seen.no_driver}
        return moving | {move.task for move in self.plan.moves} | stuck

    # -- the paragraph

    def _paragraph(self, one: _One, progress: Progress) -> str:
        """Return where the task is, why it is there or waits, when it moves, and what to do."""
        why = [self._place(one)]
        ends = [n for n, role in one.held.items() if role == "standby" and one.goal.get(n) != "standby"]
        for name in one.standbys_to_come:
            others = [self._inst[n] for n in one.goal if n != name]
            because = self._binding.standby(self._inst[name], [self._inst[n] for n in ends], others)
            why.append(f"its standby is to move to {name} {because}, but {self._lacks(one, name)}")
        why.append(progress.stopped)
        for name in (self._c.names[p % self._c.m] for p in sorted(self._parked) if p // self._c.m == one.t):
            known = self.seen.get((name, one.id), Seen())
            cause = f": {known.stalled}" if known.stalled else ""
            why += [f"its copy on {name} made no progress and is parked{cause}", known.remedy]
        clauses = [*why, progress.text, progress.remedy]
        return f"{_where(one, self._owner(one))} {_sentences(clauses, self._inst)}"

    def _place(self, one: _One) -> str:
        """Return why the task is active where it is, or why it is to move."""
        c, t, active, wanted = self._c, one.t, one.active, one.wanted
        if self._decision is None:
            return "the plan places it there"
        if not c.stateful[t]:
            return self._binding.stateless(self._inst[active], self._inst[wanted])
        reason, at, owner = int(self._decision.reason[t]), self._inst[wanted], self._owner(one)
        if active != wanted:
            goes = "it is to move to" if active == owner else "it belongs on"
            until = "" if active == owner else f", so {active} runs it until then"
            leaves = self._binding.leaves if reason == Reason.WAITS else self._binding.wanted
            return f"{goes} {wanted} {leaves(t, at)}, but {self._lacks(one, wanted)}{until}"
        match reason:
            case Reason.GONE | Reason.LAGS:
                lost = f"{owner} lags" if owner else "its owner is gone"
                return f"{lost}, and the copy on {active} is caught up, so {active} takes it over"
            case Reason.RESUMES | Reason.LACKS:
                lost = f"{owner} lacks far more" if owner else "its owner is gone"
                return f"no copy is caught up, {lost}, and the copy on {active} lacks least"
            case Reason.STARTS:
                return f"it starts there {self._binding.wanted(t, at)}"
            case Reason.ONLY:
                return f"it stays there: {owner} has the only entries of its stores that are not logged"
            case Reason.STAYS if not c.open_slots[at]:
                return f"{self._binding.closed(at)}, but no other instance can take it"
            case Reason.STAYS:
                stays, row = f"it stays there {self._binding.wanted(t, at)}", one.rows.get(at)
                if c.at_once[t] or (row is not None and c.caught[row]):
                    return stays
                return f"{stays}, but {owner} itself lacks {self._behind(t, row)}, and no other copy is far ahead"
        return f"it moves {self._binding.leaves(t, at)}, and {active} can take over now"

    def _follower(self, one: _One, role: str, name: str) -> str:
        """Return why an instance has a standby or a warm-up of the task."""
        c, at, goal = self._c, self._inst[name], one.goal.get(name, "")
        row = one.rows.get(at)
        if role == "warmup":
            until = {"active": "it will take over the active", "standby": "it will replace another standby"}
            return until.get(goal, "it continues to warm up")
        if goal != "standby":
            will = "it will be active once it has caught up"
            return will if goal == "active" else "it keeps its copy until another copy has caught up"
        others = [self._inst[n] for n, r in one.now.items() if n != name and r != "warmup"]
        shared, differ = self._binding.apart(at, others)
        tags = f", apart from the other copies ({', '.join(differ)})" if differ else ""
        tags += f", though it shares {', '.join(shared)} with another copy" if shared else ""
        why = "a standby was missing, so it is created at once"
        if row is not None and ROLE_NAMES[int(c.role[row])] == "standby":
            why = "it is a standby already"
        elif row is not None and c.caught[row]:
            why = "its copy is caught up"
        return f"{why}{tags}"

    def _refusals(self, one: _One, there: Iterable[int]) -> Iterator[Refusal]:
        """Yield the reason why the task is not active, for every other instance that has or gets a copy."""
        c, t, active, wanted, rows = self._c, one.t, one.active, one.wanted, one.rows
        for i in there if active else ():
            name, row = c.names[i], rows.get(i)
            if name == active:
                continue
            if t * c.m + i in self._parked:
                why = "it is parked: its copy made no progress"
            elif t * c.m + i in self._kept:
                why = f"{wanted} has the only entries of its stores that are not logged"
            elif not c.open_slots[i]:
                why = "it is draining" if c.draining[i] else "it has no capacity"
            elif not c.at_once[t] and not self._caught(rows.get(i)):
                ready = self._caught(rows.get(self._inst[active]))
                than = f"{active} is caught up" if ready else f"no copy is far ahead of {active}"
                why = f"it lacks {self._behind(t, row)}, and {than}"
            elif active == wanted == self._owner(one):
                why = f"it could take over, but {active} may stay, and that would be a move"
            elif name == wanted:
                why = f"it will take over, but {active} is caught up and stays until then"
            else:
                why = f"it could take over, but {self._binding.refused(t, i, self._inst[wanted])}"
            yield Refusal(name, why)

    # -- when

    def _progress(self, one: _One) -> Progress:
        """Return when the task is where it belongs."""
        waits = [one.wanted] if one.wanted != one.active else one.standbys_to_come
        if not waits:
            return self._at_rest(one)
        name, moves = waits[0], "it moves" if waits[0] == one.wanted else "its standby moves"
        place = self._queue.get((one.t, self._inst[name]))
        if place is not None:
            before = place + sum(len(roles.warmup) for roles in self.plan.assignment.values())
            stopped = (
                f"{name} waits for its turn to warm up: {count(before, 'copy', 'copies')} {noun(before, 'is', 'are')} "
                f"before it, and {self.problem.config.max_warmup_replicas:,} may warm up at a time"
            )
            remedy = f"with max.warmup.replicas={before + 1} {name} would warm up now"
            return Progress("waiting", None, f"{moves} after that", stopped, remedy)
        if name not in one.now:
            return Progress("waiting", None, f"{moves} to {name} as other tasks move")
        seen = self.seen.get((name, one.id), Seen())
        seconds, unknown = self._catching_up.seconds(name, one.id)
        most = self.problem.config.acceptable.at(self.problem.instance(name).restore_rate)
        text = f"{moves} once {name} lacks " + (f"at most {count(most, 'record')}" if most else "no record")
        if not seen.stalled:
            text += f"; the time is not known: {unknown}" if seconds is None else f", in {about(seconds)}"
        seconds = None if seconds is None else round(seconds, 3)
        return Progress("catching up", seconds, text, seen.stalled, seen.remedy)

    def _at_rest(self, one: _One) -> Progress:
        """Return the progress of a task that is where it belongs after the step. A standby may still catch up."""
        stopped = remedy = later = ""
        for name in (n for n, role in one.now.items() if role == "standby"):
            seen, left = self.seen.get((name, one.id), Seen()), self._catching_up.seconds(name, one.id)[0]
            if seen.stalled and not stopped:
                stopped, remedy = f"its standby on {name} is stuck: {seen.stalled}", seen.remedy
            elif left:
                later += f"; its standby on {name} has caught up in {about(left)}"
        moves = f"{self.plan_name} {'moves' if one.held else 'starts'} it"
        if one.active == self._owner(one):
            nothing = "nothing else" if later or stopped else "nothing"
            return Progress("settled", None, f"{nothing} is planned for it{later}", stopped, remedy)
        if self.waits_for:
            return Progress("waiting", None, f"{moves} {self.waits_for}{later}", stopped, remedy)
        return Progress("now", 0.0, f"{moves}{later}", stopped, remedy)

    # -- facts

    def _find(self, task: TaskId | str) -> _One:
        try:
            t = self._task[TaskId.parse(task) if isinstance(task, str) else task]
        except (ValueError, KeyError, TypeError):
            found = str(task) if isinstance(task, str | TaskId) else task
            raise InputError("task", found=found, expected=one_of(self._c.ids, "task")) from None
        c = self._c
        rows = {int(c.inst[k]): k for k in range(int(c.start[t]), int(c.start[t + 1]))}
        held, now, goal = (each.get(c.ids[t], {}) for each in (self._held, self._now, self._goal))
        return _One(t, c.ids[t], held, now, goal, rows)

    def _owner(self, one: _One) -> str:
        return self._c.names[int(self._c.owner[one.t])] if self._c.owner[one.t] >= 0 else ""

    def _caught(self, row: int | None) -> bool:
        return row is not None and bool(self._c.caught[row])

    def _lacks(self, one: _One, name: str) -> str:
        return f"{name} still lacks {self._behind(one.t, one.rows.get(self._inst[name]))}"

    def _behind(self, t: int, row: int | None) -> str:
        """Return how many records a copy lacks; without a row, there is no copy."""
        records = int(lacking(NO_COPY if row is None else int(self._c.lag[row]), int(self._c.end[t])))
        return "an unknown number of records" if records == UNKNOWN else count(records, "record")

    # -- values that the tasks share

    @cached_property
    def _decision(self) -> Decision | None:
        """What the engine decided, if the plan is its own for this problem."""
        if self.plan.decision is not None or self.plan.fingerprint != self.problem.fingerprint:
            return self.plan.decision
        from taskplace.planner import plan  # loads the solver

        again = plan(self.problem)
        return again.decision if again == self.plan else None

    @cached_property
    def _queue(self) -> dict[tuple[int, int], int]:
        """The copies that wait for their turn to warm up, with their places in the queue."""
        if self._decision is None:
            return {}
        _, task, inst = self._decision
        return {pair: k for k, pair in enumerate(zip(task.tolist(), inst.tolist(), strict=True))}

    @cached_property
    def _catching_up(self) -> CatchingUp:
        follows = [
            (self._task[t], self._inst[name])
            for name, roles in self.plan.assignment.items()
            for t in (*roles.standby, *roles.warmup)
            if t in self._task
        ]
        return CatchingUp(self.problem, follows, self.seen, self.rates)


def in_force(problem: Problem) -> dict[str, Roles]:
    """Return the assignment in force before a plan."""
    return {one.id: Roles(one.active, one.standby, one.warmup) for one in problem.instances}


def _places(roles: Mapping[str, Roles]) -> dict[TaskId, dict[str, str]]:
    """Return, for every task, its instances and their roles."""
    out: dict[TaskId, dict[str, str]] = {}
    for name, each in sorted(roles.items()):
        for role, tasks in zip(Roles._fields, each, strict=True):
            for t in tasks:
                out.setdefault(t, {})[name] = role
    return out


def _ordered(places: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (role, instance) pairs, the active first."""
    return sorted(((role, n) for n, role in places.items()), key=lambda r: (Roles._fields.index(r[0]), r[1]))


def _nature(c: Columns, t: int) -> str:
    if not c.stateful[t]:
        return "stateless"
    if c.universal[t]:
        return "stateful, with an empty changelog or none: every instance counts as caught up"
    text = f"stateful, changelog of {count(int(c.end[t]), 'record') if c.end[t] >= 0 else 'unknown records'}"
    return f"{text}; any lag is acceptable: every instance counts as caught up" if c.at_once[t] else text


def _copy_text(c: Columns, row: int | None) -> str:
    if row is None:
        return "none"
    role = ROLE_WORDS.get(ROLE_NAMES[int(c.role[row])], "without a role")
    if c.lag[row] == NO_COPY:
        return f"none yet, {role}"
    state = "caught up" if c.caught[row] else f"{count(int(c.lag[row]), 'record')} behind"
    return f"{state}, {role}"


def _where(one: _One, owner: str) -> str:
    """Return where a task is, and which of its copies begin: one sentence. `owner`: where it was active before."""
    where = f"{one.id} is active on {owner}"
    if owner != one.active:
        where = f"{one.id} {f'moves from {owner} to' if owner else 'becomes active on'} {one.active}"
    there, new = [], []
    for role, word, verb in (("standby", "standby", "become"), ("warmup", "warm-up", "begin")):
        for kept in (True, False):
            names = [n for n, each in one.now.items() if each == role and (one.held.get(n) == role) is kept]
            what = f"{'a ' if len(names) == 1 else ''}{noun(len(names), word)}"
            if names and kept:
                there.append(f"{what} on {listed(names)}")
            elif names:
                new.append(f"{listed(names)} {noun(len(names), f'{verb}s', verb)} {what}")
    *others, last = [f"{where}, with {listed(there)}" if there else where, *new]
    return f"{', '.join(others)}, and {last}." if others else f"{last}."


def _sentences(clauses: Iterable[str], names: Collection[str]) -> str:
    """Return clauses as sentences. The first letter is raised, but not that of a name of an instance."""
    done = []
    for clause in filter(None, clauses):
        named = clause.split(maxsplit=1)[0].rstrip(",:;.") in names
        done.append(sentence(clause if named else clause[0].upper() + clause[1:]))
    return " ".join(done)


def explain_plan(problem: Problem, plan: Plan) -> str:
    """Return a text about a plan: its moves with their reasons, its optimality, and its warnings.

    >>> from taskplace.model.problem import Instance, Task
    >>> from taskplace.planner import plan
    >>> problem = Problem([Task(TaskId(0, 0))], [Instance("a")])
    >>> print(explain_plan(problem, plan(problem)))
    1 task on 1 instance: 1 change now; then nothing is left to move
      0_0: starts on a
    """
    moves = [f"  {move}" for move in plan.moves]
    return "\n".join([_summary(problem, plan), *moves, *(f"  warning: {text}" for text in plan.warnings)])


def plan_explanation(
    problem: Problem,
    plan: Plan,
    tasks: Iterable[TaskId | str] | None = None,
    *,
    explainer: Explainer | None = None,
) -> dict[str, Any]:
    """Return a "taskplace.explanation/1" dict: the plan's moves, its optimality, and why each task is where it is.

    `tasks`: the tasks to explain; None: all. `explainer`: of this plan; None: a new one. Errors: `InputError` for a
    task that is not in the problem.
    """
    explainer, whole = explainer or Explainer(problem, plan), plan.to_dict()
    return {
        "schema": SCHEMA,
        "fingerprint": plan.fingerprint,
        "summary": _summary(problem, plan),
        "followup": plan.followup,
        **{key: whole[key] for key in ("moves", "optimality", "warnings")},
        "tasks": [explainer.task(t).to_dict() for t in (problem.columns.ids if tasks is None else tasks)],
    }


def _summary(problem: Problem, plan: Plan) -> str:
    """Return the size of a problem, and what the plan does."""
    return f"{count(problem.columns.n, 'task')} on {count(problem.columns.m, 'instance')}: {plan.summary}"
