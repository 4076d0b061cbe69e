"""Where a copy is."""

from __future__ import annotations

from pathlib import Path

from taskplace.spark.messages import Position
from taskplace.spark.state.transaction import read_meta


def peek(path: Path) -> Position | None:
    """Return the position of the copy at `path` that is certainly committed; None if it is missing or unusable."""
    meta = read_meta(path)
    return None if meta is None else meta.certain
