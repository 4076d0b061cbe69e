"""The same rows, cut into other batches and split over other numbers of tasks, end in the same state."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cmp_to_key
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.casts import keeps_apart
from taskplace.spark.processors import (
    Aggregate,
    Count,
    Deduplicate,
    TableJoin,
    avg,
    count,
    first,
    last,
    max_,
    min_,
    sum_,
)
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.rows import RowCodec
from taskplace.spark.state.store import StoreSchema
from taskplace.spark.worker.hashing import partition_of

REFUSED = "refused"
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "count": lambda column, type: count(column),
    "sum": sum_,
    "min": min_,
    "max": max_,
    "first": first,
    "last": last,
    "avg": avg,
}

small = st.integers(-20, 20)
texts = st.sampled_from(["9", "10", "07", "7", "-3", "2.5", "x", "", "a", "B", "2020-01-01"])
#: Sums of eighths are exact in any order; infinities would not be.
floats = small.map(lambda n: n / 8) | st.sampled_from([0.0, -0.0, math.nan])
COLUMNS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): texts,
    pa.binary(): texts.map(str.encode),
    pa.bool_(): st.booleans(),
    pa.int8(): small,
    pa.int32(): small,
    pa.int64(): small | st.sampled_from([2**53 + 1, -(2**53) - 1]),
    pa.uint64(): small.map(abs),
    pa.float32(): floats,
    pa.float64(): floats,
    pa.decimal128(10, 2): small.map(lambda n: Decimal(n * 25) / 100),
    pa.date32(): small,
    pa.timestamp("us", tz="UTC"): small | small.map(lambda n: n * 86_400_000_000),
    pa.timestamp("ns"): small.map(lambda n: n * 500),
    pa.duration("us"): small,
    pa.time64("us"): small.map(abs),
}
KINDS = [
    *[
        "string",
        "binary",
        "bool",
        "int8",
        "int32",
        "int64",
        "uint64",
        "float16",
        "float32",
        "float64",
        "date",
    ],
    *("timestamp", pa.timestamp("s"), pa.decimal128(20, 2), pa.decimal128(20, 1), pa.decimal256(50, 3)),
    *(pa.duration("ms"), pa.time64("us")),
]
SUMS = ["int8", "int32", "int64", "float32", "float64", pa.decimal128(20, 2), pa.decimal128(20, 1)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Any, pa.Table]:
    """Return an aggregate's function, the type that it is kept in, and rows with a key."""
    function = draw(st.sampled_from(sorted(FUNCTIONS)))
    kept = draw(st.sampled_from(SUMS if function in ("sum", "avg") else KINDS))
    kind = draw(st.sampled_from(list(COLUMNS)))
    values = draw(st.lists(st.none() | COLUMNS[kind], min_size=1, max_size=7))
    if function in ("sum", "avg"):  # floats round beyond that, wherever batches are cut
        values = [
            1 if isinstance(v, int) and abs(v) > 2**50 and pa.types.is_integer(kind) else v for v in values
        ]
    keys = draw(st.lists(st.sampled_from(["a", "b", None]), min_size=len(values), max_size=len(values)))
    return function, kept, pa.table({"k": pa.array(keys, pa.string()), "v": array(kind, values)})


