"""Refuses a sink whose directory lies in another one that is in use, or has one inside.

**Idea.** Whoever reads the outer directory reads the inner one's files as its own: a source would read what its own
stream has written, and a reader of one sink the batches of another. In the checkpoint or in a state directory, output
is removed as a leftover. Symbolic links are followed first.

Errors: `InputError` with the sink, both directories, and whose the other one is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from taskplace.errors import InputError
from taskplace.spark import targets
from topology import BuiltTopology

_PATTERN = re.compile(r"[*?\[\]{}]")


def check_overlaps(built: BuiltTopology, others: Mapping[str, Path]) -> None:
    """Refuse overlaps between the directories of sinks, and with `others`: by whose they are. O(sinks^2).

    One of `others` may be a pattern with * ? [ ] { }, as Spark takes them for sources.
    """
    taken = {owner: _resolved(path) for owner, path in others.items()}
    for node in (node for sub in built.subtopologies for node in sub.sinks):
        directory = targets.of(node.target).directory
        if directory is None:
            continue
        mine = directory.resolve()
        for owner, other in taken.items():
            if overlap(mine, other):
                raise InputError(
                    f"sinks.{node.name}.target",
                    found=f"{mine}, which {_relation(mine, other)} {other}, {owner}",
                    expected="a separate directory that neither contains nor lies in a directory in use",
                )
        taken[f"the directory of sink {node.name!r}"] = mine


def overlap(one: Path, other: Path) -> bool:
    """Return whether one directory is the other, or in it; `other` may be a pattern.

    >>> overlap(Path("/data/out"), Path("/data")), overlap(Path("/data/out"), Path("/data/output"))
    (True, False)
    >>> overlap(Path("/data/out"), Path("/data/*")), overlap(Path("/data/out"), Path("/data/*.csv"))
    (True, False)
    """
    pairs = zip(one.parts, other.parts, strict=False)
    return all(_matches(mine, theirs) for mine, theirs in pairs)


def _matches(name: str, pattern: str) -> bool:
    if not _PATTERN.search(pattern):
        return name == pattern
    return fnmatchcase(name, re.sub(r"\{[^}]*\}?", "*", pattern))


def _relation(one: Path, other: Path) -> str:
    if _PATTERN.search(str(other)):
        return "is matched by"
    if len(one.parts) == len(other.parts):
        return "is"
    return "is inside" if len(one.parts) > len(other.parts) else "contains"


def _resolved(path: Path) -> Path:
    """Return a path without symbolic links, up to the first part that is a pattern."""
    plain = next((i for i, part in enumerate(path.parts) if _PATTERN.search(part)), len(path.parts))
    return Path(*path.parts[:plain]).resolve().joinpath(*path.parts[plain:])
