"""Stored parts of aggregates merged row by row: the same as grouped with the new ones, for all types and values."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.processors import first, last, max_, min_, sum_
from taskplace.spark.processors.parts import Parts

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-128, 127),
    "int64": st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9),
    "uint64": st.integers(0, 2**64 - 1) | st.integers(0, 9),
    "float": st.floats(width=32),
    "double": st.floats() | st.sampled_from([0.0, -0.0, math.inf, math.nan]),
    "decimal(9, 2)": st.decimals(-1000, 1000, places=2),
    "bool": st.booleans(),
    "string": st.text(max_size=3),
    "binary": st.binary(max_size=3),
    "date": st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    "timestamp": st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(timezone.utc)),
    "timestamp_ntz": st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    "time64[us]": st.times(time(0), time(23, 59)),
    "duration[us]": st.timedeltas(timedelta(-9), timedelta(9)),
}
NUMBERS = ("int8", "int64", "uint64", "float", "double", "decimal(9, 2)")
MERGED = [
    (kind, function)
    for kind in VALUES
    for function in ("min", "max", "first", "last", *(("sum",) if kind in NUMBERS else ()))
]
MAKE = {"min": min_, "max": max_, "first": first, "last": last, "sum": sum_}


def told(rows: pa.Table) -> list[str]:
    """Return rows as text: NaN equals NaN there, and 0.0 differs from -0.0."""
    return [repr(row) for row in rows.to_pylist()]


@pytest.mark.parametrize(("kind", "function"), MERGED)
@given(data=st.data())
def test_parts_are_merged_row_by_row_as_they_are_by_key(
    kind: str, function: str, data: st.DataObject
) -> None:
    parts = Parts("Aggregate('s')", {"k": "int64"}, {"part": MAKE[function]("v", kind)})
    value = VALUES[kind] | st.none()
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), value, value, st.booleans()), min_size=1), "rows")
    arrow = parts.types.field("part").type
    new = pa.table({"k": [row[0] for row in rows], "v": pa.array([row[1] for row in rows], arrow)})
    before = pa.table({"k": [row[0] for row in rows], "v": pa.array([row[2] for row in rows], arrow)})
    try:
        batch = parts.of_rows(new, new)
        old = parts.of_rows(before, before)
    except InputError:
        return  # a sum that does not fit
    present = np.array([data.draw(st.booleans(), f"stored {key}") for key in batch["k"].to_pylist()])
    held = dict(zip(old["k"].to_pylist(), old["part"], strict=True))
    stored = pa.table(
        {
            "part": pa.array(
                [
                    held[key].as_py() if there else None
                    for key, there in zip(batch["k"].to_pylist(), present, strict=True)
                ],
                arrow,
            )
        }
    )
    try:
        expected = parts._merged_by_key(stored, present, batch)
    except InputError as refused:
        with pytest.raises(
            InputError, match=str(refused).split(":")[0].replace("(", r"\(").replace(")", r"\)")
        ):
            parts.merged(stored, present, batch)
        return
    found = parts.merged(stored, present, batch)
    assert found.schema.equals(expected.schema)
    assert told(found) == told(expected)
    assert found["k"].to_pylist() == batch["k"].to_pylist()


def test_a_part_that_is_merged_by_key_takes_the_others_with_it() -> None:
    parts = Parts("Aggregate('s')", {"k": "string"}, {"n": sum_("n", "int64"), "d": max_("d", "double")})
    rows = pa.table({"k": ["b", "a", "b"], "n": [1, 2, 3], "d": [1.0, math.nan, 2.0]})
    stored = pa.table({"n": pa.array([None, 5], pa.int64()), "d": pa.array([None, 7.0])})
    found = parts.merged(stored, np.array([False, True]), parts.of_rows(rows, rows)).to_pylist()
    assert [row["k"] for row in found] == ["b", "a"] and [row["n"] for row in found] == [4, 7]
    assert found[0]["d"] == 2.0 and math.isnan(found[1]["d"])


def test_a_merged_sum_that_does_not_fit_is_refused() -> None:
    parts = Parts("Aggregate('s')", {"k": "string"}, {"n": sum_("n", "int64")})
    rows = pa.table({"k": ["a"], "n": [2**62]})
    with pytest.raises(
        InputError, match=r"Aggregate\('s'\)\.n: found 'a sum of about 9\.2.* or a larger unit"
    ):
        parts.merged(pa.table({"n": [2**62]}), np.array([True]), parts.of_rows(rows, rows))


def test_decimals_keep_their_digits() -> None:
    parts = Parts("Aggregate('s')", {"k": "string"}, {"n": sum_("n", "decimal(5, 2)")})
    rows = pa.table({"k": ["a"], "n": [Decimal("999.99")]})
    stored = pa.table({"n": pa.array([Decimal("0.01")], pa.decimal128(5, 2))})
    with pytest.raises(InputError, match="5 digits"):
        parts.merged(stored, np.array([True]), parts.of_rows(rows, rows))
