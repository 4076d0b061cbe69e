"""Changes, snapshots and files of a checkpoint."""

from __future__ import annotations

from taskplace.spark.checkpoint.files import write_file
from taskplace.spark.codec import checksum_of
from taskplace.spark.messages import Change, Snapshot
from topology import TaskId


def change(journal, task, batch, records=1, attempt="a", *, layout=7):
    """Write a change as version 7 of the manifest has it, alone in its segment; or as version 6."""
    base = journal.history[task].end if task in journal.history else None
    name = f"changelog/{batch:010d}-{attempt}-{task}.segment"
    if layout == 6:
        name = f"changelog/{task}/{batch:010d}-{attempt}{batch}.arrow"
    write_file(journal.root / name, b"x", sync=False)
    offset = (base.offset if base else 0) + records
    return Change(
        batch, f"{attempt}{batch}", base.attempt if base else "", offset, records, name, 1, checksum_of(b"x")
    )


def snapshot(journal, task):
    end = journal.history[task].end
    name = f"snapshots/{task}/{end.version:010d}-{end.attempt}.arrow"
    write_file(journal.root / name, b"s", sync=False)
    return Snapshot(end.version, end.attempt, end.offset, 1, name, 1, checksum_of(b"s"))


def run_batches(journal, batches):
    for batch in batches:
        journal.commit(batch, 1, {TaskId(0, 0): change(journal, TaskId(0, 0), batch)}, {}, {})
        journal.add_snapshots({TaskId(0, 0): snapshot(journal, TaskId(0, 0))})
        journal.prune()
