"""`taskplace topology`: describes the topology of a file, or draws it.

`--svg`: the package pygraphviz brings Graphviz along, so that nothing else has to be installed. For other formats,
`--dot` is the input of a Graphviz of one's own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taskplace.cli.application import shown_topology
from taskplace.cli.documents import STDOUT, page_option
from taskplace.errors import InputError, TaskplaceError
from taskplace.wording import count
from topology import BuiltTopology


def topology(args: argparse.Namespace) -> int:
    """Print the topology of a file: its subtopologies, stores and tasks; or draw it."""
    page_option("--svg", args.svg, replaced=False)
    built = shown_topology(args.file, args.set).build()
    if args.svg is not None:
        write_svg(built, args.svg)
    elif args.output == "json":
        json.dump(built.to_dict(), sys.stdout, indent=2)
        print()
    elif args.output == "dot":
        print(built.to_dot(), end="")
    else:
        print(built.describe(), end="")
        for sub in built.subtopologies:
            stores = ", ".join(store.name for store in sub.stores) or "no stores"
            tasks = "an unknown number of tasks" if sub.partitions is None else count(sub.partitions, "task")
            print(f"subtopology {sub.id}: {tasks}, {stores}")
        if not (ready := built.readiness()):
            print(f"not ready: {ready.reason}")
    return 0


def svg(built: BuiltTopology) -> bytes:
    """Return the picture as SVG. Errors: `InputError` without pygraphviz; `TaskplaceError` when Graphviz fails."""
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
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_bytes(drawn)
    except OSError as error:
        expected = f"a file that can be written ({error.strerror})"
        raise InputError("--svg", found=file, expected=expected) from None
