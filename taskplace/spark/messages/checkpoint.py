"""What lies in a checkpoint: the manifests, and what each driver declared.

Both are sealed (`taskplace.spark.messages.base.sealed`). Another field of a manifest is another version of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taskplace.spark.messages.base import Columns, Message, Task, Watermark
from taskplace.spark.messages.histories import Change, History, Snapshot

#: A new version needs a step in `taskplace.spark.driver.versions`, and golden checkpoints of the one before.
SCHEMA = "taskplace.manifest/6"


class StagedFile(Message, frozen=True):
    """A sink's rows of one attempt, in the checkpoint, waiting for the commit."""

    file: str
    rows: int
    size: int
    checksum: str


class SinkSchema(Message, frozen=True):
    """The columns of a sink, in order, and whether the user declared them. A manifest's identity has the columns."""

    columns: Columns
    declared: bool = False

    @property
    def written(self) -> str:
        """How it is declared: {'k': 'string', 'n': 'int64'}."""
        return str(dict(self.columns))


class Manifest(Message, frozen=True, tag_field="schema", tag=SCHEMA):
    """One committed batch.

    `snapshots` are all that are kept then, by task; `identity` binds the checkpoint. Every so many batches a manifest
    is *full*: it has all `histories`, so that those before it are no longer needed. `event_times`: the newest of each
    source so far, in microseconds; the next batch's watermark comes from them. `needs`: the first batch whose manifest
    is still needed beside this one. `rows`: how many of the sources' rows are in the batch. `watermark`: of the
    sources, in this batch; `expired`: the time up to which each store that forgets has expired, None in manifests of
    older versions, whose stores went by `watermark`; `held`: by task, where that was another one
    (`taskplace.spark.driver.watermarks`). `assignment`: by instance, for whoever looks: nothing goes by it.
    """

    batch: int
    epoch: int
    generation: int
    identity: Mapping[str, Any]
    changes: Mapping[Task, Change] = {}
    snapshots: Mapping[Task, tuple[Snapshot, ...]] = {}
    sinks: Mapping[str, tuple[StagedFile, ...]] = {}
    assignment: Mapping[str, Any] = {}
    histories: Mapping[Task, History] | None = None
    event_times: Mapping[str, int] = {}
    needs: int = 0
    rows: int = 0
    watermark: Watermark = None
    expired: Mapping[str, Watermark] | None = None
    held: Mapping[Task, Mapping[str, Watermark]] = {}


class Layout(Message, frozen=True, omit_defaults=True):
    """How a store is laid out: its columns, the time that its entries are forgotten by, and what its numbers mean."""

    key: Columns
    value: Columns
    time: str | None = None
    meaning: Mapping[str, Any] = {}

    @property
    def columns(self) -> str:
        """What its entries look like, for an error."""
        time = f", forgotten by {self.time!r}" if self.time else ""
        return f"key {list(self.key)}, value {list(self.value)}{time}"


class Declaration(Message, frozen=True, forbid_unknown_fields=False):
    """What a driver's manifests are made with (`taskplace.spark.driver.structure`).

    `id`: the checkpoint's, the same in all; `topology` as `BuiltTopology.to_dict` has it; `sources`: in the order in
    which Spark reads them, None if it was declared before that was kept.
    """

    id: str
    topology: Mapping[str, Any]
    stores: Mapping[str, Layout]
    incarnations: Mapping[str, int]
    sources: tuple[str, ...] | None = None
