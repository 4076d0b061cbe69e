"""One attempt of one task at one batch: bring the copy to its base, process, seal, commit locally, report.

The order of the end matters. The changelog, boundary and staged output are sealed in the checkpoint first;
then the copy commits, with an undo record; last comes the report, a file of its own beside Spark's result, so
that the driver finds finished attempts even when it had to cancel the job. Nothing of it counts before a
manifest names the attempt: an attempt that lost, or whose driver died, leaves files nobody refers to and a
copy that the next descriptor rolls back.
"""

from __future__ import annotations

import json
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import CheckpointError, Fenced, InputError
from taskplace.spark import faults
from taskplace.spark.state.copy import Copy, Recovery
from taskplace.spark.state.files import Changes, encode_changes, file_name, seal, write_file
from taskplace.spark.state.history import EMPTY, Change, History, Position
from taskplace.spark.state.meta import Fence
from taskplace.spark.state.store import Store
from taskplace.spark.worker import boundary, identity, schemas
from taskplace.spark.worker.clock import Watermark
from taskplace.spark.worker.guard import guarded, seen, told_when_full
from taskplace.spark.worker.program import Outputs, Program

#: How long an attempt that landed on an executor without a copy waits to be cancelled.
ELSEWHERE_SECONDS = 1.5

#: The column of the united input that says which source a row is from.
TAG = "__topic"


