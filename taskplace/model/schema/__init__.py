"""The JSON Schemas of all documents that taskplace reads or writes, as files in the package."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

NAMES = (
    "problem",
    "plan",
    "explanation",
    "removal",
    "verification",
    "transcript",
    "subscriptions",
    "partition_assignment",
    "config",
    "diagnosis",
    "checkpoint_verification",
    "inspection",
    "status-seen",
    "run",
    "check",
    "pack",
    "topology",
    "answer",
    "undo_preview",
    "no_answer",
    "page",
    "partition_location",
)


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of one of `NAMES`.

    >>> schema("plan")["$id"]
    'taskplace.plan/1'
    """
    loaded: dict[str, Any] = json.loads(files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return loaded
