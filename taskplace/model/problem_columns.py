"""A problem as numpy columns, on which the engine computes.

Tasks and instances are numbered by their position in sorted order. A *copy row* is one (task, instance) pair with a
role, a lag, or both. Rows are sorted by task, then by instance.

Reading order: `Columns` and its parts; `Locator` finds positions of ids; `read_tasks` and `read_instances`;
`read_copies` joins lags with roles; `build` ranks all copies at once by `taskplace.lag.ranking`, and combines
everything.

Whole columns are read at once. Only if that fails are the values checked one by one, to name the first wrong one.
Errors: `InputError` with the path.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from taskplace import validation
from taskplace.errors import InputError
from taskplace.lag import ranking
from taskplace.lag.ranking import NO_COPY as NO_COPY
from taskplace.lag.ranking import UNKNOWN as UNKNOWN
from taskplace.lag.ranking import Bools as Bools
from taskplace.lag.ranking import Ints as Ints
from taskplace.model.cluster import Instance, Task
from taskplace.model.config import PlacementConfig
from taskplace.wording import count
from topology.tasks import TaskId

Roles = npt.NDArray[np.int8]


class Role(IntEnum):
    """The role of a task's copy on an instance: none, active, standby, or warm-up."""

    NONE = 0
    ACTIVE = 1
    STANDBY = 2
    WARMUP = 3


