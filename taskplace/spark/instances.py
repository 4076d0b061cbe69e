"""The names of instances: how users name an executor, and how plans do."""

from __future__ import annotations

from taskplace.errors import InputError
from taskplace.validation import MOST


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
