"""TableJoin: the table is applied first, and stays."""

from __future__ import annotations

import math
import re
import tempfile
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.processors import TableJoin

FLIGHTS = pa.schema([("tail", pa.string()), ("n", pa.int64())])
PLANES = pa.schema([("tail", pa.string()), ("seats", pa.int64()), ("at", pa.int64())])

tails = st.none() | st.sampled_from(["a", "b", "c"])
flights_of_a_batch = st.lists(st.tuples(tails, st.integers(0, 9)), max_size=6)
planes_of_a_batch = st.lists(st.tuples(tails, st.none() | st.integers(0, 500), st.integers(0, 3)), max_size=6)


def flights(*rows: tuple) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(FLIGHTS.names, row, strict=True)) for row in rows], schema=FLIGHTS)


def planes(*rows: tuple) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(PLANES.names, row, strict=True)) for row in rows], schema=PLANES)


def join(**more) -> TableJoin:
    return TableJoin("planes", by={"tail": "string"}, columns={"seats": "int64"}, **more)


def seats(out: pa.Table) -> list:
    assert out.column_names == ["tail", "n", "seats"]
    return [(row["tail"], row["n"], row["seats"]) for row in out.to_pylist()]


@settings(print_blob=True, deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(flights_of_a_batch, planes_of_a_batch), min_size=1, max_size=4),
    st.sampled_from(["left", "inner"]),
    st.booleans(),
)
def test_against_a_dict(bench, batches, how, ordered):
    with tempfile.TemporaryDirectory() as folder:
        run = bench(Path(folder), join(how=how, order_by=["at"] if ordered else []))
        known: dict = {}
        for stream, updates in batches:
            # Python's sort is stable, too: of equal ones the last stays the last.
            for tail, number, _ in sorted(updates, key=lambda row: row[2]) if ordered else updates:
                known |= {} if tail is None else {tail: number}  # null matches nothing
            wanted = [(t, n, known.get(t)) for t, n in stream if how == "left" or t in known]
            assert seats(run.run(flights(*stream), planes(*updates))) == wanted


def test_a_null_in_a_key_matches_nothing(bench, tmp_path):
    """As in SQL, also beside values of other columns of the key, and over batches."""
    rows = {"k": ["a", None, None], "n": [1, None, 1]}
    for how, found in (("left", ["x", None, None]), ("inner", ["x"])):
        run = bench(
            tmp_path / how, TableJoin("t", by={"k": "string", "n": "int64"}, columns={"v": "string"}, how=how)
        )
        table = pa.table({**rows, "v": ["x", "y", "z"]})
        assert run.run(pa.table(rows), table)["v"].to_pylist() == found
        assert run.run(pa.table(rows), table.slice(0, 0))["v"].to_pylist() == found
        assert run.run(pa.table(rows), table.slice(1))["v"].to_pylist() == found
        assert run.stored("t") == [{"k": "a", "n": 1, "v": "x"}]


# ----------------------------------------------------------------------------------- order, over batches


def versioned(**more) -> TableJoin:
    return TableJoin("planes", by={"tail": "string"}, columns={"seats": "int64", "at": "int64"}, **more)


def test_a_null_in_order_by_is_before_all_else(bench, tmp_path):
    for order in (["at"], ["at", "seats"]):
        run = bench(tmp_path / str(len(order)), join(order_by=order))
        assert seats(run.run(flights(("a", 0)), planes(("a", 1, 7), ("a", 2, None)))) == [("a", 0, 1)]


def test_nan_in_order_by_is_after_all_else_as_in_spark(bench, tmp_path):
    rows = pa.table({"tail": ["a"] * 4, "seats": [1, 2, 3, 4], "at": [1.0, math.nan, math.inf, None]})
    assert seats(bench(tmp_path, join(order_by=["at"])).run(flights(("a", 0)), rows)) == [("a", 0, 2)]


def test_an_older_row_of_a_later_batch_is_left_out_if_the_order_is_stored(bench, tmp_path):
    run = bench(tmp_path, versioned(order_by=["at"]))
    for row, stays in (((1, 5), 1), ((2, 4), 1), ((3, None), 1), ((4, 5), 4), ((5, 6), 5)):
        out = run.run(flights(("a", 0)), planes(("a", *row)))
        assert out["seats"].to_pylist() == [stays]
    run = bench(tmp_path / "unordered", join(order_by=["at"]))
    run.run(flights(), planes(("a", 1, 5)))
    assert seats(run.run(flights(("a", 0)), planes(("a", 2, 4)))) == [("a", 0, 2)], "its order is not stored"


