"""The written form: errors name the path."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.support.documents import REGISTRY
from topology import Topology, TopologyError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "name: missing, expected the topology's name"),
        ("{name: t}", "sources: missing, expected the topology's sources"),
        ("{name: t, sources: [a]}", "sources: found ['a'], expected a mapping"),
        ("{name: t, sourcs: {}}", "topology.sourcs: found an unknown field, expected one of 4; did you mean"),
        ("{name: t, sources: {3: {}}}", "sources: the name of an entry: found 3, expected a name"),
    ],
)
def test_errors_of_the_whole(text: str, message: str) -> None:
    refused(yaml.safe_load(text), message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{partitons: 3}", "sources.a.partitons: found an unknown field, expected one of 5; did you mean"),
        ("{partitions: no}", "sources.a.partitions: found false, expected a whole number >= 1"),
        ("{key: 3}", "sources.a.key: found 3, expected a list of column names"),
        ("{options: {key: 3}}", "sources.a.options.key: belongs one level higher, beside `options`"),
        ("3", "sources.a: found 3, expected a mapping"),
    ],
)
def test_errors_of_a_source(text: str, message: str) -> None:
    refused({"name": "t", "sources": {"a": yaml.safe_load(text)}}, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{s: {logged: maybe}}", "stores.s.logged: found 'maybe', expected true or false"),
        ("{s/t: }", "stores.s/t: store name: found 's/t', expected 1 to 200 letters"),
        ("{s: {name: s}}", "stores.s.name: found an unknown field"),
    ],
)
def test_errors_of_a_store(text: str, message: str) -> None:
    refused({"name": "t", "sources": {"a": None}, "stores": yaml.safe_load(text)}, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3", "nodes: found 3, expected a mapping"),
        ("[3]", "nodes[0]: found 3, expected a mapping with one of: process"),
        ("{x: {proces: a}}", "nodes.x: found none, expected one of: process, join_table"),
        ("{x: {proces: a}}", "did you mean 'process'?"),
        ("{x: {process: a, sink: a}}", "nodes.x: found process and sink, expected one of: process"),
        ("{x: {process: []}}", "nodes.x.process: found [], expected the names of at least 1 input"),
        ("{x: {process: }}", "nodes.x.process: found nothing, expected the names of at least 1 input"),
        ("{x: {join_table: a}}", "nodes.x.join_table: found 'a', expected the names of two inputs"),
        (
            "{x: {repartition: [a, a]}}",
            "nodes.x.repartition: found ['a', 'a'], expected the name of one input",
        ),
        (
            "{x: {process: alpa}}",
            "nodes.x.process: found 'alpa', expected the name of a source or node; did you",
        ),
        (
            "{x: {process: a, processor: agregate}}",
            "nodes.x.processor: found 'agregate', expected a registered",
        ),
        ("{x: {process: a, processor: agregate}}", "did you mean 'aggregate'?"),
        ("{x: {process: a, processor: aggregate}}", "nodes.x.options: found {}, expected the options of"),
        (
            "{x: {process: a, processor: aggregate, options: {keep: -1}}}",
            "'aggregate': keep has to be positive",
        ),
        ("{x: {process: a, stores: 3}}", "nodes.x.stores: found 3, expected a list"),
        ("{x: {process: a, stores: [s]}}", "nodes.x.stores: unknown store 's'; none is known"),
        ("{x: {process: a, stores: [{name: s}], target: 3}}", "nodes.x.target: found an unknown field"),
        ("{x: {repartition: a, partitions: 0}}", "nodes.x.partitions: found 0, expected a whole number >= 1"),
        ("{x: {repartition: a, key: 0}}", "nodes.x.key: found 0, expected a list of column names"),
        ("{a: {process: a}}", "nodes.a: the name 'a' is used twice"),
        ("[{process: a, name: ''}]", "nodes[0].name: found '', expected a name"),
        ("[{process: a, name: x}, {process: a, name: x}]", "nodes[1]: the name 'x' is used twice"),
        ("{x: {sink: a}, y: {process: x}}", "node 'y': input 'x' is a sink, which nothing can read"),
        ("{x: {process: a}, y: {merge: [x, x]}}", "nodes.y: found inputs ['x', 'x'], expected each"),
    ],
)
def test_errors_of_a_node(text: str, message: str) -> None:
    sources = {"a": None, "alpha": None}
    refused({"name": "t", "sources": sources, "nodes": yaml.safe_load(text)}, message)


def refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        Topology.from_dict(document, REGISTRY).build()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_mapping_is_one_error() -> None:
    with pytest.raises(TopologyError, match="topology: found nothing, expected a mapping"):
        Topology.from_dict(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("store", "message"),
    [
        (
            "{name: s, loged: false}",
            "stores[0].loged: found an unknown field, expected one of 4; did you mean 'logged'?",
        ),
        ("{name: s, ttl: 5}", "nodes.x.stores[0].ttl: found an unknown field, expected one of 4"),
        ("{name: s, options: 3}", "nodes.x.stores[0].options: found 3, expected a mapping"),
        (
            "{name: s, options: {logged: 3}}",
            "stores[0].options.logged: belongs one level higher, beside `options`",
        ),
        ("{name: s, on: 1}", "nodes.x.stores[0]: the name of an entry: found true, expected a name"),
        ("{logged: false}", "nodes.x.stores[0]: found {logged: false}, expected a store with a 'name'"),
        ("{name: 3}", "nodes.x.stores[0].name: found 3, expected a name"),
        ("{name: s, logged: 3}", "nodes.x: store 's'.logged: found 3, expected true or false"),
    ],
)
def test_a_store_on_the_spot_has_the_fields_of_a_store(store: str, message: str) -> None:
    for stores in (f"[{store}]", store):
        nodes = yaml.safe_load(f"{{x: {{process: a, stores: {stores}}}}}")
        refused({"name": "t", "sources": {"a": None}, "nodes": nodes}, message)


def test_a_factory_that_fails_has_its_path() -> None:
    def broken(keep: int = 0) -> None:
        raise ZeroDivisionError("division by zero")

    written = {"name": "t", "sources": {"a": None}, "nodes": {"p": {"process": "a", "processor": "x"}}}
    with pytest.raises(TopologyError) as caught:
        Topology.from_dict(written, {"x": broken})
    assert str(caught.value) == (
        "nodes.p.processor: 'x' failed to make a processor with {}: ZeroDivisionError: division by zero"
    )
    assert caught.value.node == "p"


def test_a_package_that_a_factory_needs_is_no_mistake_of_the_document() -> None:
    def needs() -> None:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")

    written = {"name": "t", "sources": {"a": None}, "nodes": {"p": {"process": "a", "processor": "x"}}}
    with pytest.raises(ModuleNotFoundError):
        Topology.from_dict(written, {"x": needs})


def test_what_a_registry_says_of_a_name_has_its_path() -> None:
    class Imports(dict[str, object]):
        def __getitem__(self, name: str) -> object:
            raise TopologyError(f"no module for {name!r}")

    written = {"name": "t", "sources": {"a": None}, "nodes": {"p": {"process": "a", "processor": "x:Y"}}}
    with pytest.raises(TopologyError, match=r"^nodes\.p\.processor: no module for 'x:Y'$") as caught:
        Topology.from_dict(written, Imports())
    assert caught.value.node == "p"
