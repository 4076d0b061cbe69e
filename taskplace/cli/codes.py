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
    DONE: "Done. The answer is yes: valid, stable, sound, empty, or a driver runs.",
    FAILED: "It failed, or something is broken: a batch, a plan, a checkpoint, a result, Spark.",
    BAD_INPUT: "Bad input: the command line, a file, or a value. Nothing was started and nothing was changed.",
    MOVES: "Not yet: tasks or partitions have to move first, or --yes has to be given.",
    NO_DRIVER: "No driver runs the checkpoint. One that was started counts from its first batch on.",
    NO_ANSWER: "No answer: the driver did not answer in time, or has just started. Nothing was changed.",
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
