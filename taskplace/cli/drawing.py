"""`taskplace topology --svg`: the picture of a topology.

**Idea.** `topology.describe` says what is to be seen, Graphviz lays it out, and the package pygraphviz brings Graphviz
along, so that nothing else has to be installed.

Errors: `InputError` when pygraphviz is missing, or the file cannot be written; `TaskplaceError` when Graphviz fails.

Non-goals: layout, other formats (`--dot` is for everything else that Graphviz can do).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taskplace.cli.documents import STDOUT
from taskplace.errors import InputError, TaskplaceError
from topology import BuiltTopology


def svg(built: BuiltTopology) -> bytes:
    """Return the picture as SVG."""
    try:
        import pygraphviz
    except ImportError as error:
        hint = "pip install 'taskplace[plots]', or use --dot with a Graphviz of your own"
        raise InputError("--svg", found=str(error), expected="pygraphviz", hint=hint) from None
    try:
        with _quiet():
            drawn: bytes = pygraphviz.AGraph(string=built.to_dot()).draw(format="svg", prog="dot")
    except (OSError, ValueError) as error:
        raise TaskplaceError(f"Graphviz cannot draw topology {built.name!r}: {error}") from error
    return drawn


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep away what the font libraries have to say about this machine: they write past Python."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            os.dup2(nowhere.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def write_svg(built: BuiltTopology, file: str) -> None:
    """Write the picture to a file; "-" is standard output."""
    drawn = svg(built)
    if file == STDOUT:
        sys.stdout.write(drawn.decode("utf-8"))
        return
    try:
        Path(file).write_bytes(drawn)
    except OSError as error:
        raise InputError(
            "--svg", found=file, expected=f"a file that can be written ({error.strerror})"
        ) from None
