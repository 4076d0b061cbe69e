"""The built-in assignors: their names, and what each promises.

**Idea.** A check or an explanation that holds for some assignors only asks for what it needs (`balanced`,
`fewest_moves`, ...), and compares no name. What an assignor computes is in `taskplace.assign.target`.

An assignor of your own promises nothing: `OWN`.

>>> promises("high_availability").fewest_moves, promises("sticky").fewest_moves, promises("my:own") is OWN
(True, False, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What holds for each target of an assignor. `taskplace.verify` refuses a plan that breaks a promise."""

    balanced: bool
    """Stateful actives keep both balances (of all tasks and of each subtopology), and their weights are levelled.
    Explanations then give the balances as the reason for a placement."""
    fewest_moves: bool
    """Without racks, weights and parked copies, no target with both balances needs fewer moves."""
    weighs_racks: bool
    """It follows `rack.aware.assignment.strategy`; a built-in assignor without it refuses that key."""
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

#: Of an assignor that is not built in.
OWN = Promises(balanced=False, fewest_moves=False, weighs_racks=False, levels_stateless=False)


def promises(name: str) -> Promises:
    """Return what the assignor of this name promises."""
    return BUILT_IN.get(name, OWN)
