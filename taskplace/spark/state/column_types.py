"""Names of column types and their Arrow types, for stores, processors and sinks.

Known names are `ALIASES`, Spark's names of small integers, Arrow's own names, `decimal(p, s)`, and, made of these,
`list<...>`, `map<..., ...>` and `struct<name: ..., ...>`. A store keeps flat types only; a sink takes all types.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

#: Names that Arrow does not have, or that have another meaning here.
ALIASES = {
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
}
#: The usual names, for the hint with the nearest one.
USUAL = (
    *ALIASES,
    "string",
    "binary",
    "bool",
    "double",
    "float",
    "int8",
    "int16",
    "int32",
    "int64",
    "float64",
    "decimal(9, 2)",
)
_KNOWN = {
    **ALIASES,
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp[us, tz=UTC]": pa.timestamp("us", "UTC"),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
}


def parse(written: str) -> pa.DataType:
    """Return the Arrow type of a name. Errors: `ValueError`.

    >>> parse("decimal(9, 2)"), parse("map<string, list<timestamp>>")
    (Decimal128Type(decimal128(9, 2)), MapType(map<string, list<item: timestamp[us, tz=UTC]>>))
    """
    rest = list(_tokens(written))
    try:
        found = _type(rest)
    except (IndexError, TypeError, OverflowError) as error:
        raise ValueError(f"{written!r}: no type ({error})") from None
    if rest:
        raise ValueError(f"{written!r}: more after the type: {''.join(rest)!r}")
    return found


_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[<>(),:]|[^\s<>(),:`\[]+(?:\[[^\]]*\])?)")


def _tokens(written: str) -> list[str]:
    found, at = [], 0
    while at < len(written.rstrip()):
        match = _TOKEN.match(written, at)
        if match is None:
            raise ValueError(f"{written!r}: no type")
        found.append(match[1])
        at = match.end()
    return found


def _type(rest: list[str]) -> pa.DataType:
    name = rest.pop(0) if rest else ""
    lower = name.lower()
    if lower in ("decimal", "decimal128", "numeric") and rest[:1] == ["("]:
        precision, scale = _bracketed(rest, "(", ")", lambda: rest.pop(0), 2)
        return pa.decimal128(int(precision), int(scale))
    if lower in ("list", "array"):
        return pa.list_(_bracketed(rest, "<", ">", lambda: _type(rest), 1)[0])
    if lower == "map":
        return pa.map_(*_bracketed(rest, "<", ">", lambda: _type(rest), 2))
    if lower == "struct":
        return pa.struct(_bracketed(rest, "<", ">", lambda: _field(rest), None))
    kind = _KNOWN.get(name) or _KNOWN.get(lower)
    return pa.type_for_alias(lower) if kind is None else kind


def _field(rest: list[str]) -> pa.Field:
    name = rest.pop(0)
    if name.startswith("`"):
        name = name[1:-1].replace("``", "`")
    _expect(rest, ":")
    return pa.field(name, _type(rest))


def _bracketed(
    rest: list[str], opening: str, closing: str, one: Callable[[], Any], count: int | None
) -> list[Any]:
    _expect(rest, opening)
    found = [one()]
    while rest[:1] == [","]:
        rest.pop(0)
        found.append(one())
    _expect(rest, closing)
    if count is not None and len(found) != count:
        raise ValueError(f"found {len(found)} parts in {opening}{closing}, expected {count}")
    return found


def _expect(rest: list[str], token: str) -> None:
    if rest[:1] != [token]:
        raise ValueError(f"found {rest[0] if rest else 'the end'!r}, expected {token!r}")
    rest.pop(0)
