"""Writes the one paragraph about a task that a tired person understands: where it is, why, what would change it, when.

All surfaces show this paragraph: the command line, `placed.explain`, JSON (`text`), and pages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from taskplace.explanation.explained import Change, Outlook, Role
from taskplace.wording import listed, noun
from topology.ids import TaskId

#: The most changes that the paragraph says. The others are in the explanation's `changes`.
MOST_CHANGES = 3
#: Kinds of changes that the outlook says in its own words: a copy catches up.
CATCH_UP = ("lag", "lags")


def sentences(clauses: Iterable[str], names: Collection[str] = ()) -> str:
    """Return clauses as sentences. The first letter is raised, but not that of a name of an instance.

    >>> sentences(["it stays on b", "b drains", ""], names={"b"})
    'It stays on b. b drains.'
    """
    done = []
    for clause in clauses:
        if clause:
            first = clause.split(maxsplit=1)[0].rstrip(",:;.")
            text = clause if first in names else clause[0].upper() + clause[1:]
            done.append(text if text.endswith((".", "?", "!")) else f"{text}.")
    return " ".join(done)


def place(task: TaskId, roles: Sequence[Role], owner: str, held: Mapping[str, str]) -> str:
    """Return where a task is, and which of its copies begin: one sentence.

    - `roles`: in the step, the active first
    - `owner`: where it was active before the plan; "" if nowhere
    - `held`: its roles in force by instance, before the step

    >>> roles = [Role("active", "a", ""), Role("standby", "b", ""), Role("warmup", "c", "")]
    >>> place(TaskId(0, 1), roles, "a", {"a": "active", "b": "standby"})
    '0_1 is active on a, with a standby on b, and c begins a warm-up.'
    >>> place(TaskId(0, 1), roles, "a", {"a": "active", "b": "standby", "c": "warmup"})
    '0_1 is active on a, with a standby on b and a warm-up on c.'
    """
    if not roles or roles[0].role != "active":
        return f"{task} has no place in the plan."
    active = roles[0].instance
    if owner == active:
        where = f"{task} is active on {active}"
    else:
        where = f"{task} moves from {owner} to {active}" if owner else f"{task} becomes active on {active}"
    there, new = [], []
    for role, word, verb in (("standby", "standby", "become"), ("warmup", "warm-up", "begin")):
        names = [each.instance for each in roles if each.role == role]
        for kept in (True, False):
            some = [name for name in names if (held.get(name) == role) is kept]
            what = f"{'a ' if len(some) == 1 else ''}{noun(len(some), word)}"
            if some and kept:
                there.append(f"{what} on {listed(some)}")
            elif some:
                new.append(f"{listed(some)} {noun(len(some), f'{verb}s', verb)} {what}")
    *others, last = [f"{where}, with {listed(there)}" if there else where, *new]
    return f"{', '.join(others)}, and {last}." if others else f"{last}."


def ifs(changes: Iterable[Change], most: int | None = MOST_CHANGES) -> list[str]:
    """Return what would have to change, as clauses. Changes with the same effect are one clause."""
    by_effect: dict[str, list[str]] = {}
    for change in changes:
        if change.edit.kind not in CATCH_UP:
            by_effect.setdefault(change.effect.text, []).append(str(change.edit))
    clauses = [f"if {_either(edits)}, {effect}" for effect, edits in by_effect.items()]
    return clauses[:most]


def _either(edits: Sequence[str]) -> str:
    """Return conditions as one, without repeating the subject of all: "a drains or is lost"."""
    first, _, _ = edits[0].partition(" ")
    same = all(edit.partition(" ")[0] == first for edit in edits)
    rest = [edit.partition(" ")[2] for edit in edits]
    return f"{first} {listed(rest, last='or')}" if same and first != "an" else listed(edits, last="or")


def paragraph(
    where: str,
    why: Iterable[str],
    outlook: Outlook | None,
    changes: Iterable[Change],
    names: Collection[str] = (),
) -> str:
    """Return the paragraph of its parts, in the order in which a reader asks."""
    parts = [where, sentences(why, names), outlook.text if outlook else "", sentences(ifs(changes), names)]
    return " ".join(part for part in parts if part)
