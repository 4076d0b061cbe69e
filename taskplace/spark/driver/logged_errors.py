"""Logs errors that may quote rows: their type and place as a warning, their text only at the level DEBUG.

An error of a source, a sink or a processor often has keys or values of rows in its message. A message of taskplace has
none, so it is a part of the warning.
"""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

from taskplace.errors import TaskplaceError
from taskplace.logs import RepeatedWarnings
from taskplace.redaction import scrubbed

#: The most letters of an error that operators see.
ERROR_LETTERS = 500


def log_failure(log: logging.Logger, message: str, *args: object, error: BaseException) -> None:
    """Log a warning with an error's type and place, and the whole error at DEBUG. `message`: as for `log.warning`."""
    log.warning(f"{message}: %s", *args, described(error), stacklevel=2)
    log.debug("the whole error:", exc_info=error, stacklevel=2)


def log_repeated_failure(
    log: logging.Logger,
    repeated: RepeatedWarnings,
    key: str,
    message: str,
    *args: object,
    error: BaseException,
) -> None:
    """Log a failure that is retried, as `log_failure`, at growing intervals. `key`: what `repeated.over` gets."""
    repeated.warn(log, f"{message}: %s", *args, described(error), key=key, kind=type(error), stacklevel=3)
    log.debug("the whole error:", exc_info=error, stacklevel=2)


def described(error: BaseException) -> str:
    """Return an error's type and where it was raised; the message of one of taskplace as well.

    >>> described(ValueError("bad row k7"))
    'ValueError'
    >>> try:
    ...     int("k7")
    ... except ValueError as error:
    ...     described(error)
    'ValueError, raised in <doctest taskplace.spark.driver.logged_errors.described[1]>, line 2'
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f", raised in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{shown_error(error)}{place}"


def shown_error(error: BaseException) -> str:
    """Return an error's type. Only the messages of taskplace are shown: those of others may have values of rows."""
    name = type(error).__name__
    return f"{name}: {_message(str(error))}" if isinstance(error, TaskplaceError) else name


def shown_text(text: str) -> str:
    """Return what is shown of an error that an executor reported as "type: message"; as `shown_error`.

    >>> shown_text("CheckpointError: manifest 7 is missing"), shown_text("ValueError: bad row k7")
    ('CheckpointError: manifest 7 is missing', 'ValueError')
    """
    name, _, message = text.partition(": ")
    if name in _ours():
        return f"{name}: {_message(message)}"
    return name if name.isidentifier() else "its copy cannot be read"


def _message(text: str) -> str:
    return " ".join(scrubbed(text).split())[:ERROR_LETTERS]


def _ours() -> set[str]:
    """Return the names of taskplace's errors, as far as their modules are loaded."""
    kinds: list[type] = [TaskplaceError]
    for kind in kinds:  # grows meanwhile
        kinds.extend(kind.__subclasses__())
    return {kind.__name__ for kind in kinds}