@dataclass(frozen=True)
class Setting:
    """What all attempts of a stage share.

    `schema`: of the external input, serialised, united if there are several sources; None without any. `inputs`: where
    the boundaries of internal topics are listed; None without any. `run`: the id
    of this run of the stage, as a query that is started again runs a batch again, with the same epoch. `round`: how
    often executors were lost within the run so far. `watermarks`: of the topics that the stage reads, in microseconds
    since 1970 (UTC), None: unknown yet; `late`: what each store that forgets went by in the batch before.
    `sinks`: the schemas of the sinks that have one already.
    """

    checkpoint: str
    state_root: str
    spark_app: str
    epoch: int
    batch: int
    generation: int
    schema: bytes | None
    compression: str | None
    bytes_per_task: int
    inputs: boundary.Listing | None = None
    run: str = ""
    sinks: Mapping[str, schemas.SinkSchema] = field(default_factory=dict)
    round: int = 0
    watermarks: Mapping[str, Watermark] = field(default_factory=dict)
    late: Mapping[str, Watermark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What one attempt must start from: the task, where it was planned to run, and its committed history.

    `held`: what stores of this task went by in the batch before, where that is not what the stage says, as windows of
    this task that were due had not all been sent.
    """

    task: str
    instance: str
    history: History
    held: Mapping[str, Watermark] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the descriptor as JSON bytes."""
        plain = {"task": self.task, "instance": self.instance, "history": self.history.to_dict()}
        return json.dumps({**plain, "held": dict(self.held)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Descriptor:
        """Return the descriptor that `encode` wrote."""
        raw = json.loads(data)
        return cls(raw["task"], raw["instance"], History.from_dict(raw["history"]), raw["held"])


@dataclass(frozen=True)
class StagedFile:
    """A sink's rows of one attempt, in the checkpoint, waiting for the commit."""

    file: str
    rows: int
    size: int
    checksum: str


@dataclass(frozen=True)
class Report:
    """What an attempt did. `change` is None when the state did not change; `seconds` itemises its time.

    `rows`: how many came from outside the topology; `event_times`: the newest event time of each topic; `late`: rows
    that stores did not take, having expired already; `expiring`: whether what has expired is not all removed yet;
    `watermarks`: what each store that forgets went by; `behind`: the watermark of each internal topic that it wrote to.
    `staged_as`: the columns of what was staged, by sink.
    """

    task: str
    attempt: str
    instance: str
    planned: str
    change: Change | None
    sinks: Mapping[str, StagedFile]
    boundaries: Mapping[str, boundary.Boundary]
    rows: int
    recovery: Recovery
    seconds: Mapping[str, float]
    staged_as: Mapping[str, schemas.Columns] = field(default_factory=dict)
    event_times: Mapping[str, int] = field(default_factory=dict)
    late: int = 0
    expiring: bool = False
    watermarks: Mapping[str, Watermark] = field(default_factory=dict)
    behind: Mapping[str, Watermark] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Report:
        """Return the report that `to_json` wrote."""
        raw = json.loads(text)
        return cls(
            **{
                **raw,
                "change": raw["change"] and Change(**raw["change"]),
                "sinks": {name: StagedFile(**staged) for name, staged in raw["sinks"].items()},
                "boundaries": {name: boundary.Boundary.from_dict(b) for name, b in raw["boundaries"].items()},
                "recovery": Recovery(**raw["recovery"]),
            }
        )


def reports_dir(batch: int, subtopology: int) -> str:
    """Return the folder, relative to the checkpoint, of a stage's finished attempts."""
    return f"batches/{batch:010d}/attempts/{subtopology}"


def report_file(setting: Setting, task: str, attempt: str) -> str:
    """Return the file, relative to the checkpoint, of a finished attempt's report."""
    return f"{reports_dir(setting.batch, int(task.split('_')[0]))}/{task}-{setting.run}-{attempt}.json"


def inputs_file(setting: Setting, subtopology: int) -> str:
    """Return the file, relative to the checkpoint, that lists the boundaries which a run of a stage reads."""
    return f"batches/{setting.batch:010d}/inputs/{subtopology}-{setting.run}.json"


def called_off(setting: Setting, subtopology: int) -> str:
    """Return the file, relative to the checkpoint, by which a driver calls a round of a stage off."""
    return f"{reports_dir(setting.batch, subtopology)}/called-off-{setting.run}-{setting.round}"


def run_stage(program: Program, setting: Setting, elements: Iterable[Any]) -> Iterator[str]:
    """Run the attempts of one Spark partition and yield their reports as JSON.

    An element is a descriptor and its Arrow batches, or the descriptor alone when nothing comes from Spark.
    """
    for element in elements:
        descriptor, batches = (element, ()) if setting.schema is None else element
        yield run_attempt(program, setting, Descriptor.decode(bytes(descriptor)), batches).to_json()


def run_attempt(
    program: Program, setting: Setting, descriptor: Descriptor, batches: Sequence[bytes]
) -> Report:
    """Run one attempt and return its report, which is also in the checkpoint by then.

    Errors: `Fenced` when newer work has touched the copy; `CheckpointError` for damaged files; what a
    processor raises.
    """
    clock = _Clock()
    subtopology, partition = map(int, descriptor.task.split("_"))
    root = Path(setting.checkpoint)
    instance = f"executor-{identity.executor()[0]}"
    inputs = _inputs(program, setting, root, partition, batches)
    late = {**setting.late, **descriptor.held}
    rows_in = sum(inputs[topic].num_rows for topic in program.external)
    clock.lap("read")

    def process(copy: Copy | None, recovery: Recovery) -> Report:
        clock.lap("position")
        faults.point("attempt.positioned")
        attempt = f"{setting.epoch}-{uuid.uuid4().hex}"  # a new one also when a full map makes it run again
        stores = (
            {name: Store(schema, copy, late.get(schema.database)) for name, schema in program.stores.items()}
            if copy is not None
            else {}
        )
        outputs = program.run(descriptor.task, partition, setting.batch, inputs, stores, setting.watermarks)
        clock.lap("process")
        faults.point("attempt.processed")
        outputs = replace(outputs, sinks=_fitted(setting, outputs.sinks))
        boundaries, sinks = _sealed_outputs(program, setting, root, descriptor.task, attempt, outputs)
        change = None
        writes: Changes = {}
        for store in stores.values():
            writes |= store.changes()
        if writes:
            logged = {name: entries for name, entries in writes.items() if name in program.logged}
            change = _sealed_change(setting, root, descriptor, attempt, logged)
        clock.lap("seal")
        faults.point("attempt.sealed")
        if copy is not None:
            if change is not None:
                copy.commit(writes, change.position)
            else:
                copy.commit_unchanged()
        clock.lap("store")
        faults.point("attempt.stored")
        return Report(
            descriptor.task,
            attempt,
            instance,
            descriptor.instance,
            change,
            sinks,
            boundaries,
            rows_in,
            recovery,
            clock.laps,
            {sink: schemas.columns_of(rows.schema) for sink, rows in outputs.sinks.items()},
            program.newest(inputs),
            sum(store.late for store in stores.values()),
            any(store.expiring for store in stores.values()),
            outputs.watermarks,
            outputs.behind,
        )

    with told_when_full(root, Path(setting.state_root)):
        if program.stateful:
            _let_the_driver_decide(setting, subtopology, descriptor, instance)
            path = identity.home(Path(setting.state_root), setting.spark_app) / descriptor.task
            fence = Fence(setting.epoch, setting.batch, setting.generation)
            with (
                guarded(path, identity.executor()[1], root / called_off(setting, subtopology)),
                Copy(path, program.databases, fence=fence) as copy,
            ):
                recovery = Recovery()  # one for all runs: what was restored before the map was full counts
                report = copy.growing(
                    lambda: process(copy, copy.bring_to(descriptor.history, root, recovery))
                )
        else:
            report = process(None, Recovery())
        file = root / report_file(setting, descriptor.task, report.attempt)
        staging = file.with_suffix(".tmp")
        write_file(staging, report.to_json().encode(), sync=False)
        staging.rename(file)
    faults.point("attempt.reported")
    return report


def _let_the_driver_decide(setting: Setting, subtopology: int, descriptor: Descriptor, instance: str) -> None:
    """Wait a moment before restoring a whole copy on an executor that was not planned for it.

    When an executor dies, Spark starts its tasks anywhere at once, and the driver is about to cancel that and
    to promote standbys. An attempt that restored meanwhile would win now and then, and cost what it was not
    meant to. If the round is not called off, Spark had another reason, and the attempt goes on.
    Errors: `Fenced` when the driver has called the round off.
    """
    if descriptor.instance in ("", instance) or descriptor.history.end == EMPTY:
        return
    home = identity.home(Path(setting.state_root), setting.spark_app)
    if seen(home / descriptor.task, identity.executor()[1]) is not None:
        return
    mark = Path(setting.checkpoint) / called_off(setting, subtopology)
    deadline = time.monotonic() + ELSEWHERE_SECONDS
    while time.monotonic() < deadline:
        if mark.exists():
            raise Fenced(f"{descriptor.task}: round {setting.round} of batch {setting.batch} was called off")
        time.sleep(0.05)


class _Clock:
    """Times the phases of an attempt."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(self.laps.get(name, 0.0) + now - self._last, 6)
        self._last = now


def _inputs(
    program: Program, setting: Setting, root: Path, partition: int, batches: Sequence[bytes]
) -> dict[str, pa.Table]:
    inputs = {}
    listed = boundary.read_listing(root, setting.inputs) if setting.inputs else {}
    for topic in program.internal:
        inputs[topic] = boundary.read(root, listed.get(topic, ()), partition, topic)
    if program.external:
        size = sum(map(len, batches))
        if size > setting.bytes_per_task:
            raise InputError(
                f"task {program.subtopology}_{partition}",
                found=f"{size} bytes of input in one batch",
                expected=f"at most runtime.bytes.per.task.max = {setting.bytes_per_task}",
                hint="raise it for this batch, which Spark repeats as it is, and make the batches smaller",
            )
        if setting.schema is None:
            raise CheckpointError("external input without a schema")
        schema = pa.ipc.read_schema(pa.py_buffer(setting.schema))
        united = pa.Table.from_batches(
            [pa.ipc.read_record_batch(pa.py_buffer(b), schema) for b in batches], schema
        )
        if TAG not in schema.names:  # of a single source
            inputs |= dict.fromkeys(program.external, united)
        else:
            inputs |= {topic: _untagged(united, tag, topic) for topic, tag in program.external.items()}
    program.check_keys(inputs)
    return inputs


def _untagged(united: pa.Table, tag: int, topic: str) -> pa.Table:
    rows = united.filter(pc.equal(united[TAG], tag)) if united.num_rows else united
    struct = rows[topic]
    fields = struct.type.fields
    if not rows.num_rows:
        return pa.schema(fields).empty_table()
    return pa.Table.from_batches(
        [pa.RecordBatch.from_struct_array(chunk) for chunk in struct.chunks], pa.schema(fields)
    )


def _fitted(setting: Setting, sinks: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the rows of each sink that got some, as they are staged. Errors: `InputError` for what does not fit."""
    return {
        sink: schemas.fitted(rows, sink, setting.sinks.get(sink))
        for sink, rows in sinks.items()
        if rows.num_rows
    }


def _sealed_outputs(
    program: Program, setting: Setting, root: Path, task: str, attempt: str, outputs: Outputs
) -> tuple[dict[str, boundary.Boundary], dict[str, StagedFile]]:
    folder = f"batches/{setting.batch:010d}"
    boundaries = {}
    for topic, rows in outputs.topics.items():
        to = program.repartitions[topic]
        file = f"{folder}/topics/{file_name(topic)}/{task}-{attempt}.arrow"
        seed = zlib.crc32(f"{topic} {task} {setting.batch}".encode())
        boundaries[topic] = boundary.write(root, file, rows, to.key, to.partitions, seed)
    sinks = {}
    for sink, rows in outputs.sinks.items():
        data = schemas.parquet(rows, sink)
        file = f"{folder}/sinks/{file_name(sink)}/{task}-{attempt}.parquet"
        write_file(root / file, data, sync=True, mode=0o666)  # a sink may link it; where it lies is private
        sinks[sink] = StagedFile(file, rows.num_rows, data.size, seal(data))
    return boundaries, sinks


def _sealed_change(
    setting: Setting, root: Path, descriptor: Descriptor, attempt: str, logged: Changes
) -> Change:
    base = descriptor.history.end
    records = sum(map(len, logged.values()))
    to = Position(setting.batch, attempt, base.offset + records)
    if not records:
        return Change(to.version, attempt, base.attempt, to.offset, 0)
    metadata = {
        "task": descriptor.task,
        "version": str(setting.batch),
        "attempt": attempt,
        "base": base.attempt,
    }
    data = encode_changes(logged, metadata, setting.compression)
    file = f"changelog/{descriptor.task}/{setting.batch:010d}-{attempt}.arrow"
    write_file(root / file, data, sync=True)
    return Change(to.version, attempt, base.attempt, to.offset, records, file, data.size, seal(data))
