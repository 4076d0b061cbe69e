"""Errors of written types: they name the place in a nested type, if there is one."""

from __future__ import annotations

from taskplace.spark.state.type_text import TypeTextError


def test_an_error_names_the_place_within_a_nested_type() -> None:
    assert str(TypeTextError(("a", "b"), "x", "a type")) == "in a.b: found 'x', expected a type"
    assert str(TypeTextError((), "x", "a type", "use 'y'")) == "found 'x', expected a type; use 'y'"
