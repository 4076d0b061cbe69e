"""The options of `Placed`: as an object, and as keywords."""

from __future__ import annotations

from typing import get_type_hints

from taskplace.model.placed_options import PlacedKeywords, PlacedOptions


def test_type_checkers_know_every_option_as_a_keyword() -> None:
    fields = {declared.field for declared in PlacedOptions.declared_keys()}
    hints = {name: kind for name, kind in get_type_hints(PlacedOptions).items() if name in fields}
    assert get_type_hints(PlacedKeywords) == hints
    assert not PlacedKeywords.__required_keys__
