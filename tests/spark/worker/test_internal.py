"""What a bin reads from boundary files: for each of its tasks the same as a bin of its own, from files opened once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import CheckpointError, TaskplaceError
from taskplace.spark.checkpoint.files import SectionFile
from taskplace.spark.messages import AttemptDescriptor, BinDescriptor, History
from taskplace.spark.worker import bins as attempt_reports
from taskplace.spark.worker import boundary
from taskplace.spark.worker.bins import run_stage
from taskplace.spark.worker.hashing import partition_of
from tests.support.attempt_files import decoded
from tests.support.attempts import BATCHES, PLANES, sink_rows
from tests.support.boundaries import read, rows_of_bin
from topology import TaskId

#: The types that writers give to the column "v"; one type holds the values of all.
KINDS = (pa.null(), pa.int8(), pa.int64())
TEXTS = (pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.dictionary(pa.int32(), pa.string())))


def table(keys: list[int], writer: int, kind: pa.DataType, text: pa.DataType) -> pa.Table:
    """Return rows whose `n` is in the order of the writers, and of the rows of each."""
    words = [f"{writer}-{key}" for key in keys]
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "n": pa.array(range(100 * writer, 100 * writer + len(keys)), pa.int64()),
            "v": pa.array(keys).cast(kind) if kind != pa.null() else pa.nulls(len(keys)),
            "text": pa.array([[word] for word in words] if pa.types.is_list(text) else words, text),
        }
    )


@st.composite
def topics(draw):
    """Keys and types of each writer, in order."""
    text = draw(st.sampled_from(TEXTS))
    keys = st.lists(st.integers(-20, 20), max_size=12)
    writers = draw(st.lists(st.tuples(keys, st.sampled_from(KINDS)), min_size=1, max_size=6))
    return [table(keys, number, kind, text) for number, (keys, kind) in enumerate(writers)]


@settings(print_blob=True, deadline=None, max_examples=60)
@given(topics(), st.integers(1, 6), st.data())
def test_each_task_of_a_bin_gets_its_rows_in_the_order_of_their_writers(
    tmp_path_factory, writers, partitions, data
):
    root = tmp_path_factory.mktemp("bin")
    written = [
        boundary.write(SectionFile(root, f"topics/t/0_{i}-a.arrow"), rows, ["k"], partitions)
        for i, rows in enumerate(writers)
    ]
    bin_ = data.draw(st.sets(st.integers(0, partitions - 1), min_size=1))
    rows = rows_of_bin(root, written, bin_)
    sent = [row for one in writers for row in one.to_pylist()]
    keys = pa.array([row["k"] for row in sent], pa.int64())
    at = partition_of([keys], partitions) if sent else []
    schemas = {rows.of(partition)["t"].schema for partition in bin_}
    assert len(schemas) == 1, "all tasks get one schema"
    for partition in sorted(bin_, reverse=True):
        expected = [
            {**row, "v": None if writers[row["n"] // 100].schema.field("v").type == pa.null() else row["v"]}
            for row, p in zip(sent, at, strict=True)
            if p == partition
        ]
        assert rows.of(partition)["t"].to_pylist() == expected
        assert rows.of(partition)["t"].equals(read(root, written, partition)), "it can be asked again"


@settings(print_blob=True, deadline=None, max_examples=20)
@given(topics(), st.integers(1, 6))
def test_the_bytes_of_a_partition_are_those_of_its_slices(tmp_path_factory, writers, partitions):
    root = tmp_path_factory.mktemp("bin")
    written = [
        boundary.write(SectionFile(root, f"topics/t/0_{i}-a.arrow"), rows, ["k"], partitions)
        for i, rows in enumerate(writers)
    ]
    rows = rows_of_bin(root, written, range(partitions))
    for partition in range(partitions):
        expected = sum(one.slices[partition].length for one in written if partition in one.slices)
        assert rows.size_of(partition) == expected


@pytest.fixture
def two(tmp_path):
    """Two writers with rows for each of four partitions, and one without rows."""
    tables = [table(list(range(30)), 0, pa.int64(), pa.string()), table([], 1, pa.int64(), pa.string())]
    tables.append(table(list(range(30, 60)), 2, pa.int64(), pa.string()))
    written = [
        boundary.write(SectionFile(tmp_path, f"topics/t/0_{i}-a.arrow"), rows, ["k"], 4)
        for i, rows in enumerate(tables)
    ]
    assert [sorted(one.slices) for one in written] == [[0, 1, 2, 3], [], [0, 1, 2, 3]]
    return tmp_path, written


def test_a_bin_opens_each_file_once(two, monkeypatch):
    root, written = two
    opened = []
    really_open = Path.open
    monkeypatch.setattr(
        Path,
        "open",
        lambda path, *args, **options: opened.append(path.name) or really_open(path, *args, **options),
    )
    rows = rows_of_bin(root, written, {0, 1, 3})
    assert sum(rows.of(partition)["t"].num_rows for partition in (0, 1, 3)) == sum(
        one.slices[partition].rows for one in written if one.slices for partition in (0, 1, 3)
    )
    assert [name for name in opened if name.endswith(".arrow")] == ["0_0-a.arrow", "0_2-a.arrow"]


def test_a_partition_outside_the_bin_is_an_error_and_not_empty(two):
    root, written = two
    with pytest.raises(TaskplaceError, match=r"partition 2 is not in the bin of \[0, 1\]"):
        rows_of_bin(root, written, {0, 1}).of(2)


def test_a_damaged_slice_fails_the_bins_that_read_it_and_no_others(two):
    root, written = two
    path, slices = root / written[2].file, written[2].slices
    data = bytearray(path.read_bytes())
    data[slices[3].offset + slices[3].length - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{path}: the slice of partition 3 is damaged"):
        rows_of_bin(root, written, {0, 3}).of(0)
    rows = rows_of_bin(root, written, {0, 1, 2})
    assert sum(rows.of(p)["t"].num_rows for p in range(3)) == 60 - sum(
        one.slices[3].rows for one in (written[0], written[2])
    )


def test_a_lost_file_fails_the_bin_with_its_name(two):
    root, written = two
    (root / written[2].file).unlink()
    rows = written[2].slices[1].rows
    message = f"{root / written[2].file}: the file is missing; it has {rows} rows of partition 1"
    with pytest.raises(CheckpointError, match=message):
        rows_of_bin(root, written, {1, 2}).of(2)


def test_a_bin_that_runs_again_reads_only_what_its_other_tasks_need(runtime, truth, monkeypatch):
    """The first bin died after 1_0. The slices of 1_0 are damaged by now, and nobody needs them."""
    monkeypatch.setattr(attempt_reports, "SECONDS_LIMIT", 0.0)  # each attempt is reported as soon as it ends
    reports = [runtime.attempt(TaskId(0, p), BATCHES[0], PLANES) for p in range(2)]
    setting = runtime.setting(runtime.second, reports, run="r")
    tasks = [TaskId(1, partition) for partition in range(3)]
    descriptors = tuple(AttemptDescriptor(task, "executor-1", History()) for task in tasks)
    runtime.be("1")
    died = run_stage(runtime.second, setting.encode(), [BinDescriptor(descriptors).encode()])
    (before,) = decoded([next(died)])
    died.close()
    for report in reports:
        written = report.boundaries["by-delay"]
        if piece := written.slices.get(0):
            path = runtime.checkpoint / written.file
            data = bytearray(path.read_bytes())
            data[piece.offset : piece.offset + piece.length] = bytes(piece.length)
            path.write_bytes(data)
    runtime.be("2")
    second = decoded(run_stage(runtime.second, setting.encode(), [BinDescriptor(descriptors).encode()]))
    assert [report.instance for report in second] == ["executor-1", "executor-2", "executor-2"]
    assert second[0] == before
    expected = truth.run_batch(BATCHES[0], PLANES)
    assert sink_rows(runtime, second, "days-out") == sink_rows(truth, expected, "days-out")
    with pytest.raises(CheckpointError, match="the slice of partition 0 is damaged"):
        runtime.attempt(TaskId(1, 0), reports=reports)
