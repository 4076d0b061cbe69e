"""Exit codes of the command line. Each command's help says what they mean for it."""

from __future__ import annotations

from collections.abc import Mapping

from taskplace.errors import InputError
from topology.errors import TopologyError

DONE = 0
FAILED = 1
BAD_INPUT = 2
MOVES = 3
NO_DRIVER = 4
NO_ANSWER = 5
WARNINGS = 6
INTERRUPTED = 130

#: What each code means, whatever the command.
MEANINGS: Mapping[int, str] = {
    DONE: "Done, or yes: valid, stable, sound, empty, a driver runs.",
    FAILED: "It failed, or a batch, plan, checkpoint or result is broken.",
    BAD_INPUT: "Bad input. Nothing was started or changed.",
    MOVES: "Not yet: tasks or partitions move first, or --yes is missing.",
    NO_DRIVER: "No driver runs. A new one counts from its first batch on.",
    NO_ANSWER: "No answer in time, or the driver has just started. Nothing was changed.",
    WARNINGS: "Warnings, and no errors.",
    INTERRUPTED: "Interrupted: Ctrl-C, or SIGTERM during `run`.",
}


def of(error: BaseException) -> int:
    """Return the exit code that an error leads to.

    >>> of(InputError("FILE", found="x", expected="y")), of(KeyboardInterrupt()), of(OSError())
    (2, 130, 1)
    """
    if isinstance(error, InputError | TopologyError):
        return BAD_INPUT
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED
