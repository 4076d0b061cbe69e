"""Python values as columns: held exactly, or refused with the column, the value, the type and what to do."""

from __future__ import annotations

import math
from collections import namedtuple
from datetime import UTC, date, datetime, time, timedelta
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


def column(kind: Any, *values: Any) -> list[Any]:
    table = table_of([{"x": value} for value in values], arrow_schema({"x": kind}), "state")
    return table["x"].to_pylist()


#: Numbers whose exponents Arrow has no power of ten for; some of them end its process.
FAR = ["1e-999999999", "0e-999999999", "1e999999999", "1e-80", "Infinity", "sNaN"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int64", 1.5),
        ("int64", 2.0),
        ("int8", np.float32(1.5)),
        ("int64", np.float64(2)),
        ("int64", Decimal("2")),
        ("int64", Fraction(3, 2)),
        ("int64", np.array(1.5)),
        ("int64", True),
        ("int64", np.True_),
        ("int8", 300),
        ("uint8", -1),
        ("float32", 1e300),
        ("float32", np.float64(1e39)),
        ("float32", 2**24 + 1),
        (pa.float16(), 70_000.0),
        (pa.float16(), 2**11 + 1),
        ("float64", 2**53 + 1),
        ("float64", 2**60 + 1),
        ("float64", 2**1024),
        ("float32", 2**128),
        ("float64", np.uint64(2**64 - 1)),
        ("float64", Decimal("0.1")),
        ("float64", True),
        ("decimal(9, 2)", Decimal("1.234")),
        ("decimal(9, 2)", Decimal("12345678.9")),
        ("decimal(9, 2)", Decimal("NaN")),
        *(("decimal(38, 4)", Decimal(f"{sign}{n}")) for sign in ("", "-") for n in FAR),
        ("decimal(9, 2)", 1.5),
        ("date", NOON),
        ("date", NOON.replace(tzinfo=NEW_YORK)),
        ("date", datetime(2026, 1, 1)),
        ("date", pd.NaT),
        ("date", Decimal(5)),
        ("date", np.int64(5)),
        (pa.date64(), NOON),
        ("timestamp[s]", NOON),
        ("timestamp[ms]", NOON),
        (pa.timestamp("ms", "UTC"), NOON.replace(tzinfo=UTC)),
        ("timestamp[us]", pd.Timestamp("2026-01-01T00:00:00.000000999")),
        ("timestamp[us]", np.datetime64("2026-01-01T00:00:00.000000999")),
        ("timestamp[ns]", datetime(1600, 1, 1)),
        ("timestamp[us]", NOON.replace(tzinfo=UTC)),
        ("timestamp", date(2026, 1, 1)),
        ("timestamp[us]", date(2026, 1, 1)),
        ("timestamp", Decimal(5)),
        ("timestamp", 5),
        ("timestamp", "2026-01-01"),
        ("timestamp", pd.NaT),
        ("time32[ms]", time(1, 2, 3, 456789)),
        ("time64[us]", time(1, tzinfo=UTC)),
        ("duration[s]", timedelta(milliseconds=1500)),
        ("duration[us]", pd.Timedelta(1, "ns")),
        ("string", 5),
        ("bool", 1),
        ("bool", Decimal("0.5")),
        ("string", Decimal("1e-999999999")),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_type_cannot_hold_is_refused(kind, value):
    """Wherever in the column it is."""
    for before in ([], [None]):
        with pytest.raises(InputError, match=r"^state\.x: found .*, expected .*; use ") as caught:
            column(kind, *before, value)
        assert str(arrow_schema({"x": kind}).field("x").type) in caught.value.expected


STRUCT, TIMES = pa.struct([("n", pa.int64())]), pa.list_(pa.timestamp("us"))
Row = namedtuple("Row", ["n"])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((STRUCT, value) for value in ((1,), Row(1), {b"n": 1}, [("n", 1)], {"n": 1, "m": 2})),
        (pa.map_(pa.string(), pa.int64()), [("a", 1.5), ("a", 1)]),
        (pa.map_(pa.string(), pa.int64()), [(None, 1)]),
        (pa.map_(pa.string(), pa.int64()), [5]),
        (pa.list_(pa.int64()), b"ab"),
        (pa.list_(pa.string()), "ab"),
        *((TIMES, np.array([1], f"datetime64[{unit}]")) for unit in ("ns", "s", "D", "10us")),
        (pa.list_(pa.duration("us")), np.array([1], "timedelta64[s]")),
        (pa.list_(pa.int64()), pd.Series([10, 20], index=[1, 0])),
        (pa.timestamp("us"), np.datetime64(1, "us")),
        (pa.duration("us"), np.timedelta64(1, "us")),
        (pa.timestamp("us"), pa.scalar(2**62, pa.timestamp("us"))),
        (pa.duration("s"), pa.scalar(2**62, pa.duration("s"))),
    ],
    ids=lambda part: type(part).__name__,
)
def test_a_value_of_a_form_that_arrow_reads_in_its_own_way_is_refused(kind, value):
    with pytest.raises(InputError, match=r"(?s)^state\.x.*: found .*, expected "):
        column(kind, value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.int64()), [1, 1.5]),
        (pa.list_(pa.int64()), np.array([1.5])),
        (pa.list_(pa.list_(pa.date32())), [[NOON]]),
        (pa.struct([("a", pa.int64())]), {"a": 1.5}),
        (pa.map_(pa.string(), pa.int64()), {"a": 1.5}),
        (pa.map_(pa.int64(), pa.string()), [(1.5, "a")]),
        (pa.dictionary(pa.int32(), pa.int64()), 1.5),
        (pa.struct([("a", pa.list_(pa.timestamp("s")))]), {"a": [NOON]}),
        (pa.list_(pa.decimal128(38, 4)), [Decimal("1e-999999999")]),
        (pa.map_(pa.string(), pa.decimal256(76, 4)), {"a": Decimal("0e-999999999")}),
    ],
    ids=str,
)
def test_values_within_others_are_judged_too(kind, value):
    with pytest.raises(InputError, match=r"^state\.x.*: found "):
        column(kind, None, value)


@pytest.mark.parametrize(
    ("kind", "value", "held"),
    [
        ("int64", np.int8(3), 3),
        ("int64", pa.scalar(3), 3),
        ("float32", 0.1, float(np.float32(0.1))),
        ("float32", math.inf, math.inf),
        ("float64", 2**53, 2.0**53),
        ("float64", -(2**60), -(2.0**60)),
        ("float64", 2**1023, 2.0**1023),
        ("float32", 2**25, 2.0**25),
        (pa.list_(pa.float64()), [2**60, 1.5], [2.0**60, 1.5]),
        (pa.struct([("a", pa.list_(pa.float32()))]), {"a": [2**25]}, {"a": [2.0**25]}),
        (pa.map_(pa.string(), pa.float64()), {"k": 2**60}, [("k", 2.0**60)]),
        ("float64", np.float32(1.5), 1.5),
        ("decimal(9, 2)", Decimal("1.10000"), Decimal("1.10")),
        ("decimal(9, 2)", np.int64(3), Decimal("3.00")),
        ("date", date(2026, 1, 1), date(2026, 1, 1)),
        ("timestamp[us]", NOON, NOON),
        ("timestamp[ms]", NOON.replace(microsecond=123000), NOON.replace(microsecond=123000)),
        ("timestamp", NOON.replace(tzinfo=NEW_YORK), NOON.replace(tzinfo=NEW_YORK).astimezone(UTC)),
        ("timestamp", NOON, NOON.replace(tzinfo=UTC)),
        ("timestamp[ns]", pd.Timestamp(999), pd.Timestamp(999)),
        (pa.large_list(pa.int64()), np.array([1, 2]), [1, 2]),
        (pa.map_(pa.string(), pa.int64()), [("a", 1), ("a", 2)], [("a", 1), ("a", 2)]),
        ("time64[us]", time(1, 2, 3, 4), time(1, 2, 3, 4)),
        ("duration[ms]", timedelta(milliseconds=5), timedelta(milliseconds=5)),
        (pa.list_(pa.int64()), (1, None, 2), [1, None, 2]),
        (pa.struct([("a", pa.int64())]), {"a": 1}, {"a": 1}),
        (pa.struct([("a", pa.int64())]), {"a": pa.scalar(1)}, {"a": 1}),
        (pa.map_(pa.string(), pa.decimal128(9, 0)), {"a": np.int64(1)}, [("a", Decimal(1))]),
    ],
    ids=str,
)
def test_what_a_type_holds_is_held(kind, value, held):
    assert column(kind, None, value) == [None, held]


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
        value = value.replace(tzinfo=UTC)
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)  # Python calls no time of another zone equal to one in a gap of its own
    assert found == value or (value != value and found != found)


def test_rows_that_are_no_dicts():
    with pytest.raises(
        InputError, match=r"^output: found \[1, 2\], expected a dict with the columns \['x'\]"
    ):
        table_of([(1, 2)], arrow_schema({"x": "int64"}), "output")


@pytest.mark.parametrize("part", ["state", "output"])
def test_a_running_total_of_floats_is_no_integer(bench, tmp_path, part):
    def total(key, rows, state):
        found = 1.5 * len(rows)
        return ({"s": found}, []) if part == "state" else (None, [{**key, "s": found}])

    kinds = {"by": {"k": "string"}, "state": {"s": "int64"}, "output": {"k": "string", "s": "int64"}}
    run = bench(tmp_path, PerKey("sums", total, **kinds))
    with pytest.raises(
        InputError, match=rf"PerKey\('sums'\)\.{part}\.s: found 1\.5, expected int64; .*float64"
    ):
        run.run(pa.table({"k": ["a"]}))


def test_times_that_python_does_not_have_are_shown_as_arrow_does():
    at = pa.array([0, 2**58, None, -62_167_219_200_000_001], pa.timestamp("us"))
    rows = pa.table({"k": [1, 2, 3, 4], "at": at, "list": [[x] for x in at]})
    with pytest.raises(
        InputError, match=r"^rows\.at: found '11103-08-29 17:22:31\.711744', expected .*; use Arrow$"
    ):
        dicts_of(rows, "rows", "use Arrow")
    shown = ["1970-01-01 00:00:00.000000", "11103-08-29 17:22:31.711744", None, "-0001-12-31 23:59:59.999999"]
    assert python_of(rows["at"]) == shown
    assert python_of(rows["list"]) == [[text] for text in shown]
    assert python_of(rows["at"].slice(0, 1)) == [datetime(1970, 1, 1)]
