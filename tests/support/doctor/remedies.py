"""What a remedy of the doctor changes: options of the command line, keys to remove, lines to write into the file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

_REMOVED = re.compile(r"# remove (?P<key>\S+)(?: from (?P<file>\S+))?(?:;|$)")
_RENAMED = re.compile(r"# rename (?P<key>\S+) to (?P<name>\S+)(?: in (?P<file>\S+))?$")
_WRITTEN = re.compile(r"\bin (?P<path>[a-z][\w.-]*): (?P<lines>\{.*?\})(?=; |$|, with)")


class Changes(NamedTuple):
    """The changes of a remedy.

    - `overrides`: for `--set`; `removed`: paths of keys, `file: key` of Spark's properties
    - `written`: by path, what is written into the file there
    """

    overrides: Sequence[str] = ()
    removed: Sequence[str] = ()
    written: Mapping[str, Mapping[str, Any]] = {}


def changes(remedy: str) -> Changes | None:
    """Return the changes of a remedy; None for a command, and for what only a person can do."""
    if removed := _REMOVED.match(remedy):
        key, file = removed["key"], removed["file"]
        return Changes(removed=[f"{file}: {key}" if file else key])
    if renamed := _RENAMED.match(remedy):
        key, file = renamed["key"], renamed["file"]
        written = {} if file else {"spark.conf": {renamed["name"]: "600s"}}  # the value does not matter here
        return Changes(removed=[f"{file}: {key}" if file else key], written=written)
    if remedy.startswith("# in ") and (lines := _WRITTEN.findall(remedy)):
        return Changes(written={path: yaml.safe_load(more) for path, more in lines})
    words = shlex.split(remedy, comments=True)
    if not words or len(words) % 2 or any(word != "--set" for word in words[::2]):
        return None
    return Changes(overrides=words[1::2])
