"""Rows between subtopologies: each task of a bin gets its rows, in the order of their writers, from files opened once.

The list of slices is sorted by topic, partition and writer, and refused if it is damaged.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import CheckpointError, InputError, TaskplaceError
from taskplace.spark.checkpoint.files import SectionFile
from taskplace.spark.messages import AttemptDescriptor, BinDescriptor, Boundary, History, Slice
from taskplace.spark.worker import bins as attempt_reports
from taskplace.spark.worker import boundary
from taskplace.spark.worker.bins import run_stage
from taskplace.spark.worker.boundary import read_listing, write_listing
from taskplace.spark.worker.hashing import partition_of
from tests.support.attempt_files import decoded
from tests.support.attempts import BATCHES, PLANES, sink_rows
from tests.support.boundaries import read, rows_of_bin
from topology import TaskId

SCHEMA = pa.schema([("name", pa.string()), ("day", pa.int64()), ("n", pa.int64())])


def table(keys: list[tuple[str | None, int | None]], first: int = 0) -> pa.Table:
    """Return rows whose `n` says the order they were written in."""
    rows = [{"name": name, "day": day, "n": first + i} for i, (name, day) in enumerate(keys)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def write(root: Path, number: int, rows: pa.Table, partitions: int) -> Boundary:
    return boundary.write(SectionFile(root, f"topics/t/{number}.arrow"), rows, ["name", "day"], partitions)


def test_no_rows_make_no_file(tmp_path):
    nothing = write(tmp_path, 0, SCHEMA.empty_table(), 4)
    assert (nothing.file, nothing.slices, list(tmp_path.iterdir())) == ("", {}, [])
    assert nothing.key == (), "no rows say nothing of types"
    assert read(tmp_path, [nothing, nothing], 2).equals(SCHEMA.empty_table())


def test_a_boundary_says_as_what_its_key_was_hashed(tmp_path):
    small = pa.schema([("name", pa.string()), ("day", pa.int8()), ("n", pa.int64())])
    for number, (schema, kinds) in enumerate([(SCHEMA, ("string", "int64")), (small, ("string", "int32"))]):
        written = write(tmp_path, number, table([("a", 1), (None, None)]).cast(schema), 4)
        assert written.key == kinds
        assert Boundary.decode(written.encode()) == written


def test_columns_come_from_a_writer_that_had_rows(tmp_path):
    """A function that had nothing to do may return a table whose types say nothing."""
    untyped = pa.table({"name": pa.nulls(0), "day": pa.nulls(0), "n": pa.nulls(0)})
    written = [write(tmp_path, 0, untyped, 50), write(tmp_path, 1, table([("a", 1)]), 50)]
    for partition in range(50):
        assert read(tmp_path, written, partition).schema == SCHEMA


def test_a_topic_that_nobody_wrote_is_told(tmp_path):
    with pytest.raises(CheckpointError, match="no boundary file"):
        read(tmp_path, [], 0)


def test_writers_that_disagree_are_told(tmp_path):
    rows = table([("a", 1)])
    other = rows.set_column(2, "n", pa.array(["text"]))
    written = [write(tmp_path, 0, rows, 1), write(tmp_path, 1, other, 1)]
    with pytest.raises(InputError, match=r"column 'n': found 'string from task .*int64 from task"):
        read(tmp_path, written, 0)


@pytest.mark.parametrize(("count", "partitions"), [(1, 3), (7, 3), (3, 7), (1000, 12), (12, 12)])
def test_rows_without_a_key_are_spread_evenly(tmp_path, count, partitions):
    rows = pa.table({"n": range(count), "text": [f"row {n:08}" for n in range(count)]})
    written = boundary.write(SectionFile(tmp_path, "x"), rows, [], partitions, seed=7)
    sizes = [written.slices[p].rows if p in written.slices else 0 for p in range(partitions)]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1 + count // (16 * partitions)  # a record, and a turn
    back = [n for p in range(partitions) for n in read(tmp_path, [written], p)["n"].to_pylist()]
    assert sorted(back) == list(range(count))
    again = boundary.write(SectionFile(tmp_path, "y"), rows, [], partitions, seed=7)
    assert again.slices == written.slices


def test_rows_without_a_key_are_spread_by_their_bytes(tmp_path):
    """Long rows and short ones in a pattern that lines up with the partitions."""
    texts = ["x" * (50_000 if n % 8 == 0 else 5) for n in range(800)]
    written = boundary.write(SectionFile(tmp_path, "x"), pa.table({"text": texts}), [], 8, seed=3)
    sizes = [len("".join(read(tmp_path, [written], p)["text"].to_pylist())) for p in range(8)]
    assert max(sizes) - min(sizes) <= 16_384 + 2 * 50_000  # a turn, and the largest record at both ends


@pytest.mark.parametrize(
    "kind", [pa.large_list(pa.string()), pa.decimal128(9, 2), pa.list_(pa.int64()), pa.timestamp("ns")]
)
def test_a_key_that_is_not_hashed_is_named_with_its_topic(tmp_path, kind):
    rows = pa.table({"n": [1], "k": pa.nulls(1, kind)})
    with pytest.raises(
        InputError,
        match=r"^repartition 'again', key 'k': found '.*', expected a key of type boolean.*; cast the",
    ):
        boundary.write(SectionFile(tmp_path, "x"), rows, ["n", "k"], 2, topic="again")
    with pytest.raises(InputError, match=r"^repartition 'again': found \"no column \['q'\]\""):
        boundary.write(SectionFile(tmp_path, "x"), rows, ["q"], 2, topic="again")


# -- bins


#: The types that writers give to the column "v"; one type holds the values of all.
KINDS = (pa.null(), pa.int8(), pa.int64())
TEXTS = (pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.dictionary(pa.int32(), pa.string())))


def typed_table(keys: list[int], writer: int, kind: pa.DataType, text: pa.DataType) -> pa.Table:
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
    return [typed_table(keys, number, kind, text) for number, (keys, kind) in enumerate(writers)]


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
        bytes_of = sum(one.slices[partition].length for one in written if partition in one.slices)
        assert rows.size_of(partition) == bytes_of


@pytest.fixture
def two(tmp_path):
    """Two writers with rows for each of four partitions, and one without rows."""
    tables = [
        typed_table(list(range(30)), 0, pa.int64(), pa.string()),
        typed_table([], 1, pa.int64(), pa.string()),
    ]
    tables.append(typed_table(list(range(30, 60)), 2, pa.int64(), pa.string()))
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


# -- the list of slices


LARGE = 2**40
TOPICS = {
    "one/topic": [
        Boundary("a", b"x", {3: Slice(0, 8, 1, 2**32 - 1), 0: Slice(8, LARGE, LARGE, 7)}, task="0_0"),
        Boundary("", b"nothing", {}),
        Boundary("b", b"y", {0: Slice(LARGE, 16, 2, 0)}, task="0_2"),
        Boundary("a", b"x", {3: Slice(96, 8, 1, 5)}, task="0_3"),
    ],
    "without rows": [Boundary("", b"first", {}), Boundary("", b"second", {})],
    "without writers": [],
    "another": [Boundary("d", b"z", {1: Slice(0, 24, 3, 9)})],
}


def test_what_is_written_is_read(tmp_path):
    found = read_listing(tmp_path, write_listing(tmp_path, "inputs/1", TOPICS))
    assert list(found) == list(TOPICS)
    one = found["one/topic"]
    assert (one.head.files, one.head.schemas) == (("a", "b"), (b"x", b"y"))
    assert one.head.writers == ("0_0", "0_2", "0_3")
    assert (one.head.written_to, one.head.written_as) == ((0, 1, 0), (0, 1, 0))
    assert one.slices.tolist() == [
        (0, 0, 8, LARGE, LARGE, 7),
        (0, 1, LARGE, 16, 2, 0),
        (3, 0, 0, 8, 1, 2**32 - 1),
        (3, 2, 96, 8, 1, 5),
    ]
    none = found["without rows"]
    assert (none.head.files, none.head.schemas, len(none.slices)) == (("",), (b"first",), 0)
    assert found["without writers"].head.writers == ()
    assert found["another"].slices.tolist() == [(1, 0, 0, 24, 3, 9)]


@pytest.mark.parametrize(
    "harm", [lambda data: data[:-1], lambda data: data[:-1] + b"?", lambda data: b"?" + data, None]
)
def test_a_damaged_or_missing_listing_is_refused(tmp_path, harm):
    listing = write_listing(tmp_path, "inputs/1", TOPICS)
    path = tmp_path / listing.file
    data = path.read_bytes()
    path.unlink()
    if harm is not None:
        path.write_bytes(harm(data))
    with pytest.raises(CheckpointError, match=f"{path}: (found|the file is missing)"):
        read_listing(tmp_path, listing)


@given(st.lists(st.sets(st.integers(0, 8)), min_size=1, max_size=5), st.sets(st.integers(0, 10)))
def test_those_of_some_partitions_are_the_listed_ones_in_their_order(writers, partitions):
    boundaries = [
        Boundary(f"f{number}", b"s", {partition: Slice(partition, 8, 1, 1) for partition in written})
        for number, written in enumerate(writers)
    ]
    with TemporaryDirectory() as name:
        listing = read_listing(Path(name), write_listing(Path(name), "inputs/1", {"t": boundaries}))["t"]
    expected = [one for one in listing.slices.tolist() if one[0] in partitions]
    assert listing.of(partitions).tolist() == expected
