"""Every field that is declared: a value of a wrong type, an unknown neighbour, and a missing one are one error each."""

from __future__ import annotations

from typing import Any, get_origin

import pytest
from msgspec import Struct

from taskplace.errors import ConfigError
from taskplace.groups.coordinator import CoordinatorSettings
from taskplace.groups.member import MemberSettings
from taskplace.groups.partitioner import PartitionerConfig
from taskplace.model.keys import bare, keys_of, read_struct, words
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spec import nodes
from taskplace.spec.application import SECTIONS, ChaosSettings

STRUCTS: list[type[Struct]] = [
    *SECTIONS.values(),
    ChaosSettings,
    SteeringConfig,
    PartitionerConfig,
    CoordinatorSettings,
    MemberSettings,
    *nodes.PROCESSORS.values(),
    *nodes.FORMATS.values(),
    nodes.SourceOptions,
    nodes.StoreOptions,
    nodes.OwnOptions,
    nodes.Window,
    nodes.Input,
    nodes.KafkaInput,
    nodes.Output,
    nodes.KafkaOutput,
]
FIELDS = [
    pytest.param(kind, key, id=f"{kind.__name__}.{key.name}") for kind in STRUCTS for key in keys_of(kind)
]
#: Values of fields whose type alone does not give one.
EXAMPLES = {
    "class": "a:B",
    "kill": "1",
    "value": {"format": "json", "columns": {"a": "int"}},
    "size": "1 hour",
}


def example(kind: type[Struct]) -> dict[str, Any]:
    """The required fields of a Struct, with values."""
    return {key.name: value_of(key.name, key.type) for key in keys_of(kind) if key.required}


def value_of(name: str, kind: Any) -> Any:
    base = get_origin(bare(kind)) or bare(kind)
    if name in EXAMPLES and base is not dict:
        return EXAMPLES[name]
    return {dict: {"a": "int"}, int: 1, str: "a:b" if name == "function" else "a"}.get(base, "a")


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_the_required_fields_are_enough(kind):
    assert isinstance(read_struct(kind, example(kind), "at"), kind)


@pytest.mark.parametrize(("kind", "key"), FIELDS)
def test_each_field_says_what_it_takes_and_what_it_means(kind, key):
    assert key.doc
    assert words(key.type)


@pytest.mark.parametrize(("kind", "key"), FIELDS)
def test_a_value_of_a_wrong_type_is_named(kind, key):
    wrong = object()
    if key.type is Any or bare(key.type) is Any:
        return
    with pytest.raises(ConfigError) as caught:
        read_struct(kind, {**example(kind), key.name: wrong}, "at")
    assert caught.value.path == f"at.{key.name}"
    assert caught.value.expected


@pytest.mark.parametrize(("kind", "key"), FIELDS)
def test_an_unknown_neighbour_is_named_with_the_nearest_field(kind, key):
    with pytest.raises(ConfigError) as caught:
        read_struct(kind, {**example(kind), f"{key.name}x": 1}, "at")
    assert caught.value.path == f"at.{key.name}x"
    assert key.name in str(caught.value).partition("unknown key")[2]


@pytest.mark.parametrize(("kind", "key"), [each for each in FIELDS if each.values[1].required])
def test_a_missing_field_is_named(kind, key):
    given = example(kind)
    del given[key.name]
    with pytest.raises(ConfigError) as caught:
        read_struct(kind, given, "at")
    assert (caught.value.path, caught.value.found) == (f"at.{key.name}", None)


def test_fields_of_fields_are_named_as_well():
    window = {"column": "at", "size": "1 hour", "emti": "final"}
    with pytest.raises(ConfigError, match=r"^n\.window\.emti: .*did you mean 'emit'"):
        read_struct(nodes.Count, {"by": {"a": "int"}, "window": window}, "n")


def test_a_value_in_a_mapping_is_named_by_its_key():
    with pytest.raises(ConfigError, match=r"^n\.by\.a: found 3, expected a string"):
        read_struct(nodes.Count, {"by": {"a": 3}}, "n")


def test_null_leaves_a_field_out_but_for_one_that_knows_it():
    count = read_struct(nodes.Count, {"by": {"a": "int"}, "ttl": None}, "n")
    assert nodes.given(count) == {"by": {"a": "int"}}
    topic = {"topic": "t", "value": EXAMPLES["value"]}
    assert "most_records" not in nodes.given(read_struct(nodes.KafkaInput, topic, "n"))
    unlimited = read_struct(nodes.KafkaInput, {**topic, "most_records": None}, "n")
    assert nodes.given(unlimited)["most_records"] is None
