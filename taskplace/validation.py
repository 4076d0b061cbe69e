"""Reading JSON-like input: each helper returns the value or raises one `InputError` with its path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from taskplace.errors import InputError
from topology.errors import nearest_name
from topology.tasks import TaskId

_T = TypeVar("_T")

MOST = 2**63 - 1
"""The largest integer: what a column can hold."""

MOST_CAPACITY = 1_000_000
"""The most slots of an instance: sums of shares stay far below what a column can hold."""

LEAST_WEIGHT, MOST_WEIGHT = 1e-9, 1e12
"""Weights are compared and summed, so they must not differ by more than floating point can tell."""


def mapping(value: Any, path: str, known: Iterable[str] = ()) -> Mapping[str, Any]:
    """Return `value` if it is a mapping whose keys are all among `known` (any, if none are given).

    >>> mapping({"idd": 1}, "tasks[0]", ["id", "weight"])
    Traceback (most recent call last):
    taskplace.errors.InputError: tasks[0].idd: found 'idd', expected one of id, weight; did you mean 'id'?
    """
    if not isinstance(value, Mapping):
        raise InputError(path, found=value, expected="an object")
    names = list(known)
    for key in value if names else ():
        if key not in names:
            expected = "one of " + ", ".join(names)
            raise InputError(f"{path}.{key}", found=key, expected=expected, hint=nearest(key, names))
    return value


def entries(
    value: Any, path: str, expected: str, *, optional: bool = False, error: type[InputError] = InputError
) -> list[tuple[Any, Any]]:
    """Return the entries of a mapping; none for None, if `optional`. Errors: of the given kind.

    >>> entries(["a"], "tags", "the tags of each host")
    Traceback (most recent call last):
    taskplace.errors.InputError: tags: found ['a'], expected the tags of each host
    """
    if value is None and optional:
        return []
    if not isinstance(value, Mapping):
        raise error(path, found=value, expected=expected)
    return list(value.items())


def nearest(found: object, known: Iterable[str]) -> str:
    """Return the hint that names the nearest known word, or nothing if none is near.

    >>> nearest("kil", ["add", "kill"])
    "did you mean 'kill'?"
    """
    if not isinstance(found, str | int) or (isinstance(found, int) and found.bit_length() > 64):
        return ""
    near = nearest_name(str(found), known)
    return f"did you mean {near!r}?" if near else ""


def listing(value: Any, path: str) -> Sequence[Any]:
    """Return `value` if it is a list."""
    if not isinstance(value, (list, tuple)):
        raise InputError(path, found=value, expected="a list")
    return value


def text(value: Any, path: str) -> str:
    """Return `value` if it is a string that is not empty, and can be written as UTF-8 (JSON can spell halves)."""
    return named(value, path, "a non-empty string")


def named(value: Any, path: str, expected: str) -> str:
    """Return `value` if it is a string as in `text`; `expected` says what it names.

    >>> named("\\ud800", "Count('n').by", "the name of a column")
    Traceback (most recent call last):
    taskplace.errors.InputError: Count('n').by: found '\\ud800', expected a string without surrogates (halves of \
characters)
    """
    if not isinstance(value, str) or not value:
        raise InputError(path, found=value, expected=expected)
    if has_surrogates(value):
        raise InputError(path, found=value, expected=NO_SURROGATES)
    return value


NO_SURROGATES = "a string without surrogates (halves of characters)"


def has_surrogates(value: str) -> bool:
    """Return whether a string has halves of characters, which cannot be written as UTF-8."""
    return not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value)


def optional_text(value: Any, path: str) -> str | None:
    """Return `value` if it is a text, or None if it is null or empty."""
    return None if value is None or value == "" else text(value, path)


def of_type(value: Any, kind: type[_T], path: str) -> _T:
    """Return `value` if it is of a type.

    >>> of_type({"tasks": []}, int, "problem")
    Traceback (most recent call last):
    taskplace.errors.InputError: problem: found {tasks: []}, expected an int
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOaeio" else "a"
        raise InputError(path, found=value, expected=f"{article} {kind.__name__}")
    return value


