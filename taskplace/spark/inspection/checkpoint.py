"""Inspects a checkpoint: what it holds, how large it is, what is damaged or missing, and what is unfinished.

**Idea.** The manifests say what is committed, and name every file that is needed, with length and checksum. So reading
them is enough to know what should be there. A damaged manifest is reported, and the rest is still inspected.

Properties: read-only, and safe while a driver runs. A driver may remove files meanwhile; then the inspection begins
again. The cheap check reads all manifests that are needed, and compares the lengths of the files that they name.
`verify` reads these files as well, and compares their checksums.

O(changes in the manifests + files); with `verify`, O(bytes).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from taskplace.errors import CheckpointError
from taskplace.model.work import Show, Work
from taskplace.record.events import Totals
from taskplace.spark.checkpoint.damage import Damage, Part, broken, damages, parts_of
from taskplace.spark.checkpoint.manifests import (
    DIGITS,
    name_of,
    numbered,
    numbers,
    read_histories,
    read_manifest,
)
from taskplace.spark.codec import read_file, unsealed
from taskplace.spark.inspection.checkpoint import LastStatus, last_status
from taskplace.spark.messages import Declaration, History, Manifest, batch_dir, epoch_file, kept
from taskplace.spark.operator_messages import PartitionStatus, TopicStatus
from topology import TaskId

SCHEMA = "taskplace.inspection/1"
#: How often an inspection begins again because a driver has committed meanwhile.
ATTEMPTS = 5


@dataclass(frozen=True)
class TaskState:
    """The committed state of a task.

    - `records`: the length of its changelog, in records; `batch`: of its last change
    - `snapshot`: the records that its newest snapshot stands for; None without one
    - `replay`: the records that a new copy reads behind the newest snapshot: its lag then
    - `bytes`: of the newest snapshot and the changes since, as they lie in the checkpoint
    """

    records: int
    batch: int
    snapshot: int | None
    replay: int
    bytes: int


@dataclass(frozen=True)
class Kind:
    """The files of one kind. `needed`: the bytes that a manifest names; None where that is not counted."""

    files: int
    bytes: int
    needed: int | None = None


@dataclass(frozen=True)
class Generation:
    """A generation, and the first and the last batch that was committed under it, of the manifests that are needed."""

    generation: int
    first: int
    last: int


@dataclass
class Inspection:
    """What was found. `sound`: whether nothing that is needed is damaged or missing.

    - `unneeded`: damaged parts of files that manifests name, and that no copy needs any more
    - `totals`: the rows, late rows and dead letters that the last manifest has counted over restarts
    - `input`: by topic that tasks read themselves, the positions of the last manifest, and what else the last status
      says of it
    - `generations`: in the order of their batches
    - `status`: the lags in the last status file; None if there is none, or if it cannot be read: `status_error`
    """

    path: str
    verified: bool = False
    id: str = ""
    topology: str = ""
    epochs: list[int] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    needed_from: int | None = None
    full: list[int] = field(default_factory=list)
    last: dict[str, Any] | None = None
    totals: Totals | None = None
    input: dict[str, TopicStatus] = field(default_factory=dict)
    generations: list[Generation] = field(default_factory=list)
    assignment: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    tasks: dict[str, TaskState] = field(default_factory=dict)
    sizes: dict[str, Kind] = field(default_factory=dict)
    damaged: list[Damage] = field(default_factory=list)
    unneeded: list[Damage] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    status: LastStatus | None = None
    status_error: str = ""

    @property
    def sound(self) -> bool:
        """Whether nothing that is needed is damaged or missing."""
        return not self.damaged

    def to_dict(self) -> dict[str, Any]:
        """Return the inspection as a "taskplace.inspection/1" dict."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["totals"] = None if self.totals is None else self.totals.to_dict()
        plain["input"] = msgspec.to_builtins(self.input, str_keys=True)
        plain["generations"] = [vars(one) for one in self.generations]
        plain["status"] = None if self.status is None else self.status.to_dict()
        plain["tasks"] = {name: vars(task) for name, task in self.tasks.items()}
        plain["sizes"] = {name: vars(kind) for name, kind in self.sizes.items()}
        for name in ("damaged", "unneeded"):
            plain[name] = [
                {**damage._asdict(), "tasks": list(damage.tasks), "lost": list(damage.lost)}
                for damage in plain[name]
            ]
        return {"schema": SCHEMA, "sound": self.sound, **plain}


def inspect(root: Path, *, verify: bool = False, progress: Show = lambda event: None) -> Inspection:
    """Inspect a checkpoint. With `verify`, `progress` gets how many bytes have been verified."""
    for attempt in range(ATTEMPTS):
        before = numbers(root)
        found = _inspected(root, verify, progress)
        if found.sound or attempt == ATTEMPTS - 1 or numbers(root) == before:
            break
    return found


