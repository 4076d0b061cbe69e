"""The built-in assignors: their names, and the promises of each.

**Idea.** A check or an explanation that holds only for some assignors tests a promise (`balanced`, `fewest_moves`, ...)
and not a name. `taskplace.assign.target` has the code of the assignors.

A custom assignor promises nothing: `OWN`.

>>> promises("high_availability").fewest_moves, promises("sticky").fewest_moves, promises("my:own") is OWN
(True, False, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """Properties that hold for every target of an assignor. `taskplace.verify` refuses a plan that breaks a promise."""

    balanced: bool
    """Stateful actives keep both balances (of all tasks and of each subtopology), and their weights are levelled.
    Explanations then give the balances as the reason for a placement."""
    fewest_moves: bool
    """Without racks, weights and parked copies, no target with both balances needs fewer moves."""
    weighs_racks: bool
    """The assignor supports `rack.aware.assignment.strategy`. A built-in assignor without this promise refuses the key.
    """
    levels_stateless: bool
    """Stateless tasks are level beside the stateful ones, in the target and in each step towards it."""


#: The built-in assignors, by their values of `task.assignor.class`.
BUILT_IN: Mapping[str, Promises] = {
    "high_availability": Promises(
        balanced=True,
        fewest_moves=True,
        weighs_racks=True,
        levels_stateless=True,
    ),
    "sticky": Promises(
        balanced=False,
        fewest_moves=False,
        weighs_racks=False,
        levels_stateless=True,
    ),
}

#: The promises of a custom assignor.
OWN = Promises(balanced=False, fewest_moves=False, weighs_racks=False, levels_stateless=False)


def promises(name: str) -> Promises:
    """Return the promises of the assignor with this name."""
    return BUILT_IN.get(name, OWN)