def one_of(value: Any, path: str, known: Sequence[str]) -> str:
    """Return `value` if it is one of the `known` words.

    >>> one_of("jsn", "KafkaSink.value_format", ["json", "raw"])
    Traceback (most recent call last):
    taskplace.errors.InputError: KafkaSink.value_format: found 'jsn', expected one of json, raw; did you mean 'json'?
    """
    if not isinstance(value, str) or value not in known:
        expected = f"one of {', '.join(known)}"
        raise InputError(path, found=value, expected=expected, hint=nearest(value, known))
    return value


def boolean(value: Any, path: str) -> bool:
    """Return `value` if it is true or false."""
    if not isinstance(value, bool):
        raise InputError(path, found=value, expected="true or false")
    return value


def integer(value: Any, path: str, least: int = 0, most: int = MOST, *, optional: bool = False) -> int | None:
    """Return `value` if it is an integer from `least` to `most`; null too, if `optional`.

    >>> integer(-1, "limit", 1)
    Traceback (most recent call last):
    taskplace.errors.InputError: limit: found -1, expected an integer of at least 1
    """
    if value is None and optional:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(path, found=value, expected=integer_from(least, most, optional=optional))
    return value


def integer_from(least: int, most: int = MOST, *, optional: bool = False) -> str:
    """Return the words for what `integer` expects; the upper limit of a column goes without saying."""
    upto = f", at most {most}" if most < MOST else ""
    return f"an integer of at least {least}{upto}" + (" or null" if optional else "")


def positive(value: Any, path: str, *, optional: bool = False) -> float | None:
    """Return `value` as a float if it is a finite number above 0; null too, if `optional`."""
    if value is None and optional:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < MOST_NUMBER:
        raise InputError(path, found=value, expected="a number above 0" + (" or null" if optional else ""))
    return float(value)


MOST_NUMBER = 1e300
"""Beyond this, an integer is no float any more."""


def weight(value: Any, path: str) -> float:
    """Return `value` as a float if it is a weight that can be compared with others."""
    number = positive(value, path) or 0.0
    if not LEAST_WEIGHT <= number <= MOST_WEIGHT:
        expected = f"a weight from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
        raise InputError(path, found=value, expected=expected)
    return number


def task_id(value: Any, path: str) -> TaskId:
    """Return the task id that `value` names.

    >>> task_id("0-3", "tasks[3].id")
    Traceback (most recent call last):
    taskplace.errors.InputError: tasks[3].id: found '0-3', expected a task id like '0_3'
    """
    try:
        task = TaskId.parse(value)
    except ValueError:
        raise InputError(path, found=value, expected="a task id like '0_3'") from None
    if max(task) >= 2**31:
        raise InputError(path, found=value, expected="a task id with numbers below 2147483648")
    return task


def each(read: Callable[[Any, str], _T], value: Any, path: str) -> tuple[_T, ...]:
    """Return what `read` makes of each entry of a list; it gets the entry and its path.

    >>> each(task_id, ["0_3", "1_0"], "active")
    (TaskId(subtopology=0, partition=3), TaskId(subtopology=1, partition=0))
    """
    return tuple(read(entry, f"{path}[{k}]") for k, entry in enumerate(listing(value, path)))


def task_ids(value: Any, path: str) -> tuple[TaskId, ...]:
    """Return the task ids of a list, sorted."""
    return tuple(sorted(each(task_id, value, path)))


def slots(value: Any, path: str) -> tuple[tuple[TaskId, ...], ...]:
    """Return a list of slots, each a list of task ids; a task may be on one slot only."""
    read = each(task_ids, value, path)
    seen: set[TaskId] = set()
    for t in (t for slot in read for t in slot):
        if t in seen:
            raise InputError(path, found=str(t), expected="each task in one slot")
        seen.add(t)
    return read
