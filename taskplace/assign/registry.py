"""Assignors of your own: found by name, given the cluster, and believed only if their answer is valid.

`task.assignor.class` names one of the built-in assignors, an entry point of the group "taskplace.assignors", or
"module:attribute". An assignor is anything with a method `assign(problem)`, a class with one, or a function; it
returns the target: for each instance its active and standby tasks.

    class Alphabetical:
        def assign(self, problem: Problem) -> Mapping[str, Roles]: ...

An answer that is not valid, or an exception, never stops the cluster: the assignment in force is kept if it is still
complete, the built-in target is taken if not, and the plan says why in its warnings. Whatever the target, the refiner
decides how to get there, so no task stalls.

Source: KIP-924.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

import numpy as np

from taskplace.errors import ConfigError, InvalidPlan
from taskplace.model.columns import STANDBY, Columns, Ints
from taskplace.model.placement import Target, moved
from taskplace.model.plan import Roles
from taskplace.model.problem import Problem

BUILT_IN = ("high_availability", "sticky")
GROUP = "taskplace.assignors"


@runtime_checkable
class Assignor(Protocol):
    """What a user-supplied assignor has to offer."""

    def assign(self, problem: Problem) -> Mapping[str, Any]:
        """Return, for each instance id, a `Roles` or a dict with "active" and "standby"; warm-ups are not its task."""


def find(name: str) -> Callable[[Problem], Mapping[str, Any]]:
    """Return the function that assigns, for a name that is not built in; `ConfigError` if there is none.

    >>> find("no_such_assignor")
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.task.assignor.class: found 'no_such_assignor', expected high_availability, \
sticky, an entry point of 'taskplace.assignors', or 'module:attribute'
    """
    expected = f"{', '.join(BUILT_IN)}, an entry point of {GROUP!r}, or 'module:attribute'"
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(
                "config.task.assignor.class", found=name, expected=expected, hint=str(error)
            ) from None
    else:
        points = entry_points(group=GROUP, name=name)
        if not points:
            raise ConfigError("config.task.assignor.class", found=name, expected=expected)
        found = next(iter(points)).load()
    if isinstance(found, type):
        found = found()
    assign = getattr(found, "assign", found)
    if not callable(assign):
        raise ConfigError(
            "config.task.assignor.class", found=name, expected="an object with a method assign(problem)"
        )
    function: Callable[[Problem], Mapping[str, Any]] = assign
    return function


def read(problem: Problem, answer: Any) -> tuple[Ints, Ints, Ints]:
    """Return (actives, tasks of standbys, their instances) of an answer; `InvalidPlan` says what is wrong with it."""
    c = problem.columns
    if not isinstance(answer, Mapping):
        raise InvalidPlan(f"it returned {type(answer).__name__}, expected a mapping of instance ids to roles")
    at = {t: k for k, t in enumerate(c.ids)}
    active = np.full(c.n, -1, np.int64)
    standby: set[tuple[int, int]] = set()
    for name, roles in answer.items():
        if name not in c.names:
            raise InvalidPlan(f"{name!r} is no instance of the problem")
        i = c.names.index(name)
        held = roles._asdict() if isinstance(roles, Roles) else roles
        for role in ("active", "standby"):
            for t in held.get(role, ()):
                k = at.get(t)
                if k is None:
                    raise InvalidPlan(f"{t!s} is no task of the problem")
                if not c.room[i]:
                    raise InvalidPlan(f"{t!s} is put on {name}, which is draining or has no capacity")
                if role == "active" and active[k] >= 0:
                    raise InvalidPlan(f"{t!s} is active twice")
                if role == "active":
                    active[k] = i
                elif not c.stateful[k]:
                    raise InvalidPlan(f"{t!s} is stateless, and has a standby on {name}")
                else:
                    standby.add((k, i))
    missing = np.flatnonzero(active < 0)
    if len(missing):
        raise InvalidPlan(f"{len(missing)} tasks are active nowhere, e.g. {c.ids[int(missing[0])]}")
    twice = [(k, i) for k, i in sorted(standby) if active[k] == i]
    if twice:
        k, i = twice[0]
        raise InvalidPlan(f"{c.ids[k]} is active and standby on {c.names[i]}")
    pairs = np.array(sorted(standby), np.int64).reshape(-1, 2)
    return active, pairs[:, 0], pairs[:, 1]


def checked(problem: Problem, answer: Any, base: Ints, replicas: int) -> Target:
    """Return the target of an answer; raise `InvalidPlan` if it breaks an invariant."""
    c = problem.columns
    active, task, inst = read(problem, answer)
    counts = np.bincount(task, minlength=c.n)
    short = np.flatnonzero(c.stateful & (counts < replicas))
    if len(short):
        text = f"{len(short)} tasks have fewer than {replicas} standbys, e.g. {c.ids[int(short[0])]}"
        raise InvalidPlan(text)
    return Target(active, task, inst, replicas, base, int(moved(c, base, active).sum()), 0)


def in_force(c: Columns, base: Ints, replicas: int) -> Target | None:
    """Return the assignment in force as a target, if it is complete and nothing of it has to go."""
    rows = np.flatnonzero((c.role == STANDBY) & c.stateful[c.task])
    if (c.owner < 0).any() or (c.room[c.owner] == 0).any() or (c.room[c.inst[rows]] == 0).any():
        return None
    if (np.bincount(c.task[rows], minlength=c.n)[c.stateful] < replicas).any():
        return None
    return Target(c.owner, c.task[rows], c.inst[rows], replicas, base, 0, 0)
