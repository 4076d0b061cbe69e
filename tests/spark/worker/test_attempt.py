"""Attempts without Spark: what they leave in the checkpoint and in their copy, and what they report."""

from __future__ import annotations

import json
import multiprocessing
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskplace.errors import CheckpointError, Fenced, InputError
from taskplace.spark.bridge import JobLostError
from taskplace.spark.codec import seal
from taskplace.spark.messages import EMPTY, Descriptor, History, Report, called_off, reports_dir
from taskplace.spark.processors import Deduplicate
from taskplace.spark.state import environment
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.files import decode_records, read_sealed
from taskplace.spark.state.store import StoreSchema
from taskplace.spark.worker import attempt as attempt_module
from taskplace.spark.worker.attempt import run_attempt
from taskplace.spark.worker.hashing import partition_of
from taskplace.spark.worker.program import Operator, Program
from tests.support.sparkless import Sparkless
from topology import TaskId

#: Both tasks get rows: N1, N2, N3 and the null belong to partition 0, N4, N7 and N8 to partition 1.
BATCHES = [
    [("N1", 5), ("N7", 7), ("N3", -1), ("N1", 2), (None, 0), ("N4", 3)],
    [("N7", 9), ("N4", 1), ("N1", 1)],
    [],
    [("N1", 30), ("N3", -1), ("N8", 5)],
]
PLANES = [("N1", 100), ("N7", 200)]


def sink_rows(runtime, reports, sink):
    """Return the staged rows of a batch, after a look at their seals."""
    rows = []
    for report in reports:
        if sink in report.sinks:
            staged = report.sinks[sink]
            read_sealed(runtime.checkpoint / staged.file, staged.size, staged.checksum)
            rows += pq.read_table(runtime.checkpoint / staged.file, use_threads=False).to_pylist()
            assert staged.rows == pq.read_metadata(runtime.checkpoint / staged.file).num_rows
    return sorted(rows, key=repr)


def test_several_batches_add_up(runtime):
    flights, worst, days = Counter(), {}, Counter()
    for batch, rows in enumerate(BATCHES):
        reports = runtime.run_batch(rows, PLANES if batch == 0 else ())
        touched = {tail for tail, _ in rows}
        for tail, delay in rows:
            flights[tail] += 1
            worst[tail] = max(worst.get(tail, delay), delay)
            days[delay] += 1
        assert sink_rows(runtime, reports, "out") == sorted(
            ({"tailnum": t, "flights": flights[t], "worst": worst[t]} for t in touched), key=repr
        )
        assert sink_rows(runtime, reports, "days-out") == sorted(
            ({"delay": d, "count": days[d]} for d in {delay for _, delay in rows}), key=repr
        )
        assert sum(report.rows for report in reports[:2]) == len(rows) + (len(PLANES) if batch == 0 else 0)
        passed_on = [report.boundaries["by-delay"].slices.values() for report in reports[:2]]
        assert sum(piece.rows for pieces in passed_on for piece in pieces) == len(rows)
        assert not any(report.rows for report in reports[2:]), "none of theirs is from outside"
    stored = [row for task in (TaskId(0, 0), TaskId(0, 1)) for row in runtime.contents(task)["totals"]]
    assert {row["tailnum"]: row["flights"] for row in stored} == flights
    stored = [
        row for task in (TaskId(1, 0), TaskId(1, 1), TaskId(1, 2)) for row in runtime.contents(task)["days"]
    ]
    assert {row["delay"]: row["count"] for row in stored} == days


def test_rows_of_the_second_subtopology_come_joined_and_where_spark_would_put_them(runtime):
    first = [runtime.attempt(TaskId(0, p), BATCHES[0], PLANES) for p in range(2)]
    delays = [delay for _, delay in BATCHES[0]]
    at = partition_of([pa.array(delays, pa.int64())], 3)
    for partition in range(3):
        report = runtime.attempt(TaskId(1, partition), reports=first)
        here = Counter(delay for delay, place in zip(delays, at, strict=True) if place == partition)
        assert {row["delay"]: row["count"] for row in sink_rows(runtime, [report], "days-out")} == here


