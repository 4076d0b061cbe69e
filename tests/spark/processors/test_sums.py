"""What the type of an aggregate holds: sums of decimals, integers and floats never wrap silently."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.processors import Aggregate, avg, first, last, max_, min_, sum_
from tests.support.aggregates import table


def test_a_sum_of_integers_never_wraps_silently(bench, tmp_path):
    run = bench(tmp_path, Aggregate("s", by={"tail": "string"}, total=sum_("n", "int64")))
    big = 2**62

    def rows(*values):
        return table([("a", 0, value, 0.0, "") for value in values])

    assert run.run(rows(big, big - 1)).to_pylist() == [{"tail": "a", "total": 2**63 - 1}]
    assert run.run(rows(-big)).to_pylist() == [{"tail": "a", "total": big - 1}]
    with pytest.raises(InputError, match=r"total: found 'a sum of about 9.223e\+18'"):
        run.run(rows(big, 1))  # with what the store has
    with pytest.raises(InputError, match="to fit an int64"):
        run.run(rows(*[big] * 4))  # 2^64, which would be 0
    assert run.run(rows(1)).to_pylist() == [{"tail": "a", "total": big}]


@pytest.mark.parametrize("kind", ["int64", pa.decimal128(19, 0)], ids=str)
def test_a_sum_has_to_fit_its_type_after_each_batch(bench, tmp_path, kind):
    """So the cuts decide whether a sum overflows that has room in the end."""
    most = 2**62 if kind == "int64" else 6 * 10**18
    numbers = [most, most, -most]

    def rows(*values):
        return table([("a", 0, value, 0.0, "") for value in values])

    at_once = bench(tmp_path / "one", Aggregate("s", by={"tail": "string"}, total=sum_("n", kind)))
    assert at_once.run(rows(*numbers)).to_pylist() == [{"tail": "a", "total": most}]
    one_by_one = bench(tmp_path / "three", Aggregate("s", by={"tail": "string"}, total=sum_("n", kind)))
    one_by_one.run(rows(numbers[0]))
    with pytest.raises(InputError, match="total: found"):
        one_by_one.run(rows(numbers[1]))


def only(kind: Any, function: Any = sum_) -> Aggregate:
    return Aggregate("s", by={"k": "int64"}, x=function("v", kind))


def of_one_key(kind: pa.DataType, *given: Any) -> pa.Table:
    return pa.table({"k": pa.array([1] * len(given), pa.int64()), "v": pa.array(given, kind)})


def decimals(kind: pa.DataType, *numbers: int) -> list[Decimal]:
    """Return decimals of these digits, with the type's point; Python's own arithmetic would round them."""
    return [Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -kind.scale)) for n in numbers]


KINDS = [pa.decimal128(38, 0), pa.decimal128(38, 18), pa.decimal128(5, 2), pa.decimal256(76, 0)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_sum_of_decimals_near_the_limit_is_right(bench, tmp_path, kind):
    most = 10**kind.precision - 1
    for i, numbers in enumerate(([most], [most, -1, 1], [-most, 1, -1], [most, -most, most], [-most, most])):
        given = decimals(kind, *numbers)
        right = decimals(kind, sum(numbers))
        at_once = bench(tmp_path / f"at-once-{i}", only(kind)).run(of_one_key(kind, *given))
        assert at_once["x"].to_pylist() == right
        by_one = bench(tmp_path / f"by-one-{i}", only(kind))
        assert [by_one.run(of_one_key(kind, one)) for one in given][-1]["x"].to_pylist() == right


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("times", [2, 4, 7, 12])
def test_a_sum_of_decimals_never_wraps_silently(bench, tmp_path, kind, times):
    """Four times the most of 38 digits is a number of 38 digits again, by 2^128; twelve times that of 76, by 2^256."""
    most = 10**kind.precision - 1
    message = (
        rf"Aggregate\('s'\)\.x: .*at most {kind.precision} digits, {kind.scale} of them behind the point"
    )
    for i, numbers in enumerate(([most] * times, [-most] * times, [most, 1], [-most, -1])):
        given = decimals(kind, *numbers)
        run = bench(tmp_path / str(i), only(kind))
        with pytest.raises(InputError, match=message):
            run.run(of_one_key(kind, *given))
        run.run(of_one_key(kind, given[0]))
        with pytest.raises(InputError, match=message):
            run.run(of_one_key(kind, *given[1:]))  # with what the store has
        assert run.stored("s") == [{"k": 1, "x": given[0]}]


@settings(print_blob=True, deadline=None, max_examples=40)
@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-9, 9), min_size=1, max_size=9))
def test_sums_of_decimals_against_integers_without_limits(bench, numbers):
    kind = pa.decimal128(38, 10)
    with tempfile.TemporaryDirectory() as folder:
        run = bench(Path(folder), only(kind))
        rows = of_one_key(kind, *decimals(kind, *numbers))
        if abs(sum(numbers)) < 10**38:
            assert run.run(rows)["x"].to_pylist() == decimals(kind, sum(numbers))
        else:
            with pytest.raises(InputError, match="38 digits"):
                run.run(rows)


def test_integers_are_summed_as_decimals_if_that_is_how_they_are_kept(bench, tmp_path):
    run = bench(tmp_path, only(pa.decimal128(20, 0)))
    assert run.run(of_one_key(pa.int64(), *[2**62] * 4))["x"].to_pylist() == [2**64]
    with pytest.raises(InputError, match="at most 20 digits, 0 of them behind the point"):
        run.run(of_one_key(pa.int64(), *[2**62] * 22))


@pytest.mark.parametrize("function", [sum_, avg])
@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_sums_as_floats_take_large_integers_as_near_as_they_can(bench, tmp_path, function, kind):
    held = np.dtype(kind).type
    for value in (2**53 + 1, 2**62 + 1, 2**63 - 1):
        run = bench(tmp_path / str(value), only(kind, function))
        for _ in range(2):
            (found,) = run.run(of_one_key(pa.int64(), value))["x"].to_pylist()
        assert found == held(held(value) + held(value) if function is sum_ else held(value))


@pytest.mark.parametrize("function", [min_, max_, first, last])
@pytest.mark.parametrize(("kind", "digits"), [("float64", 53), ("float32", 24)])
def test_an_integer_that_a_float_does_not_hold_is_no_other_value(bench, tmp_path, function, kind, digits):
    run = bench(tmp_path, only(kind, function))
    for value in (2**digits + 1, 2**62 + 1, 2**63 - 1, -(2**digits) - 1):
        with pytest.raises(
            InputError, match=rf"\.x: found .*{value} is not a value of .*; keep it as 'int64'"
        ):
            run.run(of_one_key(pa.int64(), 1, value))
    for value in (2**digits - 1, 2**digits, 2**62, -(2**63)):
        kept = bench(tmp_path / str(value), only(kind, function))
        assert kept.run(of_one_key(pa.int64(), value))["x"].to_pylist() == [value]
    with pytest.raises(InputError, match="is not a value of"):
        run.run(of_one_key(pa.uint64(), 2**64 - 1))


def test_sums_of_integers_as_floats(bench, tmp_path):
    def total(*numbers: int, column: pa.DataType | None = None) -> float:
        where = Path(tempfile.mkdtemp(dir=tmp_path))
        rows = of_one_key(column or pa.int64(), *numbers)
        return bench(where, only("float64")).run(rows)["x"].to_pylist()[0]

    assert total(2**53, 1) == 2.0**53
    assert total(2**60, 1, -(2**60)) == 1, "exact as long as integers can hold it"
    assert total(*[2**62] * 4) == 2.0**64, "beyond that in floats"
    assert total(*[2**63] * 4, column=pa.uint64()) == 2.0**65
    run = bench(tmp_path, only("float64"))
    assert [run.run(of_one_key(pa.int64(), 2**62))["x"].to_pylist() for _ in range(4)][-1] == [2.0**64]


@pytest.mark.parametrize(
    ("processor", "rows", "message"),
    [
        (
            only("int32"),
            of_one_key(pa.int64(), 2**31),
            r"\.x: .*2\.147e\+09.*at most 2\^31 - 1, to fit an int32",
        ),
        (only("int64"), of_one_key(pa.uint64(), 2**63), r"at most 2\^63 - 1, to fit an int64"),
        (only("uint64"), of_one_key(pa.uint64(), 2**63, 2**63), r"at most 2\^64 - 1, to fit a uint64"),
        (
            only("int64", max_),
            of_one_key(pa.float64(), 1.5),
            r"\.x: found \"'v', double\", expected int64 \(",
        ),
        (
            only("float64", last),
            of_one_key(pa.string(), "a"),
            r"\.x: found \"'v', string\", expected double \(",
        ),
        (
            only("timestamp", last),
            of_one_key(pa.bool_(), True),
            r"\.x: found \"'v', bool\", expected timestamp",
        ),
        (only("int64"), of_one_key(pa.float64(), 1.5), r"\.x: found \"'v', double\", expected int64 \("),
    ],
)
def test_what_does_not_fit_its_type_is_named(bench, tmp_path, processor, rows, message):
    with pytest.raises(InputError, match=r"Aggregate\('s'\).*" + message):
        bench(tmp_path, processor).run(rows)


def test_a_mean_of_integers_that_floats_do_not_hold(bench, tmp_path):
    run = bench(tmp_path, only("int64", avg))
    assert run.run(of_one_key(pa.int64(), 2**53 + 1, 2**53 + 1))["x"].to_pylist() == [2.0**53]
