"""Python values as columns: held exactly, or refused with the column, the value, the type and what to do."""

from __future__ import annotations

import math
from collections import namedtuple
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.processors import PerKey
from taskplace.spark.types import arrow_schema
from taskplace.spark.values import dicts_of, python_of, table_of

NOON = datetime(2026, 1, 1, 12, 0, 0, 123456)
NEW_YORK = ZoneInfo("America/New_York")
TODAY, NANOS = date(2026, 1, 1), "2026-01-01T00:00:00.000000999"


def column(kind: Any, *values: Any) -> list[Any]:
    table = table_of([{"x": value} for value in values], arrow_schema({"x": kind}), "state")
    return table["x"].to_pylist()


#: Numbers whose exponents Arrow has no power of ten for; some of them end its process.
FAR = ["1e-999999999", "0e-999999999", "1e999999999", "1e-80", "Infinity", "sNaN"]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int64", [1.5, 2.0, np.float64(2), Decimal("2"), Fraction(3, 2), np.array(1.5), True, np.True_]),
        ("int8", [np.float32(1.5), 300]),
        ("uint8", [-1]),
        ("float32", [1e300, np.float64(1e39), 2**24 + 1, 2**128]),
        (pa.float16(), [70_000.0, 2**11 + 1]),
        ("float64", [2**53 + 1, 2**60 + 1, 2**1024, np.uint64(2**64 - 1), Decimal("0.1"), True]),
        ("decimal(9, 2)", [Decimal("1.234"), Decimal("12345678.9"), Decimal("NaN"), 1.5]),
        ("decimal(38, 4)", [Decimal(f"{sign}{n}") for sign in ("", "-") for n in FAR]),
        ("date", [NOON, NOON.replace(tzinfo=NEW_YORK), datetime(2026, 1, 1), pd.NaT]),
        ("date", [Decimal(5), np.int64(5)]),
        (pa.date64(), [NOON]),
        ("timestamp[s]", [NOON]),
        ("timestamp[ms]", [NOON]),
        (pa.timestamp("ms", "UTC"), [NOON.replace(tzinfo=timezone.utc)]),
        (
            "timestamp[us]",
            [pd.Timestamp(NANOS), np.datetime64(NANOS), NOON.replace(tzinfo=timezone.utc), TODAY],
        ),
        ("timestamp[ns]", [datetime(1600, 1, 1)]),
        ("timestamp", [TODAY, Decimal(5), 5, "2026-01-01", pd.NaT]),
        ("time32[ms]", [time(1, 2, 3, 456789)]),
        ("time64[us]", [time(1, tzinfo=timezone.utc)]),
        ("duration[s]", [timedelta(milliseconds=1500)]),
        ("duration[us]", [pd.Timedelta(1, "ns")]),
        ("string", [5, Decimal("1e-999999999")]),
        ("bool", [1, Decimal("0.5")]),
    ],
    ids=str,
)
def test_what_a_type_cannot_hold_is_refused(kind, values):
    """Wherever in the column it is."""
    for value in values:
        for before in ([], [None]):
            with pytest.raises(InputError, match=r"^state\.x: found .*, expected .*; use ") as caught:
                column(kind, *before, value)
            assert str(arrow_schema({"x": kind}).field("x").type) in caught.value.expected


STRUCT, TIMES, INTS = pa.struct([("n", pa.int64())]), pa.list_(pa.timestamp("us")), pa.list_(pa.int64())
NUMBERS, WIDE = pa.map_(pa.string(), pa.int64()), pa.decimal256(76, 4)
Row = namedtuple("Row", ["n"])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        # in a form that Arrow reads in its own way
        (STRUCT, [(1,), Row(1), {b"n": 1}, [("n", 1)], {"n": 1, "m": 2}]),
        (NUMBERS, [[("a", 1.5), ("a", 1)], [(None, 1)], [5]]),
        (INTS, [b"ab", pd.Series([10, 20], index=[1, 0])]),
        (pa.list_(pa.string()), ["ab"]),
        (TIMES, [np.array([1], f"datetime64[{unit}]") for unit in ("ns", "s", "D", "10us")]),
        (pa.list_(pa.duration("us")), [np.array([1], "timedelta64[s]")]),
        (pa.timestamp("us"), [np.datetime64(1, "us"), pa.scalar(2**62, pa.timestamp("us"))]),
        (pa.duration("us"), [np.timedelta64(1, "us")]),
        (pa.duration("s"), [pa.scalar(2**62, pa.duration("s"))]),
        # within others
        (INTS, [[1, 1.5], np.array([1.5])]),
        (pa.list_(pa.list_(pa.date32())), [[[NOON]]]),
        (STRUCT, [{"n": 1.5}]),
        (NUMBERS, [{"a": 1.5}]),
        (pa.map_(pa.int64(), pa.string()), [[(1.5, "a")]]),
        (pa.dictionary(pa.int32(), pa.int64()), [1.5]),
        (pa.struct([("a", pa.list_(pa.timestamp("s")))]), [{"a": [NOON]}]),
        (pa.list_(pa.decimal128(38, 4)), [[Decimal("1e-999999999")]]),
        (pa.map_(pa.string(), WIDE), [{"a": Decimal("0e-999999999")}]),
    ],
)
def test_what_has_parts_is_judged_in_its_form_and_in_each_part(kind, values):
    for value in values:
        with pytest.raises(InputError, match=r"(?s)^state\.x.*: found .*, expected "):
            column(kind, None, value)


