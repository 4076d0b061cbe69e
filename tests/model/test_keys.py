"""Configuration keys: what every configuration does with its declared keys."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from taskplace.errors import ConfigError
from taskplace.groups.coordinator import CoordinatorSettings
from taskplace.groups.member import MemberSettings
from taskplace.groups.partitioner import PartitionerConfig
from taskplace.model.config import PlacementConfig
from taskplace.model.keys import AboveZero, Configuration, Count, Positive, about, read
from taskplace.model.placed_options import PlacedKeywords, PlacedOptions
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spec.application import SECTIONS, ChaosSettings

ALL = [
    *SECTIONS.values(),
    ChaosSettings,
    PartitionerConfig,
    SteeringConfig,
    CoordinatorSettings,
    MemberSettings,
]


class Lights(Configuration, frozen=True, kw_only=True):
    SECTION: ClassVar[str] = "lights"

    lamp_count: Annotated[int, Meta(ge=1, le=8), about("lamps that are on", second_name="lamps")]
    lamp_colour: Annotated[Literal["red", "green"], about("their colour")] = "red"
    lamp_power: Annotated[AboveZero, about("what each takes")] = 5.0
    lamp_dimmed: Annotated[bool, about("whether they are dimmed")] = False

    def _agree(self, path: str) -> None:
        if self.lamp_dimmed and self.lamp_power > 50:
            raise ConfigError(f"{path}.lamp.power", found=self.lamp_power, expected="at most 50 if dimmed")


lights = st.builds(
    Lights,
    lamp_count=st.integers(1, 8),
    lamp_colour=st.sampled_from(["red", "green"]),
    lamp_power=st.floats(0.5, 50),
    lamp_dimmed=st.booleans(),
)


@given(lights)
def test_what_is_written_is_read_back(made):
    assert Lights.from_properties(made.to_properties()) == made


@pytest.mark.parametrize("part", ALL, ids=lambda part: part.__name__)
def test_a_default_is_what_a_key_takes(part):
    for found in part.declared_keys():
        if not found.required and found.default not in (None, ""):
            assert read(found.type, found.default, found.name) == found.default


@pytest.mark.parametrize(
    ("given_", "path", "says"),
    [
        ({}, "here.lamp.count", "found nothing"),
        ({"lamp.count": 9}, "here.lamp.count", "an integer of at least 1, at most 8"),
        ({"lamp.count": 1, "lamps": 2}, "here.lamps", "a key given twice"),
        ({"lamps": 2, "lamp.color": "red"}, "here.lamp.color", "did you mean 'lamp.colour'?"),
        ({"lamps": 2, 3: 4}, "here.3", "a string as key"),
        ({"lamps": 2, "lamp.power": float("nan")}, "here.lamp.power", "a number above 0"),
        ({"lamps": 2, "lamp.power": 10**400}, "here.lamp.power", "a number above 0"),
        ({"lamps": 2, "lamp.dimmed": 1}, "here.lamp.dimmed", "true or false"),
        ({"lamps": 2, "lamp.dimmed": True, "lamp.power": 60}, "here.lamp.power", "at most 50 if dimmed"),
    ],
    ids=str,
)
def test_a_mistake_is_one_error_with_its_path(given_, path, says):
    with pytest.raises(ConfigError) as caught:
        Lights.from_properties(given_, path="here")
    assert caught.value.path == path
    assert says in str(caught.value)


def test_values_in_code_are_checked_as_those_of_a_file():
    with pytest.raises(ConfigError, match=r"^lights\.lamp\.count: found 0"):
        Lights(lamp_count=0)
    with pytest.raises(ConfigError, match=r"^lights\.lamp\.power: found 60"):
        Lights(lamp_count=1, lamp_power=60, lamp_dimmed=True)


def test_only_what_may_be_text_is_read_from_text():
    assert PlacementConfig.from_properties({"max.warmup.replicas": "4"}).max_warmup_replicas == 4
    with pytest.raises(ConfigError, match="found '4'"):
        Lights.from_properties({"lamp.count": "4"})
    with pytest.raises(ConfigError, match=r"found 4\.0"):
        PlacementConfig.from_properties({"max.warmup.replicas": 4.0})


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


def test_type_checkers_know_each_option_as_a_keyword_of_the_same_type():
    types = get_type_hints(PlacedOptions)
    fields = {key.field: types[key.field] for key in PlacedOptions.declared_keys()}
    assert get_type_hints(PlacedKeywords) == fields


@pytest.mark.parametrize("tag", [{"zone": 3}, {4: "a"}])
def test_tags_of_hosts_are_names_and_values_as_text(tag):
    tags = {"host-1": {"zone": "a"}, "host-2": {}}
    assert PlacedOptions(tags=tags).tags == tags
    with pytest.raises(ConfigError) as error:
        PlacedOptions(tags={"host-1": tag})
    assert error.value.path == f"runtime.tags.host-1.{next(iter(tag))}"
