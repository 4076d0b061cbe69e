"""Refuses directories of a stream that lie in each other: checkpoint, state, inputs, and the outputs of sinks.

**Idea.** Whoever reads the outer directory reads the inner one's files as its own: a source would read what its own
stream has written, and a reader of one sink the batches of another. In the checkpoint or in a state directory, files of
others are removed as leftovers. Symbolic links are followed first.

Properties: any two are compared, except two inputs, which are only read.

Errors: `InputError` with the key of one, both directories, and whose the other one is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from taskplace.errors import InputError
from taskplace.spark import targets
from topology import BuiltTopology

_PATTERN = re.compile(r"[*?\[\]{}]")


class Used(NamedTuple):
    """A directory that a stream uses.

    - `key`: where it is given, for errors; `whose`: what it is, in words
    - `read`: whether it is an input. Its path may be a pattern with * ? [ ] { }, as Spark takes them
    """

    path: Path
    key: str
    whose: str
    read: bool = False


def check_overlaps(built: BuiltTopology, others: Iterable[Used]) -> None:
    """Refuse overlaps among `others` and the directories of sinks. O(directories^2)."""
    outputs = [
        Used(directory, f"sinks.{node.name}.target", f"the directory of sink {node.name!r}")
        for sub in built.subtopologies
        for node in sub.sinks
        if (directory := targets.of(node.target).directory) is not None
    ]
    taken: list[Used] = []
    for used in (*others, *outputs):
        mine = used._replace(path=_resolved(used))
        for other in taken:
            _check(mine, other)
        taken.append(mine)


def _check(mine: Used, other: Used) -> None:
    if (mine.read and other.read) or not overlap(mine.path, other.path, mine=mine.read, other=other.read):
        return
    raise InputError(
        mine.key,
        found=f"{mine.path}, which {_relation(mine, other)} {other.path}, {other.whose}",
        expected="a separate directory that neither contains nor lies in a directory in use",
    )


def overlap(one: Path, two: Path, *, mine: bool = False, other: bool = False) -> bool:
    """Return whether one directory is the other, or in it. `mine`, `other`: whether the path may be a pattern.

    >>> overlap(Path("/data/out"), Path("/data")), overlap(Path("/data/out"), Path("/data/output"))
    (True, False)
    >>> [overlap(Path("/data/out"), Path(path), other=True) for path in ("/data/*", "/data/*.csv")]
    [True, False]
    """
    pairs = zip(one.parts, two.parts, strict=False)
    return all(a == b or (mine and _matches(b, a)) or (other and _matches(a, b)) for a, b in pairs)


def _matches(name: str, pattern: str) -> bool:
    if not _PATTERN.search(pattern):
        return name == pattern
    return any(fnmatchcase(name, each) for each in _alternatives(pattern))


def _alternatives(pattern: str) -> Iterator[str]:
    """Yield the patterns that one with {a,b} stands for. Braces around several parts of a path count as *.

    >>> list(_alternatives("x{a,b{1,2}}")), list(_alternatives("x{a"))
    (['xa', 'xb1', 'xa', 'xb2'], ['*'])
    """
    inner = re.search(r"\{([^{}]*)\}", pattern)
    if inner is None:
        yield "*" if set(pattern) & set("{}") else pattern
        return
    for word in inner[1].split(","):
        yield from _alternatives(pattern[: inner.start()] + word + pattern[inner.end() :])


def _relation(one: Used, other: Used) -> str:
    if one.read and _PATTERN.search(str(one.path)):
        return "matches"
    if other.read and _PATTERN.search(str(other.path)):
        return "is matched by"
    depth = len(one.path.parts) - len(other.path.parts)
    return "is" if not depth else "is inside" if depth > 0 else "contains"


def _resolved(used: Used) -> Path:
    """Return a path without symbolic links; of a pattern, up to the first part that is one."""
    parts = used.path.parts
    plain = next((i for i, part in enumerate(parts) if used.read and _PATTERN.search(part)), len(parts))
    try:
        return Path(*parts[:plain]).resolve().joinpath(*parts[plain:])
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        raise InputError(
            used.key, found=f"{used.path} ({error})", expected="a path whose symbolic links can be followed"
        ) from None
