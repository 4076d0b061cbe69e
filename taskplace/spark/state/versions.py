"""Reads manifests. Refuses those of other versions, with the reason and the way out.

The version of a manifest covers everything that it names and everything beside it: changelogs, snapshots, staged
output, drivers' declarations. Versions before the current one were never released, so nothing upgrades them.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from taskplace.errors import CheckpointError
from taskplace.spark.codec import damaged, decoded, read_file, unsealed
from taskplace.spark.messages import SCHEMA, Manifest
from taskplace.spark.state.numbered import DIGITS, number_of


class _Version(msgspec.Struct):
    schema: Any


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in a file.

    Errors: `FileNotFoundError`; `CheckpointError` naming the file, if it is damaged, is of another batch than its name
    says, or has another version.
    """
    try:
        body = unsealed(read_file(path))
        _check_version(decoded(_Version, body).schema, path)
        manifest = Manifest.decode(body)
        if manifest.batch != number_of(path.name, ".json", DIGITS) or manifest.needs > manifest.batch:
            raise ValueError(f"it is of batch {manifest.batch}, and needs those from {manifest.needs} on")
        _check_names(manifest)
        return manifest
    except ValueError as error:
        raise damaged(path, "manifest", error) from None


def _check_version(schema: object, path: Path) -> None:
    """Raise `CheckpointError` unless a manifest has the version that is written now."""
    if schema == SCHEMA:
        return
    (kind, _, version), (own, _, newest) = str(schema).rpartition("/"), SCHEMA.rpartition("/")
    if kind != own or not (version.isascii() and version.isdigit()):
        why = "this is not a checkpoint of taskplace: set the right directory"
    elif int(version) > int(newest):
        why = "a newer taskplace wrote it: continue with that version of taskplace"
    else:
        why = "a development version wrote it, and no release continues it: continue with that version of taskplace"
    raise CheckpointError(
        f"{path}: found the version {schema!r}, expected {SCHEMA!r}; {why}, or start a new checkpoint in another "
        "directory"
    )


def _check_names(manifest: Manifest) -> None:
    """Refuse files outside of the checkpoint, and attempts that would lead there: snapshots are named after them."""
    histories = (manifest.histories or {}).values()
    changes = [*manifest.changes.values(), *chain(*(one.changes for one in histories))]
    snapshots = [*chain(*manifest.snapshots.values()), *chain(*(one.snapshots for one in histories))]
    staged = chain(*manifest.sinks.values())
    files = [*(c.file for c in changes), *(s.file for s in snapshots), *(file.file for file in staged)]
    attempts = [*(c.attempt for c in changes), *(s.attempt for s in snapshots)]
    for name in (*files, *(f"/{attempt}" for attempt in attempts if "/" in attempt)):
        if name[:1] == "/" or (".." in name and ".." in name.split("/")):
            raise ValueError(f"it names {name!r}, which is outside of the checkpoint")
