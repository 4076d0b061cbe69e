"""Reads the argument `trigger` of `Placed.start`, which says when the query looks for new rows.

Errors: `InputError` with the path, what was found, and the nearest known name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.validation import nearest

TRIGGERS = ("availableNow", "once", "processingTime")
_EXPECTED = "{'processingTime': '10 seconds'}, {'availableNow': True} or {'once': True}"


def read_trigger(trigger: object) -> dict[str, Any]:
    """Return the arguments for `DataStreamWriter.trigger`; none for Spark's default.

    >>> read_trigger({"processingTime": "1.5 min"}), read_trigger({"availableNow": True}), read_trigger(None)
    ({'processingTime': '90000 milliseconds'}, {'availableNow': True}, {})
    >>> read_trigger({"processingtime": "10 s"})
    Traceback (most recent call last):
    taskplace.errors.InputError: trigger.processingtime: found 'processingtime', expected one of availableNow, once, \
processingTime; did you mean 'processingTime'?
    """
    if trigger is None:
        return {}
    if not isinstance(trigger, Mapping):
        raise InputError("trigger", found=trigger, expected=_EXPECTED)
    if not trigger:
        return {}
    for key in trigger:
        if key not in TRIGGERS:
            hint = nearest(key, TRIGGERS)
            raise InputError(f"trigger.{key}", found=key, expected=f"one of {', '.join(TRIGGERS)}", hint=hint)
    if len(trigger) > 1:
        raise InputError("trigger", found=dict(trigger), expected=f"one of {_EXPECTED}")
    ((key, value),) = trigger.items()
    if key == "processingTime":
        return {key: f"{milliseconds(value, 'trigger.processingTime', zero=True)} milliseconds"}
    if value is not True:
        raise InputError(f"trigger.{key}", found=value, expected="True")
    return {key: True}
