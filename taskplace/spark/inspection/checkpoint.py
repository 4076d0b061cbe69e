"""Inspects a checkpoint: what it holds, how large it is, what is damaged or missing, and what is unfinished.

**Idea.** The manifests say what is committed, and name every file that is needed, with length and checksum. So reading
them is enough to know what should be there. A damaged manifest is reported, and the rest is still inspected. Lags come
from the status that the driver has written last: it may be old, or of a driver that has ended, and its age says so.

The cheap check reads all manifests that are needed, and compares the lengths of the files that they name. With
`verify`, it reads these files as well, and compares their checksums. `verify_checkpoint` also checks the assignment of
the last manifest against the topology in its driver's declaration, like any plan (`taskplace.verify`). A manifest has
no lags and no configuration; the invariants that need them are not checked.

Properties: read-only, without Spark, and safe while a driver runs. A driver may remove files meanwhile; then the
inspection begins again. O(changes in the manifests + files); with `verify`, O(bytes).

Finds the checkpoint that a path names, and its files by number.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import structs

from taskplace.errors import CheckpointError, InputError, plainly
from taskplace.model.plan import Plan
from taskplace.model.problem import Instance, Problem, Task
from taskplace.model.work import Show, Work
from taskplace.record.events import Totals
from taskplace.spark.checkpoint.damage import Damage, Part, broken, damages, parts_of
from taskplace.spark.checkpoint.manifests import (
    DIGITS,
    name_of,
    numbered,
    numbers,
    read_declaration,
    read_histories,
    read_manifest,
)
from taskplace.spark.messages import History, Manifest, batch_dir, epoch_file, kept
from taskplace.spark.operator_messages import STATUS_FILE, PartitionStatus, Status, TopicStatus, read
from taskplace.spec.document import nearest_file
from taskplace.spec.paths import local_path, why_not
from taskplace.wording import count, listed, noun
from topology import TaskId

if TYPE_CHECKING:
    from taskplace.verify import Violation


SCHEMA, VERIFICATION_SCHEMA = "taskplace.inspection/1", "taskplace.checkpoint_verification/1"
#: The invariants of `taskplace.verify` that an assignment can break by itself.
CHECKED = ("known", "once", "disjoint", "stateful")
#: How often an inspection begins again because a driver has committed meanwhile.
ATTEMPTS = 5

#: Where hidden files are those that were begun.
STAGED = ("answers", "epochs", "manifests", "requests")
_ReadT = TypeVar("_ReadT")
_EXPECTED = "the directory of a checkpoint"


class TaskState(msgspec.Struct, frozen=True):
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


class Kind(msgspec.Struct, frozen=True):
    """The files of one kind. `needed`: the bytes that a manifest names; None where that is not counted."""

    files: int
    bytes: int
    needed: int | None = None


class LastBatch(msgspec.Struct, frozen=True):
    """The last commit. `full`: whether its manifest has whole histories."""

    batch: int
    epoch: int
    generation: int
    rows: int
    watermark: int | None
    full: bool


class Inspection(msgspec.Struct):
    """What was found. `sound`: whether nothing that is needed is damaged or missing.

    - `unneeded`: damaged parts of files that manifests name, and that no copy needs any more
    - `totals`: the rows, late rows and dead letters that the last manifest has counted over restarts
    - `input`: by topic that tasks read themselves, the positions of the last manifest, and what else the last status
      says of it
    - `status_error`: why the last status cannot be read; "" if it can, or if there is none
    """

    path: str
    verified: bool = False
    id: str = ""
    topology: str = ""
    epochs: list[int] = msgspec.field(default_factory=list)
    batches: list[int] = msgspec.field(default_factory=list)
    needed_from: int | None = None
    full: list[int] = msgspec.field(default_factory=list)
    last: LastBatch | None = None
    totals: Totals | None = None
    input: dict[str, TopicStatus] = msgspec.field(default_factory=dict)
    assignment: dict[str, dict[str, list[str]]] = msgspec.field(default_factory=dict)
    tasks: dict[str, TaskState] = msgspec.field(default_factory=dict)
    sizes: dict[str, Kind] = msgspec.field(default_factory=dict)
    damaged: list[Damage] = msgspec.field(default_factory=list)
    unneeded: list[Damage] = msgspec.field(default_factory=list)
    unfinished: list[str] = msgspec.field(default_factory=list)
    status_error: str = ""

    @property
    def sound(self) -> bool:
        """Whether nothing that is needed is damaged or missing."""
        return not self.damaged

    def to_dict(self) -> dict[str, Any]:
        """Return the inspection as a "taskplace.inspection/1" dict."""
        made: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return {"schema": SCHEMA, "sound": self.sound, **made}


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
    manifests = _manifests(root, Inspection(str(root), batches=numbers(root)))
    return read_histories(manifests)[0], manifests[-1] if manifests else None


def _inspected(root: Path, verify: bool, progress: Show) -> Inspection:
    before, _ = _status(root)  # before the manifests: a driver commits meanwhile
    found = Inspection(str(root), verified=verify)
    found.epochs, found.batches = numbered(root / "epochs", digits=DIGITS), numbers(root)
    manifests = _manifests(root, found)
    history, found.full = read_histories(manifests)
    last = manifests[-1] if manifests else None
    _declared(root, found, last)
    if last is not None:
        _describe(found, last)
    found.tasks = {str(task): _state(one) for task, one in sorted(history.items())}
    kinds = parts_of(history, last)
    if verify:
        with Work("verifying", "bytes", sum(part.size for part in kinds), show=progress) as work:
            wrong = broken(root, kinds, verify=True, progress=work.add)
    else:
        wrong = broken(root, kinds, verify=False)
    damaged, found.unneeded = damages(history, kinds, wrong)
    found.damaged += [*damaged, *_missing_commits(root, found, last, before)]
    found.sizes = _sizes(root, kinds)
    found.unfinished = list(_unfinished(root, found, last))
    status, found.status_error = _status(root)
    found.input = _input(last, status)
    return found


def _describe(found: Inspection, last: Manifest) -> None:
    """Note what the last manifest says."""
    found.totals, found.needed_from = Totals.of(last), last.needs
    full = last.histories is not None
    found.last = LastBatch(last.batch, last.epoch, last.generation, last.rows, last.watermark, full)
    found.assignment = {
        name: {role: list(tasks) for role, tasks in roles.items()}
        for name, roles in sorted(last.assignment.items())
    }


def _missing_commits(
    root: Path, found: Inspection, last: Manifest | None, status: Status | None
) -> Iterator[Damage]:
    """Yield the manifests that must have been there: Spark ends a batch after its commit, and so says the status."""
    if any(damage.kind == "manifest" for damage in found.damaged):
        return
    batch = -1 if last is None else last.batch
    ended = max(numbered(root / "spark" / "commits"), default=-1)
    if ended > batch:
        what = f"missing: Spark has ended batch {ended}, and the last manifest is of batch {batch}"
        yield Damage(name_of(ended), "manifest", what)
    elif not found.batches and not found.damaged and status is not None and status.batch >= 0:
        what = f"missing: the driver's status says that batch {status.batch} was committed"
        yield Damage(name_of(status.batch), "manifest", what)


def _status(root: Path) -> tuple[Status | None, str]:
    """Return the last status; None without one. The text says why there is one that cannot be read, else it is ""."""
    try:
        return read(root / STATUS_FILE, Status), ""
    except FileNotFoundError:
        return None, ""
    except (CheckpointError, OSError) as error:
        return None, " ".join(str(error).split())


def _input(last: Manifest | None, status: Status | None) -> dict[str, TopicStatus]:
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


def _manifests(root: Path, found: Inspection) -> list[Manifest]:
    """Return the manifests that are needed and can be read, in order; note the others as damaged."""
    if not found.batches:
        return []
    newest = found.batches[-1]
    last = _manifest(root, newest, found)
    expected = found.batches[0] if last is None else last.needs  # all, if it is unknown which ones are needed
    manifests = []
    for batch in (batch for batch in found.batches if batch >= expected):
        if batch > expected:
            found.damaged.append(_missing(expected, batch - expected))
        one = last if batch == newest else _manifest(root, batch, found)
        manifests += [one] if one is not None else []
        expected = batch + 1
    return manifests


def _missing(batch: int, number: int = 1) -> Damage:
    """Return the damage that the manifests of `number` batches are missing, from `batch` on."""
    more = f", and so {noun(number - 1, 'is', 'are')} {number - 1:,} after it" if number > 1 else ""
    return Damage(name_of(batch), "manifest", f"missing{more}")


def _manifest(root: Path, batch: int, found: Inspection) -> Manifest | None:
    return _readable(root, found, name_of(batch), "manifest", read_manifest)


def _declared(root: Path, found: Inspection, last: Manifest | None) -> None:
    """Read the declaration that counts: that of the last manifest's driver, or of the newest one."""
    epoch = last.epoch if last is not None else max(found.epochs, default=0)
    if not epoch:
        return
    declaration = _readable(
        root, found, epoch_file(epoch), "declaration", lambda _: read_declaration(root, epoch)
    )
    if declaration is not None:
        found.id, found.topology = declaration.id, str(declaration.topology.get("name", ""))