@pytest.mark.parametrize(
    ("kind", "values", "held"),
    [
        ("int64", [np.int8(3), pa.scalar(3)], [3, 3]),
        ("float32", [0.1, math.inf, 2**25], [float(np.float32(0.1)), math.inf, 2.0**25]),
        ("float64", [2**53, -(2**60), 2**1023, np.float32(1.5)], [2.0**53, -(2.0**60), 2.0**1023, 1.5]),
        (pa.list_(pa.float64()), [[2**60, 1.5]], [[2.0**60, 1.5]]),
        (pa.struct([("a", pa.list_(pa.float32()))]), [{"a": [2**25]}], [{"a": [2.0**25]}]),
        (pa.map_(pa.string(), pa.float64()), [{"k": 2**60}], [[("k", 2.0**60)]]),
        ("decimal(9, 2)", [Decimal("1.10000"), np.int64(3)], [Decimal("1.10"), Decimal("3.00")]),
        ("date", [TODAY], [TODAY]),
        ("timestamp[us]", [NOON], [NOON]),
        ("timestamp[ms]", [NOON.replace(microsecond=123000)], [NOON.replace(microsecond=123000)]),
        (
            "timestamp",
            [NOON.replace(tzinfo=NEW_YORK)],
            [NOON.replace(tzinfo=NEW_YORK).astimezone(timezone.utc)],
        ),
        ("timestamp", [NOON], [NOON.replace(tzinfo=timezone.utc)]),
        ("timestamp[ns]", [pd.Timestamp(999)], [pd.Timestamp(999)]),
        (pa.large_list(pa.int64()), [np.array([1, 2])], [[1, 2]]),
        (NUMBERS, [[("a", 1), ("a", 2)]], [[("a", 1), ("a", 2)]]),
        ("time64[us]", [time(1, 2, 3, 4)], [time(1, 2, 3, 4)]),
        ("duration[ms]", [timedelta(milliseconds=5)], [timedelta(milliseconds=5)]),
        (INTS, [(1, None, 2)], [[1, None, 2]]),
        (STRUCT, [{"n": 1}, {"n": pa.scalar(1)}], [{"n": 1}, {"n": 1}]),
        (pa.map_(pa.string(), pa.decimal128(9, 0)), [{"a": np.int64(1)}], [[("a", Decimal(1))]]),
    ],
    ids=str,
)
def test_what_a_type_holds_is_held(kind, values, held):
    assert column(kind, None, *values) == [None, *held]


PLAIN = st.one_of(
    *(st.integers(), st.floats(), st.booleans(), st.decimals(), st.dates(), st.times(), st.timedeltas()),
    *(st.datetimes(), st.datetimes(timezones=st.just(NEW_YORK)), st.text(), st.binary(), st.fractions()),
)
KINDS = [
    "int8",
    "int64",
    "uint64",
    "float64",
    "decimal(20, 3)",
    "date",
    "timestamp",
    "bool",
    "string",
    "binary",
]
KINDS += [f"timestamp[{unit}]" for unit in ("s", "ms", "us")] + ["time32[s]", "duration[ms]", pa.date64()]


@given(PLAIN, st.sampled_from(KINDS))
def test_a_value_comes_back_or_is_refused(value, kind):
    try:
        (found,) = column(kind, value)
    except InputError:
        return
    if isinstance(value, str | bytes):  # a binary column takes text, and the other way round, as UTF-8
        value, found = (v.encode() if isinstance(v, str) else v for v in (value, found))
    if isinstance(value, datetime) and value.tzinfo is None and kind == "timestamp":
        value = value.replace(tzinfo=timezone.utc)
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(
            timezone.utc
        )  # Python calls no time of another zone equal to one in a gap of its own
    assert found == value or (value != value and found != found)


def test_rows_that_are_no_dicts():
    with pytest.raises(InputError, match=r"^output: found \[1, 2\], expected a dict with the columns"):
        table_of([(1, 2)], arrow_schema({"x": "int64"}), "output")


@pytest.mark.parametrize("part", ["state", "output"])
def test_a_running_total_of_floats_is_no_integer(bench, tmp_path, part):
    def total(key, rows, state):
        found = 1.5 * len(rows)
        return ({"s": found}, []) if part == "state" else (None, [{**key, "s": found}])

    kinds = {"by": {"k": "string"}, "state": {"s": "int64"}, "output": {"k": "string", "s": "int64"}}
    run = bench(tmp_path, PerKey("sums", total, **kinds))
    with pytest.raises(InputError, match=rf"PerKey\('sums'\)\.{part}\.s: found 1\.5, expected int64;"):
        run.run(pa.table({"k": ["a"]}))


def test_times_that_python_does_not_have_are_shown_as_arrow_does():
    at = pa.array([0, 2**58, None, -62_167_219_200_000_001], pa.timestamp("us"))
    rows = pa.table({"k": [1, 2, 3, 4], "at": at, "list": [[x] for x in at]})
    with pytest.raises(InputError, match=r"^rows\.at: found '11103-08-29 17:22:31\.711744', .*; use Arrow$"):
        dicts_of(rows, "rows", "use Arrow")
    shown = ["1970-01-01 00:00:00.000000", "11103-08-29 17:22:31.711744", None, "-0001-12-31 23:59:59.999999"]
    assert python_of(rows["at"]) == shown
    assert python_of(rows["list"]) == [[text] for text in shown]
    assert python_of(rows["at"].slice(0, 1)) == [datetime(1970, 1, 1)]