def committed(root: Path) -> tuple[Mapping[TaskId, History], Manifest | None]:
    """Return the histories that a checkpoint's readable manifests have, and the last manifest; None without one."""
    found = Inspection(str(root))
    found.batches = numbers(root)
    manifests = _manifests(root, found)
    history, _ = read_histories(manifests)
    return history, manifests[-1] if manifests else None


def _inspected(root: Path, verify: bool, progress: Show) -> Inspection:
    found = Inspection(str(root), verified=verify)
    said, _ = last_status(root)  # before the manifests: a driver commits meanwhile
    found.epochs = numbered(root / "epochs", digits=DIGITS)
    found.batches = numbers(root)
    manifests = _manifests(root, found)
    history, found.full = read_histories(manifests)
    last = manifests[-1] if manifests else None
    _declared(root, found, last)
    found.generations = _generations(manifests)
    if last is not None:
        found.totals = Totals.of(last)
        found.needed_from = last.needs
        found.last = {
            "batch": last.batch,
            "epoch": last.epoch,
            "generation": last.generation,
            "rows": last.rows,
            "watermark": last.watermark,
            "full": last.histories is not None,
        }
        found.assignment = {
            name: {role: list(tasks) for role, tasks in roles.items()}
            for name, roles in sorted(last.assignment.items())
        }
    found.tasks = {str(task): _state(one) for task, one in sorted(history.items())}
    kinds = parts_of(history, last)
    if verify:
        with Work("verifying", "bytes", sum(part.size for part in kinds), show=progress) as work:
            wrong = broken(root, kinds, verify=True, progress=work.add)
    else:
        wrong = broken(root, kinds, verify=False)
    damaged, found.unneeded = damages(history, kinds, wrong)
    found.damaged += damaged
    if last is None or found.batches[-1] == last.batch:
        _compare_with_spark(root, found, last)
    if not found.batches and not found.damaged and said is not None and said.batch >= 0:
        what = f"missing: the driver's status says that batch {said.batch} was committed, and there is no manifest"
        found.damaged.append(Damage(name_of(said.batch), "manifest", what))
    found.sizes = _sizes(root, kinds)
    found.unfinished = _unfinished(root, found, last)
    found.status, found.status_error = last_status(root)
    found.input = _input(last, found.status)
    return found


def _input(last: Manifest | None, status: LastStatus | None) -> dict[str, TopicStatus]:
    found = dict(status.input) if status is not None else {}
    for topic, one in kept(last).items():
        of = found.get(topic, TopicStatus())
        partitions = dict(of.partitions)
        for number, position in one.ends.items():
            was = partitions.get(number, PartitionStatus())
            if was.position != position:  # a commit since the status
                end = None if was.end is None else max(was.end, position)
                partitions[number] = PartitionStatus(position, end)
        found[topic] = structs.replace(of, partitions=partitions)
    return found


def _generations(manifests: Sequence[Manifest]) -> list[Generation]:
    found: list[Generation] = []
    for one in manifests:
        first = one.batch
        if found and found[-1].generation == one.generation:
            first = found.pop().first
        found.append(Generation(one.generation, first, one.batch))
    return found


def _manifests(root: Path, found: Inspection) -> list[Manifest]:
    """Return the manifests that are needed and can be read, in order; note the others as damaged."""
    newest = found.batches[-1] if found.batches else None
    if newest is None:
        return []
    last = _manifest(root, newest, found)
    if last is None:  # which ones are needed is unknown: read all
        first = found.batches[0]
    else:
        first = last.needs
    manifests = []
    expected = first
    for batch in (batch for batch in found.batches if batch >= first):
        if batch > expected:
            found.damaged.append(_missing(expected, batch - expected))
        if batch != newest and (one := _manifest(root, batch, found)) is not None:
            manifests.append(one)
        expected = batch + 1
    return [*manifests, last] if last is not None else manifests


def _missing(batch: int, number: int = 1) -> Damage:
    """Return the damage that the manifests of `number` batches are missing, from `batch` on."""
    more = f", and so are those of the {number - 1:,} batches after it" if number > 2 else ""
    more = more or (", and so is that of the batch after it" if number == 2 else "")
    return Damage(name_of(batch), "manifest", f"missing{more}")


def _manifest(root: Path, batch: int, found: Inspection) -> Manifest | None:
    name = name_of(batch)
    try:
        return read_manifest(root / name)
    except FileNotFoundError:
        found.damaged.append(_missing(batch))
    except (CheckpointError, OSError) as error:
        found.damaged.append(Damage(name, "manifest", _reason(error, root / name)))
    return None


