"""Writes the paragraph about a task: where it is, why it waits, when it moves, and what to do.

A tired person has to understand it, so it has about four sentences. Everything else is in lines below it. All surfaces
show both: the command line, `placed.explain`, JSON, and pages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from taskplace.explanation.explained import Change, Outlook, Role
from taskplace.explanation.reasons import Why
from taskplace.wording import listed, noun
from topology.tasks import TaskId

#: The keys that a reader may raise for a task that waits.
KEYS = ("max.warmup.replicas", "acceptable.recovery.lag")
#: What such a change does at once, by the kind of its effect.
NOW = {
    "runs": "it would run there now",
    "warm-up": "{} would warm up now",
    "standby": "its standby would move now",
}


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


def advice(changes: Iterable[Change], name: str) -> str:
    """Return a setting with which a task that waits for its copy on `name` would go on now, as a clause; "" if none.

    >>> from taskplace.explanation.edits import Edit
    >>> from taskplace.explanation.fates import Effect
    >>> change = Change(Edit("config", key="max.warmup.replicas", value=4), Effect("warm-up", "b", ""))
    >>> advice([change], "b")
    'with max.warmup.replicas=4 b would warm up now'
    """
    for edit, effect in changes:
        at_once = effect.kind in NOW and effect.instance == name and "after" not in effect.text
        if at_once and edit.key in KEYS:
            return f"with {edit} {NOW[effect.kind].format(name)}"
    return ""


def paragraph(
    where: str,
    place: Why,
    followers: Sequence[Why],
    parked: Iterable[str],
    outlook: Outlook | None,
    names: Collection[str] = (),
) -> tuple[str, list[str]]:
    """Return the paragraph of its parts, in the order in which a reader asks, and the clauses that it leaves out.

    - `place`: why the task is active where it is; left out if only a standby is to move
    - `followers`: why standbys are to move; the first one is said unless the task itself waits
    - `parked`: what is known of parked copies, as clauses
    """
    waiting, *rest = [place, *followers] if place.but or not followers else [*followers, place]
    stopped = outlook.stopped if outlook else ""
    said = [str(waiting._replace(but=stopped) if stopped else waiting)]
    if rest and waiting is not place and not place.why.startswith("it stays"):
        said.insert(0, str(rest.pop()))
    when = [outlook.text, sentences([outlook.remedy], names)] if outlook else []
    parts = [where, sentences([*said, *parked], names), *when]
    return " ".join(part for part in parts if part), [str(each) for each in rest]
