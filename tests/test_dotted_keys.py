"""A file nests its keys; a dotted one is refused with the nested form. Overrides are dotted."""

from __future__ import annotations

import pytest
from taskplace.spec.application import Settings

from taskplace.dotted_keys import entries, topology_section
from taskplace.errors import ConfigError
from taskplace.yaml_fields import INPUT, OUTPUT
from topology.entry_fields import SECTIONS

APP = {
    "application": {"id": "shop"},
    "topology": {"sources": {"f": {"key": "id"}}, "nodes": {"c": {"sink": "f"}}},
}
OWN = APP | {"application": {"id": "shop", "class": "shop.orders:Orders"}}


@pytest.mark.parametrize(
    ("section", "given", "path", "nested"),
    [
        ("topology", {"sources.f.key": "id"}, "sources.f.key", "topology: {sources: {f: {key: ...}}}"),
        ("topology", {"nodes.c.process": "f"}, "nodes.c.process", "topology: {nodes: {c: {process: ...}}}"),
        ("topology", {"nodes.c": {"sink": "f"}}, "nodes.c", "topology: {nodes: {c: ...}}"),
        (
            "topology",
            {"nodes.c.options.by": {"id": "long"}},
            "nodes.c.options.by",
            "topology: {nodes: {c: {options: {by: ...}}}}",
        ),
        ("input", {"f.format": "csv"}, "f.format", "input: {f: {format: ...}}"),
        ("input", {"f": {"format": "csv"}, "f.pth": "/in"}, "f.pth", "input: {f: {pth: ...}}"),
        ("input", {"a.b.path": "/in"}, "a.b.path", "input: {a.b: {path: ...}}"),
        ("input", {"f.options.sep": ";"}, "f.options.sep", "input: {f: {options: {sep: ...}}}"),
        ("output", {"c.path": "/out"}, "c.path", "output: {c: {path: ...}}"),
        ("input", {"f": {"options.sep": ";"}}, "f.options.sep", "input: {f: {options: {sep: ...}}}"),
        ("input", {"f": {"kafka.topic": "t"}}, "f.kafka.topic", "input: {f: {kafka: {topic: ...}}}"),
        (
            "topology",
            {"sources": {"f": {"options.delay": "1 h"}}},
            "sources.f.options.delay",
            "topology: {sources: {f: {options: {delay: ...}}}}",
        ),
    ],
)
def test_a_dotted_key_in_a_file_is_refused_with_the_nested_form(section, given, path, nested):
    with pytest.raises(ConfigError) as caught:
        Settings.from_mapping(APP | {section: given})
    assert (
        str(caught.value) == f"{section}.{path}: found 'a dotted key', expected the nested form: `{nested}`"
    )


def test_an_override_is_dotted():
    overrides = ["topology.sources.g.key=id", "input.f.format=csv", "output.c.path=/out"]
    settings = Settings.from_mapping(APP, overrides)
    assert (settings.input, settings.output) == ({"f.format": "csv"}, {"c.path": "/out"})


@pytest.mark.parametrize(
    ("section", "entry", "override", "nested"),
    [
        ("topology", {"sources": {"f": {}}}, "sources.f.options.delay", {"options": {"delay": 5}}),
        ("topology", {"sources": {"f": {}}}, "sources.f.schema.id", {"schema": {"id": 5}}),
        (
            "topology",
            {"sources": {"f": {"options": {"delay": 1}}}},
            "sources.f.options.delay",
            {"options": {"delay": 5}},
        ),
        ("topology", {"stores": {"f": {"options": None}}}, "stores.f.options.time", {"options": {"time": 5}}),
        (
            "topology",
            {"nodes": {"f": {"processor": "count"}}},
            "nodes.f.options.window.size",
            {"processor": "count", "options": {"window": {"size": 5}}},
        ),
        (
            "topology",
            {"nodes": {"f": {"processor": "own:Node"}}},
            "nodes.f.options.window.size",
            {"processor": "own:Node", "options": {"window.size": 5}},
        ),
        ("input", {"f": {}}, "f.options.kafka.group.id", {"options": {"kafka.group.id": 5}}),
        ("input", {"f": {}}, "f.kafka.value.format", {"kafka": {"value": {"format": 5}}}),
        (
            "input",
            {"f": {"kafka": {}}},
            "f.kafka.options.linger.ms",
            {"kafka": {"options": {"linger.ms": 5}}},
        ),
        ("output", {"f": {}}, "f.kafka.options.linger.ms", {"kafka": {"options": {"linger.ms": 5}}}),
        ("output", {"f": {}}, "f.path.x", {"path.x": 5}),
        ("input", {"f": {"options": 3}}, "f.options.sep", {"options": 3, "options.sep": 5}),
    ],
)
def test_an_override_makes_the_mappings_that_its_path_leads_through(section, entry, override, nested):
    """Otherwise a key could only be set beside another one."""
    read = Settings.from_mapping({**APP, section: entry}, [f"{section}.{override}=5"])
    if section == "topology":
        (given,) = topology_section(read.topology).values()
        assert given == {"f": nested}
    else:
        assert entries(section, getattr(read, section), {"input": INPUT, "output": OUTPUT}[section]) == {
            "f": nested
        }


def test_an_override_makes_the_tags_of_a_host_and_the_weight_of_a_task():
    read = Settings.from_mapping(APP, ["runtime.tags.host-1.example.com.zone=a", "runtime.weights.0_0=2"])
    assert (read.runtime.tags, read.runtime.weights) == ({"host-1.example.com": {"zone": "a"}}, {"0_0": 2})


def test_names_and_the_keys_of_options_may_have_dots():
    given = {"a.b": {"path": "/in", "options": {"kafka.group.id": "x"}}}
    assert Settings.from_mapping(APP | {"input": given}).input == given


def test_an_application_class_reads_input_and_output_as_it_likes():
    given = {"input": {"f.format": "csv"}, "output": {"c.path": "/out"}}
    assert Settings.from_mapping(OWN | given).input == given["input"]
    assert (
        Settings.from_mapping(APP | given, ["application.class=shop.orders:Orders"]).output == given["output"]
    )
    with pytest.raises(ConfigError, match=r"^topology\.nodes\.c\.sink: found 'a dotted key'"):
        Settings.from_mapping(OWN | {"topology": {"nodes.c.sink": "f"}})


@pytest.mark.parametrize(
    ("section", "field"), [(section, field) for section, fields in SECTIONS.items() for field in fields]
)
def test_every_field_that_a_topology_may_have_ends_a_name(section, field):
    """Otherwise an override would take the field for a part of the entry's name."""
    assert topology_section({f"{section}.a.b.{field}": 3}) == {section: {"a.b": {field: 3}}}
