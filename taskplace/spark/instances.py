"""The names of instances: how users name an executor, and how plans do."""

from __future__ import annotations

from collections.abc import Collection

from taskplace.errors import InputError
from taskplace.validation import MOST
from taskplace.wording import one_of

#: How many executors an error names.
_NAMED = 20


def instance_name(executor: object) -> str:
    """Return the instance that is meant by "3", 3 or "executor-3". Errors: `InputError` for anything else.

    >>> instance_name(3)
    'executor-3'
    """
    number = isinstance(executor, int) and not isinstance(executor, bool) and 0 <= executor < MOST
    if not number and not isinstance(executor, str):
        raise InputError("executor", found=executor, expected="an id like '3' or 'executor-3'")
    name = str(executor)
    return name if name.startswith("executor-") else f"executor-{name}"


def one_of_executors(known: Collection[str]) -> str:
    """Return what an error expects instead of an executor that the stream does not have.

    It suggests none: the nearest number would be a guess.

    >>> one_of_executors(["executor-1", "executor-2"]), one_of_executors([])
    ('one of 2 executors: executor-1, executor-2', 'an executor of the stream, which has none now')
    """
    return (
        one_of(known, "executor", most=_NAMED) if known else "an executor of the stream, which has none now"
    )
