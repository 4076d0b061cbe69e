"""Finds the checkpoint that a path names, and its files by number."""

from __future__ import annotations

import difflib
from contextlib import suppress
from pathlib import Path

from taskplace.errors import InputError, plainly
from taskplace.paths import local_path


def checkpoint_at(given: str | Path) -> Path:
    """Return the directory of a checkpoint.

    Errors: `InputError` if there is no directory, or one without a checkpoint; it names the nearest one.
    """
    path = local_path(given, "CHECKPOINT")
    if not path.is_dir():
        beside = [one.name for one in _directories(path.parent)]
        near = difflib.get_close_matches(path.name, beside, n=1)
        hint = f"did you mean {path.parent / near[0]}?" if near else ""
        found, expected = "a file" if path.exists() else "no directory", "the directory of a checkpoint"
        wrong = InputError(str(path), found=found, expected=expected, hint=hint)
        if path.exists():
            raise wrong
        raise plainly(wrong, f"there is no such directory; expected {expected}{hint and '; ' + hint}")
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
    return (path / "epochs").is_dir() or (path / "manifests").is_dir()


def _directories(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(path for path in folder.iterdir() if path.is_dir())
    return []
