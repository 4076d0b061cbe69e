"""Units and spelling of keys in the reference: as a file has them."""

from __future__ import annotations

from dataclasses import dataclass

from taskplace.model.config import PlacementConfig
from taskplace.model.keys import Boolean, Configuration, Integer, key
from taskplace.model.placed_options import PlacedOptions


@dataclass(frozen=True, kw_only=True)
class Heating(Configuration, section="heating"):
    max_degrees: int = key(Integer(1), 21, "the warmest", unit="°C")
    pause_ms: int = key(Integer(0), 500, "between two looks")
    at_night: bool = key(Boolean(), False, "also while all sleep")


def test_a_reference_has_units_and_defaults_as_yaml_spells_them() -> None:
    assert Heating.reference().splitlines()[2:] == [
        "| `max.degrees` | `21` | °C | an integer of at least 1 | the warmest |",
        "| `pause.ms` | `500` | ms | an integer of at least 0 | between two looks |",
        "| `at.night` | `false` |  | true or false | also while all sleep |",
    ]


def test_keys_named_after_a_unit_have_it() -> None:
    for config in (PlacementConfig, PlacedOptions):
        for found in config.declared_keys():
            words = found.name.split(".")
            assert ("ms" in words) == (found.unit == "ms"), found.name
            assert ("bytes" in words) == (found.unit == "bytes"), found.name
            assert ("seconds" in words) == (found.unit == "s"), found.name
