"""Random events for a given cluster, from a seed: failures, and the reactions to them."""

from __future__ import annotations

import random

from taskplace import validation
from taskplace.model.problem import Problem
from taskplace.simulation.cluster import Event

MOST_EVENTS = 100_000
"""The most random events at a time: each is planned at least once."""


def random_events(problem: Problem, count: int, seed: int = 0) -> list[list[Event]]:
    """Return `count` groups of one event each: instances die, restart, drain and join. The same seed gives the same.

    At least one instance always stays that can take work. What was stopped starts again sooner or later.

    >>> from taskplace.model.problem import Instance
    >>> cluster = Problem([], [Instance("a"), Instance("b"), Instance("c")])
    >>> [str(group[0].kind) for group in random_events(cluster, 4, seed=1)]
    ['stop', 'stop', 'start', 'stop']
    """
    validation.integer(count, "count", 0, MOST_EVENTS)
    rng = random.Random(f"failures-{seed}")
    working = sorted(i.id for i in problem.instances if i.capacity and not i.draining)
    capacity = {i.id: i.capacity for i in problem.instances}
    names = {i.id for i in problem.instances}
    stopped: list[str] = []
    groups: list[list[Event]] = []
    for number in range(count):
        kinds = ["add"] + ["start"] * 2 * bool(stopped)
        if len(working) > 1:
            kinds += ["kill", "stop", "drain"]
        kind = rng.choice(kinds)
        if kind == "add":
            name = next(
                n for n in (f"new-{number}", *(f"new-{number}-{k}" for k in range(99))) if n not in names
            )
            names.add(name)
            given = rng.choice(sorted(capacity.values())) if capacity else 1
            groups.append([Event("add", name, {"capacity": max(1, given)})])
            working = sorted([*working, name])
            continue
        name = rng.choice(stopped if kind == "start" else working)
        groups.append([Event(kind, name)])
        if kind == "start":
            stopped.remove(name)
            working = sorted([*working, name])
        else:
            working.remove(name)
            if kind == "stop":
                stopped.append(name)
    return groups
