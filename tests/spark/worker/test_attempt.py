"""Attempts without Spark: what they leave in the checkpoint and in their copy, and what they report."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from taskplace.errors import Fenced, InputError
from taskplace.spark.checkpoint.files import decode_records, open_section
from taskplace.spark.messages import EMPTY, Report, cancellation_mark, reports_dir
from taskplace.spark.processors import Deduplicate
from taskplace.spark.state.catching_up import Superseded
from taskplace.spark.state.store import StoreSchema
from taskplace.spark.worker import bin_context
from taskplace.spark.worker.program import Operator, Program
from tests.support.attempt_files import reports_in
from tests.support.attempts import BATCHES, PLANES
from topology import TaskId


def test_changes_form_a_chain_that_replays(runtime):
    for rows in BATCHES:
        runtime.run_batch(rows)
    for task, history in runtime.history.items():
        before = EMPTY
        for change in history.changes:
            assert change.base == before.attempt
            assert change.offset == before.offset + change.records
            path = runtime.checkpoint / change.file
            with open_section(path, change.start, change.size, change.checksum) as section:
                data = section.read_buffer()
            metadata = pa.ipc.open_file(data).schema.metadata
            assert (metadata[b"task"], metadata[b"attempt"], metadata[b"base"]) == tuple(
                text.encode() for text in (str(task), change.attempt, change.base)
            )
            assert sum(len(entries) for _, entries in decode_records(data)) == change.records
            before = change.position
    # An executor that has nothing gets everything from the changes alone.
    for task in runtime.history:
        assert runtime.contents(task, executor="2") == runtime.contents(task)


def test_a_batch_that_does_not_touch_a_task_changes_nothing_of_it(runtime):
    runtime.run_batch(BATCHES[0])
    before = dict(runtime.history)
    reports = runtime.run_batch([])
    assert all(report.change is None and not report.sinks for report in reports)
    assert all(b.file == "" and not b.slices for report in reports for b in report.boundaries.values())
    assert runtime.history == before
    assert not [
        name
        for name in runtime.files()
        if f"{runtime.batch - 1:010d}" in name and not {"attempts", "inputs"} & set(name.split("/"))
    ]


def test_the_report_is_in_the_checkpoint(runtime):
    report = runtime.attempt(TaskId(0, 0), BATCHES[0], PLANES, planned="executor-1", run="abc")
    assert reports_in(runtime.checkpoint, 0, 0) == [report] == [Report.decode(report.encode())]
    folder = runtime.checkpoint / reports_dir(0, 0)
    assert [file.name for file in folder.iterdir()] == [f"abc-0_0-{report.attempt}.json"], (
        "nothing half-written"
    )
    assert report.attempt.startswith(f"{runtime.epoch}-")
    assert (report.task, report.instance, report.planned) == (TaskId(0, 0), "executor-1", "executor-1")
    assert set(report.seconds) == {"read", "position", "process", "seal", "store"}


def test_a_promoted_copy_replays_its_tail_only(runtime):
    runtime.run_batch(BATCHES[0])
    for task in (TaskId(0, 0), TaskId(0, 1)):
        runtime.contents(task, "2")  # follows once
    reports = runtime.run_batch(BATCHES[1])
    tail = {report.task: report.change.records for report in reports if report.change}
    for task in (TaskId(0, 0), TaskId(0, 1)):
        report = runtime.attempt(task, BATCHES[3], executor="2")
        assert (report.recovery.replayed, report.recovery.scratch) == (tail[task], False)
    assert all(tail[task] for task in (TaskId(0, 0), TaskId(0, 1)))


def test_a_processor_that_fails_leaves_nothing(runtime):
    def broken(context, rows):
        context.store("planes").delete_many(pa.table({"tailnum": ["N1", "N7"]}))
        raise RuntimeError("not today")

    runtime.run_batch(BATCHES[0], PLANES)
    before = runtime.contents(TaskId(0, 0)), runtime.files()
    operators = (
        *runtime.first.operators[:2],
        Operator("b", "processor", ("f",), ("planes",), processor=broken),
    )
    with pytest.raises(RuntimeError, match="not today"):
        runtime.attempt(TaskId(0, 0), BATCHES[1], program=replace(runtime.first, operators=operators))
    assert (runtime.contents(TaskId(0, 0)), runtime.files()) == before


def test_too_much_input_is_refused_before_anything_is_done(runtime):
    with pytest.raises(InputError, match=r"task 0_0: found '\d+ bytes of input in one batch', .* = 10"):
        runtime.attempt(TaskId(0, 0), BATCHES[0], PLANES, bytes_per_task=10)
    assert not runtime.checkpoint.exists() or runtime.files() == []


def test_rows_of_a_repartition_count_as_input_and_are_refused_before_they_are_read(runtime, monkeypatch):
    reports = [runtime.attempt(TaskId(0, p), BATCHES[0], PLANES) for p in range(2)]
    slices = [report.boundaries["by-delay"].slices for report in reports]
    bytes_of = [sum(of[p].length for of in slices if p in of) for p in range(3)]
    largest = max(range(3), key=bytes_of.__getitem__)
    runtime.attempt(TaskId(1, largest), reports=reports, bytes_per_task=2 * bytes_of[largest])
    for report in reports:
        (runtime.checkpoint / report.boundaries["by-delay"].file).unlink(missing_ok=True)
    with pytest.raises(InputError, match=rf"task 1_{largest}: found '{bytes_of[largest]} bytes of input"):
        runtime.attempt(TaskId(1, largest), reports=reports, bytes_per_task=bytes_of[largest] - 1)


def stateless(runtime):
    """A program without a store: flights go straight to the sink."""
    operators = (Operator("f", "source", topic="flights"), Operator("out", "sink", ("f",)))
    return Program(0, operators, {}, external={"flights": 0})


def test_a_task_without_state_has_no_copy(runtime):
    report = runtime.attempt(
        TaskId(0, 0), [("N1", 1), ("N7", 2), ("N3", 3)], program=stateless(runtime), planned="executor-9"
    )
    assert report.change is None and not runtime.state.exists()
    assert sum(staged.rows for staged in report.sinks.values()) == report.rows


def test_a_store_without_changelog_moves_the_position_and_no_records(runtime):
    seen = Deduplicate("seen", by={"tailnum": "string"})
    schema = replace(StoreSchema.of("seen", seen.layouts()["seen"]), logged=False)
    operators = (
        Operator("f", "source", topic="flights"),
        Operator("new", "processor", ("f",), ("seen",), processor=seen),
        Operator("out", "sink", ("new",)),
    )
    program = Program(0, operators, {"seen": schema}, external={"flights": 0})
    rows = [("N1", 1), ("N2", 2), ("N3", 3), ("N1", 4)]
    first = runtime.attempt(TaskId(0, 0), rows, program=program)
    assert (first.change.records, first.change.file, first.change.offset) == (0, "", 0)
    runtime.commit(first)
    again = runtime.attempt(TaskId(0, 0), rows, program=program)
    assert again.change is None and not again.sinks, "the executor that has the copy remembers"
    elsewhere = runtime.attempt(TaskId(0, 0), rows, program=program, executor="2")
    assert elsewhere.sinks["out"].rows == first.sinks["out"].rows, "another one starts without"


# -- attempts that are not wanted


@pytest.mark.parametrize(
    ("first", "older", "newer", "error"),
    [
        ({"epoch": 2}, {"epoch": 1}, {"epoch": 2}, Fenced),
        ({"generation": 5}, {"generation": 4}, {"generation": 6}, Superseded),
    ],
)
def test_older_work_is_refused_and_changes_nothing(runtime, first, older, newer, error):
    """Of an older driver; of a round that was cancelled, after which the task was assigned again."""
    runtime.run_batch(BATCHES[0])
    runtime.attempt(TaskId(0, 0), BATCHES[1], **first)
    before = runtime.files()
    with pytest.raises(error, match="the fence of this attempt is"):
        runtime.attempt(TaskId(0, 0), BATCHES[1], **older)
    assert runtime.files() == before
    runtime.commit(runtime.attempt(TaskId(0, 0), BATCHES[1], **newer))


def test_an_attempt_elsewhere_gives_way_when_its_round_is_cancelled(runtime):
    runtime.run_batch(BATCHES[0])
    task = next(t for t in runtime.history if t.subtopology == 0)
    mark = runtime.checkpoint / cancellation_mark(runtime.setting(runtime.first), 0)
    mark.parent.mkdir(parents=True)
    mark.touch()
    with pytest.raises(Superseded, match="was cancelled"):
        runtime.attempt(task, BATCHES[1], executor="2", planned="executor-1")
    assert runtime.attempt(task, BATCHES[1], executor="1").instance == "executor-1", "the planned one goes on"


def test_an_attempt_elsewhere_goes_on_when_nobody_calls_it_off(runtime, monkeypatch):
    monkeypatch.setattr(bin_context, "ELSEWHERE_SECONDS", 0.0)
    runtime.run_batch(BATCHES[0])
    task, history = next((t, h) for t, h in runtime.history.items() if t.subtopology == 0)
    report = runtime.attempt(task, BATCHES[1], executor="2", planned="executor-1")
    assert (report.instance, report.planned, report.recovery.scratch) == ("executor-2", "executor-1", True)
    assert report.recovery.replayed == history.end.offset


def test_what_is_superseded_is_not_fenced_and_survives_pickling():
    """`Fenced` means that another driver has taken over, and only that."""
    error = pickle.loads(pickle.dumps(Superseded("0_0: called off")))  # noqa: S301
    assert type(error) is Superseded and str(error) == "0_0: called off"
    assert not isinstance(error, Fenced)
