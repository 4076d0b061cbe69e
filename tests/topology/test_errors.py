"""The hint for an unknown name."""

from __future__ import annotations

import pytest

from topology.errors import nearest

EIGHT = [f"topic-{letter}" for letter in "abcdefgh"]


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("topic-hh", EIGHT, "did you mean 'topic-h'?"),
        ("x", EIGHT[::-1], "known: " + ", ".join(EIGHT)),
        ("x", [*EIGHT, "topic-i"], "known: " + ", ".join(EIGHT) + ", ..."),
        ("x", [], "none is known"),
        (10**5000, ["10"], "known: 10"),
    ],
    ids=["near", "eight", "more than eight", "none", "a long integer"],
)
def test_the_hint_is_the_nearest_name_or_the_first_eight(name: object, known: list[str], hint: str) -> None:
    assert nearest(name, known) == hint
