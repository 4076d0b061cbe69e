"""The plan for a problem: the assignment for now (the step), the target, and the reasons."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from taskplace import validation
from taskplace.errors import InputError
from taskplace.model import callables
from taskplace.model.cluster import Instance
from taskplace.model.tables import table
from taskplace.wording import count
from topology.tasks import TaskId

if TYPE_CHECKING:
    from taskplace.model.placement import Decision
    from taskplace.model.problem import Problem

SCHEMA = "taskplace.plan/1"

MOVE_ROLES = ("active", "promotion", "standby", "warmup")


class Roles(NamedTuple):
    """The roles of one instance; each field is a sorted tuple of task ids.

    >>> Roles().active
    ()
    """

    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    warmup: tuple[TaskId, ...] = ()


def texts_of(assignment: Mapping[str, Roles]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return an assignment as plain values: by instance and role, the tasks as text.

    >>> texts_of({"a": Roles(standby=(TaskId(0, 3),))})
    {'a': {'active': (), 'standby': ('0_3',), 'warmup': ()}}
    """
    return {
        name: {role: tuple(map(str, tasks)) for role, tasks in roles._asdict().items()}
        for name, roles in sorted(assignment.items())
    }


def with_roles(instances: Iterable[Instance], assignment: Mapping[str, Roles]) -> tuple[Instance, ...]:
    """Return instances with the roles that `assignment` gives them, sorted by id.

    >>> task = TaskId(0, 3)
    >>> with_roles([Instance("b"), Instance("a")], {"b": Roles(standby=(task,))})[1].standby
    (TaskId(subtopology=0, partition=3),)
    """
    return tuple(
        i
        if (i.active, i.standby, i.warmup) == roles
        else replace(i, active=roles.active, standby=roles.standby, warmup=roles.warmup)
        for i in sorted(instances, key=lambda i: i.id)
        for roles in (assignment.get(i.id, Roles()),)
    )


class Move(NamedTuple):
    """One change from the assignment in force to this plan.

    - `role`: the new role of the task on `to`:
      - "active": a planned move, or the start of a task that was not running
      - "promotion": a forced move, because the owner is gone or lags and `to` has a caught-up copy, or because no copy
        is caught up and the owner lacks far more than `to`
      - "standby"
      - "warmup"
    - `from_`: the instance that `to` takes over from, or None. For a warm-up, the instance that it will replace: the
      active, or a standby
    - `why`: the reason, for people

    >>> str(Move(TaskId(0, 3), "warmup", "a", "b", "balance"))
    '0_3: warms up on b, to replace a (balance)'
    >>> str(Move(TaskId(0, 3), "active", None, "b", "start"))
    '0_3: starts on b'
    """

    task: TaskId
    role: str
    from_: str | None
    to: str
    why: str

    def __str__(self) -> str:
        match self.role, self.from_:
            case "active", None:
                what, why = f"starts on {self.to}", self.why.removeprefix("start").removeprefix(", ")
            case "active", origin:
                what, why = f"moves from {origin} to {self.to}", self.why
            case "promotion", origin:
                what, why = f"{self.to} takes over{f' from {origin}' if origin else ''}", self.why
            case "standby", _:
                what, why = f"new standby on {self.to}", self.why.removeprefix("standby")
            case _, origin:
                what, why = f"warms up on {self.to}{f', to replace {origin}' if origin else ''}", self.why
        return f"{self.task}: {what}{f' ({why})' if why else ''}"

    @property
    def forced(self) -> bool:
        """Whether this is a forced promotion."""
        return self.role == "promotion"


@dataclass(frozen=True, slots=True)
class Optimality:
    """The quality of the target.

    - `moves`: stateful actives that change their instance from now to the target, without forced promotions
    - `lower_bound`: the fewest moves of any target under both balances
    - `forced_promotions`: counted separately, because no plan can avoid them
    """

    moves: int = 0
    lower_bound: int = 0
    forced_promotions: int = 0

    def __str__(self) -> str:
        """Return the moves beside the fewest possible.

        >>> str(Optimality(2, 2)), str(Optimality(3, 2))
        ('2 moves, the fewest possible', '3 moves, at least 2 needed')
        >>> str(Optimality(1, 2, 1))
        '1 move, equal shares would need 2, 1 forced promotion'
        """
        least = "the fewest possible"
        if self.moves != self.lower_bound:
            more = self.moves > self.lower_bound
            least = (
                f"at least {self.lower_bound:,} needed"
                if more
                else f"equal shares would need {self.lower_bound:,}"
            )
        forced = f", {count(self.forced_promotions, 'forced promotion')}" if self.forced_promotions else ""
        return f"{count(self.moves, 'move')}, {least}{forced}"