def _compare_with_spark(root: Path, found: Inspection, last: Manifest | None) -> None:
    """Note the manifest of a batch that Spark has ended as missing: Spark ends a batch after its commit."""
    batch = -1 if last is None else last.batch
    ended = max(numbered(root / "spark" / "commits"), default=-1)
    if ended > batch and not any(damage.kind == "manifest" for damage in found.damaged):
        what = f"missing: Spark has ended batch {ended}, and the last manifest is of batch {batch}"
        found.damaged.append(Damage(name_of(ended), "manifest", what))


def _declared(root: Path, found: Inspection, last: Manifest | None) -> None:
    """Read the declaration that counts: that of the last manifest's driver, or of the newest one."""
    epoch = last.epoch if last is not None else max(found.epochs, default=0)
    if not epoch:
        return
    name = epoch_file(epoch)
    try:
        declaration = Declaration.decode(unsealed(read_file(root / name)))
        found.id, found.topology = declaration.id, str(declaration.topology.get("name", ""))
    except FileNotFoundError:
        found.damaged.append(Damage(name, "declaration", "missing"))
    except (ValueError, OSError) as error:
        found.damaged.append(Damage(name, "declaration", _reason(error, root / name)))


def _reason(error: Exception, path: Path) -> str:
    return " ".join(str(error).replace(f"{path}: ", "").split())


def _state(history: History) -> TaskState:
    end = history.end
    newest = history.snapshots[-1] if history.snapshots else None
    offset = newest.offset if newest is not None else 0
    size = newest.size if newest is not None else 0
    size += sum(change.size for change in history.changes if change.offset > offset)
    return TaskState(end.offset, end.version, offset if newest else None, end.offset - offset, size)


def _sizes(root: Path, kinds: Mapping[Part, str]) -> dict[str, Kind]:
    """Return the files and bytes below each directory of the checkpoint, and of the files beside them."""
    needed = {"changelog": 0, "snapshots": 0}
    for part, kind in kinds.items():
        if (directory := "snapshots" if kind == "snapshot" else kind) in needed:
            needed[directory] += part.size
    sizes: dict[str, Kind] = {}
    with suppress(FileNotFoundError):
        for entry in sorted(root.iterdir()):
            kind = entry.name if entry.is_dir() else "other files"
            files, size = _below(entry)
            before = sizes.get(kind, Kind(0, 0))
            sizes[kind] = Kind(before.files + files, before.bytes + size, needed.get(kind))
    return sizes


def _below(path: Path) -> tuple[int, int]:
    """Return the number of files in a directory, and their bytes; of a file, its own."""
    files = size = 0
    paths = (
        [path] if not path.is_dir() else (Path(at) / name for at, _, names in os.walk(path) for name in names)
    )
    for file in paths:
        with suppress(OSError):
            files, size = files + 1, size + file.stat().st_size
    return files, size


def _unfinished(root: Path, found: Inspection, last: Manifest | None) -> list[str]:
    """Return what was begun and not ended, a line each. None of it is damage: the next driver continues or repeats."""
    batch = -1 if last is None else last.batch
    lines = []
    planned, ended = (max(numbered(root / "spark" / log), default=-1) for log in ("offsets", "commits"))
    if planned > batch:
        lines.append(
            f"batch {planned}: planned by Spark, and not committed; it runs now, or at the next start"
        )
    elif last is not None and planned == batch and ended < batch:
        lines.append(
            f"batch {batch}: committed, and Spark has not ended it; it is published again at the next start"
        )
    lines += [
        f"batch {number}: files of attempts, and no manifest: {batch_dir(number)}"
        for number in numbered(root / "batches", digits=DIGITS)
        if number > batch
    ]
    if found.epochs and (last is None or found.epochs[-1] > last.epoch):
        lines.append(f"driver {found.epochs[-1]}: has taken over, and has not committed a batch")
    staging = sorted(str(path.relative_to(root)) for path in root.glob("*/**/.*") if _staged(path, root))
    staging += sorted(str(path.relative_to(root)) for path in root.glob("snapshots/*/*.tmp"))
    lines += [f"{name}: was begun, and not made visible" for name in staging]
    waiting = len(list(root.glob("requests/*.json")))
    return [*lines, *([f"{waiting} requests of operators: not taken by a driver"] if waiting else [])]


def _staged(path: Path, root: Path) -> bool:
    return (
        path.relative_to(root).parts[0] in ("manifests", "epochs", "requests", "answers") and path.is_file()
    )
