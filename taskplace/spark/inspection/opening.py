"""Finds the checkpoint that a path names, and its files by number."""

from __future__ import annotations

import difflib
import os
import stat
from contextlib import suppress
from pathlib import Path

from taskplace.errors import InputError, plainly
from taskplace.spec.paths import local_path, why_not

_EXPECTED = "the directory of a checkpoint"


def checkpoint_at(given: str | Path) -> Path:
    """Return the directory of a checkpoint.

    Errors: `InputError` if there is no directory, or one without a checkpoint; it names the nearest one. Also if this
    user may not read it: a checkpoint is private.
    """
    path = local_path(given, "CHECKPOINT")
    try:
        is_directory = stat.S_ISDIR(path.stat().st_mode)
        if is_directory:
            next(path.iterdir(), None)  # tried, because `os.access` does not know every file system's rules
            (path / ".").stat()
    except (FileNotFoundError, NotADirectoryError):
        is_directory = False
    except OSError as error:
        why = why_not(error)
        wrong = InputError(str(path), found=why, expected=_EXPECTED)
        raise plainly(wrong, f"it cannot be read ({why})") from None
    if not is_directory:
        beside = [one.name for one in _directories(path.parent)]
        near = difflib.get_close_matches(path.name, beside, n=1)
        hint = f"did you mean {path.parent / near[0]}?" if near else ""
        if path.exists():
            raise InputError(str(path), found="a file", expected=_EXPECTED, hint=hint)
        wrong = InputError(str(path), found="no directory", expected=_EXPECTED, hint=hint)
        raise plainly(wrong, f"there is no such directory; expected {_EXPECTED}{hint and '; ' + hint}")
    if not is_checkpoint(path):
        around = [*_directories(path), path.parent, *_directories(path.parent)]
        near = [str(one) for one in around if is_checkpoint(one)]
        inside = sorted(one.name for one in _directories(path))[:8]
        hint = f"did you mean {near[0]}?" if near else ""
        wrong = InputError(
            str(path),
            found=f"a directory with {', '.join(inside) or 'no directories'}",
            expected="a checkpoint of taskplace: a directory with manifests/ and epochs/",
            hint=hint,
        )
        says = "this is no checkpoint of taskplace: it has no manifests/ and no epochs/"
        raise plainly(wrong, says + (hint and f"; {hint}"))
    return path


def is_checkpoint(path: Path) -> bool:
    """Return whether a directory is a checkpoint: drivers make `epochs` first, and `manifests` with a commit."""
    return os.path.isdir(path / "epochs") or os.path.isdir(path / "manifests")  # noqa: PTH112 - never raises


def _directories(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(path for path in folder.iterdir() if path.is_dir())
    return []
