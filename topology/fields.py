"""Reads the entries of a written topology: mappings and options. Adds the path to errors.

Errors: `TopologyError` with the path, the value found, the values expected, and the nearest name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from topology.entry_fields import check_options
from topology.errors import TopologyError, nearest, shown
from topology.names import check_name

_OWN = re.compile(r"(?:node|store|source|repartition) '([^']*)'(?=[.:])")


def read_options(fields: Mapping[str, Any], path: str, reserved: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the entry's `options`, which become keyword arguments."""
    options = dict(read_entries(fields.get("options"), f"{path}.options"))
    for name in reserved:
        if name in options:
            raise TopologyError(f"{path}.options.{name}: belongs one level higher, beside `options`")
    check_options(options, reserved, f"{path}.options")
    return options


def read_entries(value: Any, path: str) -> list[tuple[str, Any]]:
    """Return the entries of a mapping, and check their names. Empty for None."""
    if value is None and path != "topology":  # an empty entry in YAML
        return []
    if not isinstance(value, Mapping):
        raise TopologyError(f"{path}: found {shown(value)}, expected a mapping")
    return [(check_name(name, f"{path}: the name of an entry"), spec) for name, spec in value.items()]


def known_fields(value: Any, path: str, known: tuple[str, ...]) -> dict[str, Any]:
    """Return an entry's fields. Errors: `TopologyError` for an unknown field."""
    fields = dict(read_entries(value, path))
    for name in fields:
        if name not in known:
            raise TopologyError(
                f"{path}.{name}: found an unknown field, expected one of {len(known)}; {nearest(name, known)}"
            )
    return fields


@contextmanager
def placed(path: str) -> Iterator[None]:
    """Put the entry's path before the message of an error that lacks it."""
    try:
        yield
    except TopologyError as error:
        text = str(error)
        own = _OWN.match(text)
        if own is not None and path.endswith(f".{own[1]}"):  # "node 'stats'.stores", of the entry itself
            text = path + text[own.end() :]
        raise TopologyError(text if text.startswith(path) else f"{path}: {text}", node=error.node) from error
