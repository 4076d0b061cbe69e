"""Runs custom assignors: finds them by name, and uses their answer only if it is valid.

`task.assignor.class` names a built-in assignor, an entry point of the group "taskplace.assignors", or
"module:attribute". An assignor is an object with a method `assign(problem)`, a class of such objects, or a function. It
returns the target: the active and standby tasks of each instance.

    class Alphabetical:
        def assign(self, problem: Problem) -> Mapping[str, Roles]: ...

An invalid answer or an exception never stops the cluster: the built-in target is used, and a warning of the plan gives
the reason. In a valid answer, each task is active once, and its standbys are complete and on other instances. No task
is on a draining instance, and no new copy is on an instance where it is parked. The refiner decides how to reach any
target, so no task stalls.

Source: KIP-924.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

import numpy as np

from taskplace import validation
from taskplace.assign.active import place_actives
from taskplace.errors import ConfigError, InvalidPlan
from taskplace.model import callables
from taskplace.model.assignors import BUILT_IN as BUILT_IN
from taskplace.model.callables import unfit
from taskplace.model.placement import Target, moved
from taskplace.model.plan import Roles
from taskplace.model.problem import Problem
from taskplace.model.problem_columns import Ints
from topology.tasks import TaskId

GROUP = "taskplace.assignors"


@runtime_checkable
class Assignor(Protocol):
    """The interface of a custom assignor."""

    def assign(self, problem: Problem) -> Mapping[str, Any]:
        """Return, for each instance id, a `Roles` or a dict with "active" and "standby". The refiner adds warm-ups."""


def find(name: str, key: str = "config.task.assignor.class") -> Callable[[Problem], Mapping[str, Any]]:
    """Return the `assign` function of a custom assignor.

    Errors: `ConfigError` for `key` if the assignor is unknown or cannot be loaded.

    >>> find("no_such_assignor")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.task.assignor.class: found 'no_such_assignor', expected high_availability, \