def test_order_by_compares_what_is_stored(bench, tmp_path):
    """As text, "9" is after "10"."""
    run = bench(tmp_path, versioned(order_by=["at"]))
    table = pa.table({"tail": ["a", "a"], "seats": [1, 2], "at": ["9", "10"]})
    assert run.run(flights(("a", 0)), table)["seats"].to_pylist() == [2]
    assert run.run(flights(("a", 0)), table.slice(0, 1))["seats"].to_pylist() == [2]


# ------------------------------------------------------------------------------------------- marks


def marked(*rows: tuple) -> pa.Table:
    names = [*PLANES, pa.field("gone", pa.bool_())]
    return pa.Table.from_pylist(
        [dict(zip([f.name for f in names], row, strict=True)) for row in rows], schema=pa.schema(names)
    )


@pytest.mark.parametrize("arrival", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_marks_have_their_place_in_the_order(bench, tmp_path, arrival):
    rows = [("a", 1, 1, False), ("a", None, 2, True), ("b", 5, 5, False), ("b", None, 4, True)]
    run = bench(tmp_path, versioned(order_by=["at"], deleted="gone"))
    out = run.run(flights(("a", 0), ("b", 0)), marked(*(rows[i] for i in [*arrival, 3])))
    assert out["seats"].to_pylist() == [None, 5]


def test_an_older_mark_of_a_later_batch_removes_nothing(bench, tmp_path):
    run = bench(tmp_path, versioned(order_by=["at"], deleted="gone"))
    for at, mark, stays in ((5, False, 9), (4, True, 9), (None, True, 9), (5, True, None)):
        out = run.run(flights(("a", 0)), marked(("a", 9, at, mark)))
        assert out["seats"].to_pylist() == [stays]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"deleted": "seats"},
            r"TableJoin\('planes'\)\.deleted: found \"'seats', int64\", expected a boolean column",
        ),
        ({"deleted": "gone"}, r"\.deleted: found \['tail', 'seats', 'at'\], expected a column 'gone'"),
        ({"order_by": ["when"]}, r"\.order_by: found \['tail', 'seats', 'at'\], expected a column 'when'"),
    ],
)
def test_a_column_that_cannot_be_used_is_named(bench, tmp_path, more, message):
    with pytest.raises(InputError, match=message):
        bench(tmp_path, join(**more)).run(flights(), planes(("a", 1, 0)))


@pytest.mark.parametrize("name", ["seats", "Seats"])
def test_a_name_on_both_sides_is_refused_whatever_its_case(bench, tmp_path, name):
    run = bench(tmp_path, join())
    clash = flights(("a", 1)).append_column(name, pa.array([9]))
    with pytest.raises(InputError, match=rf"found \"the columns \['{name}'\] on both sides\""):
        run.run(clash, planes(("a", 100, 0)))
    assert run.stored("planes") == []


# --------------------------------------------------------------------------------- types that keep an order

STAMPS = pa.array([datetime(2020, 1, 1, 1), datetime(2020, 1, 1, 0)], pa.timestamp("us", tz="UTC"))


@pytest.mark.parametrize(
    ("times", "kept", "refused"),
    [
        (STAMPS, "date", "timestamp[us, tz=UTC], kept as date32[day]"),
        (pa.array([10, 9]), "string", "int64, kept as string"),
        (pa.array([1.25, 1.2]), "decimal(3, 1)", "double, kept as decimal128(3, 1)"),
        (pa.array([16_777_217.0, 16_777_216.0]), "float32", "double, kept as float"),
        (STAMPS, "timestamp_ntz", None),
        (pa.array([10, 9]), "float64", None),
    ],
)
def test_an_order_that_is_not_kept_is_refused_before_anything_is_written(
    bench, tmp_path, times, kept, refused
):
    """The first row is the last one in order; in a lossy type both would be equal, or turned round."""
    rows = pa.table({"tail": ["a", "a"], "seats": [1, 2], "at": times})
    make = TableJoin(
        "planes", by={"tail": "string"}, columns={"seats": "int64", "at": kept}, order_by=["at"], how="inner"
    )
    run = bench(tmp_path, make)
    if refused is None:
        assert run.run(flights(("a", 0)), rows)["seats"].to_pylist() == [1]
        return
    message = re.escape(f"TableJoin('planes').order_by.at: found {refused!r}, expected ")
    with pytest.raises(InputError, match=message):
        run.run(flights(("a", 0)), rows)
    assert run.stored("planes") == []
    loose = bench(tmp_path / "loose", join(order_by=["at"]))  # not stored: compared as it comes
    assert seats(loose.run(flights(("a", 0)), rows)) == [("a", 0, 1)]
