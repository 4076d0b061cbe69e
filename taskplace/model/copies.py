"""Joins the lags and roles that instances report into rows of (task, instance).

A copy row is one (task, instance) pair with a role, a lag, or both. Rows are sorted by task, then by instance. Copies
of unknown tasks are listed separately. Lags are unchanged; `column_building` ranks the copies.

Errors: `InputError` for a lag that is not an integer of at least 0, and for two roles of one task on one instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from taskplace.errors import InputError
from taskplace.model.cluster import Instance
from taskplace.model.locate import Locator, pairs_of
from taskplace.model.problem_columns import (
    ACTIVE,
    NO_COPY,
    ROLE_NAMES,
    STANDBY,
    WARMUP,
    Bools,
    Ints,
    integers,
)
from topology.tasks import TaskId

Roles = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """The copy rows, as columns [k]. `pair`: task * m + instance. `unknown`: copies of tasks outside the problem."""

    pair: Ints
    task: Ints
    inst: Ints
    lag: Ints
    role: Roles
    unknown: tuple[tuple[str, TaskId], ...]


def read_copies(instances: Sequence[Instance], ids: Sequence[TaskId], locate: Locator) -> Copies:
    """Return the copies of the tasks `ids`: an outer join of lags and roles on the pair. O(copies log copies)."""
    by_lag, lag, unmeasured = _lags(instances, locate)
    by_role, role, unplaced = _roles(instances, ids, locate)
    m, held = len(instances), set(unmeasured)
    unknown = (*unmeasured, *(pair for pair in unplaced if pair not in held))
    if np.array_equal(by_lag, by_role):
        return Copies(by_lag, by_lag // m, by_lag % m, lag, role, unknown)
    pair = np.union1d(by_lag, by_role)
    all_lags = np.full(len(pair), NO_COPY, np.int64)
    all_roles = np.zeros(len(pair), np.int8)
    all_lags[np.searchsorted(pair, by_lag)] = lag
    all_roles[np.searchsorted(pair, by_role)] = role
    return Copies(pair, pair // m, pair % m, all_lags, all_roles, unknown)


def read_parked(instances: Sequence[Instance], locate: Locator, open_slots: Ints) -> tuple[Ints, Ints]:
    """Return the parked pairs, and the tasks that are parked on all instances with open slots.

    The pairs of such tasks are not among the parked pairs, because the tasks must run somewhere.
    """
    m = len(instances)
    task, inst, known, _ = _located(instances, [i.parked for i in instances], locate)
    pairs = np.unique((task * m + inst)[known])
    tasks, places = np.unique((pairs // m)[open_slots[pairs % m] > 0], return_counts=True)
    everywhere = tasks[places == int((open_slots > 0).sum())]
    return pairs[~np.isin(pairs // m, everywhere)], everywhere


def read_kept(instances: Sequence[Instance], locate: Locator, open_slots: Ints, parked: Ints) -> Ints:
    """Return the pairs of the tasks that instances with open slots keep, on the other instances; sorted."""
    m = len(instances)
    task, inst, known, _ = _located(instances, [i.keeps for i in instances], locate)
    here = known & (open_slots[inst] > 0) & ~np.isin(task * m + inst, parked)
    task, inst = task[here], inst[here]
    return np.setdiff1d(task[:, None] * m + np.arange(m), task * m + inst)


def _lags(
    instances: Sequence[Instance], locate: Locator
) -> tuple[Ints, Ints, tuple[tuple[str, TaskId], ...]]:
    """Return the pairs with a lag, sorted; their lags; and the copies of unknown tasks."""
    ids: list[Any] = [i.lags.keys() for i in instances]
    task, inst, known, unknown = _located(instances, ids, locate)

    def path(k: int) -> str:
        flat = list(chain.from_iterable(ids))
        return f"instances[{instances[int(inst[k])].id}].lags.{flat[k]}"

    lag = integers(lambda: chain.from_iterable(i.lags.values() for i in instances), len(task), path)
    pair = (task * len(instances) + inst)[known]
    order = np.argsort(pair, kind="stable")
    return pair[order], lag[known][order], unknown


def _roles(
    instances: Sequence[Instance], tasks: Sequence[TaskId], locate: Locator
) -> tuple[Ints, Roles, tuple[tuple[str, TaskId], ...]]:
    """Return the pairs with a role, sorted; their roles; and the copies of unknown tasks."""
    m = len(instances)
    pairs, roles = [], []
    unknown: tuple[tuple[str, TaskId], ...] = ()
    for kind, ids in (
        (ACTIVE, [i.active for i in instances]),
        (STANDBY, [i.standby for i in instances]),
        (WARMUP, [i.warmup for i in instances]),
    ):
        task, inst, known, lost = _located(instances, ids, locate)
        pairs.append((task * m + inst)[known])
        roles.append(np.full(len(pairs[-1]), kind, np.int8))
        unknown += lost
    pair, role = np.concatenate(pairs), np.concatenate(roles)
    order = np.lexsort((role, pair))
    pair, role = pair[order], role[order]
    twice = np.flatnonzero(pair[1:] == pair[:-1])
    if len(twice):
        k = int(twice[0])
        name = instances[int(pair[k] % m)].id
        a, b = (ROLE_NAMES[int(role[j])] for j in (k, k + 1))
        both = f"{tasks[int(pair[k] // m)]} as {a} and {b}"
        raise InputError(f"instances[{name}]", found=both, expected="one role per task")
    return pair, role, unknown


def _located(
    instances: Sequence[Instance], ids: Sequence[Sequence[TaskId]], locate: Locator
) -> tuple[Ints, Ints, Bools, tuple[tuple[str, TaskId], ...]]:
    """Return, for all ids, the positions of their tasks and instances, and which are known; then the unknown copies."""
    counts = [len(i) for i in ids]
    inst = np.repeat(np.arange(len(instances)), counts)
    task = locate(pairs_of(chain.from_iterable(ids), sum(counts)))
    known = task >= 0
    if known.all():
        return task, inst, known, ()
    flat = list(chain.from_iterable(ids))
    lost = ((instances[int(inst[k])].id, TaskId(*flat[k])) for k in np.flatnonzero(~known))
    return task, inst, known, tuple(lost)
