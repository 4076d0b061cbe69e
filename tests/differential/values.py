"""Values in the model: times in microseconds, casts, order, and aggregates."""

from __future__ import annotations

from typing import Any

from tests.differential.case import Row, canonical

Key = tuple[Any, ...]
DAY = 86_400_000_000


def micros(value: Any, kind: str) -> int | None:
    """Return a time in microseconds; a date is its midnight."""
    return None if value is None else value * DAY if kind == "date" else value


def cast(value: Any, kind: str, kept: str | None) -> Any:
    """Return a value cast to another type."""
    if value is None or kept is None:
        return value
    if kept == "string":
        return str(value)
    if kept == "bool":
        return bool(value)
    if kept == "date" and kind != "date":
        return value // DAY
    return (
        micros(value, kind)
        if kept == "timestamp"
        else float(value)
        if kept.startswith("float")
        else int(value)
    )


def rank(value: Any) -> tuple[bool, Any]:
    """Return the sort key of a value, as in Spark: NaN is greater than all other floats."""
    return (True, 0) if value != value else (False, value)


def order(row: Row, columns: list[str]) -> list[Any]:
    """Return the sort key of a table row: column by column, nulls first."""
    return [(row[c] is not None, rank(0 if row[c] is None else canonical(row[c]))) for c in columns]


def aggregated(values: Row, name: str, function: str, value: Any) -> None:
    """Add one value to an aggregate. Nulls are ignored."""
    if function == "avg":
        aggregated(values, f"{name}_sum", "sum", value)
        aggregated(values, f"{name}_count", "count", value)
        return
    before = values.setdefault(name, 0 if function == "count" else None)
    if value is None:
        return
    if function == "count":
        values[name] = before + 1
    elif function == "last" or before is None:
        values[name] = value
    elif function == "sum":
        values[name] = before + value
    elif function == "min":
        values[name] = min(before, value, key=rank)
    elif function == "max":
        values[name] = max(before, value, key=rank)
