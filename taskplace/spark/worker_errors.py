"""Gives errors of executors their own type again.

PySpark brings an exception of an executor to the driver as text: a `PythonException` that ends with the traceback.
`own_error` reads the exception's line there. It makes the same exception again if a caller may want to act on it:
`DiskFull`, `CheckpointError`, `Fenced`. All others stay a `PythonException`, with the whole traceback in it.

A worker whose Python has no taskplace cannot raise an error of it. `own_error` says so in one line. It does the same
for a module of the user's that the driver has and the worker lacks.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

from taskplace.errors import CheckpointError, Fenced, InputError, TaskplaceError
from taskplace.spark.worker.guard import DiskFull

_OWN: dict[str, type[TaskplaceError]] = {
    f"{kind.__module__}.{kind.__qualname__}": kind for kind in (CheckpointError, DiskFull, Fenced)
}
#: What a worker says that has another Python than the driver: it lacks taskplace, or what comes with it.
_ELSEWHERE = re.compile(
    r"^ModuleNotFoundError: No module named '(?P<name>taskplace|topology|msgspec|lmdb|pyarrow|numpy|psutil)'",
    re.MULTILINE,
)
_LACKING = re.compile(r"^ModuleNotFoundError: No module named '(?P<name>\w+)", re.MULTILINE)
_BEGIN = "Traceback (most recent call last):\n"
#: The exception of a traceback: its first line that is not indented. Its message ends at an empty line.
_RAISED = re.compile(r"^(?P<kind>[\w.]+): (?P<message>\S.*(?:\n(?!SQLSTATE).+)*)", re.MULTILINE)


def own_error(error: BaseException) -> TaskplaceError | None:
    """Return the error of taskplace that an executor raised, made again from the text of a job's error; else None.

    >>> class PythonException(Exception): pass
    >>> text = "Traceback (most recent call last):\\n  File ...\\ntaskplace.errors.Fenced: by driver 2\\n"
    >>> own_error(PythonException(text))
    Fenced('by driver 2')
    >>> own_error(PythonException(text.replace("taskplace.errors.Fenced", "ValueError"))) is None
    True
    """
    if type(error).__name__ != "PythonException":
        return None
    if (lacks := _ELSEWHERE.search(str(error))) is not None:
        return InputError(
            "Python of the executors",
            found=f"no module {lacks['name']!r}",
            expected="an environment with taskplace",
            hint=f"activate it before the start, or set PYSPARK_PYTHON to its Python; the driver has {sys.executable}",
        )
    if (lacking := _of_the_driver(str(error))) is not None:
        return lacking
    _, begin, traceback = str(error).rpartition(_BEGIN)
    raised = _RAISED.search(traceback) if begin else None
    kind = _OWN.get(raised["kind"]) if raised else None
    return kind(raised["message"]) if raised and kind else None


def _of_the_driver(text: str) -> InputError | None:
    """Return the error about a module that the driver has and a worker lacks; None if the text has none."""
    lacks = _LACKING.search(text)
    spec = importlib.util.find_spec(lacks["name"]) if lacks is not None else None
    if lacks is None or spec is None or spec.origin is None:
        return None
    file = Path(spec.origin)
    send = f"send it with spark.sparkContext.addPyFile({str(file)!r})"
    if spec.submodule_search_locations:
        send, file = "send it as a zip file with spark.sparkContext.addPyFile", file.parent
    return InputError(
        "Python of the executors",
        found=f"no module {lacks['name']!r}",
        expected="the modules of your processors",
        hint=f"the driver has it in {file.parent}: {send} before the start, or set PYTHONPATH before Spark starts",
    )