def test_a_report_says_as_what_the_keys_of_internal_topics_were_hashed(runtime):
    first = [runtime.attempt(TaskId(0, p), BATCHES[0], PLANES) for p in range(2)]
    assert {report.boundaries["by-delay"].key for report in first} == {("int64",)}
    assert Report.decode(first[0].encode()).boundaries == first[0].boundaries
    assert runtime.attempt(TaskId(0, 0)).boundaries["by-delay"].key == ()


def test_a_topic_without_rows_agrees_with_any_type_of_the_keys_beside_it(runtime):
    groups = ((("flights", ("tailnum",)), ("planes", ("tailnum",))),)
    program = replace(runtime.first, groups=groups)
    some = pa.table({"tailnum": pa.array(["a"])})
    for kind in (pa.null(), pa.float64(), pa.int32()):
        none = pa.table({"tailnum": pa.array([], kind)})
        for inputs in ({"flights": none, "planes": some}, {"flights": some, "planes": none}):
            program.check_keys(inputs)
        program.check_keys({"flights": none, "planes": none})
    numbers = pa.table({"tailnum": pa.array([1])})
    with pytest.raises(InputError, match="co-partitioned keys of different types"):
        program.check_keys({"flights": some, "planes": numbers})


def test_changes_form_a_chain_that_replays(runtime):
    for rows in BATCHES:
        runtime.run_batch(rows)
    for task, history in runtime.history.items():
        before = EMPTY
        for change in history.changes:
            assert change.base == before.attempt
            assert change.offset == before.offset + change.records
            assert change.file == f"changelog/{task}/{change.version:010d}-{change.attempt}.arrow"
            data = read_sealed(runtime.checkpoint / change.file, change.size, change.checksum)
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
    file = runtime.checkpoint / reports_dir(0, 0) / f"0_0-abc-{report.attempt}.json"
    assert Report.decode(file.read_text()) == report == Report.decode(report.encode())
    assert [f.name for f in file.parent.iterdir()] == [file.name], "nothing half-written is left"
    assert report.attempt.startswith(f"{runtime.epoch}-")
    assert (report.task, report.instance, report.planned) == (TaskId(0, 0), "executor-1", "executor-1")
    assert set(report.seconds) == {"read", "position", "process", "seal", "store"}


def test_either_of_two_attempts_may_win(runtime):
    """Spark ran a task twice, on two executors; the loser's copy follows the winner's next time."""
    runtime.run_batch(BATCHES[0], PLANES)
    for winner in (0, 1):
        rows = [("N1", 50 + winner), ("N7", 60), ("N3", 1), ("N8", 2)]
        for task in (TaskId(0, 0), TaskId(0, 1)):
            two = [runtime.attempt(task, rows, executor=executor) for executor in ("1", "2")]
            assert two[0].attempt != two[1].attempt
            assert two[0].change.records == two[1].change.records
            old = runtime.history.get(task, History())
            runtime.history[task] = History((*old.changes, two[winner].change))
        runtime.batch += 1
    for task in (TaskId(0, 0), TaskId(0, 1)):
        again = runtime.attempt(task, [], executor="1")
        assert again.recovery.rolled_back and again.recovery.replayed > 0 and not again.recovery.scratch
        assert runtime.contents(task, "1") == runtime.contents(task, "2")


def test_an_attempt_run_again_by_the_same_executor_starts_from_what_is_committed(runtime):
    runtime.run_batch(BATCHES[0])
    lost = [runtime.attempt(task, BATCHES[1]) for task in (TaskId(0, 0), TaskId(0, 1))]
    again = [runtime.attempt(task, BATCHES[1]) for task in (TaskId(0, 0), TaskId(0, 1))]
    for one, other in zip(lost, again, strict=True):
        assert other.recovery.rolled_back == (one.change is not None)
        assert sink_rows(runtime, [one], "out") == sink_rows(runtime, [other], "out")
    assert any(report.change is not None for report in lost)


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
    with pytest.raises(
        InputError, match=r"task 0_0: found '\d+ bytes of input in one batch', expected at most .* = 10"
    ):
        runtime.attempt(TaskId(0, 0), BATCHES[0], PLANES, bytes_per_task=10)
    assert not runtime.checkpoint.exists() or runtime.files() == []