@dataclass(frozen=True)
class Plan:
    """The result of planning: the step to put in force now, and the target.

    - `assignment`, `target`: one `Roles` per instance of the problem
    - `followup`: whether to plan again (probing rebalance), because the step is not yet the target
    - `moves`: the changes of this step
    - `optimality`: the quality of the target
    - `metrics`: figures of the plan, by name
    - `warnings`: requirements that could not be met, each with counts and a remedy
    - `fingerprint`: the fingerprint of the problem
    - `slots`: the actives of each slot, for instances with more than one
    - `cleanup`: per instance, all copies of tasks that are not in the problem; they are ignored, and can be deleted
    - `problem`, `decision`: the problem that was planned, and the reasons, for `explain`; no part of the plan's value.
      None for a plan from a file

    >>> plan = Plan({"a": Roles((TaskId(0, 0),))}, {"a": Roles((TaskId(0, 0),))})
    >>> Plan.from_dict(plan.to_dict()) == plan
    True
    """

    assignment: Mapping[str, Roles]
    target: Mapping[str, Roles]
    followup: bool = False
    moves: tuple[Move, ...] = ()
    optimality: Optimality = Optimality()
    metrics: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    fingerprint: str = ""
    slots: Mapping[str, tuple[tuple[TaskId, ...], ...]] = field(default_factory=dict)
    cleanup: Mapping[str, tuple[TaskId, ...]] = field(default_factory=dict)
    problem: Problem | None = field(default=None, compare=False, repr=False)
    decision: Decision | None = field(default=None, compare=False, repr=False)

    @property
    def stable(self) -> bool:
        """Whether the plan changes nothing and needs no follow-up."""
        return not self.followup and not self.moves

    @property
    def to_go(self) -> int:
        """The planned moves of active tasks that remain after this step."""
        moved = sum(move.role == "active" and move.from_ is not None for move in self.moves)
        return max(0, self.optimality.moves - moved)

    @property
    def summary(self) -> str:
        """What the plan does in one line: its changes, what is left after them, and its moves."""
        if self.stable:
            return "stable: nothing has to move"
        best = self.optimality
        after = "more to follow" if self.followup else "then nothing is left to move"
        now = f"{count(len(self.moves), 'change')} now{', ' if self.followup else '; '}{after}"
        return f"{now}; in all {best}" if best.moves or best.lower_bound or best.forced_promotions else now

    def _repr_html_(self) -> str:
        """Return the plan as tables, for notebooks: the roles of each instance, and the moves with their reasons.

        >>> task = TaskId(0, 0)
        >>> "<td>a</td><td>0_0</td>" in Plan({"a": Roles((task,))}, {"a": Roles((task,))})._repr_html_()
        True
        """
        moves = [(m.task, m.role, m.from_ or "", m.to, m.why) for m in self.moves]
        roles = [
            (name, *(" ".join(map(str, tasks)) for tasks in roles))
            for name, roles in sorted(self.assignment.items())
        ]
        shown = table(("instance", *Roles._fields), roles, self.summary)
        if moves:
            shown += table(("task", "role", "from", "to", "why"), moves)
        return shown + "".join(f"<p>{escape(text)}</p>" for text in self.warnings)

    def active(self, task: TaskId) -> str:
        """Return the instance that runs `task` now; O(tasks). Errors: `InputError` for an unknown task."""
        for name, roles in self.assignment.items():
            if task in roles.active:
                return name
        raise InputError("task", found=str(task), expected="a task of this plan")

    def explain(self, task: TaskId | str, problem: Problem | None = None) -> str:
        """Return why a task is where it is, why it does not move, and when it will.

        The text of `taskplace.explain`. `problem`: the problem of a plan that was read from a file. Errors:
        `InputError` for an unknown task, or for a plan whose problem is not known.

        >>> import taskplace
        >>> taskplace.plan({"tasks": [{"id": "0_0"}], "instances": [{"id": "a"}]}).explain("0_0").partition(". ")[0]
        '0_0 becomes active on a'
        """
        known = problem or self.problem
        if known is None:
            expected = "a plan that `plan` made, or its problem as the second argument"
            raise InputError("explain", found="a plan without its problem", expected=expected)
        explain = callables.load("taskplace.explanation:explain")  # by name: it is above this package
        return str(explain(known, self, task))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a "taskplace.plan/1" dict. Equal plans give equal dicts, with keys in the same order."""
        slots = {n: [_written(slot) for slot in slots] for n, slots in sorted(self.slots.items())}
        cleanup = {n: _written(tasks) for n, tasks in sorted(self.cleanup.items())}
        return {
            "schema": SCHEMA,
            "fingerprint": self.fingerprint,
            "assignment": _written_roles(self.assignment, Roles._fields),
            "target": _written_roles(self.target, ("active", "standby")),
            "followup": self.followup,
            "moves": [
                {"task": str(m.task), "role": m.role, "from": m.from_, "to": m.to, "why": m.why}
                for m in self.moves
            ],
            "optimality": asdict(self.optimality),
            "metrics": dict(sorted(self.metrics.items())),
            "warnings": list(self.warnings),
            **({"slots": slots} if slots else {}),
            **({"cleanup": cleanup} if cleanup else {}),
        }

    def to_json(self) -> str:
        """Return the plan as JSON text; equal plans give equal bytes."""
        return json.dumps(self.to_dict(), indent=1) + "\n"

    @classmethod
    def from_dict(cls, value: Any) -> Plan:
        """Return the plan that a "taskplace.plan/1" dict describes; only `assignment` is required.

        >>> Plan.from_dict({"assignment": {"a": {"active": ["0_0", 1]}}})
        Traceback (most recent call last):
        taskplace.errors.InputError: assignment.a.active[1]: found 1, expected a task id like '0_3'
        """
        known = ("schema", *(f.name for f in fields(cls) if f.compare))
        top = validation.mapping(value, "plan", known)
        if top.get("schema", SCHEMA) != SCHEMA:
            raise InputError("schema", found=top["schema"], expected=f"'{SCHEMA}'")
        if "assignment" not in top:
            raise InputError("assignment", found=None, expected="an object of instances")
        counts = validation.mapping(
            top.get("optimality", {}), "optimality", (f.name for f in fields(Optimality))
        )
        assignment = _read_roles(top["assignment"], "assignment")
        metrics = validation.mapping(top.get("metrics", {}), "metrics")
        for key, number in metrics.items():
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                raise InputError(f"metrics.{key}", found=number, expected="a number")
        return cls(
            assignment=assignment,
            target=_read_roles(top["target"], "target") if "target" in top else {},
            followup=validation.boolean(top.get("followup", False), "followup"),
            moves=validation.each(_read_move, top.get("moves", ()), "moves"),
            optimality=Optimality(
                **{name: validation.integer(n, f"optimality.{name}") or 0 for name, n in counts.items()}
            ),
            metrics=dict(metrics),
            warnings=validation.each(validation.text, top.get("warnings", ()), "warnings"),
            fingerprint=validation.optional_text(top.get("fingerprint"), "fingerprint") or "",
            slots={
                validation.text(name, "slots"): validation.slots(slots, f"slots.{name}")
                for name, slots in sorted(validation.mapping(top.get("slots", {}), "slots").items())
            },
            cleanup={
                validation.text(name, "cleanup"): validation.each(
                    validation.task_id, tasks, f"cleanup.{name}"
                )
                for name, tasks in sorted(validation.mapping(top.get("cleanup", {}), "cleanup").items())
            },
        )


def _read_roles(value: Any, path: str) -> dict[str, Roles]:
    out = {}
    for name, roles in sorted(validation.mapping(value, path).items()):
        m = validation.mapping(roles, f"{path}.{validation.text(name, path)}", Roles._fields)
        read = (validation.task_ids(m.get(role, ()), f"{path}.{name}.{role}") for role in Roles._fields)
        out[name] = Roles(*read)
    return out


def _written(tasks: Iterable[TaskId]) -> list[str]:
    return [str(t) for t in tasks]


def _written_roles(assignment: Mapping[str, Roles], names: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Return the roles of those names of each instance."""
    return {
        instance: {name: list(roles[name]) for name in names}
        for instance, roles in texts_of(assignment).items()
    }


def _read_move(value: Any, path: str) -> Move:
    m = validation.mapping(value, path, ("task", "role", "from", "to", "why"))
    for key in ("task", "role", "to"):
        if key not in m:
            raise InputError(f"{path}.{key}", found=None, expected="a value")
    if m["role"] not in MOVE_ROLES:
        raise InputError(f"{path}.role", found=m["role"], expected="one of " + ", ".join(MOVE_ROLES))
    origin = m.get("from")
    return Move(
        validation.task_id(m["task"], f"{path}.task"),
        m["role"],
        None if origin is None else validation.text(origin, f"{path}.from"),
        validation.text(m["to"], f"{path}.to"),
        validation.optional_text(m.get("why"), f"{path}.why") or "",
    )
