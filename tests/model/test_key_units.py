"""Units and spelling of keys in the reference: as a file has them."""

from __future__ import annotations

from typing import Annotated, ClassVar

from taskplace.model.config import PlacementConfig
from taskplace.model.keys import Configuration, Count, Positive, about
from taskplace.model.placed_options import PlacedOptions


class Heating(Configuration, frozen=True, kw_only=True):
    SECTION: ClassVar[str] = "heating"

    max_degrees: Annotated[Positive, about("the warmest", unit="°C")] = 21
    pause_ms: Annotated[Count, about("between two looks")] = 500
    at_night: Annotated[bool, about("also while all sleep")] = False


def test_a_reference_has_units_and_defaults_as_yaml_spells_them():
    assert Heating.reference().splitlines()[2:] == [
        "| `max.degrees` | `21` | °C | an integer of at least 1 | the warmest |",
        "| `pause.ms` | `500` | ms | an integer of at least 0 | between two looks |",
        "| `at.night` | `false` |  | true or false | also while all sleep |",
    ]


def test_keys_named_after_a_unit_have_it():
    for config in (PlacementConfig, PlacedOptions):
        for found in config.declared_keys():
            words = found.name.split(".")
            assert ("ms" in words) == (found.unit == "ms"), found.name
            assert ("bytes" in words) == (found.unit == "bytes"), found.name
            assert ("seconds" in words) == (found.unit == "s"), found.name