def test_older_work_is_refused(runtime):
    runtime.run_batch(BATCHES[0])
    runtime.epoch = 2
    runtime.attempt(TaskId(0, 0), BATCHES[1])
    runtime.epoch = 1
    before = runtime.files()
    with pytest.raises(Fenced):
        runtime.attempt(TaskId(0, 0), BATCHES[1])
    assert runtime.files() == before


def test_a_damaged_changelog_is_named(runtime):
    runtime.run_batch(BATCHES[0])
    task, history = next((t, h) for t, h in runtime.history.items() if t.subtopology == 0)
    (runtime.checkpoint / history.changes[0].file).write_bytes(b"")
    with pytest.raises(CheckpointError, match=history.changes[0].file):
        runtime.attempt(task, BATCHES[1], executor="2")


def test_a_full_map_is_grown_and_one_report_is_left(runtime, monkeypatch):
    monkeypatch.setattr(environment, "INITIAL_MAP", 1 << 17)
    many = [(f"N{i}", i) for i in range(5000)]
    reports = runtime.run_batch(many)
    assert len(runtime.files("0_0-*.json")) == 1
    assert sum(report.change.records for report in reports[:2]) == 5000
    assert sum(len(runtime.contents(task)["totals"]) for task in (TaskId(0, 0), TaskId(0, 1))) == 5000
    staged = {report.sinks["out"].file for report in reports[:2]}
    assert sum(pq.read_metadata(runtime.checkpoint / file).num_rows for file in staged) == 5000


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


def test_an_attempt_elsewhere_gives_way_when_its_round_is_called_off(runtime):
    runtime.run_batch(BATCHES[0])
    task = next(t for t in runtime.history if t.subtopology == 0)
    mark = runtime.checkpoint / called_off(runtime.setting(runtime.first), 0)
    mark.parent.mkdir(parents=True)
    mark.touch()
    with pytest.raises(Fenced, match="called off"):
        runtime.attempt(task, BATCHES[1], executor="2", planned="executor-1")
    assert runtime.attempt(task, BATCHES[1], executor="1").instance == "executor-1", "the planned one goes on"


def test_an_attempt_elsewhere_goes_on_when_nobody_calls_it_off(runtime, monkeypatch):
    monkeypatch.setattr(attempt_module, "ELSEWHERE_SECONDS", 0.0)
    runtime.run_batch(BATCHES[0])
    task, history = next((t, h) for t, h in runtime.history.items() if t.subtopology == 0)
    report = runtime.attempt(task, BATCHES[1], executor="2", planned="executor-1")
    assert (report.instance, report.planned, report.recovery.scratch) == ("executor-2", "executor-1", True)
    assert report.recovery.replayed == history.end.offset


def test_bytes_like_elements_are_taken(runtime):
    """Spark's pickler gives bytearrays."""
    descriptor = Descriptor(TaskId(0, 0), "executor-1", History())
    batches = [bytearray(b) for b in runtime.input(0, BATCHES[0], PLANES)]
    report = run_attempt(runtime.first, runtime.setting(runtime.first), descriptor, batches)
    assert report.rows == runtime.attempt(TaskId(0, 0), BATCHES[0], PLANES).rows > 0
    assert Descriptor.decode(bytes(bytearray(descriptor.encode()))) == descriptor


def test_the_seal_in_the_report_is_that_of_the_file(runtime):
    report = runtime.attempt(TaskId(0, 1), BATCHES[0], PLANES)
    for named in [report.change, *report.sinks.values()]:
        data = (runtime.checkpoint / named.file).read_bytes()
        assert (named.size, named.checksum) == (len(data), seal(data))
    assert json.loads(report.encode())["change"]["size"] == report.change.size


def test_work_of_an_older_generation_is_refused(runtime):
    """Its round was called off, and the task has been given out again."""
    runtime.run_batch(BATCHES[0])
    runtime.attempt(TaskId(0, 0), BATCHES[1], generation=5)
    before = runtime.files()
    with pytest.raises(Fenced, match="generation=4"):
        runtime.attempt(TaskId(0, 0), BATCHES[1], generation=4)
    assert runtime.files() == before
    runtime.commit(runtime.attempt(TaskId(0, 0), BATCHES[1], generation=6))