def _readable(
    root: Path, found: Inspection, name: str, kind: str, read: Callable[[Path], _ReadT]
) -> _ReadT | None:
    """Return what is in a file; None if it is missing or damaged, which is noted."""
    try:
        return read(root / name)
    except FileNotFoundError:
        what = "missing"
    except (CheckpointError, ValueError, OSError) as error:
        what = " ".join(str(error).replace(f"{root / name}: ", "").split())
    found.damaged.append(Damage(name, kind, what))
    return None


def _state(history: History) -> TaskState:
    end, newest = history.end, (history.snapshots or (None,))[-1]
    snapshot, size = (None, 0) if newest is None else (newest.offset, newest.size)
    offset = snapshot or 0
    size += sum(change.size for change in history.changes if change.offset > offset)
    return TaskState(end.offset, end.version, snapshot, end.offset - offset, size)


def _sizes(root: Path, kinds: Mapping[Part, str]) -> dict[str, Kind]:
    """Return the files and bytes below each directory of the checkpoint, and of the files beside them.

    Such a directory may be a symbolic link, to another disk. A link below it is not followed: it may lead in a circle.
    """
    needed = {"changelog": 0, "snapshots": 0}
    for part, kind in kinds.items():
        if (directory := "snapshots" if kind == "snapshot" else kind) in needed:
            needed[directory] += part.size
    sizes: dict[str, Kind] = {}
    for top in root.iterdir():
        is_directory = os.path.isdir(top)  # noqa: PTH112 - never raises
        kind = top.name if is_directory else "other files"
        of = sizes.get(kind, Kind(0, 0, needed.get(kind)))
        files, size = of.files, of.bytes
        below = (Path(at) / name for at, _, names in os.walk(top) for name in names)
        for path in below if is_directory else (top,):
            with suppress(OSError):
                files, size = files + 1, size + path.stat().st_size
        sizes[kind] = Kind(files, size, of.needed)
    return dict(sorted(sizes.items()))


