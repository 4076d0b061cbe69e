"""Builds the columns of a problem: reads it, ranks its copies, and computes its fingerprint.

The ranking applies the rules of `taskplace.lag.ranking` to all copies at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from taskplace.lag import ranking
from taskplace.model.cluster import Instance, Task
from taskplace.model.config import PlacementConfig
from taskplace.model.locate import Locator
from taskplace.model.problem_columns import (
    ACTIVE,
    NONE,
    Bools,
    Columns,
    Copies,
    InstanceColumns,
    Ints,
    Roles,
    TaskColumns,
    read_copies,
    read_instances,
    read_kept,
    read_parked,
    read_tasks,
)
from taskplace.wording import count


def build(tasks: Sequence[Task], instances: Sequence[Instance], config: PlacementConfig) -> Columns:
    """Return the columns of a problem. Tasks and instances must be sorted. Errors: `InputError` for bad values."""
    instance_columns = read_instances(instances)
    task_columns = read_tasks(tasks)
    locate = Locator(task_columns.key)
    copies = read_copies(instances, task_columns.ids, locate)
    parked, everywhere = read_parked(instances, locate, instance_columns.open_slots)
    kept = read_kept(instances, locate, instance_columns.open_slots, parked)
    ranked = _ranked(task_columns, copies, config, _acceptable(instances, config))
    return Columns(
        ids=task_columns.ids,
        names=instance_columns.names,
        sub=task_columns.sub,
        subtopologies=task_columns.subtopologies,
        stateful=task_columns.stateful,
        end=task_columns.end,
        universal=ranked.universal,
        weight=task_columns.weight,
        open_slots=instance_columns.open_slots,
        draining=instance_columns.draining,
        owner=ranked.owner,
        start=np.searchsorted(copies.task, np.arange(len(tasks) + 1)).astype(np.int64),
        task=copies.task,
        inst=copies.inst,
        lag=ranked.lag,
        role=ranked.role,
        caught=ranked.caught,
        best=ranked.best,
        parked=parked,
        kept=kept,
        barred=np.union1d(parked, kept),
        unknown=tuple(sorted(copies.unknown)),
        tags=tuple(i.tags for i in instances),
        racks=task_columns.racks,
        changelog_racks=task_columns.changelog_racks,
        fingerprint=_fingerprint(
            tasks=task_columns,
            instance_columns=instance_columns,
            copies=copies,
            ranked=ranked,
            parked=parked,
            kept=kept,
            instances=instances,
            config=config,
        ),
        notes=(*instance_columns.notes, *_notes(task_columns, instance_columns, copies, ranked, everywhere)),
        unbounded=config.unbounded,
    )


class _Ranked(NamedTuple):
    """The ranked copies.

    - `reset`: the rows whose lag is ignored, because the changelog was reset
    - `surplus`: the rows that lost the active role, because another instance has the task active too
    - other fields: see `Columns`
    """

    universal: Bools
    lag: Ints
    role: Roles
    caught: Bools
    best: Bools
    owner: Ints
    reset: Ints
    surplus: Ints


def _ranked(tasks: TaskColumns, copies: Copies, config: PlacementConfig, acceptable: Ints) -> _Ranked:
    """Return the ranked copies. `acceptable`: [m] the acceptable lag on each instance."""
    universal = tasks.stateful & ranking.needs_no_copy(tasks.end, ~tasks.logged)
    at_once = tasks.stateful if config.unbounded else universal
    end, acceptable = tasks.end[copies.task], acceptable[copies.inst]
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
    reset = np.flatnonzero(lag != copies.lag)
    return _Ranked(
        universal=universal,
        lag=lag,
        role=role,
        caught=ranks == 0,
        best=best,
        owner=owner,
        reset=reset,
        surplus=claims[~first],
    )


def _acceptable(instances: Sequence[Instance], config: PlacementConfig) -> Ints:
    """Return [m] the acceptable lag on each instance."""
    acceptable = config.acceptable
    return np.fromiter((acceptable.at(i.restore_rate) for i in instances), np.int64, len(instances))


def _notes(
    tasks: TaskColumns, instances: InstanceColumns, copies: Copies, ranked: _Ranked, everywhere: Ints
) -> Iterator[str]:
    """Yield a note for each part of the problem that is ignored, with an example.

    `everywhere`: the tasks that are parked on all instances with open slots.
    """

    def copy(row: int) -> str:
        return f"{tasks.ids[int(copies.task[row])]} on {instances.names[int(copies.inst[row])]}"

    if len(ranked.reset):
        yield (
            f"{len(ranked.reset)} copies are further behind than their changelog is long (reset): unused, "
            f"e.g. {copy(ranked.reset[0])}"
        )
    if len(ranked.surplus):
        yield (
            f"{count(len(ranked.surplus), 'task is', 'tasks are')} active twice; the better copy counts, "
            f"e.g. not {copy(ranked.surplus[0])}"
        )
    if copies.unknown:
        name, task = copies.unknown[0]
        yield (
            f"{count(len(copies.unknown), 'copy belongs', 'copies belong')} to tasks that do not exist: ignored, can "
            f"be cleaned up; e.g. {task} on {name}"
        )
    if len(everywhere):
        yield (
            f"{count(len(everywhere), 'task is', 'tasks are')} parked on every instance that can take work, e.g. "
            f"{tasks.ids[int(everywhere[0])]}: there is no other place, so they are tried again; add an instance"
        )


def _fingerprint(
    *,
    tasks: TaskColumns,
    instance_columns: InstanceColumns,
    copies: Copies,
    ranked: _Ranked,
    parked: Ints,
    kept: Ints,
    instances: Sequence[Instance],
    config: PlacementConfig,
) -> str:
    """Return a hash of all values that a plan depends on."""
    digest = hashlib.sha256()
    for part in (
        tasks.key, tasks.stateful, tasks.logged, tasks.end, tasks.weight,
        instance_columns.open_slots, instance_columns.draining, instance_columns.capacity,
        copies.pair, ranked.lag, ranked.role, parked,
    ):  # fmt: skip
        digest.update(np.ascontiguousarray(part).tobytes())
        digest.update(b"|")
    rates, unknown = [i.restore_rate for i in instances], sorted(copies.unknown)
    digest.update(_canonical([instance_columns.names, [sorted(i.tags.items()) for i in instances]]))
    digest.update(_canonical([rates, config.to_properties(), unknown]))
    digest.update(_canonical(tasks.racks if any(tasks.racks) else []))
    if any(tasks.changelog_racks):
        digest.update(_canonical(["changelogs", tasks.changelog_racks]))
    if len(kept):
        digest.update(np.ascontiguousarray(kept).tobytes())
    if any(i.slots for i in instances):
        digest.update(_canonical([i.slots for i in instances]))
    return digest.hexdigest()[:16]


def _canonical(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"|"