# -- two attempts of one task


@pytest.fixture
def truth(runtime, tmp_path, be_executor):
    """A runtime of its own, where every task is attempted once."""
    return type(runtime)(tmp_path / "truth", be_executor)


def at_the_same_time(runtime, task, rows, executors) -> list[Report]:
    """Run an attempt of a task on each of these executors; none has its copy before all of them have begun."""
    context = multiprocessing.get_context("fork")
    begun, told = context.Barrier(len(executors)), context.SimpleQueue()

    def run(number: int) -> None:
        really_open = Copy._open

        def opening(copy: Copy) -> None:
            begun.wait(30)
            really_open(copy)

        Copy._open = opening
        told.put((number, runtime.attempt(task, rows, executor=executors[number]).encode()))

    workers = [context.Process(target=run, args=(number,)) for number in range(len(executors))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    return [Report.decode(text) for _, text in sorted(told.get() for _ in workers)]


def committed_files(runtime) -> dict[str, bytes]:
    files = [change.file for history in runtime.history.values() for change in history.changes]
    return {file: (runtime.checkpoint / file).read_bytes() for file in files}


def commit_one_of_two(runtime, truth, two, rows) -> None:
    """Commit the first of two attempts at 0_0 and go on: nothing shows that there was another one.

    Neither in what is committed, nor in output, nor in any copy of whoever made them.
    """
    before = committed_files(runtime)
    won, lost = two
    assert won.attempt != lost.attempt and won.change.file != lost.change.file
    first = [won, runtime.attempt(TaskId(0, 1), rows)]
    second = [runtime.attempt(TaskId(1, p), reports=first) for p in range(3)]
    expected = truth.run_batch(rows)
    for sink in ("out", "days-out"):
        assert sink_rows(runtime, [*first, *second], sink) == sink_rows(truth, expected, sink)
    runtime.commit(*first, *second)
    after = committed_files(runtime)
    assert {file: after[file] for file in before} == before
    assert lost.change.file not in after
    expected = truth.run_batch(BATCHES[3])
    reports = runtime.run_batch(BATCHES[3])
    for sink in ("out", "days-out"):
        assert sink_rows(runtime, reports, sink) == sink_rows(truth, expected, sink)
    for task in (TaskId(0, 0), TaskId(0, 1), TaskId(1, 0), TaskId(1, 1), TaskId(1, 2)):
        for executor in {"1", won.instance[-1], lost.instance[-1]}:
            assert runtime.contents(task, executor) == truth.contents(task)


@pytest.mark.parametrize("winner", [0, 1])
@pytest.mark.parametrize("executors", [("1", "2"), ("1", "1")])
def test_of_two_attempts_at_the_same_time_one_counts(runtime, truth, executors, winner):
    """A task that Spark runs twice: on two executors, or by two workers of one, which wait for each other's copy."""
    runtime.run_batch(BATCHES[0], PLANES)
    truth.run_batch(BATCHES[0], PLANES)
    two = at_the_same_time(runtime, TaskId(0, 0), BATCHES[1], executors)
    assert [report.instance for report in two] == [f"executor-{executor}" for executor in executors]
    commit_one_of_two(runtime, truth, [two[winner], two[1 - winner]], BATCHES[1])


@pytest.mark.parametrize("winner", [0, 1])
@pytest.mark.parametrize("executor", ["1", "2"])
def test_of_a_finished_attempt_and_its_retry_one_counts(runtime, truth, executor, winner):
    """Spark runs a stage again, with attempt numbers from 0: epoch, batch, generation, run and round are the same."""
    runtime.run_batch(BATCHES[0], PLANES)
    truth.run_batch(BATCHES[0], PLANES)
    finished = runtime.attempt(TaskId(0, 0), BATCHES[1], executor="1")
    left = {name: (runtime.checkpoint / name).read_bytes() for name in runtime.files()}
    retry = runtime.attempt(TaskId(0, 0), BATCHES[1], executor=executor)
    assert retry.recovery.rolled_back == (executor == "1"), "it starts from what is committed"
    assert {name: (runtime.checkpoint / name).read_bytes() for name in left} == left
    two = [finished, retry]
    commit_one_of_two(runtime, truth, [two[winner], two[1 - winner]], BATCHES[1])


# -- a stage, run by the driver's own code


@pytest.fixture
def sparkless(runtime):
    return Sparkless(runtime)


def test_a_stage_takes_over_what_had_finished_when_an_executor_was_lost(runtime, sparkless):
    """0_0 has finished, on executor 2; 0_1 was to run on the one that is lost."""
    sparkless.owners = {TaskId(0, 0): "2", TaskId(0, 1): "1"}

    def lose(task):
        if task == TaskId(0, 1) and sparkless.rounds == 1:
            raise JobLostError(frozenset({"1"}))

    sparkless.before_attempt = lose
    reports = sparkless.stage(0, BATCHES[0], PLANES)
    assert sparkless.attempted == [TaskId(0, 0), TaskId(0, 1), TaskId(0, 1)]
    assert [reports[task].instance for task in (TaskId(0, 0), TaskId(0, 1))] == ["executor-2", "executor-1"]


def test_a_zombie_of_an_earlier_run_of_the_batch_does_not_count(runtime, sparkless):
    """A query was stopped in a batch and started again on the same handle: the same epoch and the same batch."""
    earlier = sparkless.stage(0, BATCHES[0], PLANES)
    zombie = sparkless.job
    late = []

    def lose(task):
        if sparkless.rounds == 2:
            late.extend(Report.decode(text) for text in zombie.attempt(0))  # it reports only now
            raise JobLostError(frozenset({"1"}))

    sparkless.before_attempt = lose
    again = sparkless.stage(0, BATCHES[0], PLANES)
    assert late[0].task == TaskId(0, 0)
    assert again[TaskId(0, 0)].attempt not in {late[0].attempt, earlier[TaskId(0, 0)].attempt}
    # The zombie was on the copy before: it is what the next batch rolls back.
    runtime.commit(*again.values())
    runtime.run_batch(BATCHES[1])
    assert runtime.contents(TaskId(0, 0), "1") == runtime.contents(TaskId(0, 0), "2")


def test_a_round_of_an_earlier_run_that_is_called_off_late_calls_off_nothing_else(
    runtime, sparkless, monkeypatch
):
    """Every attempt lands on an executor without a copy, where it gives way if its round is called off."""
    monkeypatch.setattr(attempt_module, "ELSEWHERE_SECONDS", 0.1)
    runtime.run_batch(BATCHES[0], PLANES)
    sparkless.stage(0, BATCHES[1])
    earlier = sparkless.job
    sparkless.before_attempt = lambda task: earlier.on_lost()
    sparkless.elsewhere = "2"
    assert {report.instance for report in sparkless.stage(0, BATCHES[1]).values()} == {"executor-2"}


def test_of_two_attempts_that_have_finished_when_an_executor_is_lost_one_counts(runtime, truth, sparkless):
    """Spark has run 0_0 on two executors; what follows comes from one of them."""
    sparkless.owners = {TaskId(0, 1): "3"}
    duplicates = []

    def lose(task):
        if task == TaskId(0, 1) and sparkless.rounds == 1:
            sparkless.elsewhere = "2"
            duplicates.extend(Report.decode(text) for text in sparkless.job.attempt(0))
            sparkless.elsewhere = None
            raise JobLostError(frozenset({"3"}))

    sparkless.before_attempt = lose
    first = sparkless.stage(0, BATCHES[0], PLANES)
    assert sparkless.attempted == [TaskId(0, 0), TaskId(0, 1), TaskId(0, 1)]
    finished = runtime.files("0_0-*.json")
    assert len(finished) == 2 and finished[0].endswith(f"-{first[TaskId(0, 0)].attempt}.json")
    second = sparkless.stage(1, reports=list(first.values()))
    runtime.commit(*first.values(), *second.values())
    truth.run_batch(BATCHES[0], PLANES)
    for task in (TaskId(0, 0), TaskId(0, 1), TaskId(1, 0), TaskId(1, 1), TaskId(1, 2)):
        for executor in ("1", "2"):
            assert runtime.contents(task, executor) == truth.contents(task)