def _unfinished(root: Path, found: Inspection, last: Manifest | None) -> Iterator[str]:
    """Yield what was begun and not ended, a line each. None of it is damage: the next driver continues or repeats."""
    batch, epoch = (-1, 0) if last is None else (last.batch, last.epoch)
    planned, ended = (max(numbered(root / "spark" / log), default=-1) for log in ("offsets", "commits"))
    if planned > batch:
        yield f"batch {planned}: planned by Spark, and not committed; it runs now, or at the next start"
    elif last is not None and ended < planned == batch:
        yield f"batch {batch}: committed, and Spark has not ended it; it is published again at the next start"
    for number in numbered(root / "batches", digits=DIGITS):
        if number > batch:
            yield f"batch {number}: files of attempts, and no manifest: {batch_dir(number)}"
    if found.epochs and found.epochs[-1] > epoch:
        yield f"driver {found.epochs[-1]}: has taken over, and has not committed a batch"
    hidden = (path for name in STAGED for path in root.glob(f"{name}/**/.*") if path.is_file())
    for path in (*sorted(hidden), *sorted(root.glob("snapshots/*/*.tmp"))):
        yield f"{path.relative_to(root)}: was begun, and not made visible"
    if waiting := len(list(root.glob("requests/*.json"))):
        yield f"{count(waiting, 'request')} of operators: not taken by a driver"


