"""The structure that a checkpoint was made with, and whether a new one can continue it.

State stays where it is as long as its tasks keep their numbers, their keys and the layout of their stores.
Anything else about a topology may change between two runs.

    structure.json  {"id": ..., "structures": [
                        {"from_batch": 0, "topology": {...}, "stores": {...}, "incarnations": {...}}]}

A structure counts from the first batch that was committed with it: a topology that was started and never committed
anything binds nobody. The file has the one that counts, and the one that is about to.

A store that was removed and comes back is empty. It gets another *incarnation*, a name of its own in copies and
changelogs, so that records from before are never taken for its own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from taskplace.errors import CheckpointError
from taskplace.spark.state.files import sealed_json, unsealed_json
from taskplace.spark.worker.program import Program
from topology import BuiltTopology, compare

FILE = "structure.json"


class Found(NamedTuple):
    """What a checkpoint has: its id, and the structure that counts; None before the first commit."""

    id: str
    counts: Mapping[str, Any] | None


class Kept(NamedTuple):
    """The checkpoint's id, which stays, and the programs with the incarnations of their stores."""

    id: str
    programs: tuple[Program, ...]


def check(root: Path, built: BuiltTopology, programs: Sequence[Program]) -> None:
    """Raise `CheckpointError`, with the reasons, if the state in `root` does not fit the topology. Writes nothing."""
    found = _load(root)
    if found is None or found.counts is None:
        return
    try:
        evolution = compare(found.counts["topology"], built)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(root, error) from None
    reasons = [] if evolution.compatible else [evolution.explain()]
    before = found.counts["stores"]
    for store, layout in _layouts(programs).items():
        if store in before and before[store] != layout:
            reasons.append(f"store {store!r} was laid out as {before[store]}, is {layout}")
    if reasons:
        raise CheckpointError(
            f"{root}: made with another topology: {'; '.join(reasons)}\n"
            "continue with the topology it was made with, or start a new checkpoint"
        )


def write(root: Path, built: BuiltTopology, programs: Sequence[Program]) -> Kept:
    """Write the structure; it counts from the next batch on.

    The id names the copies that belong to this checkpoint: local copies of another one, in the same
    `state_dir`, are none of ours.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = _load(root) or Found(uuid.uuid4().hex, None)
    counts = found.counts or {"stores": {}, "incarnations": {}}
    incarnations = dict(counts["incarnations"])
    for name in _layouts(programs):
        if name not in counts["stores"]:
            incarnations[name] = incarnations.get(name, -1) + 1
    structure = {
        "from_batch": _last_batch(root) + 1,
        "topology": built.to_dict(),
        "stores": _layouts(programs),
        "incarnations": incarnations,
    }
    structures = [structure] if found.counts is None else [found.counts, structure]
    staging = root / f"{FILE}.{os.getpid()}.tmp"
    staging.write_text(sealed_json({"id": found.id, "structures": structures}, indent=1))
    staging.chmod(0o600)
    staging.rename(root / FILE)
    return Kept(found.id, tuple(_with_incarnations(program, incarnations) for program in programs))


def _with_incarnations(program: Program, incarnations: Mapping[str, int]) -> Program:
    stores = {n: replace(schema, incarnation=incarnations[n]) for n, schema in program.stores.items()}
    return replace(program, stores=stores)


def _load(root: Path) -> Found | None:
    """Return what `root` has, None for a new checkpoint. Errors: `CheckpointError` for a missing or damaged file."""
    path = root / FILE
    last = _last_batch(root)
    if not path.exists():
        if last >= 0:
            raise CheckpointError(
                f"{path}: the file is missing, and there are manifests up to batch {last}; without it nobody can say "
                "whether the state fits: restore it, or start a new checkpoint"
            )
        return None
    try:
        raw = unsealed_json(path.read_text())
        counting = [s for s in raw["structures"] if s["from_batch"] <= last]
        counts: dict[str, Any] = counting[-1] if counting else {}
        for part in ("topology", "stores", "incarnations") if counts else ():
            if not isinstance(counts[part], Mapping):
                raise TypeError(f"{part}: found {type(counts[part]).__name__}")
        return Found(str(raw["id"]), counts or None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(root, error) from None


def _damaged(root: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{root / FILE}: damaged ({type(error).__name__}: {error})")


def _last_batch(root: Path) -> int:
    return max(
        (int(path.stem) for path in (root / "manifests").glob("*.json") if path.stem.isdigit()), default=-1
    )


def _layouts(programs: Sequence[Program]) -> dict[str, dict[str, Any]]:
    def columns(schema: pa.Schema) -> list[list[str]]:
        return [[field.name, str(field.type)] for field in schema]

    stores = {name: store for program in programs for name, store in program.stores.items()}
    return {
        # How long an entry lives may change; whether it does, and by which column, may not: the index goes by it.
        name: {"key": columns(s.key), "value": columns(s.value), **({"time": s.time} if s.ttl else {})}
        for name, s in sorted(stores.items())
    }