# Plain integers: numpy compares a column with an enum member ten times more slowly.
NONE, ACTIVE, STANDBY, WARMUP = map(int, Role)
ROLE_NAMES = tuple(role.name.lower() for role in Role)


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskColumns:
    """The tasks, sorted by id."""

    ids: tuple[TaskId, ...]
    key: Ints
    """[n] each id as one number, in the same order."""
    sub: Ints
    """[n] position of the task's subtopology in `subtopologies`."""
    subtopologies: Ints
    stateful: Bools
    logged: Bools
    end: Ints
    """[n] end offset in records, or UNKNOWN."""
    weight: npt.NDArray[np.float64]
    racks: tuple[tuple[tuple[str, ...], ...], ...]
    changelog_racks: tuple[tuple[tuple[str, ...], ...], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class InstanceColumns:
    """The instances, sorted by id."""

    names: tuple[str, ...]
    draining: Bools
    capacity: Ints
    open_slots: Ints
    """[m] capacity; 0 while draining."""
    tags: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class CopyColumns:
    """The ranked copy rows."""

    task: Ints
    inst: Ints
    lag: Ints
    """[k] lag in records, or NO_COPY if the row has a role but no usable copy."""
    role: Roles
    """[k] the `Role` of each row."""
    caught: Bools
    """[k] whether the instance is caught up on the task: its rank is 0."""
    best: Bools
    """[k] whether the copy is most caught up (`taskplace.lag.ranking.most_caught_up`)."""
    owner: Ints
    """[n] the instance where the task is active, or -1."""
    universal: Bools
    """[n] stateful, and every instance counts as caught up: empty changelog, or not logged."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Columns(TaskColumns, InstanceColumns, CopyColumns):
    """The columns of a problem: n tasks, m instances, k copy rows.

    `caught` and `best` are results of the ranking (`taskplace.lag.ranking`). A `universal` task needs no copy: every
    instance is caught up. For an `at_once` task, every instance counts as caught up, although a copy may save work.
    """

    start: Ints
    """[n + 1] the copy rows of task t are start[t]:start[t + 1]."""
    parked: Ints
    """Parked pairs as task * m + instance, sorted."""
    kept: Ints
    """The pairs on which a task may not be active, because another instance keeps it."""
    barred: Ints
    """Where no task may become active: `parked` and `kept`, sorted."""
    unknown: tuple[tuple[str, TaskId], ...]
    """Copies of tasks that are not in the problem: (instance, task)."""
    fingerprint: str
    notes: tuple[str, ...]
    unbounded: bool
    """Whether `acceptable.recovery.lag` is unbounded: every instance counts as caught up on every task."""

    @property
    def at_once(self) -> Bools:
        """[n] whether a stateful task may run anywhere at once: it is `universal`, or any lag is acceptable."""
        return self.stateful if self.unbounded else self.universal

    @property
    def n(self) -> int:
        """The number of tasks."""
        return len(self.ids)

    @property
    def m(self) -> int:
        """The number of instances."""
        return len(self.names)


class Locator:
    """Finds positions of task ids: a table if the ids are dense, binary search if not."""

    def __init__(self, key: Ints) -> None:
        self.key = key
        high = (int((key >> 32).max()) + 1, int((key & 0xFFFFFFFF).max()) + 1) if len(key) else (1, 1)
        self.high = high
        self.table: npt.NDArray[np.int32] | None = None
        if high[0] * high[1] <= max(1 << 16, 8 * len(key)):
            self.table = np.full(high[0] * high[1], -1, np.int32)
            self.table[(key >> 32) * high[1] + (key & 0xFFFFFFFF)] = np.arange(len(key))

    def __call__(self, pairs: Ints) -> Ints:
        """Return the position of each (subtopology, partition), or -1."""
        s, p = pairs[:, 0], pairs[:, 1]
        if self.table is not None:
            inside = (s >= 0) & (s < self.high[0]) & (p >= 0) & (p < self.high[1])
            found = self.table[np.where(inside, s * self.high[1] + p, 0)]
            return np.where(inside, found, -1).astype(np.int64)
        wanted = (s << 32) | p
        at = np.minimum(np.searchsorted(self.key, wanted), max(len(self.key) - 1, 0))
        return np.where(self.key[at] == wanted, at, -1) if len(self.key) else np.full(len(s), -1, np.int64)


def pairs_of(ids: Iterable[TaskId], count: int) -> Ints:
    """Return `count` ids as an array [count, 2] of subtopologies and partitions."""
    return np.fromiter(chain.from_iterable(ids), np.int64, 2 * count).reshape(count, 2)


def read_tasks(tasks: Sequence[Task]) -> TaskColumns:
    """Return the columns of `tasks`, which must be sorted by id."""
    n = len(tasks)
    ids, stateful, ends, weights, logged, racks, changelogs = zip(*tasks, strict=True) if n else ((),) * 7
    pairs = pairs_of(ids, n)
    if n and (pairs.min() < 0 or pairs.max() >= 2**31):
        raise InputError("tasks", found=str(min(ids)), expected="ids of two numbers from 0 to 2147483647")
    key = (pairs[:, 0] << 32) | pairs[:, 1]
    repeated = np.flatnonzero(key[1:] == key[:-1])
    if len(repeated):
        raise InputError("tasks", found=str(ids[int(repeated[0])]), expected="each task once")
    subtopologies, sub = np.unique(pairs[:, 0], return_inverse=True)
    return TaskColumns(
        ids=tuple(ids),
        key=key,
        sub=sub.astype(np.int64),
        subtopologies=subtopologies.astype(np.int64),
        stateful=np.fromiter(stateful, np.bool_, n),
        logged=np.fromiter(logged, np.bool_, n),
        end=integers(lambda: ends, n, lambda k: f"tasks[{ids[k]}].end_offset"),
        weight=_weights(ids, weights),
        racks=racks,
        changelog_racks=changelogs,
    )


def read_instances(instances: Sequence[Instance]) -> tuple[InstanceColumns, tuple[str, ...]]:
    """Return the columns of `instances`, which must be sorted by id, and notes.

    If no instance can take work, all count as not draining, with at least one slot, and a note reports it.
    """
    m = len(instances)
    if m == 0:
        raise InputError("instances", found="no instance", expected="at least one")
    names = tuple(i.id for i in instances)
    for a, b in pairwise(names):
        if a == b:
            raise InputError("instances", found=a, expected="each instance once")
    draining = np.fromiter((i.draining for i in instances), np.bool_, m)
    capacity = integers(
        lambda: (i.capacity for i in instances),
        m,
        lambda k: f"instances[{names[k]}].capacity",
        validation.MOST_CAPACITY,
    )
    open_slots = np.where(draining, 0, capacity)
    notes: tuple[str, ...] = ()
    if not open_slots.any():
        open_slots = np.maximum(capacity, 1)
        notes = (f"all {m} instances are draining or have no capacity: tasks stay on them; add an instance",)
    columns = InstanceColumns(
        names=names,
        draining=draining,
        capacity=capacity,
        open_slots=open_slots,
        tags=tuple(i.tags for i in instances),
    )
    return columns, notes


def integers(
    given: Callable[[], Iterable[Any]], count: int, path: Callable[[int], str], most: int = validation.MOST
) -> Ints:
    """Return the values of `given()` as a column, with UNKNOWN for None.

    Errors: `InputError` with path(k) if the k-th value is not an integer from 0 to `most`.
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


def _weights(ids: Sequence[TaskId], weights: Sequence[float]) -> npt.NDArray[np.float64]:
    column = np.fromiter(weights, np.float64, len(ids))
    light, heavy = validation.LEAST_WEIGHT, validation.MOST_WEIGHT
    bad = np.flatnonzero(~((column >= light) & (column <= heavy)))
    if len(bad):
        k = int(bad[0])
        expected = f"a weight from {light:g} to {heavy:g}"
        raise InputError(f"tasks[{ids[k]}].weight", found=column[k].item(), expected=expected)
    return column


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


def build(tasks: Sequence[Task], instances: Sequence[Instance], config: PlacementConfig) -> Columns:
    """Return the columns of a problem. Tasks and instances must be sorted. Errors: `InputError` for bad values."""
    of_instances, notes = read_instances(instances)
    of_tasks = read_tasks(tasks)
    locate = Locator(of_tasks.key)
    copies = read_copies(instances, of_tasks.ids, locate)
    parked, everywhere = read_parked(instances, locate, of_instances.open_slots)
    kept = read_kept(instances, locate, of_instances.open_slots, parked)
    ranked, ignored = _ranked(of_tasks, copies, config, instances)
    columns = Columns(
        **vars(of_tasks),
        **vars(of_instances),
        **vars(ranked),
        start=np.searchsorted(copies.task, np.arange(len(tasks) + 1)).astype(np.int64),
        parked=parked,
        kept=kept,
        barred=np.union1d(parked, kept),
        unknown=tuple(sorted(copies.unknown)),
        fingerprint="",
        notes=(),
        unbounded=config.unbounded,
    )
    return replace(
        columns,
        fingerprint=_fingerprint(columns, copies.pair, instances, config),
        notes=(*notes, *_notes(columns, copies.unknown, ignored, everywhere)),
    )


class _Ignored(NamedTuple):
    """Rows that count less than reported.

    - `reset`: the rows whose lag is ignored, because the changelog was reset
    - `surplus`: the rows that lost the active role, because another instance has the task active too
    """

    reset: Ints
    surplus: Ints


def _ranked(
    tasks: TaskColumns, copies: Copies, config: PlacementConfig, instances: Sequence[Instance]
) -> tuple[CopyColumns, _Ignored]:
    """Return the ranked copies, and what of them is ignored."""
    universal = tasks.stateful & ranking.needs_no_copy(tasks.end, ~tasks.logged)
    at_once = tasks.stateful if config.unbounded else universal
    acceptable_at = (config.acceptable.at(i.restore_rate) for i in instances)
    acceptable = np.fromiter(acceptable_at, np.int64, len(instances))[copies.inst]
    end = tasks.end[copies.task]
    lag = ranking.usable_lag(copies.lag, end, (universal | ~tasks.stateful)[copies.task])
    ranks = ranking.rank(lag, end, acceptable, at_once[copies.task])

    claims = np.flatnonzero(copies.role == ACTIVE)
    claims = claims[
        ranking.best_first(*(column[claims] for column in (copies.task, lag, ranks, copies.inst)))
    ]
    first = np.ones(len(claims), np.bool_)
    first[1:] = copies.task[claims[1:]] != copies.task[claims[:-1]]
    owner = np.full(len(tasks.ids), -1, np.int64)
    owner[copies.task[claims[first]]] = copies.inst[claims[first]]
    role = copies.role.copy()
    role[claims[~first]] = NONE

    owns = owner[copies.task] == copies.inst
    best = ranking.most_caught_up(copies.task, ranks, end, acceptable, owns)
    ranked = CopyColumns(
        task=copies.task,
        inst=copies.inst,
        lag=lag,
        role=role,
        caught=ranks == 0,
        best=best,
        owner=owner,
        universal=universal,
    )
    return ranked, _Ignored(np.flatnonzero(lag != copies.lag), claims[~first])


def _notes(
    c: Columns, unknown: Sequence[tuple[str, TaskId]], ignored: _Ignored, everywhere: Ints
) -> Iterator[str]:
    """Yield a note for each part of the problem that is ignored, with an example.

    `everywhere`: the tasks that are parked on all instances with open slots.
    """

    def copy(row: int) -> str:
        return f"{c.ids[int(c.task[row])]} on {c.names[int(c.inst[row])]}"

    if len(ignored.reset):
        yield (
            f"{len(ignored.reset)} copies are further behind than their changelog is long (reset): unused, "
            f"e.g. {copy(ignored.reset[0])}"
        )
    if len(ignored.surplus):
        yield (
            f"{count(len(ignored.surplus), 'task is', 'tasks are')} active twice; the better copy counts, "
            f"e.g. not {copy(ignored.surplus[0])}"
        )
    if unknown:
        name, task = unknown[0]
        yield (
            f"{count(len(unknown), 'copy belongs', 'copies belong')} to tasks that do not exist: ignored, can "
            f"be cleaned up; e.g. {task} on {name}"
        )
    if len(everywhere):
        yield (
            f"{count(len(everywhere), 'task is', 'tasks are')} parked on every instance that can take work, e.g. "
            f"{c.ids[int(everywhere[0])]}: there is no other place, so they are tried again; add an instance"
        )


def _fingerprint(c: Columns, pair: Ints, instances: Sequence[Instance], config: PlacementConfig) -> str:
    """Return a hash of all values that a plan depends on."""
    digest = hashlib.sha256()
    for part in (
        c.key, c.stateful, c.logged, c.end, c.weight, c.open_slots, c.draining, c.capacity,
        pair, c.lag, c.role, c.parked,
    ):  # fmt: skip
        digest.update(np.ascontiguousarray(part).tobytes())
        digest.update(b"|")
    digest.update(_canonical([c.names, [sorted(tags.items()) for tags in c.tags]]))
    digest.update(_canonical([[i.restore_rate for i in instances], config.to_properties(), c.unknown]))
    digest.update(_canonical(c.racks if any(c.racks) else []))
    if any(c.changelog_racks):
        digest.update(_canonical(["changelogs", c.changelog_racks]))
    if len(c.kept):
        digest.update(np.ascontiguousarray(c.kept).tobytes())
    if any(i.slots for i in instances):
        digest.update(_canonical([i.slots for i in instances]))
    return digest.hexdigest()[:16]


def _canonical(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"|"


def group_starts(*keys: Ints) -> Ints:
    """Return the positions where groups begin, in columns of equal length that are sorted by group. O(n).

    An entry begins a group if it differs from the previous entry in any of the columns.

    >>> group_starts(np.array([1, 1, 2, 2]), np.array([5, 5, 5, 6]))
    array([0, 2, 3])
    """
    if not len(keys[0]):
        return np.zeros(0, np.int64)
    differs = np.zeros(len(keys[0]) - 1, np.bool_)
    for key in keys:
        differs |= key[1:] != key[:-1]
    return np.flatnonzero(np.r_[True, differs])


def rank_in_group(values: Ints) -> Ints:
    """Return, for each entry, the number of equal entries before it. O(n log n).

    >>> rank_in_group(np.array([7, 3, 7, 7, 3]))
    array([0, 0, 1, 2, 1])
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return rank
