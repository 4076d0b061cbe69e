"""Compares an application with a checkpoint, without starting either: why it could not continue there.

**Idea.** A start makes these checks one after the other, and ends with the first that fails. Here all of them are made,
so that every reason is known at once. Reads only, and safe while a driver runs.

Not compared: what only Spark or a sink knows, such as the output of earlier batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.checkpoint.journal import check_identity, with_keys
from taskplace.spark.checkpoint.manifests import numbers, path_of, read_manifest
from taskplace.spark.compile.sources import key_types
from taskplace.spark.driver import structure
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.staging import SinkSchemas
from taskplace.spark.worker.hashing import HASH_VERSION

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def reasons_against(
    root: Path, definition: StreamDefinition, schemas: Mapping[str, StructType]
) -> tuple[str, ...]:
    """Return why a stream cannot continue the checkpoint at `root`, a line each; none if nothing is against it.

    `schemas`: of the sources, as far as they are known. A checkpoint without a batch fits every stream. A file that
    cannot be read is a reason, too.
    """
    return tuple(_reasons(root, definition, schemas))


def _reasons(root: Path, definition: StreamDefinition, schemas: Mapping[str, StructType]) -> Iterator[str]:
    batches = numbers(root)
    if not batches:
        return
    built = definition.built
    try:
        last = read_manifest(path_of(root, batches[-1]))
    except (CheckpointError, OSError) as error:
        yield _line(root, error)
        return
    own = {
        "hash": HASH_VERSION,
        **{f"event_time of {topic!r}": time.column for topic, time in definition.event_times.items()},
    }
    keys = last.identity.get("keys")
    checks: tuple[Callable[[], object], ...] = (
        lambda: structure.check_sources(root, built, last.epoch),
        lambda: check_identity(root, own, last.identity),
        lambda: with_keys(root, keys, key_types(built, schemas)),
        lambda: SinkSchemas(built).check(root, last.identity),
    )
    try:
        yield from structure.differences(root, built, definition.programs, last.epoch)
    except (CheckpointError, InputError) as error:
        yield _line(root, error)
    for check in checks:
        try:
            check()
        except (CheckpointError, InputError) as error:
            yield _line(root, error)


def _line(root: Path, error: Exception) -> str:
    return " ".join(str(error).removeprefix(f"{root}: ").split())
