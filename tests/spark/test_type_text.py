"""Errors of written types: they name the place in a nested type, if there is one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from taskplace.spark.types import TypeTextError, parse


def test_an_error_names_the_place_within_a_nested_type() -> None:
    assert str(TypeTextError(("a", "b"), "x", "a type")) == "in a.b: found 'x', expected a type"
    assert str(TypeTextError((), "x", "a type", "use 'y'")) == "found 'x', expected a type; use 'y'"


def nested(levels: int) -> str:
    return "array<" * levels + "int" + ">" * levels


def test_types_are_nested_as_deep_as_the_limit() -> None:
    assert str(parse(nested(100))).count("list<") == 100
    with pytest.raises(
        TypeTextError, match=r"^found 'types nested too deeply', expected at most 100 levels$"
    ):
        parse(nested(101))


def test_parts_beside_each_other_are_not_nested() -> None:
    assert len(parse(f"struct<{', '.join(f'c{i}: array<int>' for i in range(200))}>")) == 200


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (f"struct<{'a' * 51}: >", f"struct<{'a' * 51}:"),  # 59 letters
        (f"struct<{'a' * 52}: >", f"struct<{'a' * 52}:"),  # 60 letters
        (f"struct<{'a' * 53}: >", f"...truct<{'a' * 53}:"),  # 61 letters
    ],
)
def test_an_error_shows_the_last_letters_before_the_mistake(written: str, shown: str) -> None:
    with pytest.raises(TypeTextError) as caught:
        parse(written)
    assert caught.value.expected == f"a type behind {shown!r}"


@pytest.mark.parametrize(
    ("written", "found", "expected"),
    [
        ("decimal(0)", "0 digits", "a decimal of 1 to 38 digits"),
        ("decimal(39)", "39 digits", "a decimal of 1 to 38 digits"),
        ("decimal(x)", "x", "a whole number behind 'decimal('"),
        ("decimal(1234567890)", "1234567890", "a whole number behind 'decimal('"),
        ("list<int>>", ">", "nothing more behind 'list<int>'"),
        ("list(int)", "(", "'<' behind 'list'"),
        ("list<int", "the end of the type", "'>' behind 'list<int'"),
        ("map<int>", ">", "',' behind 'map<int'"),
        ("map<int, int, int>", ",", "'>' behind 'map<int, int'"),
        ("struct<>", ">", "the name of a field behind 'struct<'"),
        ("struct<a int>", "int", "':' behind 'struct<a'"),
        ("struct<a: int b>", "b", "',' or '>' behind 'struct<a: int'"),
        ("", "the end of the type", "a type"),
    ],
)
def test_an_error_says_what_was_found_and_what_was_expected(written: str, found: str, expected: str) -> None:
    with pytest.raises(TypeTextError) as caught:
        parse(written)
    assert (caught.value.found, caught.value.expected) == (found, expected)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("decimal(1)", pa.decimal128(1, 0)),
        ("decimal(38, 38)", pa.decimal128(38, 38)),
        ("decimal(2, 3)", pa.decimal128(2, 3)),
        ("decimal(2, -3)", pa.decimal128(2, -3)),
        ("struct<`a``b`: int>", pa.struct([("a`b", pa.int32())])),
    ],
)
def test_types_at_the_limits_are_read(written: str, kind: pa.DataType) -> None:
    assert parse(written) == kind
