"""Finds the line of each key in a YAML document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from taskplace.yamls import nodes

Path = tuple[str, ...]
_MERGE = "tag:yaml.org,2002:merge"


def key_lines(text: str) -> dict[Path, int]:
    """Return the line of each key, and of each entry of a list, by its path. The first line is 1.

    `text` is a document that `taskplace.yamls.load` reads. Keys that are merged (`<<`) have the line of their anchor.

    >>> key_lines("runtime:\\n  snapshot.interval: 5\\nchaos:\\n- batch: 1\\n")[("runtime", "snapshot.interval")]
    2
    >>> key_lines("chaos:\\n- batch: 1\\n")
    {('chaos',): 1, ('chaos', '[0]'): 2, ('chaos', '[0]', 'batch'): 2}
    """
    root, lines = nodes(text), dict[Path, int]()
    for path, line in () if root is None else _walk(root, ()):
        lines.setdefault(path, line)  # a key's own value has priority over a merged one
    return lines


def _walk(node: Any, path: Path) -> Iterator[tuple[Path, int]]:
    """Yield keys and lines: those of a mapping before those that are merged into it."""
    if isinstance(node, yaml.MappingNode):
        merged = [value for key, value in node.value if key.tag == _MERGE]
        for key, value in node.value:
            if key.tag != _MERGE and isinstance(key, yaml.ScalarNode):
                yield (*path, key.value), key.start_mark.line + 1
                yield from _walk(value, (*path, key.value))
        for value in merged:
            for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                yield from _walk(each, path)
    elif isinstance(node, yaml.SequenceNode):
        for i, each in enumerate(node.value):
            yield (*path, f"[{i}]"), each.start_mark.line + 1
            yield from _walk(each, (*path, f"[{i}]"))
