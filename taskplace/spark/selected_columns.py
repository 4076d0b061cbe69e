"""The columns of a source as far as a file shows them: those of its format, and those that `select` makes of them.

**Idea.** `taskplace run --check` runs no Spark, so it cannot analyse SQL. It need not: an expression that is a column,
or that ends in `as name`, shows its name, and a `cast(... as type)` its type. That is enough to find a column that a
node needs and the source lacks. A type that is not shown is Spark's `void`, which counts as not known.

Errors: `ConfigError` for a selected column that the source does not have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from taskplace.errors import ConfigError
from taskplace.validation import nearest

UNKNOWN_TYPE = "void"
_KAFKA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
#: The columns of formats that have always the same, by the format's name.
FIXED: Mapping[str, tuple[tuple[str, str], ...]] = {
    name: tuple((column.split(" ")[0], column.split(" ")[1]) for column in columns.split(", "))
    for name, columns in {
        "kafka": _KAFKA,
        "rate": "timestamp timestamp, value long",
        "rate-micro-batch": "timestamp timestamp, value long",
        "text": "value string",
    }.items()
}
_NAME = re.compile(r"\s*(?:(\w+)|`([^`]+)`)\s*")
#: Words that are values unless the source has such a column, and the column that Spark adds to those of files.
_VALUES = {
    "null", "true", "false", "user", "current_user", "session_user", "current_date", "current_time",
    "current_timestamp", "localtimestamp", "now", "_metadata",
}  # fmt: skip
_NAMED = re.compile(r"(?P<value>.*\S)\s+as\s+(?:(?P<plain>\w+)|`(?P<quoted>[^`]+)`)\s*", re.I | re.S)
_CAST = re.compile(r"\s*cast\s*\(.*\bas\s+(?P<type>\w+(?:\s*\([\d\s,]*\))?)\s*\)\s*", re.I | re.S)


def selected(
    path: str, expressions: Sequence[str], columns: Sequence[tuple[str, object]]
) -> list[tuple[str, object]] | None:
    """Return the columns that `select` makes of `columns`, with their types as written; None if a name is not shown.

    - `path`: of `select` in the file
    - `columns`: those of the source; empty if they are not known

    >>> selected("input.a.select", ["id", "cast(v as date) as day", "v + 1 as w"], [("id", "long"), ("v", "string")])
    [('id', 'long'), ('day', 'date'), ('w', 'void')]
    >>> selected("input.a.select", ["ide"], [("id", "long")])
    Traceback (most recent call last):
    taskplace.errors.ConfigError: input.a.select[0]: found 'ide', expected one of the source's columns id; \
did you mean 'id'?
    """
    types = {name.lower(): (name, kind) for name, kind in columns}
    made: list[tuple[str, object]] = []
    for number, expression in enumerate(expressions):
        if expression.strip() == "*" and columns:
            made += columns
        elif (bare := _NAME.fullmatch(expression)) is not None:
            name = bare[1] or bare[2]
            if bare[1] and name.lower() not in types and (name[0].isdigit() or name.lower() in _VALUES):
                return None
            if columns and name.lower() not in types:
                names = [known for known, _ in columns]
                expected = f"one of the source's columns {', '.join(names)}"
                raise ConfigError(
                    f"{path}[{number}]", found=name, expected=expected, hint=nearest(name, names)
                )
            made.append((name, types.get(name.lower(), (name, UNKNOWN_TYPE))[1]))
        elif (named := _NAMED.fullmatch(expression)) is not None:
            made.append((named["plain"] or named["quoted"], _type_of(named["value"], types)))
        else:
            return None
    return made


def _type_of(value: str, types: Mapping[str, tuple[str, object]]) -> object:
    """Return the type of an expression, if it is a cast or a column."""
    if (cast := _CAST.fullmatch(value)) is not None:
        return cast["type"]
    bare = _NAME.fullmatch(value)
    return UNKNOWN_TYPE if bare is None else types.get((bare[1] or bare[2]).lower(), ("", UNKNOWN_TYPE))[1]
