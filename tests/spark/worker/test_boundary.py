"""Rows between subtopologies: each arrives once, in the partition that Spark's hash says, in its order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.checkpoint.files import SectionFile
from taskplace.spark.messages import Boundary
from taskplace.spark.worker import boundary
from taskplace.spark.worker.hashing import partition_of
from tests.support.boundaries import read

SCHEMA = pa.schema([("name", pa.string()), ("day", pa.int64()), ("n", pa.int64())])
names = st.none() | st.sampled_from(["a", "b", "N14228", "日本"])
days = st.none() | st.integers(-3, 3)


def table(keys: list[tuple[str | None, int | None]], first: int = 0) -> pa.Table:
    """Return rows whose `n` says the order they were written in."""
    rows = [{"name": name, "day": day, "n": first + i} for i, (name, day) in enumerate(keys)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def write(root: Path, number: int, rows: pa.Table, partitions: int) -> Boundary:
    return boundary.write(SectionFile(root, f"topics/t/{number}.arrow"), rows, ["name", "day"], partitions)


@settings(print_blob=True, deadline=None, max_examples=40)
@given(st.lists(st.lists(st.tuples(names, days), max_size=15), min_size=1, max_size=4), st.integers(1, 6))
def test_every_row_arrives_once_where_spark_would_put_it(tmp_path_factory, writers, partitions):
    root = tmp_path_factory.mktemp("boundary")
    tables = [table(keys, 100 * i) for i, keys in enumerate(writers)]
    written = [write(root, i, rows, partitions) for i, rows in enumerate(tables)]
    # What the driver passes on has been through JSON.
    passed_on = [Boundary.decode(b.encode()) for b in written]
    assert passed_on == written
    whole = pa.concat_tables(tables)
    at = partition_of([whole["name"], whole["day"]], partitions)
    for partition in range(partitions):
        found = read(root, passed_on, partition)
        assert found.schema == SCHEMA
        assert found["n"].to_pylist() == [
            n for n, p in zip(whole["n"].to_pylist(), at, strict=True) if p == partition
        ]
        assert found.select(["name", "day"]).to_pylist() == [
            row
            for row, p in zip(whole.select(["name", "day"]).to_pylist(), at, strict=True)
            if p == partition
        ]
    assert sum(piece.rows for b in written for piece in b.slices.values()) == whole.num_rows


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


def test_a_missing_key_column_is_named(tmp_path):
    with pytest.raises(InputError, match=r"no column \['day'\].*expected one of name"):
        write(tmp_path, 0, pa.table({"name": ["a"]}), 3)


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
