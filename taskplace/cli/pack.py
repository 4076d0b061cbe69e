"""`taskplace pack`: the libraries that executors need, as one archive for the key `spark.environment`.

**Idea.** The archive is a directory of packages, made of what is installed here: this library, what its workers import,
and what those require. Spark unpacks it beside each executor, and the workers have it on their PYTHONPATH. So hosts
need no more than Spark and a Python of the same version and platform.

Tests, headers and parts of Arrow that no worker loads are left out.
"""

from __future__ import annotations

import argparse
import re
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import taskplace
import topology
from taskplace.cli import codes
from taskplace.cli.terminal import answer
from taskplace.errors import InputError
from taskplace.spec.paths import why_not
from taskplace.wording import count

#: What workers import, also by the modules of an application; for topics that tasks read themselves, if installed.
WORKERS = (
    "isal", "lmdb", "msgspec", "networkx", "numpy", "psutil", "pyarrow", "ruamel.yaml", "sortedcontainers",
    "typing_extensions",
)  # fmt: skip
KAFKA = ("confluent-kafka", "fastavro")
_LEFT_OUT = re.compile(
    r"(^|/)(tests?|include|__pycache__)/|^pyarrow/src/|\.(pxd|pxi|pyx|pyi|h|hpp|a)$"
    r"|^pyarrow/(lib\w*_flight|_flight)|(^|/)\.\./"
)
_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*")


def pack(args: argparse.Namespace) -> int:
    """Write the archive, and print its size and what is in it."""
    wanted = {each.name: each for each in distributions((*WORKERS, *args.more), KAFKA)}
    try:
        with tarfile.open(args.out, "w:gz", compresslevel=6) as archive:
            for module in (taskplace, topology):
                top = Path(module.__path__[0])
                _add(archive, top.parent, (path.relative_to(top.parent) for path in sorted(top.rglob("*"))))
            for each in wanted.values():
                _add(archive, Path(str(each.locate_file(""))), map(Path, sorted(map(str, each.files or ()))))
    except OSError as error:
        expected = f"a file that can be written ({why_not(error)})"
        raise InputError("FILE", found=args.out, expected=expected) from None
    size = Path(args.out).stat().st_size
    found = {
        "schema": "taskplace.pack/1",
        "file": str(args.out),
        "bytes": size,
        "packages": {name: each.version for name, each in sorted(wanted.items())},
    }
    lines = [
        f"{args.out}: {size / 2**20:.0f} MiB, taskplace {taskplace.__version__} and {count(len(wanted), 'package')}:",
        "  " + ", ".join(f"{name} {each.version}" for name, each in sorted(wanted.items())),
    ]
    answer(args.output, found, lines)
    return codes.DONE


def distributions(names: Iterable[str], if_installed: Iterable[str] = ()) -> Iterator[Distribution]:
    """Yield these distributions and those that they require, as far as those are installed.

    Errors: `InputError` for a name of `names` that is not installed.
    """
    todo = [(name, True) for name in names] + [(name, False) for name in if_installed]
    found = set()
    while todo:
        name, needed = todo.pop()
        try:
            each = distribution(name)
        except PackageNotFoundError:
            if needed:
                raise InputError("--with", found=name, expected="a library that is installed here") from None
            continue
        if each.name not in found:
            found.add(each.name)
            yield each
            for line in each.requires or ():
                if "extra ==" not in line and (required := _NAME.match(line)):
                    todo.append((required[0], False))


def _add(archive: tarfile.TarFile, root: Path, files: Iterable[Path]) -> None:
    for path in files:
        if not _LEFT_OUT.search(path.as_posix()) and (root / path).is_file():
            archive.add(root / path, path.as_posix())
