"""A problem as numpy columns: what the engine computes on.

All tasks and all instances are known by their position in canonical (sorted) order. A *copy row* is one pair
(task, instance) for which there is a role, a lag, or both; rows are sorted by task, then by instance.

Non-goals: nothing is decided here, except the one thing everybody has to agree on: which copies are caught
up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from taskplace import validation
from taskplace.errors import InputError
from taskplace.model.config import PlacementConfig
from taskplace.model.locate import Locator, pairs_of
from topology.ids import TaskId

if TYPE_CHECKING:
    from taskplace.model.cluster import Instance, Task

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NONE, ACTIVE, STANDBY, WARMUP = 0, 1, 2, 3
ROLE_NAMES = ("none", "active", "standby", "warmup")
UNKNOWN = -1  # an end offset that is not known
NO_COPY = -1  # the lag of a row that has a role but no usable copy
TENTH = 10  # a lead of less than this part of a lag is no reason to change hands


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The columns; n tasks, m instances, k copy rows.

    A copy is caught up if its lag is at most `acceptable.recovery.lag` (or, with
    `acceptable.recovery.seconds` and a measured rate, if it can be read in that time). A lag beyond the end
    offset belongs to a changelog that was reset: such a copy is no copy. Where `universal`, no copy is
    needed: every instance is caught up. Where `at_once`, every instance counts as caught up, though a copy may be
    worth having.
    """

    ids: tuple[TaskId, ...]
    names: tuple[str, ...]
    sub: Ints
    """[n] position of the task's subtopology in `subtopologies`."""
    subtopologies: Ints
    stateful: Bools
    end: Ints
    """[n] end offset in records, or UNKNOWN."""
    universal: Bools
    """[n] stateful, and every instance counts as caught up: empty changelog, or not logged."""
    weight: npt.NDArray[np.float64]
    open_slots: Ints
    """[m] capacity; 0 while draining."""
    draining: Bools
    owner: Ints
    """[n] the instance that has the task active, or -1."""
    start: Ints
    """[n + 1] rows start[t]:start[t + 1] are those of task t."""
    task: Ints
    inst: Ints
    lag: Ints
    """[k] records behind, or NO_COPY."""
    role: npt.NDArray[np.int8]
    caught: Bools
    best: Bools
    """[k] most caught up: nobody has a better copy. All that are caught up; if nobody is, those that lack least, if
    they have anything at all, and the owner's, unless another is ahead of it by more than what is acceptable
    (`acceptable.recovery.lag`, or its equivalent in time) and by more than a tenth of what the owner lacks. So a task
    changes hands only for a copy that lacks a tenth less at least, which ends soon."""
    parked: Ints
    """Parked pairs as task * m + instance, sorted."""
    unknown: tuple[tuple[str, TaskId], ...]
    """Copies of tasks that are not in the problem: (instance, task)."""
    tags: tuple[Mapping[str, str], ...]
    racks: tuple[tuple[tuple[str, ...], ...], ...]
    changelog_racks: tuple[tuple[tuple[str, ...], ...], ...]
    fingerprint: str
    notes: tuple[str, ...] = field(default=())
    unbounded: bool = False
    """Whether `acceptable.recovery.lag` is unbounded: every instance counts as caught up on every task."""

    @property
    def at_once(self) -> Bools:
        """[n] stateful, and free to run anywhere at once: `universal`, or all of them where `unbounded`."""
        return self.stateful if self.unbounded else self.universal

    @property
    def n(self) -> int:
        """The number of tasks."""
        return len(self.ids)

    @property
    def m(self) -> int:
        """The number of instances."""
        return len(self.names)


