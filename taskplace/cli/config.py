"""`taskplace config`: the values that are in force, and where each comes from."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from taskplace.cli import codes
from taskplace.cli.config import Effective, Entry, Origin, effective
from taskplace.cli.documents import placed_application
from taskplace.cli.terminal import columns, show
from taskplace.model.keys import as_yaml
from taskplace.wording import count, wrapped

SCHEMA = "taskplace.config/1"
#: The most letters of a value that the text shows; and of a column: what is longer ends its line.
SHOWN, WIDEST = 60, 44
#: The width of a column whose cells have the next column below them.
NARROW = 2
_SECTION = re.compile(r"[.\[]")


def config(args: argparse.Namespace) -> int:
    """Print the values of an application with their origins; with `--all`, also the defaults."""
    document = placed_application(args.file)
    found = effective(args.file, Path(args.file).read_text(encoding="utf-8"), document, args.set)
    values = [one for one in found.values if args.all or _is_shown(one)]
    if args.output == "json":
        print(json.dumps(_to_dict(args.file, found, values), indent=1, default=str))
    else:
        show(_lines(args.file, found, values, columns()))
    return codes.DONE


def _is_shown(one: Entry) -> bool:
    """Whether a value is shown without `--all`: it is no default, and not an unchanged part of the topology."""
    own = one.path.startswith("topology.") and one.origin.kind == "file"
    return one.origin.kind != "default" and not own


# ------------------------------------------------------------------------------------------------ text


def _lines(file: str, found: Effective, values: list[Entry], room: int) -> Iterator[str]:
    """Yield the text. `room`: the width that the columns have."""
    yield f"{file}: application {found.application}"
    sections: dict[str, list[Entry]] = {}
    for one in values:
        sections.setdefault(_SECTION.split(one.path)[0], []).append(one)
    for name, entries in sections.items():
        yield from ("", name, *_table([(one.path.removeprefix(f"{name}."), one) for one in entries], room))
    yield ""
    yield "Spark properties that the application sets; those of spark-submit and spark-defaults.conf come in addition"
    yield from _table([(one.path, one) for one in found.spark], room)
    yield ""
    if without := [one.path for one in (*values, *found.spark) if one.ignored]:
        yield f"{count(len(without), 'value')} ignored: {', '.join(without)}"
        yield f"`taskplace doctor {shlex.quote(file)}` says what to do about it"
    left_out = [one for one in found.values if one not in values]
    topology = sum(one.path.startswith("topology.") for one in left_out)
    if left_out:
        more = f" and {count(topology, 'value')} of the topology" if topology else ""
        yield f"{count(len(left_out) - topology, 'default')}{more} not shown: --all shows them"


def _table(rows: list[tuple[str, Entry]], room: int) -> Iterator[str]:
    """Yield the entries, in columns; what they replace, and remarks, below them.

    Columns that have no room beside each other are below each other, a step to the right each.
    """
    cells = [(key, _shown(one.value), one) for key, one in rows]
    width = max((len(key) for key, _, _ in cells if len(key) <= WIDEST), default=0)
    wide = max((len(value) for _, value, _ in cells if len(value) <= WIDEST), default=0)
    last = max((len(one.origin.text) for _, _, one in cells), default=0)
    if 2 + width + 2 + wide + 2 + last > room:
        width = NARROW
    if 2 + width + 2 + wide + 2 + last > room:
        wide = NARROW
    for key, value, one in cells:
        yield from _aligned((key, width), (value, wide), (one.origin.text, 0))
        below = [f"instead of {_shown(before)} ({origin.text})" for before, origin in one.replaces]
        below += [one.note] if one.note else []
        below += [f"IGNORED: {one.ignored}"] if one.ignored else []
        indent = " " * (width + 6)
        for line in below:
            yield from wrapped(line, room, indent, f"{indent}  ")


def _aligned(*cells: tuple[str, int]) -> Iterator[str]:
    """Yield a row of cells with their widths. The cell behind one that is too wide goes on under it, in its column.

    >>> list(_aligned(("a", 3), ("b", 3), ("c", 0))), list(_aligned(("a", 3), ("long", 3), ("c", 0)))
    (['  a    b    c'], ['  a    long', '            c'])
    """
    line, column = "", 2
    for text, width in cells:
        if len(line) + 2 > column and line:
            yield line
            line = ""
        line = f"{line:<{column}}{text}"
        column += width + 2
    yield line


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str) if isinstance(value, list | dict) else as_yaml(value)
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


# ------------------------------------------------------------------------------------------------ JSON


def _to_dict(file: str, found: Effective, values: Iterable[Entry]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "file": file,
        "application": found.application,
        "values": [_entry_dict(one) for one in values],
        "spark": [_entry_dict(one) for one in found.spark],
    }


def _entry_dict(one: Entry) -> dict[str, Any]:
    return {
        "key": one.path,
        "value": one.value,
        "origin": _origin_dict(one.origin),
        "replaces": [{"value": value, "origin": _origin_dict(origin)} for value, origin in one.replaces],
        "ignored": one.ignored or None,
        "note": one.note or None,
    }


def _origin_dict(origin: Origin) -> dict[str, Any]:
    return {"kind": origin.kind, "text": origin.text, "line": origin.line}