@dataclass(frozen=True)
class CheckpointVerification:
    """What was found.

    - `inspection`: of all bytes
    - `violations`: of the assignment at the last commit
    - `tasks`: how many tasks the assignment was checked for; None if there is none, or no topology to compare it with
    """

    inspection: Inspection
    violations: tuple[Violation, ...]
    tasks: int | None

    @property
    def valid(self) -> bool:
        """Whether all files are whole, and the assignment keeps the invariants."""
        return self.inspection.sound and not self.violations

    def to_dict(self) -> dict[str, Any]:
        """Return the verification as a "taskplace.checkpoint_verification/1" dict."""
        found = self.inspection.to_dict()
        return {
            "schema": VERIFICATION_SCHEMA,
            "valid": self.valid,
            **{name: found[name] for name in ("path", "damaged", "unneeded", "unfinished", "sizes")},
            "tasks": self.tasks,
            "checked": list(CHECKED) if self.tasks is not None else [],
            "violations": [{"invariant": v.invariant, "text": v.text} for v in self.violations],
        }


def verify_checkpoint(root: Path, progress: Show = lambda event: None) -> CheckpointVerification:
    """Verify a checkpoint. `progress` gets how many bytes have been verified."""
    found = inspect(root, verify=True, progress=progress)
    tasks = _declared_tasks(root, found)
    if not tasks or not found.assignment:
        return CheckpointVerification(found, (), None)
    return CheckpointVerification(found, tuple(_violations(found, tasks)), len(tasks))


def _declared_tasks(root: Path, found: Inspection) -> list[Task]:
    """Return the tasks of the topology that the driver of the last manifest declared; none if it cannot be read."""
    if found.last is None:
        return []
    try:
        topology = read_declaration(root, found.last.epoch).topology
        return [
            Task(TaskId(sub["id"], partition), stateful=bool(sub["stores"]))
            for sub in topology["subtopologies"]
            for partition in range(sub["partitions"] or 0)
        ]
    except (ValueError, OSError, KeyError, TypeError):  # the inspection has it among the damage
        return []


def _violations(found: Inspection, tasks: list[Task]) -> Iterator[Violation]:
    from taskplace.verify import Violation, verify  # loads NumPy

    try:
        plan = Plan.from_dict({"assignment": found.assignment})
    except InputError as error:
        yield Violation("known", str(error))
        return
    problem = Problem(tasks, [Instance(name) for name in plan.assignment])
    yield from (one for one in verify(problem, plan, level="quick") if one.invariant in CHECKED)
    if unknown := sorted(found.tasks.keys() - {str(task.id) for task in tasks}):
        text = f"there is state of {listed(unknown, most=3)}, which the topology does not have"
        yield Violation("known", text)


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
    if is_directory and is_checkpoint(path):
        return path
    if is_directory:
        says = "this is no checkpoint of taskplace: it has no manifests/ and no epochs/"
        near = next((str(one) for one in (*_inside(path), path.parent) if is_checkpoint(one)), "")
    else:
        says = (
            f"found 'a file', expected {_EXPECTED}"
            if path.exists()
            else f"there is no such directory; expected {_EXPECTED}"
        )
        near = nearest_file(path, "*", os.path.isdir)
    hint = f"did you mean {near}?" if near else ""
    wrong = InputError(str(path), found=says, expected=_EXPECTED, hint=hint)
    raise plainly(wrong, "; ".join(filter(None, (says, hint))))


def is_checkpoint(path: Path) -> bool:
    """Return whether a directory is a checkpoint: drivers make `epochs` first, and `manifests` with a commit."""
    return os.path.isdir(path / "epochs") or os.path.isdir(path / "manifests")  # noqa: PTH112 - never raises


def _inside(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []
