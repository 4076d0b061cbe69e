"""The written form: the same topology as in Python, numbers that stay, and errors that name the path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import Topology, TopologyError


def aggregate(keep: int) -> tuple[str, int]:
    if keep < 0:
        raise ValueError("keep has to be positive")
    return ("aggregate", keep)


REGISTRY = {"table-join": lambda: "join", "aggregate": aggregate}

FLIGHTS = """
name: flights
sources:
  flights: {key: [origin, time_hour], partitions: 12, options: {format: parquet}}
  weather: {key: [origin, time_hour], partitions: 12}
stores:
  weather-by-hour: {logged: true, retention_ms: 1000, options: {ttl: 5}}
nodes:
  out: {sink: stats, target: delays, schema: {tailnum: string}}
  with-weather: {join_table: [flights, weather], processor: table-join, stores: [weather-by-hour]}
  by-aircraft: {repartition: with-weather, key: [tailnum], partitions: 6}
  stats:
    process: by-aircraft
    processor: aggregate
    options: {keep: 10}
    stores: {name: delays, logged: false, options: {ttl: 9}}
"""


def read(text: str, **changes: Any) -> Topology:
    return Topology.from_dict(yaml.safe_load(text) | changes, REGISTRY)


def test_yaml_gives_what_python_gives():
    topo = Topology("flights")
    flights = topo.source("flights", key=["origin", "time_hour"], partitions=12, format="parquet")
    weather = topo.source("weather", key=["origin", "time_hour"], partitions=12)
    topo.store("weather-by-hour", logged=True, retention_ms=1000, ttl=5)
    joined = flights.join_table(weather, "join", name="with-weather", stores=["weather-by-hour"])
    by_tail = joined.repartition(["tailnum"], name="by-aircraft", partitions=6)
    stats = by_tail.process(
        ("aggregate", 10), name="stats", stores=[{"name": "delays", "logged": False, "ttl": 9}], keep=10
    )
    stats.sink("out", target="delays")
    written, called = read(FLIGHTS).build(), topo.build()
    assert written.to_dict() == called.to_dict()
    assert written.node("stats").processor == ("aggregate", 10)
    assert written.node("stats").options == {"keep": 10}
    assert written.node("with-weather").processor == "join"
    assert written.node("flights").options == {"format": "parquet"}
    assert written.node("out").target == "delays"
    assert written.node("out").options == {"schema": {"tailnum": "string"}}
    assert [s.options for s in written.stores] == [{"ttl": 5}, {"ttl": 9}]


def test_sinks_get_their_targets_by_name():
    target = object()
    document = yaml.safe_load(FLIGHTS)
    built = Topology.from_dict(document, REGISTRY, {"out": target}).build()
    assert built.node("out").target is target
    with pytest.raises(TopologyError, match=r"^targets\.outt: unknown sink; did you mean 'out'\?$"):
        Topology.from_dict(document, REGISTRY, {"outt": target})


def test_a_list_of_nodes_names_itself_as_python_does():
    written = Topology.from_dict(
        {
            "name": "t",
            "sources": {"flights": {"topic": "legs", "key": "k", "partitions": 2}, "planes": {"key": "k"}},
            "nodes": [
                {"process": "flights"},
                {"process": "flights-process"},
                {"join_stream": ["flights-process-2", "planes"]},
                {"repartition": "flights-join-planes", "key": "tailnum"},
                {"process": "flights-by-tailnum"},
                {"name": "both", "merge": ["flights-process", "flights-process-2"]},
                {"sink": "both"},
            ],
        }
    )
    topo = Topology("t")
    flights = topo.source("legs", name="flights", key="k", partitions=2)
    one = flights.process()
    two = one.process()
    planes = topo.source("planes", key="k")
    two.join_stream(planes).repartition("tailnum").process()
    one.merge(two, name="both").sink()
    assert written.build().to_dict() == topo.build().to_dict()


def test_options_may_have_any_name():
    """They are kept, not called with: `self` is as good a name as any."""
    names = ["self", "topic", "inputs", "processor", "stores", "join", "target", "kind", "parents"]
    options = {name: position for position, name in enumerate(names)}
    built = Topology.from_dict(
        {
            "name": "t",
            "sources": {"a": {"options": {"self": 1, "inputs": 2}}},
            "stores": {"s": {"options": {"self": 3}}},
            "nodes": {
                "p": {"process": "a", "stores": ["s"], "options": options},
                "m": {"merge": ["a", "p"], "options": options},
                "r": {"repartition": "m", "options": options},
                "o": {"sink": "r", "options": options},
            },
        }
    ).build()
    assert built.node("a").options == {"self": 1, "inputs": 2}
    assert built.stores[0].options == {"self": 3}
    assert all(built.node(name).options == options for name in "pmro")


def test_a_registry_may_know_what_is_not_given():
    class Named(dict[str, Any]):
        @staticmethod
        def defaults(processor, node):
            return {"called": f"{processor} of {node}", "keep": 1}

    registry = Named(aggregate=lambda called, keep: (called, keep))
    entries = [
        {"process": "a", "processor": "aggregate"},
        {"name": "n", "process": "a", "processor": "aggregate"},
    ]
    entries[1]["options"] = {"keep": 2}
    built = Topology.from_dict({"name": "t", "sources": {"a": None}, "nodes": entries}, registry).build()
    assert built.node("a-process").processor == ("aggregate of a-process", 1)
    assert built.node("n").processor == ("aggregate of n", 2)
    assert built.node("n").options == {"called": "aggregate of n", "keep": 2}


def numbered(sources: str, **nodes: dict[str, Any]) -> dict[str, int]:
    """The subtopology of every node; one letter per source."""
    written = {name: {"key": "k", "partitions": 2} for name in sources}
    built = Topology.from_dict({"name": "t", "sources": written, "nodes": nodes}).build()
    return {node.name: sub.id for sub in built.subtopologies for node in sub.nodes}


@settings(deadline=None)
@given(st.data())
def test_what_is_read_keeps_its_number_whatever_is_appended(data):
    sources = "abcdef"[: data.draw(st.integers(1, 5))]
    nodes: dict[str, dict[str, Any]] = {}

    def append(names, count):
        for _ in range(count):
            reads = data.draw(st.sampled_from([*names, *nodes]))
            verb = data.draw(st.sampled_from(["process", "repartition"]))
            nodes[f"n{len(nodes)}"] = {verb: reads}

    append(sources, data.draw(st.integers(0, 5)))
    before = numbered(sources, **nodes)
    read = {spec.get("process", spec.get("repartition")) for spec in nodes.values()}
    append("abcdef", data.draw(st.integers(0, 5)))
    after = numbered("abcdef", **nodes)
    kept = {name: number for name, number in before.items() if name not in sources or name in read}
    assert kept.items() <= after.items()


def fails() -> None:
    raise ZeroDivisionError("division by zero")


def picky() -> None:
    raise TopologyError("keep: found -1, expected a number")


REFUSED = (Path(__file__).parent / "refused_documents.txt").read_text(encoding="utf-8").splitlines()[1:]


@pytest.mark.parametrize("case", REFUSED)
def test_errors_have_the_path(case):
    text, says = case.split(" | ")
    if text.startswith("{"):
        document = yaml.safe_load(text)
    else:
        document = {"name": "t", "sources": {"a": None, "alpha": None}} | yaml.safe_load(f"{{{text}}}")
    with pytest.raises(TopologyError) as caught:
        Topology.from_dict(document, {**REGISTRY, "fails": fails, "picky": picky}).build()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["registry", "targets"])
@pytest.mark.parametrize("given", [["upper"], {1: str.upper}, "upper"])
def test_processors_and_targets_are_given_by_name(part, given):
    document = {"name": "t", "sources": {"a": None}}
    with pytest.raises(TopologyError, match=rf"^{part}: found .*, expected a mapping by name$"):
        Topology.from_dict(document, **({"registry": {}} | {part: given}))


class Registry(dict[str, Any]):
    def __getitem__(self, name: str) -> Any:
        if name == "needs":
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
        raise TopologyError(f"no module for {name!r}")


def test_what_a_registry_says_of_a_name():
    written = {"name": "t", "sources": {"a": None}, "nodes": {"p": {"process": "a", "processor": "x:Y"}}}
    with pytest.raises(TopologyError, match=r"^nodes\.p\.processor: no module for 'x:Y'$") as caught:
        Topology.from_dict(written, Registry())
    assert caught.value.node == "p"
    written["nodes"]["p"]["processor"] = "needs"
    with pytest.raises(ModuleNotFoundError):  # a missing package is no mistake of the document
        Topology.from_dict(written, Registry())
