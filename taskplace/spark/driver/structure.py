"""The structure that a checkpoint was made with, and whether a new one can continue it.

State stays where it is as long as its tasks keep their numbers, their keys and the layout of their stores.
Anything else about a topology may change between two runs.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from taskplace.errors import CheckpointError
from taskplace.spark.worker.program import Program
from topology import BuiltTopology, compare

FILE = "structure.json"


def check(root: Path, built: BuiltTopology, programs: Sequence[Program]) -> None:
    """Raise `CheckpointError`, with the reasons, if the state in `root` does not fit the topology. Writes nothing."""
    path = root / FILE
    if not path.exists():
        return
    try:
        found = json.loads(path.read_text())
        evolution = compare(found["topology"], built)
        before: dict[str, Any] = found["stores"]
        str(found["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: damaged ({type(error).__name__}: {error})") from None
    reasons = [] if evolution.compatible else [evolution.explain()]
    for store, layout in _layouts(programs).items():
        if store in before and before[store] != layout:
            reasons.append(f"store {store!r} was laid out as {before[store]}, is {layout}")
    if reasons:
        raise CheckpointError(
            f"{root}: made with another topology: {'; '.join(reasons)}\n"
            "continue with the topology it was made with, or start a new checkpoint"
        )


def write(root: Path, built: BuiltTopology, programs: Sequence[Program]) -> str:
    """Write the structure, in place of what was there, and return the checkpoint's id, which stays.

    The id names the copies that belong to this checkpoint: local copies of another one, in the same
    `state_dir`, are none of ours.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = root / FILE
    checkpoint_id: str = json.loads(path.read_text())["id"] if path.exists() else uuid.uuid4().hex
    structure = {"id": checkpoint_id, "topology": built.to_dict(), "stores": _layouts(programs)}
    staging = root / f"{FILE}.{os.getpid()}.tmp"
    staging.write_text(json.dumps(structure, indent=1))
    staging.rename(path)
    return checkpoint_id


def _layouts(programs: Sequence[Program]) -> dict[str, dict[str, list[list[str]]]]:
    def columns(schema: pa.Schema) -> list[list[str]]:
        return [[field.name, str(field.type)] for field in schema]

    stores = {name: store for program in programs for name, store in program.stores.items()}
    return {name: {"key": columns(s.key), "value": columns(s.value)} for name, s in sorted(stores.items())}
