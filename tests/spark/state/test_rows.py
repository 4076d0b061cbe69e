"""RowCodec: what goes in comes out, and equal rows are equal bytes."""

from __future__ import annotations

import decimal
import math
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.state import rows as rows_module
from taskplace.spark.state.rows import RowCodec, canonical_floats
from taskplace.spark.types import arrow_schema


def ints(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.sampled_from([0, 1, low, high]) | st.integers(low, high)


def decimals(digits: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    return st.integers(-(10**digits) + 1, 10**digits - 1).map(
        lambda n: decimal.Decimal((0 if n >= 0 else 1, tuple(map(int, str(abs(n)))), -scale))
    )


#: Per type: plain values of it, and the type of the Arrow array they are made into before the cast.
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any], pa.DataType]] = [
    (pa.bool_(), st.booleans(), pa.bool_()),
    *((kind, ints(kind.bit_width), kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *((kind, ints(kind.bit_width, False), kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    (pa.float16(), st.floats(width=16), pa.float32()),
    (pa.float32(), st.floats(width=32), pa.float32()),
    (pa.float64(), st.sampled_from([0.0, -0.0, math.nan]) | st.floats(), pa.float64()),
    (pa.date32(), ints(32), pa.int32()),
    (pa.time32("s"), st.integers(0, 86_399), pa.int32()),
    (pa.time64("us"), st.integers(0, 86_399_999_999), pa.int64()),
    *((kind, ints(64), pa.int64()) for kind in (pa.timestamp("us", tz="UTC"), pa.timestamp("ns"), pa.duration("ms"))),
    (pa.decimal128(38, 10), decimals(38, 10), pa.decimal128(38, 10)),
    (pa.decimal128(5, 2), decimals(5, 2), pa.decimal128(5, 2)),
    (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=12), pa.string()),
    (pa.binary(), st.binary(max_size=12), pa.binary()),
]  # fmt: skip


@st.composite
def drawn_rows(draw: st.DrawFn) -> tuple[list[tuple[Any, ...]], pa.Table]:
    """Return rows as plain values, and the table of them; up to 20 columns, so more than one byte of null bits."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=20))
    row = st.tuples(*(st.none() | values for _, values, _ in kinds))
    rows = draw(st.lists(row, max_size=10))
    if rows:  # equal rows and nearly equal ones, which random rows seldom are
        rows += draw(st.lists(st.sampled_from(rows), max_size=3))
    columns = [pa.array([r[i] for r in rows], before).cast(kind) for i, (kind, _, before) in enumerate(kinds)]
    return rows, pa.table(columns, names=[f"c{i}" for i in range(len(kinds))])


def meaning(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a row means: NaN is one value, and Python says itself that -0.0 == 0.0."""
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in row)


def bits(column: pa.ChunkedArray) -> bytes:
    return bytes(np.ascontiguousarray(canonical_floats(column)).view(np.uint8))


def assert_same(found: pa.Table, wanted: pa.Table) -> None:
    assert found.schema == wanted.schema and found.num_rows == wanted.num_rows
    found.validate(full=True)
    for name in wanted.column_names:
        if not pa.types.is_floating(wanted.schema.field(name).type):
            assert found[name].equals(wanted[name]), name
            continue
        assert found[name].is_null().to_pylist() == wanted[name].is_null().to_pylist()
        raw = np.ascontiguousarray(found[name].fill_null(0).to_numpy())
        assert bytes(raw.view(np.uint8)) == bits(wanted[name]), name


@settings(print_blob=True, deadline=None, max_examples=80)
@given(drawn_rows())
def test_round_trip(drawn):
    _, table = drawn
    codec = RowCodec(table.schema)
    rows = codec.encode(table)
    assert len(rows) == table.num_rows and all(rows)
    assert_same(codec.decode(rows), table)
    assert_same(codec.canonical(table), table)


@settings(print_blob=True, deadline=None, max_examples=50)
@given(drawn_rows())
def test_equal_rows_are_equal_bytes_and_no_others_are(drawn):
    values, table = drawn
    encoded = RowCodec(table.schema).encode(table)
    for i, one in enumerate(values):
        for j, other in enumerate(values):
            assert (encoded[i] == encoded[j]) == (meaning(one) == meaning(other)), (one, other)


@settings(print_blob=True, deadline=None, max_examples=80)
@given(drawn_rows())
def test_a_row_has_its_null_bits_its_fixed_part_and_its_variable_part(drawn):
    """Checkpoints have such rows."""
    _, table = drawn
    codec = RowCodec(table.schema)
    assert codec.encode(table) == [row_of(table.take([i])) for i in range(table.num_rows)]


def row_of(row: pa.Table) -> bytes:
    """Encode a table of one row, column by column."""
    nulls, fixed, variable = 0, b"", b""
    for i, field in enumerate(row.schema):
        value = row[field.name][0]
        nulls |= (not value.is_valid) << i
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            data = value.as_buffer().to_pybytes() if value.is_valid else b""
            fixed, variable = fixed + len(data).to_bytes(4, "little"), variable + data
        elif pa.types.is_boolean(field.type):
            fixed += bytes([bool(value.as_py())])
        elif value.is_valid:
            canonical = RowCodec(pa.schema([field])).canonical(row)[field.name]
            fixed += canonical.combine_chunks().buffers()[1].to_pybytes()[: field.type.bit_width // 8]
        else:
            fixed += bytes(field.type.bit_width // 8)
    return nulls.to_bytes((len(row.schema) + 7) // 8, "little") + fixed + variable


@settings(print_blob=True, deadline=None, max_examples=50)
@given(drawn_rows(), st.lists(st.integers(0, 13), max_size=4), st.integers(0, 13), st.integers(0, 13))
def test_slices_and_chunks_do_not_matter(drawn, cuts, start, length):
    _, table = drawn
    codec = RowCodec(table.schema)
    whole = codec.encode(table)
    assert codec.encode(table.slice(start, length)) == whole[start : start + length]
    for batch in table.slice(start, length).to_batches():
        assert codec.encode(batch) == whole[start : start + length]
    edges = [0, *sorted(min(cut, table.num_rows) for cut in cuts), table.num_rows]
    chunks = [table.slice(a, b - a) for a, b in pairwise(edges)]
    assert codec.encode(pa.concat_tables(chunks)) == whole
    assert_same(codec.canonical(pa.concat_tables(chunks)), table)


@settings(
    print_blob=True,
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(drawn_rows(), st.sampled_from([1, 10, 40, 150]), st.sampled_from([0, 3, 8, 10**9]), st.integers(0, 9))
def test_how_much_is_done_at_a_time_does_not_matter(monkeypatch, drawn, at_a_time, wide, cut):
    _, table = drawn
    codec = RowCodec(table.schema)
    whole = codec.encode(table)
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    with monkeypatch.context() as less:
        less.setattr(rows_module, "AT_A_TIME", at_a_time)
        less.setattr(rows_module, "WIDE", wide)
        assert codec.encode(table) == codec.encode(chunked) == whole
        found = codec.decode(whole)
        assert_same(found, table)
        assert all(column.num_chunks == 1 for column in found.columns)
        less.setattr(rows_module, "LARGEST", 500)  # more cannot be in one array
        assert_same(codec.decode(whole), table)


def test_a_row_that_is_too_long_is_refused_and_its_store_named(monkeypatch):
    monkeypatch.setattr(rows_module, "LARGEST", 100)
    codec = RowCodec(arrow_schema({"a": "string", "b": "binary"}), "stores.s.value")
    fits = pa.table({"a": ["x" * 50, "y"], "b": [b"z" * 41, b""]})
    assert [len(row) for row in codec.encode(fits)] == [100, 10]
    with pytest.raises(InputError, match=r"stores\.s\.value: found 'a row of 101 bytes', .* 100 bytes"):
        codec.encode(pa.table({"a": ["y", "x" * 50], "b": [b"", b"z" * 42]}))


def test_more_than_one_array_holds_comes_in_several(monkeypatch):
    table = pa.table({"a": ["x" * n for n in range(100)], "n": range(100)})
    codec = RowCodec(table.schema)
    rows = codec.encode(table)
    monkeypatch.setattr(rows_module, "AT_A_TIME", 1000)
    monkeypatch.setattr(rows_module, "LARGEST", 2000)
    found = codec.decode(rows)
    assert found["a"].num_chunks > 1
    assert max(len(chunk.buffers()[2]) for chunk in found["a"].chunks) <= 2000
    assert_same(found, table)


MEASURED = """
import re, sys
import pyarrow as pa
from taskplace.spark.state.rows import RowCodec
from taskplace.spark.types import arrow_schema


def memory(line):
    return int(re.search(line + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024


def peak_of(work):
    open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
    before = memory("VmRSS")
    done = work()
    print(memory("VmHWM") - before)
    return done


count, width = map(int, sys.argv[1:])
offsets = pa.array(range(0, count * width + 1, width), pa.int32()).buffers()[1]
values = pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(b"x" * (count * width))])
table = pa.table({"v": values})
codec = RowCodec(arrow_schema({"v": "binary"}))
codec.decode(codec.encode(table.slice(0, 1)))
rows = peak_of(lambda: codec.encode(table))
peak_of(lambda: codec.decode(rows))
"""


@pytest.mark.parametrize(
    ("count", "width"), [(1, 40 << 20), (10_000, 4 << 10), (400_000, 105), (640_000, 66)]
)
def test_memory_stays_within_a_few_times_the_data(count, width):
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(count), str(width)], capture_output=True, text=True, check=True
    )
    encode, decode = map(float, done.stdout.split())  # MiB, for 40 MiB of values
    assert 30 < encode <= 3 * 40, done.stdout
    assert 30 < decode <= 3 * 40, done.stdout


def test_what_lies_beneath_a_null_does_not_matter():
    validity = pa.py_buffer(bytes([0b01]))
    numbers = pa.Array.from_buffers(pa.int64(), 2, [validity, pa.py_buffer(np.array([7, 9]).tobytes())])
    texts = pa.Array.from_buffers(
        pa.string(),
        2,
        [validity, pa.py_buffer(np.array([0, 1, 4], np.int32).tobytes()), pa.py_buffer(b"axyz")],
    )
    codec = RowCodec(arrow_schema({"n": "int64", "s": "string"}))
    clean = pa.table({"n": pa.array([7, None], pa.int64()), "s": ["a", None]})
    assert codec.encode(pa.table({"n": numbers, "s": texts})) == codec.encode(clean)


def test_nothing_at_all():
    for schema in (arrow_schema({"n": "int64"}), arrow_schema({"s": "string", "b": "bool"})):
        codec = RowCodec(schema)
        assert codec.encode(schema.empty_table()) == []
        assert_same(codec.decode([]), schema.empty_table())
        assert codec.encode(pa.table([pa.chunked_array([], f.type) for f in schema], schema=schema)) == []


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int32()),
        pa.struct([("a", pa.int32())]),
        pa.map_(pa.string(), pa.int32()),
        pa.dictionary(pa.int32(), pa.string()),
        pa.large_string(),
        pa.null(),
    ],
    ids=str,
)
def test_a_type_it_cannot_hold_is_refused_by_name(kind):
    with pytest.raises(InputError, match=r"stores\.s\.key\.c: found .* expected a flat type"):
        RowCodec(pa.schema([("c", kind)]), "stores.s.key")


def test_a_column_that_is_missing_or_does_not_fit_is_named():
    codec = RowCodec(arrow_schema({"n": "int8"}), "stores.s.value")
    with pytest.raises(InputError, match=r"stores\.s\.value\.n: found \['m'\], expected a column 'n'"):
        codec.encode(pa.table({"m": [1]}))
    with pytest.raises(InputError, match=r"stores\.s\.value\.n: found 'int64', expected int8 .*300"):
        codec.encode(pa.table({"n": [300]}))
    assert codec.encode(pa.table({"n": [3]})) == [b"\x00\x03"]


@pytest.mark.parametrize(
    "after", [{"n": "int64"}, {"n": "int32", "m": "int32"}, {"n": "int32", "s": "string"}]
)
@pytest.mark.parametrize("before", [{"n": "int32"}, {"n": "int32", "s": "string", "t": "string"}])
def test_rows_of_another_layout_are_told(before, after):
    schema = arrow_schema(before)
    rows = RowCodec(schema).encode(
        pa.table(
            [pa.array([1, 2], "int32"), *([pa.array(["a", "bcdefg"])] * (len(schema) - 1))], schema=schema
        )
    )
    with pytest.raises(CheckpointError, match=r"stores\.s\.value: found rows with another layout"):
        RowCodec(arrow_schema(after), "stores.s.value").decode(rows)