def array(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(values, width).view(kind)
    return pa.array(values, kind)


cuts = st.lists(st.integers(0, 7), max_size=3)


def batches(rows: pa.Table, at: Sequence[int]) -> list[pa.Table]:
    edges = [0, *sorted(min(i, rows.num_rows) for i in at), rows.num_rows]
    return [rows.slice(a, b - a) for a, b in pairwise(edges)]


def final(bench: Any, make: Callable[[], Any], inputs: Sequence[tuple[pa.Table, ...]], tasks: int = 1) -> Any:
    """Return what the store has in the end, encoded, of all tasks; or that some row was refused."""
    stored: list[tuple[bytes, bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        for task in range(tasks):
            run = bench(Path(folder) / str(task), make())
            for tables in inputs:
                mine = [
                    table.filter(pa.array(partition_of([table["k"]], tasks) == task))
                    if table.num_rows
                    else table
                    for table in tables
                ]
                try:
                    run.run(*mine)
                except InputError:
                    return REFUSED
            with Copy(run.path, list(run.schemas)) as copy:
                copy.bring_to(run.history, run.path)
                stored += [entry for name in run.schemas for entry in copy.scan(name)]
    return sorted(stored)


def encoded(processor: Any, rows: list[dict[str, Any]]) -> list[tuple[bytes, bytes]]:
    """Return rows as a store of the processor has them."""
    schema = StoreSchema.of("s", processor.layouts()["s"])
    table = pa.Table.from_pylist(rows, schema=pa.schema([*schema.key, *schema.value]))
    return sorted(zip(RowCodec(schema.key).encode(table), RowCodec(schema.value).encode(table), strict=True))


@settings(print_blob=True, deadline=None, max_examples=50)
@given(cases(), cuts, st.integers(1, 3))
@example(("max", "int64", pa.table({"k": ["a", "a"], "v": ["9", "10"]})), [1], 1)
@example(("max", "int64", pa.table({"k": ["a", "a"], "v": [1.5, 2.0]})), [1], 1)
@example(("sum", "int64", pa.table({"k": ["a", "a"], "v": [0.5, 0.5]})), [1], 1)
@example(("sum", "int64", pa.table({"k": ["a", "a"], "v": [Decimal("0.5"), Decimal("0.5")]})), [1], 1)
@example(("sum", pa.decimal128(20, 1), pa.table({"k": ["a", "a"], "v": [0.04, 0.04]})), [1], 1)
@example(("first", "int64", pa.table({"k": ["a", "a"], "v": ["1", "x"]})), [1], 1)
def test_an_aggregate_does_not_depend_on_where_batches_are_cut(bench, case, at, tasks):
    function, kept, rows = case

    def make() -> Aggregate:
        return Aggregate("s", by={"k": "string"}, x=FUNCTIONS[function]("v", type=kept))

    whole = final(bench, make, [(rows,)])
    assert final(bench, make, [(batch,) for batch in batches(rows, at)], tasks) == whole
    assert final(bench, make, [(batch,) for batch in batches(rows, range(rows.num_rows))]) == whole


def test_the_cuts_try_something(bench):
    """Most pairs of types that are refused are so for every value; of each function some are taken."""
    rows = {"k": ["a"] * 3, "v": array(pa.int32(), [1, None, 3])}
    for name, function in FUNCTIONS.items():
        made = Aggregate("s", by={"k": "string"}, x=function("v", type="int64"))
        assert final(bench, lambda made=made: made, [(pa.table(rows),)]) != REFUSED, name


# ------------------------------------------------------------------------------------- as Spark has it


def spark_order(one: float, other: float) -> int:
    """Spark's order of floats: NaN is greater than anything else, and equal to itself; -0.0 equals 0.0."""
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) - math.isnan(other)
    return (one > other) - (one < other)


@settings(print_blob=True, deadline=None, max_examples=40)
@given(
    st.lists(st.none() | floats | st.sampled_from([math.inf, -math.inf]), min_size=1, max_size=6),
    cuts,
    st.sampled_from(["float16", "float32", "float64"]),
)
def test_extremes_of_floats_are_spark_s(bench, values, at, kind):
    known = sorted((v for v in values if v is not None), key=cmp_to_key(spark_order))
    rows = pa.table({"k": ["a"] * len(values), "v": pa.array(values, pa.float64())})
    wanted = [known[0], known[-1]] if known else [None, None]
    with tempfile.TemporaryDirectory() as folder:
        run = bench(Path(folder), Aggregate("s", by={"k": "string"}, lo=min_("v", kind), hi=max_("v", kind)))
        sent = [run.run(batch) for batch in batches(rows, at)]
    (row,) = next(out for out in reversed(sent) if out.num_rows).to_pylist()
    # repr tells the sign of a zero: it is a positive one, whatever came.
    assert [repr(row[name]) for name in ("lo", "hi")] == [
        repr(None if v is None else v + 0.0) for v in wanted
    ]


@pytest.mark.parametrize("kind", ["string", "timestamp", "bool", pa.duration("us")])
@pytest.mark.parametrize("function", [sum_, avg])
def test_sums_are_kept_as_numbers(function, kind):
    with pytest.raises(InputError, match=r"^(sum|mean)\.type: found .*, expected a number"):
        function("v", type=kind)


# ------------------------------------------------------------------------------- keys, joins, once each


KEYS = [
    pa.array([1, 2, None, 2, -1], pa.int32()),
    pa.array(["7", "07", None, "7", ""]),
    pa.array([0.0, -0.0, math.nan, None, 1.5]),
    pa.array([0.5, -0.0, math.nan, 0.0, 1.5], pa.float32()),
    pa.array([0, 1, 86_400_000_000, None, 1], pa.int64()).view(pa.timestamp("us", tz="UTC")),
    pa.array([0, 1, 2, None, 1], pa.int32()).view(pa.date32()),
    pa.array([True, False, None, True, True]),
]


@pytest.mark.parametrize("sample", KEYS, ids=lambda sample: str(sample.type))
def test_a_key_whose_cast_keeps_values_apart_has_one_state_however_many_tasks_there_are(bench, sample):
    rows = pa.table({"k": sample})
    for kept in ("string", "binary", "int64", "float64", "timestamp", "date", pa.decimal128(20, 2)):
        kind = Count("s", by={"k": kept}).layouts()["s"]["key"]["k"]
        if not keeps_apart(sample.type, pa.timestamp("us", "UTC") if kind == "timestamp" else _arrow(kind)):
            continue
        for make in (
            lambda kept=kept: Count("s", by={"k": kept}),
            lambda kept=kept: Deduplicate("s", by={"k": kept}),
        ):
            alone = final(bench, make, [(rows,)])
            assert final(bench, make, [(rows,)], tasks=4) == alone


def _arrow(kind: Any) -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return kind
    return pa.date32() if kind == "date" else pa.type_for_alias(kind)


tables = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.none() | st.sampled_from([1.0, 2.0, -0.0, 0.0, math.nan]),
        st.none() | st.integers(0, 2),
        st.none() | st.booleans(),
    ),
    max_size=8,
)


