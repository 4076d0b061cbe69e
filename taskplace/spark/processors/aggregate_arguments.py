"""Checks the arguments of `Aggregate` against each other, before anything starts.

Errors: `InputError` with the processor and the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from taskplace.errors import InputError
from taskplace.spark.processors.aggregate import WINDOW, Tumbling
from taskplace.spark.processors.parts import Aggregation, check_sums
from taskplace.validation import named


def check_arguments(
    path: str, *, keys: Mapping[str, object], aggregates: Mapping[str, Aggregation], window: Any, ttl: Any
) -> None:
    """Refuse arguments of the wrong kind, and arguments that exclude each other.

    - `path`: the processor, for errors
    - `keys`: the columns of `by`, without the window's

    >>> check_arguments("Aggregate('s')", keys={"k": "string"}, aggregates={}, window=None, ttl=None)
    Traceback (most recent call last):
    taskplace.errors.InputError: Aggregate('s'): found "by={'k': 'string'}", expected at least one key column and one \
aggregate
    """
    if window is not None and not isinstance(window, Tumbling):
        expected = "Tumbling(column, size), such as Tumbling('at', '1 hour')"
        raise InputError(f"{path}.window", found=window, expected=expected)
    for name, aggregate in aggregates.items():
        named(name, path, "the name of a column")
        if not isinstance(aggregate, Aggregation):
            expected = "an aggregate, such as count() or sum_('amount')"
            raise InputError(f"{path}.{name}", found=aggregate, expected=expected)
    if not keys or not aggregates:
        raise InputError(path, found=f"by={keys}", expected="at least one key column and one aggregate")
    if window is not None:
        _check_window(path, window, {*keys, *aggregates}, ttl)


def _check_window(path: str, window: Tumbling, names: set[str], ttl: Any) -> None:
    if ttl is not None or WINDOW in names:
        raise InputError(
            path,
            found="a window and a ttl" if ttl is not None else f"a window and a column {WINDOW!r}",
            expected=f"only the window: it adds the column {WINDOW!r} and defines when entries expire",
        )
    if not isinstance(window.emit, str) or window.emit not in ("changes", "final"):
        raise InputError(f"{path}.window.emit", found=window.emit, expected="'changes' or 'final'")
    if window.time in {*names, WINDOW}:
        raise InputError(
            f"{path}.window.time",
            found=f"the column {window.time!r} twice",
            expected="a name that no key and no aggregate has",
        )


def parts_of(
    path: str,
    *,
    by: Mapping[str, object],
    aggregates: Mapping[str, Aggregation],
    window: Tumbling | None,
) -> dict[str, Aggregation]:
    """Return the parts that the store keeps for the aggregates, by the names of their columns.

    Refuses names that occur twice, in the store or in the output, and sums that are no numbers. `by` has all columns of
    the store's key, with the window's.

    >>> from taskplace.spark.processors.parts import avg
    >>> parts_of("Aggregate('s')", by={"x_sum": "string"}, aggregates={"x": avg("n")}, window=None)
    Traceback (most recent call last):
    taskplace.errors.InputError: Aggregate('s').x: found "the column 'x_sum' twice", expected a different name for \
each key and aggregate; an average x uses x_sum and x_count
    """
    parts: dict[str, Aggregation] = {}
    # In lower case, because Spark treats K and k as one name.
    stored: set[str] = set()
    for key in by:
        _take(path, key, [key], stored)
    sent = set(stored)
    if window is not None and window.time is not None:
        _take(path, window.time, [window.time], sent)
    for name, whole in aggregates.items():
        own = whole.parts(name)
        check_sums(path, {part: how.type for part, how in own.items() if how.function == "sum"})
        _take(path, name, own, stored)
        _take(path, name, [name], sent)
        parts |= own
    return parts


def _take(path: str, name: str, columns: Iterable[str], taken: set[str]) -> None:
    for column in columns:
        if column.lower() in taken:
            raise InputError(
                f"{path}.{name}",
                found=f"the column {column!r} twice",
                expected="a different name for each key and aggregate; an average x uses x_sum and x_count",
            )
        taken.add(column.lower())