def build(tasks: Sequence[Task], instances: Sequence[Instance], config: PlacementConfig) -> Columns:
    """Return the columns of a problem whose tasks and instances are sorted; raise InputError for bad
    values.
    """
    n, m = len(tasks), len(instances)
    if m == 0:
        raise InputError("instances", found="no instance", expected="at least one")
    ids, stateful_, end_, weight_, logged_, racks_, changelogs_ = zip(*tasks, strict=True) if n else ((),) * 7
    names = tuple(i.id for i in instances)
    for a, b in pairwise(names):
        if a == b:
            raise InputError("instances", found=a, expected="every instance once")
    sub_partition = pairs_of(ids, n)
    key = (sub_partition[:, 0] << 32) | sub_partition[:, 1]
    if n and (sub_partition.min() < 0 or sub_partition.max() >= 2**31):
        raise InputError("tasks", found=str(min(ids)), expected="ids of two numbers from 0 to 2147483647")
    repeated = np.flatnonzero(key[1:] == key[:-1])
    if len(repeated):
        raise InputError("tasks", found=str(ids[int(repeated[0])]), expected="every task once")
    stateful = np.fromiter(stateful_, np.bool_, n)
    logged = np.fromiter(logged_, np.bool_, n)
    end = _filled(lambda: end_, n, lambda k: f"tasks[{ids[k]}].end_offset")
    weight = np.fromiter(weight_, np.float64, n)
    light, heavy = validation.LEAST_WEIGHT, validation.MOST_WEIGHT
    expected = f"a weight from {light:g} to {heavy:g}"
    _check(ids, ~((weight >= light) & (weight <= heavy)), "weight", weight, expected)
    universal = stateful & ((end == 0) | ~logged)
    draining = np.fromiter((i.draining for i in instances), np.bool_, m)
    capacity = _filled(
        lambda: (i.capacity for i in instances),
        m,
        lambda k: f"instances[{names[k]}].capacity",
        validation.MOST_CAPACITY,
    )
    notes: list[str] = []
    open_slots = np.where(draining, 0, capacity)
    if not open_slots.any():
        open_slots = np.maximum(capacity, 1)
        notes.append(
            f"all {m} instances are draining or have no capacity: tasks stay on them; add an instance"
        )

    locate = Locator(key)
    unknown: list[tuple[str, TaskId]] = []
    pair_lag, lag = _lag_rows(instances, locate, m, unknown)
    pair_role, role = _role_rows(instances, ids, locate, m, unknown)
    pairs, row_lag, row_role = _merge(pair_lag, lag, pair_role, role)
    task, inst = pairs // m, pairs % m

    # A copy further behind than its changelog is long is a copy of another changelog.
    reset = (row_lag > end[task]) & (end[task] >= 0) & ~universal[task] & stateful[task]
    if reset.any():
        notes.append(
            f"{int(reset.sum())} copies are further behind than their changelog is long (reset): unused, "
            f"e.g. {ids[int(task[reset][0])]} on {names[int(inst[reset][0])]}"
        )
    row_lag = np.where(reset, NO_COPY, row_lag)
    acceptable = _acceptable(instances, config)[inst]
    at_once = stateful if config.unbounded else universal
    caught = at_once[task] | ((row_lag >= 0) & (row_lag <= acceptable))
    owner, extra = _owners(n, task, inst, row_role, row_lag, caught)
    best = _best(task, row_lag, caught, end, at_once, owner[task] == inst, acceptable)
    if len(extra):
        row_role = row_role.copy()
        row_role[extra] = NONE
        first = f"{ids[int(task[extra[0]])]} on {names[int(inst[extra[0]])]}"
        notes.append(f"{len(extra)} tasks are active twice; the better copy counts, e.g. not {first}")
    if unknown:
        where = f"e.g. {unknown[0][1]} on {unknown[0][0]}"
        notes.append(
            f"{len(unknown)} copies belong to tasks that do not exist: ignored, can be cleaned up; {where}"
        )
    parked, everywhere = _parked(instances, locate, open_slots)
    if len(everywhere):
        notes.append(
            f"{len(everywhere)} tasks are parked on every instance that can take work, e.g. "
            f"{ids[int(everywhere[0])]}: there is no other place, so they are tried again; add an instance"
        )
    subs, sub = np.unique(sub_partition[:, 0], return_inverse=True)
    start = np.searchsorted(task, np.arange(n + 1))
    digest = hashlib.sha256()
    for part in (
        key,
        stateful,
        logged,
        end,
        weight,
        open_slots,
        draining,
        capacity,
        pairs,
        row_lag,
        row_role,
        parked,
    ):
        digest.update(np.ascontiguousarray(part).tobytes())
        digest.update(b"|")
    digest.update(_canonical([names, [sorted(i.tags.items()) for i in instances]]))
    digest.update(_canonical([[i.restore_rate for i in instances], config.to_properties(), sorted(unknown)]))
    digest.update(_canonical(racks_ if any(racks_) else []))
    if any(changelogs_):
        digest.update(_canonical(["changelogs", changelogs_]))
    if any(i.slots for i in instances):
        digest.update(_canonical([i.slots for i in instances]))
    return Columns(
        ids=tuple(ids),
        names=names,
        sub=sub.astype(np.int64),
        subtopologies=subs.astype(np.int64),
        stateful=stateful,
        end=end,
        universal=universal,
        weight=weight,
        open_slots=open_slots,
        draining=draining,
        owner=owner,
        start=start.astype(np.int64),
        task=task,
        inst=inst,
        lag=row_lag,
        role=row_role,
        caught=caught,
        best=best,
        parked=parked,
        unknown=tuple(sorted(unknown)),
        tags=tuple(i.tags for i in instances),
        racks=racks_,
        changelog_racks=changelogs_,
        fingerprint=digest.hexdigest()[:16],
        notes=tuple(notes),
        unbounded=config.unbounded,
    )


