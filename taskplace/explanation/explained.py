"""The explanation of one task as a value: one paragraph for people, and the same as data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from taskplace.explanation.edits import Edit
from taskplace.explanation.fates import Effect
from taskplace.model import tables as html_tables
from taskplace.wording import listed, wrapped
from topology.tasks import TaskId

WIDTH = 110
#: Kinds of changes that the outlook says in its own words: a copy catches up.
CATCH_UP = ("lag", "lags")
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


class Change(NamedTuple):
    """What would have to change for a task to be elsewhere. It was planned: `effect` is what that plan does.

    >>> print(Change(Edit("drain", "a"), Effect("runs", "b", "b takes it over at once")))
    if a drains, b takes it over at once
    """

    edit: Edit
    effect: Effect

    def __str__(self) -> str:
        return f"if {self.edit}, {self.effect.text}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        effect = {"kind": self.effect.kind, "instance": self.effect.instance}
        return {"edit": self.edit.to_dict(), "effect": effect, "text": str(self)}


class Outlook(NamedTuple):
    """When a task is where it belongs.

    - `state`: "settled" (nothing is planned), "now" (this plan moves it), "catching up" (a copy is on its way), or
      "waiting" (a copy waits for its turn to warm up, or the plan that moves it waits for a batch or a driver)
    - `seconds`: until it is there; None if nothing is planned, or if that is not known
    - `text`: the same in a sentence
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

    - `text`: one paragraph: where the task is, why it is there or waits, and if it was asked for, when it moves and
      what to do
    - `nature`: stateless, or stateful with the length of its changelog
    - `roles`: its roles in this step, the active first
    - `target`: its (role, instance) pairs in the target
    - `copies`: (instance, state of the copy) pairs
    - `refused`: the instances where it is not active, with reasons
    - `changes`, `outlook`: None if they were not asked for (`Explainer.in_full`)
    - `held`: the (role, instance) pairs in force, before this step
    - `waits_for`: what this step waits for, as a clause; "" if for nothing that is known
    - `also`: reasons that the paragraph leaves out, as clauses

    `str()` is the paragraph with the facts below it, and `to_dict` the same for programs.
    """

    task: TaskId
    text: str
    nature: str
    roles: tuple[Role, ...]
    target: tuple[tuple[str, str], ...]
    copies: tuple[tuple[str, str], ...]
    refused: tuple[Refusal, ...]
    changes: tuple[Change, ...] | None = None
    outlook: Outlook | None = None
    held: tuple[tuple[str, str], ...] = ()
    waits_for: str = ""
    also: tuple[str, ...] = ()

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
        lines = wrapped(self.text, width)
        now, step = _listed(self.held), _listed((r.role, r.instance) for r in self.roles)
        facts = [("task", self.nature), ("now", now)]
        if step != now:
            facts.append(("next", f"{step}{f', {self.waits_for}' * bool(self.waits_for)}"))
        if self.target:
            facts.append(("target", _listed(self.target)))
        facts += [("why", clause) for clause in self.also]
        facts += [("if", f"{condition}: {effect}") for condition, effect in conditions(self.changes or ())]
        facts += [("copy", f"{name}: {text}") for name, text in self.copies]
        facts += [("refused", f"{refusal.instance}: {refusal.why}") for refusal in self.refused]
        for name, text in facts:
            lines += wrapped(text, width, f"  {name:<8}", " " * 10)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the paragraph and the facts as tables, for notebooks."""
        shown = f"<p>{escape(self.text)}</p>"
        if ifs := conditions(self.changes or ()):
            shown += html_tables.table(("if", "then"), ifs)
        if self.copies:
            shown += html_tables.table(("instance", "copy"), self.copies)
        if self.refused:
            shown += html_tables.table(("instance", "why it is not active there"), self.refused)
        return shown

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
            "changes": None if self.changes is None else [change.to_dict() for change in self.changes],
            "outlook": None if self.outlook is None else self.outlook._asdict(),
            "also": list(self.also),
        }


def conditions(changes: Iterable[Change]) -> list[tuple[str, str]]:
    """Return what would have to change, and what follows: changes with the same effect are one condition.

    That a copy catches up is left out: the outlook says it.
    """
    by_effect: dict[str, list[str]] = {}
    for change in changes:
        if change.edit.kind not in CATCH_UP:
            by_effect.setdefault(change.effect.text, []).append(str(change.edit))
    return [(_either(edits), effect) for effect, edits in by_effect.items()]


def _either(edits: Sequence[str]) -> str:
    """Return conditions as one, without repeating the subject of all: "a drains or is lost"."""
    first, _, _ = edits[0].partition(" ")
    if len(edits) == 1 or first == "another" or any(edit.partition(" ")[0] != first for edit in edits):
        return listed(edits, last="or")
    return f"{first} {listed((edit.partition(' ')[2] for edit in edits), last='or')}"


def _listed(roles: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{ROLE_WORDS[role]} on {name}" for role, name in roles) or "nowhere"
