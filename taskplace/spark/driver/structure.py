"""Checks whether a topology can continue a checkpoint, and declares the topology's structure.

State is kept if tasks keep their numbers, their keys and the layout of their stores, if rows are split by the same
columns of a store's key, and if the stored values keep their meaning: the same aggregate functions of the same columns,
and windows of the same size and time column. A store with a declared meaning and one without do not continue each
other. Everything else about a topology may change between two runs.

Every driver declares its structure under its epoch (`taskplace.spark.checkpoint.journal`). The declaration of the
driver that made the last manifest counts. So a topology that was started but never committed a batch does not bind
later drivers. If a driver was stopped during its commit and continues later, its declaration counts from that commit
on.

    {"id": ..., "topology": {...}, "stores": {...}, "incarnations": {...}, "sources": [...], "split": {...}}

`sources` are the external topics, in the order in which Spark reads them. Spark's checkpoint has their offsets by
position, so no source may be added, removed or moved. `split` has the columns of each store's key by which rows are
split, for stores in more than one task.

A store that was removed and comes back is empty. It gets another *incarnation*, which is part of its name in copies and
changelogs, so that old records are never taken for new ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.journal import Epochs
from taskplace.spark.messages import Declaration, StoreLayout, TypedColumns
from taskplace.spark.worker.program import Program
from topology import BuiltTopology, compare


def declare(
    root: Path, built: BuiltTopology, programs: Sequence[Program], committed: int | None, new_id: str = ""
) -> Declaration:
    """Return the declaration of a driver that continues `root`; it counts from the driver's first commit on.

    `committed` is the epoch of the last manifest, None before the first. `new_id` is the id for a checkpoint without
    one ("": a new random id). Writes nothing.
    Errors: `CheckpointError`, with the reasons, if the state does not fit the topology, or if the declaration of the
    last manifest cannot be read.
    """
    epochs = Epochs(root)
    layouts = _layouts(programs)
    before = epochs.declaration(committed) if committed is not None else Declaration("", {}, {}, {})
    if committed is not None and (reasons := _reasons(root, before, built, programs)):
        raise CheckpointError(
            f"{root}: the checkpoint was created with another topology: {'; '.join(reasons)}\n"
            "continue with that topology, or start a new checkpoint"
        )
    incarnations = dict(before.incarnations)
    for name in layouts:
        if name not in before.stores:
            incarnations[name] = incarnations.get(name, -1) + 1
    id_ = before.id or _id(epochs) or new_id or uuid.uuid4().hex
    return Declaration(id_, built.to_dict(), layouts, incarnations, _sources(built), _split(programs))


def differences(
    root: Path, built: BuiltTopology, programs: Sequence[Program], committed: int
) -> tuple[str, ...]:
    """Return why the state of a checkpoint does not fit the topology, one reason each.

    Errors: `CheckpointError` if the declaration cannot be read.
    """
    return _reasons(root, Epochs(root).declaration(committed), built, programs)


def check_sources(root: Path, built: BuiltTopology, committed: int | None) -> None:
    """Refuse external sources that were added, removed or moved: Spark's checkpoint has their offsets by position.

    `committed` as for `declare`. Errors: `CheckpointError` naming the sources. Without this check, Spark would fail
    inside the query with a less clear error.
    """
    if committed is None:
        return
    before, now = Epochs(root).declaration(committed), _sources(built)
    was = before.sources or ()
    if was == now:
        return
    other = [f"{t!r} is new" for t in now if t not in was] + [
        f"{t!r} is missing" for t in was if t not in now
    ]
    raise CheckpointError(
        f"{root}: the checkpoint was created with the sources {', '.join(was)}, found {', '.join(now)}: "
        f"{', '.join(other) or 'another order'}; Spark's checkpoint stores offsets by the position of the source: "
        "restore the sources and their order, or start a new checkpoint"
    )


def _id(epochs: Epochs) -> str:
    """Return the id of a checkpoint without commits: that of the previous driver; "" without one."""
    newest = epochs.newest()
    return epochs.declaration(newest).id if newest else ""


def _reasons(
    root: Path, before: Declaration, built: BuiltTopology, programs: Sequence[Program]
) -> tuple[str, ...]:
    """Return why the state of a checkpoint with the declaration `before` does not fit, one reason each."""
    try:
        evolution = compare(before.topology, built)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{root}: the stored topology of the checkpoint is damaged ({error})") from None
    return (*evolution.reasons, *_of_stores(before, _layouts(programs), _split(programs)))


def _of_stores(
    before: Declaration, layouts: Mapping[str, StoreLayout], split: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """Return why the contents of stores do not fit, one reason each."""
    reasons = []
    for store, layout in layouts.items():
        if (was := before.stores.get(store)) is None:
            continue
        if changes := _columns_changed(was, layout):
            reasons.append(f"store {store!r} has other columns: {'; '.join(changes)}")
            continue
        old, new = was.meaning or {}, layout.meaning or {}
        # Single entries are compared only where both have them: a later version may declare more than an earlier one.
        changed = [what for what, how in sorted(new.items()) if old.get(what, how) != how]
        if bool(old) != bool(new):
            reasons.append(
                f"store {store!r} was created with {_meaning(old)}, and now has {_meaning(new)}; a processor of your "
                "own that computes the same declares the same meaning in layouts()"
            )
        elif changed:
            said = "; ".join(f"{what!r} was {old[what]!r} and is {new[what]!r}" for what in changed)
            if all(what.startswith("column of ") for what in changed):
                said += (
                    "; if the column has only a new name, give it the old one in a processor before the node"
                )
            reasons.append(f"store {store!r} keeps other values: {said}")
        # The topic's key may be the same, and have become another column of the store's key on the way. A store in one
        # task is not split.
        one, other = before.split.get(store), split.get(store)
        if one is not None and other is not None and one != other:
            reasons.append(
                f"store {store!r} was split by ({', '.join(one)}), and is now split by ({', '.join(other)}), so its "
                "keys belong to other tasks"
            )
    return reasons


def _columns_changed(was: StoreLayout, now: StoreLayout) -> list[str]:
    """Return what has changed in the columns of a store, and in its time column.

    >>> was = StoreLayout((("k", "string"),), (("n", "int64"),))
    >>> _columns_changed(was, StoreLayout((("k", "string"),), (("n", "double"), ("m", "int64"))))
    ["the value column 'n' was int64 and is double", "the value column 'm' was missing and is int64"]
    """
    said = []
    for part, old, new in (
        ("key", dict(was.key), dict(now.key)),
        ("value", dict(was.value), dict(now.value)),
    ):
        for name in dict.fromkeys([*old, *new]):
            if old.get(name) != new.get(name):
                kinds = f"was {old.get(name, 'missing')} and is {new.get(name, 'missing')}"
                said.append(f"the {part} column {name!r} {kinds}")
        if old == new and list(old) != list(new):
            said.append(f"the {part} columns were in the order {', '.join(old)} and are in {', '.join(new)}")
    if was.time != now.time:
        said.append(f"entries expired by {was.time or 'no column'} and expire by {now.time or 'no column'}")
    return said


def _meaning(meaning: Mapping[str, Any]) -> str:
    listed = ", ".join(f"{what!r}: {how}" for what, how in sorted(meaning.items()))
    return f"the meaning {listed}" if meaning else "no declared meaning"


def _sources(built: BuiltTopology) -> tuple[str, ...]:
    """Return the external topics, in the order in which Spark reads them."""
    return tuple(
        dict.fromkeys(n.topic for n in built.nodes if n.kind == "source" and not n.internal and n.topic)
    )


def _split(programs: Sequence[Program]) -> dict[str, tuple[str, ...]]:
    """Return by store the columns of its key that have the values of the topics' keys."""
    return {
        split.store: tuple(column.name for column in split.columns)
        for program in programs
        for split in program.splits
    }


def _layouts(programs: Sequence[Program]) -> dict[str, StoreLayout]:
    def columns(schema: pa.Schema) -> TypedColumns:
        return tuple((field.name, str(field.type)) for field in schema)

    stores = {name: store for program in programs for name, store in program.stores.items()}
    return {
        # The length of `ttl` may change. Whether there is one, and its time column, may not: the index depends on it.
        name: StoreLayout(columns(s.key), columns(s.value), s.time if s.ttl else None, dict(s.meaning))
        for name, s in sorted(stores.items())
    }