def _known(
    instances: Sequence[Instance],
    ids: Sequence[Sequence[TaskId]],
    locate: Locator,
    unknown: list[tuple[str, TaskId]],
) -> tuple[Ints, Ints, Bools]:
    """Return positions of tasks and instances of all ids, and which of them are known."""
    counts = [len(i) for i in ids]
    inst = np.repeat(np.arange(len(instances)), counts)
    task = locate(pairs_of(chain.from_iterable(ids), sum(counts)))
    known = task >= 0
    if not known.all():
        flat = list(chain.from_iterable(ids))
        unknown.extend((instances[int(inst[k])].id, TaskId(*flat[k])) for k in np.flatnonzero(~known))
    return task, inst, known


def _lag_rows(
    instances: Sequence[Instance], locate: Locator, m: int, unknown: list[tuple[str, TaskId]]
) -> tuple[Ints, Ints]:
    ids: list[Any] = [i.lags.keys() for i in instances]
    task, inst, known = _known(instances, ids, locate, unknown)

    def path(k: int) -> str:
        flat = list(chain.from_iterable(ids))
        return f"instances[{instances[int(inst[k])].id}].lags.{flat[k]}"

    lag = _filled(lambda: chain.from_iterable(i.lags.values() for i in instances), len(task), path)
    pair = (task * m + inst)[known]
    order = np.argsort(pair, kind="stable")
    return pair[order], lag[known][order]


def _role_rows(
    instances: Sequence[Instance],
    ids_of_tasks: Sequence[TaskId],
    locate: Locator,
    m: int,
    unknown: list[tuple[str, TaskId]],
) -> tuple[Ints, npt.NDArray[np.int8]]:
    pairs, roles = [], []
    lost: list[tuple[str, TaskId]] = []
    for role, ids in (
        (ACTIVE, [i.active for i in instances]),
        (STANDBY, [i.standby for i in instances]),
        (WARMUP, [i.warmup for i in instances]),
    ):
        task, inst, known = _known(instances, ids, locate, lost)
        pairs.append((task * m + inst)[known])
        roles.append(np.full(len(pairs[-1]), role, np.int8))
    held = set(unknown)
    unknown.extend(pair for pair in lost if pair not in held)
    pair, role_ = np.concatenate(pairs), np.concatenate(roles)
    order = np.lexsort((role_, pair))
    pair, role_ = pair[order], role_[order]
    twice = np.flatnonzero(pair[1:] == pair[:-1])
    if len(twice):
        k = int(twice[0])
        name = instances[int(pair[k] % m)].id
        a, b = (ROLE_NAMES[int(role_[j])] for j in (k, k + 1))
        found = f"{ids_of_tasks[int(pair[k] // m)]} as {a} and {b}"
        raise InputError(f"instances[{name}]", found=found, expected="one role per task")
    return pair, role_


def _merge(
    pair_lag: Ints, lag: Ints, pair_role: Ints, role: npt.NDArray[np.int8]
) -> tuple[Ints, Ints, npt.NDArray[np.int8]]:
    """Join lags and roles on the pair (outer join)."""
    if np.array_equal(pair_lag, pair_role):
        return pair_lag, lag, role
    pairs = np.union1d(pair_lag, pair_role)
    out_lag = np.full(len(pairs), NO_COPY, np.int64)
    out_role = np.zeros(len(pairs), np.int8)
    out_lag[np.searchsorted(pairs, pair_lag)] = lag
    out_role[np.searchsorted(pairs, pair_role)] = role
    return pairs, out_lag, out_role