@settings(print_blob=True, deadline=None, max_examples=50)
@given(tables, cuts, st.integers(1, 3))
def test_a_table_ordered_by_what_it_stores_does_not_depend_on_cuts(bench, drawn, at, tasks):
    kinds = [("k", pa.string()), ("at", pa.float64()), ("v", pa.int64()), ("gone", pa.bool_())]
    rows = pa.table(
        [pa.array([row[i] for row in drawn], kind) for i, (_, kind) in enumerate(kinds)],
        [n for n, _ in kinds],
    )
    stream = pa.table({"k": pa.array([], pa.string())})

    def make() -> TableJoin:
        return TableJoin(
            "s", by={"k": "string"}, columns={"at": "float64", "v": "int64"}, order_by=["at", "v"]
        )

    whole = final(bench, make, [(stream, rows)])
    assert final(bench, make, [(stream, batch) for batch in batches(rows, at)], tasks) == whole
    newest: dict[Any, Any] = {}
    for key, time, value, _ in drawn:
        rank = (_rank(time), -1 if value is None else value)
        if key is not None and (key not in newest or rank >= newest[key][0]):
            newest[key] = (rank, time, value)
    assert whole == encoded(
        make(), [{"k": k, "at": time, "v": value} for k, (_, time, value) in newest.items()]
    )


def _rank(time: float | None) -> tuple[int, float]:
    if time is None:
        return (0, 0.0)
    return (2, 0.0) if math.isnan(time) else (1, time + 0.0)


@settings(print_blob=True, deadline=None, max_examples=50)
@given(tables, cuts, st.integers(1, 3))
def test_a_row_that_is_marked_removes_its_key(bench, drawn, at, tasks):
    """As they come, the marks make the same of the rows however they are cut."""
    rows = pa.table(
        {
            "k": pa.array([row[0] for row in drawn], pa.string()),
            "v": pa.array([row[2] for row in drawn], pa.int64()),
            "gone": pa.array([row[3] for row in drawn], pa.bool_()),
        }
    )
    stream = pa.table({"k": pa.array([], pa.string())})
    known: dict[Any, Any] = {}
    for key, _, value, gone in drawn:
        known.pop(key, None)
        if not gone and key is not None:
            known[key] = value

    def make() -> TableJoin:
        return TableJoin("s", by={"k": "string"}, columns={"v": "int64"}, deleted="gone")

    wanted = encoded(make(), [{"k": key, "v": value} for key, value in known.items()])
    assert final(bench, make, [(stream, rows)]) == wanted
    assert final(bench, make, [(stream, batch) for batch in batches(rows, at)], tasks) == wanted
