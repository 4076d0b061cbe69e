"""Reads the tasks and the instances of a problem into columns, and checks their values.

Whole columns are read at once. Only if that fails are the values checked one by one, to name the first wrong one.
Errors: `InputError` with the path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from taskplace import validation
from taskplace.errors import InputError
from taskplace.model.cluster import Instance, Task
from taskplace.model.locate import pairs_of
from taskplace.model.problem_columns import UNKNOWN, Bools, Ints
from topology.tasks import TaskId


@dataclass(frozen=True, slots=True, eq=False)
class TaskColumns:
    """The tasks, sorted by id. `key`: each id as one number, in the same order. Other fields: see `Columns`."""

    ids: tuple[TaskId, ...]
    key: Ints
    sub: Ints
    subtopologies: Ints
    stateful: Bools
    logged: Bools
    end: Ints
    weight: npt.NDArray[np.float64]
    racks: tuple[tuple[tuple[str, ...], ...], ...]
    changelog_racks: tuple[tuple[tuple[str, ...], ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class InstanceColumns:
    """The instances, sorted by id. For the fields, see `Columns`."""

    names: tuple[str, ...]
    draining: Bools
    capacity: Ints
    open_slots: Ints
    notes: tuple[str, ...]


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


def read_instances(instances: Sequence[Instance]) -> InstanceColumns:
    """Return the columns of `instances`, which must be sorted by id.

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
    open_slots, notes = np.where(draining, 0, capacity), ()
    if open_slots.any():
        return InstanceColumns(names, draining, capacity, open_slots, notes)
    note = f"all {m} instances are draining or have no capacity: tasks stay on them; add an instance"
    return InstanceColumns(names, draining, capacity, np.maximum(capacity, 1), (note,))


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
