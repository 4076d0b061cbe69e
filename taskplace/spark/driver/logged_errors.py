"""Logs errors that may quote rows: their type and place as a warning, their text only at the level DEBUG.

An error of a source, a sink or a processor often has keys or values of rows in its message. A message of taskplace has
none, so it is a part of the warning.
"""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

from taskplace.logs import RepeatedWarnings
from taskplace.spark.worker.guard import shown_error


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