def _acceptable(instances: Sequence[Instance], config: PlacementConfig) -> Ints:
    """Return, per instance, the lag up to which a copy there is caught up."""
    if config.acceptable_recovery_seconds is None or config.unbounded:
        return np.full(len(instances), config.acceptable_recovery_lag, np.int64)
    return np.fromiter((acceptable_lag(i, config) for i in instances), np.int64, len(instances))


def acceptable_lag(instance: Instance, config: PlacementConfig) -> int:
    """Return the lag in records up to which a copy on `instance` is caught up.

    That is `acceptable.recovery.lag`; with `acceptable.recovery.seconds`, what the instance reads in that time, if its
    rate is known. An unbounded `acceptable.recovery.lag` stays unbounded.
    """
    if config.unbounded or config.acceptable_recovery_seconds is None or instance.restore_rate is None:
        return config.acceptable_recovery_lag
    return int(min(instance.restore_rate * config.acceptable_recovery_seconds, 2**62))


def _best(
    task: Ints, lag: Ints, caught: Bools, end: Ints, at_once: Bools, owns: Bools, acceptable: Ints
) -> Bools:
    """Return the rows of the most-caught-up copies: KIP-441's least rank. A copy that has read nothing is none.

    Where nobody is caught up, the owner's copy counts as well, unless another is far ahead (see `Columns.best`):
    else two copies that catch up side by side would hand the task to and fro.
    """
    some = (lag >= 0) & ((lag < end[task]) | (end[task] < 0)) & ~at_once[task]
    least = np.full(len(end), np.iinfo(np.int64).max)
    np.minimum.at(least, task[some], lag[some])
    ready = np.zeros(len(end), np.bool_)
    ready[task[caught]] = True
    best = np.where(ready[task], caught, some & (lag == least[task]))
    mine = np.flatnonzero(some & owns & ~ready[task])
    lead = lag[mine] - least[task[mine]]
    best[mine[lead <= np.maximum(acceptable[mine], lag[mine] // TENTH)]] = True
    return best


def _owners(
    n: int, task: Ints, inst: Ints, role: npt.NDArray[np.int8], lag: Ints, caught: Bools
) -> tuple[Ints, Ints]:
    """Return the instance that has each task active (-1: none), and the rows that lose to a better copy."""
    rows = np.flatnonzero(role == ACTIVE)
    owner = np.full(n, -1, np.int64)
    behind = np.where(lag[rows] < 0, np.iinfo(np.int64).max, lag[rows])
    order = np.lexsort((inst[rows], behind, ~caught[rows], task[rows]))
    claims = rows[order]
    first = np.ones(len(claims), np.bool_)
    first[1:] = task[claims[1:]] != task[claims[:-1]]
    owner[task[claims[first]]] = inst[claims[first]]
    return owner, claims[~first]


def _parked(instances: Sequence[Instance], locate: Locator, open_slots: Ints) -> tuple[Ints, Ints]:
    """Return the parked pairs, and the tasks parked on all instances with open slots: these are parked nowhere."""
    m = len(instances)
    task, inst, known = _known(instances, [i.parked for i in instances], locate, [])
    pairs = np.unique((task * m + inst)[known])
    tasks, places = np.unique((pairs // m)[open_slots[pairs % m] > 0], return_counts=True)
    everywhere = tasks[places == int((open_slots > 0).sum())]
    return pairs[~np.isin(pairs // m, everywhere)], everywhere


def _filled(
    given: Callable[[], Iterable[Any]], count: int, path: Callable[[int], str], most: int = validation.MOST
) -> Ints:
    """Return what `given()` yields as a column; raise `InputError` with path(k) if the k-th is no integer up to `most`.

    None stands for UNKNOWN.
    """
    try:
        column = np.fromiter(given(), np.int64, count)
    except (OverflowError, TypeError, ValueError):
        column = None
    if column is not None and (not count or (column.min() >= 0 and column.max() <= most)):
        return column
    values = list(given())
    for k, value in enumerate(values):
        if value is not None:
            validation.integer(value, path(k), 0, most)
    return np.fromiter((UNKNOWN if v is None else v for v in values), np.int64, count)


def _check(ids: Sequence[TaskId], bad: Bools, what: str, values: npt.NDArray[Any], expected: str) -> None:
    where = np.flatnonzero(bad)
    if len(where):
        k = int(where[0])
        raise InputError(f"tasks[{ids[k]}].{what}", found=values[k].item(), expected=expected)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"|"
