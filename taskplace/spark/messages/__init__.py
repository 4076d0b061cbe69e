"""All that crosses between the driver and executors, or lies in a file: typed, frozen, checked when it is read.

| message | written by | read by | where it lies | version |
|---|---|---|---|---|
| `Manifest` | driver, at commit | later drivers | `manifests/<batch>.json`, sealed | `SCHEMA` (`driver/versions.py`) |
| `Declaration` | driver, taking over | later drivers | `epochs/<epoch>`, sealed | the manifest's |
| `Setting` | driver | attempts | in the task, pickled | none: one run |
| `Descriptor` | driver | one attempt | in the job | none: one run |
| `Report` | attempt | driver, same run | `batches/*/attempts/`, the job's result | none: one run |
| `Boundary`, by topic | driver | attempts | `batches/*/inputs/`, sealed by `Setting.inputs` | none: one run |
| `Orders` | driver | one visit | in the job | none: one run |
| `Visit` | visit | driver | the job's result | none: one run |
| `Question`, `Answer` | driver, executor | executor, driver | in the job, its result | none: one run |
| `Meta` | whoever changes a copy | whoever opens it | in the copy | `FORMAT` |
| `Owner`, `Orphaned`, `Opened` | workers | workers of the host | in `state.dir` | none: unreadable is missing |

Programs, with the user's processors in them, travel pickled: `taskplace.spark.worker.program`.

Properties: executors import this, so it imports neither Spark nor Arrow. Task ids are `TaskId`, and text only in JSON
and in names. What names a file names it relative to the checkpoint.

Errors: `ValueError` with the path of the field; whoever reads a file names that as well (`damaged`).
"""

from taskplace.spark.messages.attempts import (
    Boundary,
    Descriptor,
    Listing,
    Recovery,
    Report,
    Setting,
    Slice,
    batch_dir,
    called_off,
    change_file,
    inputs_file,
    report_file,
    reports_dir,
    snapshot_file,
    task_of,
)
from taskplace.spark.messages.base import (
    Columns,
    Message,
    Watermark,
    damaged,
    decoded,
    encoded,
    seal,
    sealed,
    unsealed,
)
from taskplace.spark.messages.checkpoint import SCHEMA, Declaration, Layout, Manifest, SinkSchema, StagedFile
from taskplace.spark.messages.histories import EMPTY, Change, History, Position, Snapshot
from taskplace.spark.messages.local import FORMAT, Fence, Meta, Opened, Orphaned, Owner
from taskplace.spark.messages.visits import Answer, Orders, Question, Visit

__all__ = [
    "EMPTY",
    "FORMAT",
    "SCHEMA",
    "Answer",
    "Boundary",
    "Change",
    "Columns",
    "Declaration",
    "Descriptor",
    "Fence",
    "History",
    "Layout",
    "Listing",
    "Manifest",
    "Message",
    "Meta",
    "Opened",
    "Orders",
    "Orphaned",
    "Owner",
    "Position",
    "Question",
    "Recovery",
    "Report",
    "Setting",
    "SinkSchema",
    "Slice",
    "Snapshot",
    "StagedFile",
    "Visit",
    "Watermark",
    "batch_dir",
    "called_off",
    "change_file",
    "damaged",
    "decoded",
    "encoded",
    "inputs_file",
    "report_file",
    "reports_dir",
    "seal",
    "sealed",
    "snapshot_file",
    "task_of",
    "unsealed",
]