..., an entry point of 'taskplace.assignors', or 'module:attribute'
    """
    expected = f"{', '.join(BUILT_IN)}, an entry point of {GROUP!r}, or 'module:attribute'"
    points = () if ":" in name else entry_points(group=GROUP, name=name)
    if ":" not in name and not points:
        known = (*BUILT_IN, *sorted({point.name for point in entry_points(group=GROUP)}))
        raise ConfigError(key, found=name, expected=expected, hint=validation.nearest(name, known))
    try:
        loaded = callables.load(name) if ":" in name else next(iter(points)).load()
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(key, found=name, expected=expected, hint=_said(error)) from None
    except (Exception, SystemExit) as error:  # a custom module may raise anything on import
        raise ConfigError(
            key, found=name, expected="an assignor that can be loaded", hint=_said(error)
        ) from None
    if isinstance(loaded, type):
        try:
            loaded = loaded()
        except (Exception, SystemExit) as error:
            expected = "a class whose constructor needs no arguments"
            raise ConfigError(key, found=name, expected=expected, hint=_said(error)) from None
    assign = getattr(loaded, "assign", loaded)
    if not callable(assign):
        raise ConfigError(key, found=name, expected="an object with a method assign(problem)")
    if (parameters := unfit(assign, ["problem"])) is not None:
        raise ConfigError(key, found=f"{name}, called with {parameters}", expected="an assignor of (problem)")
    function: Callable[[Problem], Mapping[str, Any]] = assign
    return function


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def answer(problem: Problem, base: Ints, replicas: int, default: Callable[[], Target]) -> Target:
    """Return the target of the configured custom assignor, or the default target if its answer is invalid.

    Errors: `ConfigError` if the assignor is unknown or cannot be loaded.
    """
    name = problem.config.task_assignor_class
    assign = find(name)
    try:
        return checked(problem, assign(problem), base, replicas)
    except (Exception, SystemExit) as error:  # an error of custom code must not stop the cluster
        why = str(error) if isinstance(error, InvalidPlan) else _said(error)
        target = default()
        note = f"the plan of assignor {name!r} is rejected: {why}; high_availability is used"
        return replace(target, notes=(note, *target.notes))


def read(problem: Problem, answer: Any) -> tuple[Ints, Ints, Ints]:
    """Return (actives, standbys' tasks, standbys' instances) of an answer. Errors: `InvalidPlan` with the reason."""
    c = problem.columns
    if not isinstance(answer, Mapping):
        raise InvalidPlan(f"it returned {type(answer).__name__}, expected a mapping of instance ids to roles")
    at = {t: k for k, t in enumerate(c.ids)}
    active = np.full(c.n, -1, np.int64)
    standby: set[tuple[int, int]] = set()
    places = {name: i for i, name in enumerate(c.names)}
    barred = {"active": frozenset(c.barred.tolist()), "standby": frozenset(c.parked.tolist())}
    for name, roles in answer.items():
        i = places.get(name, -1)
        if i < 0:
            raise InvalidPlan(f"{name!r} is not an instance of the problem")
        for role, given in _roles(name, roles):
            k = _position(at, given)
            if not c.open_slots[i]:
                raise InvalidPlan(f"{given!s} is assigned to {name}, which is draining or has no capacity")
            if k * c.m + i in barred[role] and not (role == "active" and c.owner[k] == i):
                raise InvalidPlan(
                    f"{given!s} is assigned to {name}, where its copy is parked because it made no progress, or while "
                    "another instance keeps it"
                )
            if role == "active" and active[k] >= 0:
                raise InvalidPlan(f"{given!s} is active twice")
            if role == "active":
                active[k] = i
            elif not c.stateful[k]:
                raise InvalidPlan(f"{given!s} is stateless but has a standby on {name}")
            else:
                standby.add((k, i))
    missing = np.flatnonzero(active < 0)
    if len(missing):
        raise InvalidPlan(f"{len(missing)} tasks have no active copy, e.g. {c.ids[int(missing[0])]}")
    twice = [(k, i) for k, i in sorted(standby) if active[k] == i]
    if twice:
        k, i = twice[0]
        raise InvalidPlan(f"{c.ids[k]} is active and standby on {c.names[i]}")
    pairs = np.array(sorted(standby), np.int64).reshape(-1, 2)
    return active, pairs[:, 0], pairs[:, 1]


def _roles(name: str, roles: Any) -> Iterator[tuple[str, Any]]:
    """Yield the (role, task) pairs that an answer gives to one instance."""
    held = roles._asdict() if isinstance(roles, Roles) else roles
    if not isinstance(held, Mapping):
        raise InvalidPlan(
            f"{name} gets {type(held).__name__}, expected Roles or a dict of 'active' and 'standby'"
        )
    if strange := [role for role in held if role not in Roles._fields]:
        raise InvalidPlan(f"{name} gets the role {strange[0]!r}, expected 'active' or 'standby'")
    for role in ("active", "standby"):
        tasks = held.get(role) or ()
        if isinstance(tasks, str) or not isinstance(tasks, Iterable):
            raise InvalidPlan(f"{name} gets {tasks!r} as {role}, expected a list of tasks")
        yield from ((role, t) for t in tasks)


def _position(at: Mapping[TaskId, int], given: Any) -> int:
    """Return the position of a task, given as a `TaskId` or as text like "0_1"."""
    try:
        return at[TaskId.parse(given) if isinstance(given, str) else TaskId(*given)]
    except (KeyError, TypeError, ValueError):
        raise InvalidPlan(f"{given!s} is not a task of the problem") from None


def checked(problem: Problem, answer: Any, base: Ints, replicas: int) -> Target:
    """Return the target of an answer. Errors: `InvalidPlan` if it breaks an invariant."""
    c = problem.columns
    active, task, inst = read(problem, answer)
    counts = np.bincount(task, minlength=c.n)
    short = np.flatnonzero(c.stateful & (counts < replicas))
    if len(short):
        text = f"{len(short)} tasks have fewer than {replicas} standbys, e.g. {c.ids[int(short[0])]}"
        raise InvalidPlan(text)
    bound = place_actives(c, base).lower_bound
    return Target(
        active=active,
        standby_task=task,
        standby_inst=inst,
        replicas=replicas,
        base=base,
        moves=int(moved(c, base, active).sum()),
        lower_bound=bound,
    )
