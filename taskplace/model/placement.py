"""Placements as columns: the target, which an assignor returns, and the step, which the refiner derives from it.

The last functions count the reads across racks of a placement (KIP-925). An active reads its input (`Task.racks`), and
a standby its changelogs (`Task.changelog_racks`). A partition is read across racks from every rack that does not serve
it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from typing_extensions import Self

from taskplace.model.config import PlacementConfig
from taskplace.model.problem_columns import Bools, Columns, Ints

RACK_TAG = "rack"


class Base(IntEnum):
    """Where the active of a stateful task may be without a move.

    - FIXED: at its owner, whose copy is among the most caught up (see `Columns.best`), or because no copy exists
    - FORCED: at any instance with a caught-up copy, because the owner is gone or lags
    - RESUME: at any instance with a most-caught-up copy, because no copy is caught up, and the owner is gone or lacks
      far more
    - OPEN: anywhere, because the task has no owner, and has no copy or needs none; or another instance keeps it
    """

    FIXED = 0
    FORCED = 1
    RESUME = 2
    OPEN = 3


# Plain integers: numpy compares a column with an enum member ten times more slowly.
FIXED, FORCED, RESUME, OPEN = map(int, Base)


class Reason(IntEnum):
    """Why a copy is where a plan puts it; `text` is its wording in the plan's moves."""

    text: str

    def __new__(cls, number: int, text: str) -> Self:
        """Return the member of that number."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.text = text
        return member

    GONE = 0, "the owner is gone"
    LAGS = 1, "the owner lags"
    RESUMES = 2, "start, with the copy that lacks least"
    LACKS = 3, "no copy is caught up, and the owner lacks far more"
    STARTS = 4, "start"
    DRAINS = 5, "drain"
    FOR_NOW = 6, "balance for now"
    BALANCE = 7, "balance"
    KEEPS = 8, "keeps its copy"
    COPY = 9, "standby"
    STANDBY_MOVES = 10, "standby move"
    STAYS = 11, "stays"
    WAITS = 12, "waits until the copy at its target is caught up"
    ONLY = 13, "has the only entries of stores that are not logged"


class Decision(NamedTuple):
    """What the engine decided, for explanations.

    - `reason`: [n] the `Reason` of each task's active
    - `queue_task`, `queue_inst`: the copies that wait for `max.warmup.replicas`, in the order of their turns
    """

    reason: Ints
    queue_task: Ints
    queue_inst: Ints


@dataclass(frozen=True, slots=True)
class Target:
    """The assignment in which every task is where it belongs.

    - `active`: [n] the instance of each task
    - `standby_task`, `standby_inst`: one entry per standby, sorted by task, then by instance
    - `replicas`: the number of standbys per stateful task
    - `base`: [n] the `Base` of each task
    - `moves`: the number of stateful tasks that leave their base; `lower_bound`: the fewest possible
    - `balanced`: whether both balances could be met
    - `steady`: whether the assignment in force already is the target
    - `notes`: warnings
    """

    active: Ints
    standby_task: Ints
    standby_inst: Ints
    replicas: int
    base: Ints
    moves: int
    lower_bound: int
    balanced: bool = True
    steady: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """The assignment that is safe now: the same columns as `Target`, and the warm-ups.

    - `warmup_from`: for each warm-up, the instance that it will replace; -1 if unknown
    - `waiting`: the number of copies that must warm up, but wait because `max.warmup.replicas` warm-ups are running
    - `behind`: the number of copies that the target needs and that must catch up first
    - `queue_task`, `queue_inst`: these copies, in the order of their turns
    - `owners_behind`: the number of tasks that are active on a lagging copy which a follower may overtake
      (`lagging_owners`)
    - `followup`: whether to plan again, because the step is not yet the target or an owner may be overtaken
    """

    active: Ints
    standby_task: Ints
    standby_inst: Ints
    warmup_task: Ints
    warmup_inst: Ints
    followup: bool
    waiting: int = 0
    behind: int = 0
    warmup_from: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    owners_behind: int = 0
    queue_task: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    queue_inst: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


def bases(c: Columns) -> Ints:
    """Return [n] the `Base` of each task. It is meaningful only for stateful tasks. O(tasks + copies)."""
    owned = c.owner >= 0
    has_best = _tasks_of(c, c.best)
    base = np.full(c.n, OPEN, np.int64)
    base[has_best & ~c.at_once] = RESUME
    base[_tasks_of(c, c.caught) & ~c.at_once] = FORCED
    base[owned & (~has_best | c.at_once | best_at(c, c.owner))] = FIXED
    base[owned & np.isin(np.arange(c.n) * c.m + c.owner, c.kept)] = OPEN
    return base


def moved(c: Columns, base: Ints, place: Ints) -> Bools:
    """Return which stateful tasks leave their base under a placement."""
    chosen = (base == FORCED) | (base == RESUME)
    leaves: Bools = c.stateful & (((base == FIXED) & (place != c.owner)) | (chosen & ~best_at(c, place)))
    return leaves


def handed_over(c: Columns, base: Ints) -> Bools:
    """Return the forced promotions: stateful tasks that leave a lost or lagging owner at once, for a better copy."""
    forced: Bools = c.stateful & ((base == FORCED) | ((base == RESUME) & (c.owner >= 0)))
    return forced


def any_caught(c: Columns) -> Bools:
    """Return, for each task, whether some copy of it is caught up."""
    return c.at_once | _tasks_of(c, c.caught)


def caught_at(c: Columns, place: Ints) -> Bools:
    """Return, for each task t, whether its copy on instance place[t] is caught up."""
    return c.at_once | _tasks_of(c, c.caught & (c.inst == place[c.task]))


def best_at(c: Columns, place: Ints) -> Bools:
    """Return, for each task t, whether no instance has a better copy than instance place[t]."""
    none_has_any = ~_tasks_of(c, c.best)
    return c.at_once | none_has_any | _tasks_of(c, c.best & (c.inst == place[c.task]))


def lagging_owners(c: Columns, active: Ints, *followers: Ints) -> Bools:
    """Return which stateful tasks are active on a lagging copy that a follower may overtake. O(tasks + copies).

    `active`: [n] instances. `followers`: the tasks of standbys and warm-ups. A task is left out if neither its end
    offset nor the lag of its active copy is known.
    """
    followed, known = np.zeros(c.n, np.bool_), c.end > 0
    for tasks in followers:
        followed[tasks] = True
    here = (c.inst == active[c.task]) & (c.lag >= 0)
    known = known | _tasks_of(c, here)
    waits: Bools = c.stateful & followed & known & ~caught_at(c, active)
    return waits


def _tasks_of(c: Columns, rows: Bools) -> Bools:
    out = np.zeros(c.n, np.bool_)
    out[c.task[rows]] = True
    return out


def cross_rack_reads(c: Columns) -> tuple[Ints, Ints] | None:
    """Return the rack of each instance and [tasks, racks] reads of input across racks; None if racks are not known."""
    return _reads(c, c.racks)


def changelog_reads(c: Columns) -> tuple[Ints, Ints] | None:
    """Return the rack of each instance and [tasks, racks] reads of changelogs across racks; None if unknown."""
    return _reads(c, c.changelog_racks)


def _reads(c: Columns, partitions: Sequence[Sequence[Sequence[str]]]) -> tuple[Ints, Ints] | None:
    names = [t.get(RACK_TAG, "") for t in c.tags]
    if not all(names) or not any(partitions):
        return None
    racks = sorted(set(names))
    rack_of = np.array([racks.index(n) for n in names], np.int64)
    reads = np.zeros((c.n, len(racks)), np.int64)
    for t, served_by in enumerate(partitions):
        for served in served_by:
            if served:  # it is not known which racks serve a partition without racks
                reads[t] += [rack not in served for rack in racks]
    return rack_of, reads


def costs(config: PlacementConfig) -> tuple[int, int]:
    """Return the prices of a read across racks and of a move: as configured, else 10 and 1."""
    traffic, move = config.rack_aware_assignment_traffic_cost, config.rack_aware_assignment_non_overlap_cost
    return 10 if traffic is None else traffic, 1 if move is None else move


def reduced_costs(config: PlacementConfig) -> tuple[int, int, int]:
    """Return `costs` divided by their common factor, and the factor. Only the ratio of the prices matters.

    Smaller numbers leave more room for the lower levels of cost.
    """
    traffic, move = costs(config)
    common = math.gcd(traffic, move) or 1
    return traffic // common, move // common, common
