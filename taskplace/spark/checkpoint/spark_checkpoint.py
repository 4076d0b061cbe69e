"""Checks, before Spark's query starts, that Spark's checkpoint and the placed one match.

    <checkpoint>/spark/
      metadata                the id of Spark's query
      offsets/12              batch 12 was planned: the end offset of each source
      commits/12              batch 12 has ended

**Idea.** Spark's checkpoint says which batch comes next, the manifests say which batches are committed. If they do not
match, rows would be repeated or lost. Each batch is checked as well (`taskplace.spark.driver.takeover`), but that error
is raised inside Spark's query. Each manifest keeps the offsets of its batch as well, which must not have changed.

Properties: only reads. Another driver may commit meanwhile, so the newest manifest is read before and after Spark's
checkpoint, and both values are allowed.

Non-goals: a query whose `checkpointLocation` the user names; its first batch is checked instead.
"""

from __future__ import annotations

import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.checkpoint.manifests import name_of, numbered
from taskplace.spark.codec import decoded, read_file
from taskplace.spark.messages import OFFSETS, SPARK_CHECKPOINT, Manifest

#: The directory in Spark's checkpoint of the ended batches.
COMMITS = "commits"
#: The file in it with the id of the query.
METADATA = "metadata"


def check_spark_checkpoint(root: Path, journal: Journal) -> int:
    """Return the batch that Spark will run next. Refuse a checkpoint if one of its two parts is missing or behind.

    If this is the last committed batch, that batch may not be published yet. Errors: `CheckpointError` naming both.

    O(files in Spark's logs).
    """
    before = journal.newest_batch()
    query, upcoming = _query_id(root), _upcoming(root)
    after = journal.newest_batch()
    keep = "both must come from the same run: restore the missing part, or start a new checkpoint in another directory"
    state, spark = root / "manifests", root / SPARK_CHECKPOINT
    if after < 0:
        if upcoming > 0:
            found = f"Spark's checkpoint ({spark}) at batch {upcoming}, but no committed batch of the placed state"
            raise CheckpointError(f"{root}: found {found} ({state}); {keep}")
        return upcoming
    bound = journal.identity.get("query")
    metadata = spark / METADATA
    if query is None and upcoming > 0 and bound is not None:
        command = f"echo {shlex.quote(json.dumps({'id': bound}))} > {shlex.quote(str(metadata))}"
        raise CheckpointError(
            f"{metadata}: is lost, so that Spark would begin a query of another id; write it again: {command}"
        )
    if query is None:
        found = f"found placed state up to batch {after} ({state}), but no Spark checkpoint ({spark})"
        raise CheckpointError(f"{root}: {found}; {keep}")
    if bound is not None and bound != query:
        found = f"found the checkpoint of query {query!r} ({spark})"
        raise CheckpointError(f"{root}: the placed state belongs to Spark's query {bound!r}, {found}; {keep}")
    if not before <= upcoming <= after + 1:
        found = f"Spark's checkpoint ({spark}) is at batch {upcoming}, the placed state at batch {after}"
        raise CheckpointError(f"{root}: {found}; {keep}")
    return upcoming


def planned_offsets(log: Path | None, batch: int) -> tuple[str, ...] | None:
    """Return the offsets that Spark has planned a batch with, the text of each source; None if they cannot be read.

    `log`: the directory of Spark's offsets. A file has the version, a line of metadata, and a line for each source.
    """
    with suppress(OSError, ValueError):
        if log is not None and (lines := read_file(log / str(batch)).decode().splitlines()[2:]):
            return tuple(lines)
    return None


def check_offsets(root: Path, log: Path | None, last: Manifest | None) -> None:
    """Refuse to go on from, or to repeat, a batch whose offsets are not those with which it was committed.

    Offsets that cannot be read, and manifests without any, are not compared. Errors: `CheckpointError`.
    """
    found = planned_offsets(log, last.batch) if last is not None else None
    if last is not None and log is not None and last.offsets and found and found != last.offsets:
        raise CheckpointError(
            f"{log / str(last.batch)}: these are not the offsets that batch {last.batch} was committed with, so rows "
            f"would be lost or count twice; restore this file, or replace its lines from the third on by `offsets` of "
            f"{root / name_of(last.batch)}; or start a new checkpoint in another directory"
        )


def _query_id(root: Path) -> str | None:
    """Return the query id in Spark's checkpoint; None without a checkpoint."""
    path = root / SPARK_CHECKPOINT / METADATA
    try:
        return str(decoded(dict[str, Any], read_file(path))["id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path}: damaged ({type(error).__name__}: {error}); restore Spark's checkpoint, or start a new checkpoint"
        ) from None


def _upcoming(root: Path) -> int:
    """Return the batch that Spark will run next: the last planned batch, or the next one if that batch has ended."""
    planned, ended = (numbered(root / SPARK_CHECKPOINT / log)[-1:] for log in (OFFSETS, COMMITS))
    return max([0, *planned, *(batch + 1 for batch in ended)])
