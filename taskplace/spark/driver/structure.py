"""The structure that a checkpoint was made with, and whether a new one can continue it.

State stays where it is as long as its tasks keep their numbers, their keys and the layout of their stores, and its
numbers mean the same: by what they were aggregated, and by windows of which size. Anything else about a topology may
change between two runs.

Every driver declares its structure under its epoch (`taskplace.spark.driver.epochs`). The structure that counts is that
of the driver which made the last manifest: a topology that was started and never committed anything binds nobody,
and one whose driver was stopped in its commit and goes on later binds from that commit on, whoever came meanwhile.

    {"id": ..., "topology": {...}, "stores": {...}, "incarnations": {...}, "sources": [...]}

`sources` are the external topics, in the order in which Spark reads them: its own checkpoint has their offsets by
place, so that none may come, go or change places. What was declared before it was kept is compared without the order.

A store that was removed and comes back is empty. It gets another *incarnation*, a name of its own in copies and
changelogs, so that records from before are never taken for its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from taskplace.errors import CheckpointError
from taskplace.spark.driver.epochs import Epochs
from taskplace.spark.messages import Columns, Declaration, Layout
from taskplace.spark.worker.program import Program
from topology import BuiltTopology, compare


class Kept(NamedTuple):
    """The checkpoint's id, which stays, and the programs with the incarnations of their stores."""

    id: str
    programs: tuple[Program, ...]


def declare(
    root: Path, built: BuiltTopology, programs: Sequence[Program], committed: int | None, new_id: str = ""
) -> Declaration:
    """Return what a driver declares that wants to continue `root`; it counts from the driver's first commit on.

    `committed` is the epoch of the last manifest, None before the first; `new_id` is what a checkpoint without an id is
    called ("": some new name). Writes nothing.
    Errors: `CheckpointError`, with the reasons, if the state does not fit the topology, or nobody can say so.
    """
    epochs = Epochs(root)
    layouts = _layouts(programs)
    before = epochs.declaration(committed) if committed is not None else Declaration("", {}, {}, {})
    if committed is not None:
        _check(root, before, built, layouts)
    incarnations = dict(before.incarnations)
    for name in layouts:
        if name not in before.stores:
            incarnations[name] = incarnations.get(name, -1) + 1
    id_ = before.id or _id(epochs) or new_id or uuid.uuid4().hex
    return Declaration(id_, built.to_dict(), layouts, incarnations, _sources(built))


def check_sources(root: Path, built: BuiltTopology, committed: int | None) -> None:
    """Refuse external sources that come, go or change places: Spark's own checkpoint has their offsets by place.

    `committed` as for `declare`. Errors: `CheckpointError` naming the sources; so that nobody has to read it in Spark's
    own words, from the middle of a query.
    """
    if committed is None:
        return
    before, now = Epochs(root).declaration(committed), _sources(built)
    was = before.sources
    if was is None:
        nodes = [node for sub in before.topology["subtopologies"] for node in sub["nodes"]]
        found = {n["topic"] for n in nodes if n["kind"] == "source" and not n.get("internal")}
        was = (*(topic for topic in now if topic in found), *sorted(found - set(now)))
    if was == now:
        return
    other = [f"{t!r} is new" for t in now if t not in was] + [f"{t!r} is gone" for t in was if t not in now]
    raise CheckpointError(
        f"{root}: made with the sources {list(was)}, found {list(now)}: "
        f"{', '.join(other) or 'in another order'}; Spark's own checkpoint has the offsets of each by its place: "
        "keep the sources as they were, or start a new checkpoint"
    )


def kept(declaration: Declaration, programs: Sequence[Program]) -> Kept:
    """Return the checkpoint's id, and the programs with their stores as they are called in it.

    The id names the copies that belong to this checkpoint: local copies of another one, in the same
    `state_dir`, are none of ours.
    """
    return Kept(declaration.id, tuple(_with_incarnations(p, declaration.incarnations) for p in programs))


def _id(epochs: Epochs) -> str:
    """Return the id of a checkpoint without commits: of the driver before; "" if there was none."""
    newest = epochs.newest()
    return epochs.declaration(newest).id if newest else ""


def _check(root: Path, before: Declaration, built: BuiltTopology, layouts: Mapping[str, Layout]) -> None:
    try:
        evolution = compare(before.topology, built)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{root}: the topology it was made with is damaged ({error})") from None
    reasons = [] if evolution.compatible else [evolution.explain()]
    for store, layout in layouts.items():
        if (was := before.stores.get(store)) is None:
            continue
        if (was.key, was.value, was.time) != (layout.key, layout.value, layout.time):
            reasons.append(f"store {store!r} was laid out as {was.columns}, is {layout.columns}")
        # A processor that does not say what its numbers mean may take over from one that does, and the other way round.
        # So may one that says more than an earlier version did.
        elif any(was.meaning[what] != how for what, how in layout.meaning.items() if what in was.meaning):
            reasons.append(f"store {store!r} was made with {was.meaning}, is {layout.meaning}")
    if reasons:
        raise CheckpointError(
            f"{root}: made with another topology: {'; '.join(reasons)}\n"
            "continue with the topology it was made with, or start a new checkpoint"
        )


def _sources(built: BuiltTopology) -> tuple[str, ...]:
    """Return the external topics, in the order in which Spark reads them."""
    return tuple(
        dict.fromkeys(n.topic for n in built.nodes if n.kind == "source" and not n.internal and n.topic)
    )


def _with_incarnations(program: Program, incarnations: Mapping[str, int]) -> Program:
    stores = {n: replace(schema, incarnation=incarnations[n]) for n, schema in program.stores.items()}
    return replace(program, stores=stores)


def _layouts(programs: Sequence[Program]) -> dict[str, Layout]:
    def columns(schema: pa.Schema) -> Columns:
        return tuple((field.name, str(field.type)) for field in schema)

    stores = {name: store for program in programs for name, store in program.stores.items()}
    return {
        # How long an entry lives may change; whether it does, and by which column, may not: the index goes by it.
        name: Layout(columns(s.key), columns(s.value), s.time if s.ttl else None, dict(s.meaning))
        for name, s in sorted(stores.items())
    }
