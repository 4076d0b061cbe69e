"""Reads manifests of the current version, and upgrades those of older versions.

The version of a manifest covers everything that it names and everything beside it: changelogs, snapshots, staged
output, drivers' declarations. Each older version has one entry here: the step to the next version, or the reason why
there is none. A manifest of a newer version is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.manifests import DIGITS, number_of
from taskplace.spark.codec import damaged, decoded, encoded, read_file, unsealed
from taskplace.spark.messages import SCHEMA, Manifest

#: Returns the fields of a manifest in the form of the next version; it may change its argument.
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


def _one_watermark(raw: dict[str, Any]) -> dict[str, Any]:
    """Upgrade version 5, which had one watermark for all stores; `Watermarks` continues from it."""
    return {**raw, "expired": None, "held": {}}


def _by_defaults(raw: dict[str, Any]) -> dict[str, Any]:
    """Upgrade version 6, in which each change had a file of its own, and version 7, which had no nonce."""
    return raw


class _Version(msgspec.Struct):
    schema: Any


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in a file, upgraded if it has an older version.

    Errors: `FileNotFoundError`; `CheckpointError` naming the file, if it is damaged, is of another batch than its name
    says, or has a version that cannot be read.
    """
    try:
        body = unsealed(read_file(path))
        if decoded(_Version, body).schema != SCHEMA:
            body = encoded(upgraded(decoded(dict[str, Any], body), SCHEMA, path))
        manifest = Manifest.decode(body)
        if manifest.batch != number_of(path.name, ".json", DIGITS) or manifest.needs > manifest.batch:
            raise ValueError(f"it is of batch {manifest.batch}, and needs those from {manifest.needs} on")
        _check_names(manifest)
        return manifest
    except ValueError as error:
        raise damaged(path, "manifest", error) from None


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


_NEVER_RELEASED = "no release of taskplace wrote them, only development versions"
#: By version: the step to the next version; or, as text, why its checkpoints cannot be continued.
STEPS: Mapping[int, Upgrade | str] = {
    **dict.fromkeys(range(1, 5), _NEVER_RELEASED),
    5: _one_watermark,
    **dict.fromkeys((6, 7), _by_defaults),
}

_ANEW = "or start a new checkpoint in another directory"


def upgraded(
    raw: Mapping[str, Any], own: str, path: Path, steps: Mapping[int, Upgrade | str] = STEPS
) -> dict[str, Any]:
    """Return a manifest's fields, without `schema`, in the form of the version `own` ("taskplace.manifest/8").

    Errors: `CheckpointError` for a version that cannot be read; it names the readable versions and the way out.
    `KeyError` without a version.

    >>> upgraded({"schema": "m/1", "n": 1}, "m/2", Path("f"), {1: lambda raw: {**raw, "more": 0}})
    {'n': 1, 'more': 0}
    """
    fields = dict(raw)
    name, newest = _parts(own)
    schema = fields.pop("schema")
    kind, version = _parts(schema)
    if kind != name or version is None or newest is None:
        raise CheckpointError(
            f"{path}: found a file with the schema {schema!r}, {_readable(own, steps)}; this is not a checkpoint of "
            f"taskplace: set the right directory, {_ANEW}"
        )
    if version > newest:
        raise CheckpointError(
            f"{path}: found a manifest of version {schema!r}, {_readable(own, steps)}; a newer taskplace wrote it: "
            f"continue with that version of taskplace, {_ANEW}"
        )
    while version < newest:
        step = steps.get(version, "the version is unknown")
        if isinstance(step, str):
            raise CheckpointError(
                f"{path}: found a manifest of version {schema!r}, {_readable(own, steps)}; checkpoints of version "
                f"{version} cannot be continued: {step}. Continue with the version of taskplace that wrote it, {_ANEW}"
            )
        fields, version = step(fields), version + 1
    return fields


def readable(own: str, steps: Mapping[int, Upgrade | str] = STEPS) -> list[str]:
    """Return the versions that can be read, oldest first.

    >>> readable("m/3", {1: "too old", 2: dict})
    ['m/2', 'm/3']
    """
    name, version = _parts(own)
    names = [own]
    while version is not None and callable(steps.get(version := version - 1)):
        names.insert(0, f"{name}/{version}")
    return names


def _readable(own: str, steps: Mapping[int, Upgrade | str]) -> str:
    return f"expected {' or '.join(map(repr, readable(own, steps)))}"


def _parts(schema: object) -> tuple[str, int | None]:
    name, _, number = str(schema).rpartition("/")
    return name, int(number) if number.isascii() and number.isdigit() else None
