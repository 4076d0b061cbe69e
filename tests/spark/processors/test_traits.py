"""Each processor that comes with taskplace is in all the places that have to know of it."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from taskplace.spark.compile.forms import check_forms
from taskplace.spark.compile.keys import check_keys

from taskplace.errors import InputError
from taskplace.spark import processors
from taskplace.spark.processors import Count, Deduplicate, PerKey, TableJoin, Traits
from taskplace.spark.processors.traits import UNKNOWN, traits_of
from taskplace.spark.registry import Registry
from taskplace.spark.stub_processors import STATEFUL
from taskplace.spark.yaml_paths import YamlPaths, option_path
from topology import Topology, TopologyError

DOCS = Path(__file__).parents[3] / "docs"
#: What a YAML file has for each processor, of all the parts that a store may have; the store and the node are "n".
OPTIONS = {
    "aggregate": {
        "by": {"k": "string", "at": "timestamp"},
        "aggregates": {"n": "count"},
        "ttl": "1 hour",
        "time": "at",
    },
    "count": {"by": {"k": "string", "at": "timestamp"}, "ttl": "1 hour", "time": "at"},
    "deduplicate": {"by": {"k": "string"}, "ttl": "1 hour", "time": "at"},
    "per-key": {
        "function": "builtins:print",
        "by": {"k": "string"},
        "state": {"at": "timestamp"},
        "output": {"k": "string"},
        "ttl": "1 hour",
        "time": "at",
    },
    "table-join": {
        "by": {"k": "string"},
        "columns": {"at": "timestamp"},
        "ttl": "1 hour",
        "time": "at",
    },
}
#: Columns of a store that no option names.
OWN_COLUMNS = {"deduplicate": {"seen_in_batch", "at"}, "count": {"count"}}


def classes() -> dict[str, type]:
    """The processors that `taskplace.spark.processors` offers: classes that process; `Processor` is only their form."""
    offered = {name: getattr(processors, name) for name in processors.__all__}
    return {
        name: kind
        for name, kind in offered.items()
        if inspect.isclass(kind) and hasattr(kind, "process") and name != "Processor"
    }


def table(page: str, heading: str) -> str:
    """The first column of the table with this heading."""
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = text.partition(f"\n| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return "\n".join(row.split(" | ")[0] for row in rows)


@pytest.mark.parametrize("name", sorted(classes()))
def test_a_processor_states_its_traits_and_is_in_the_registry_and_in_the_docs(name):
    kind = classes()[name]
    assert isinstance(vars(kind).get("traits"), Traits), f"{name} has no `traits` of its own"
    assert name in STATEFUL.values(), f"{name} is missing in stub_processors.STATEFUL"
    in_yaml = next(known for known, of in STATEFUL.items() if of == name)
    assert in_yaml in Registry(), f"{in_yaml!r} is missing in registry._BUILT_IN"
    assert re.search(rf"`{name}\(", table("runtime.md", "processor")), "docs/runtime.md, Processors"
    assert f"`{in_yaml}`" in table("topology.md", "`processor`"), "docs/topology.md, the table of `processor`"


@pytest.mark.parametrize("name", sorted({*STATEFUL, *Registry()}))
def test_a_name_of_yaml_makes_the_class_that_the_stubs_say(name):
    assert name in OPTIONS, f"OPTIONS in this file has no example of {name!r}"
    made = Registry()[name](store="n", **OPTIONS[name])
    assert type(made) is classes()[STATEFUL[name]]
    assert made.store in made.layouts()


@pytest.mark.parametrize("name", sorted(STATEFUL))
def test_an_error_about_a_processor_has_the_path_of_its_option(name):
    assert option_path(f"{STATEFUL[name]}('n').by.k", OPTIONS[name]) == "by.k"
    join, options = name == "table-join", OPTIONS[name]
    node = {"join_table" if join else "process": ["in", "table"] if join else "in", "processor": name}
    source = {"key": "k", "partitions": 2}
    section = {
        "name": "t",
        "sources": {"in": source, "table": source} if join else {"in": source},
        "nodes": {"n": {**node, "options": options}, "o": {"sink": "n"}},
    }
    made = Registry()[name](store="n", **options)
    paths = YamlPaths(Topology.from_dict(section, Registry()).build(), section)
    for part, value in made.layouts()["n"].items():
        for column in value if part in ("key", "value") else [""]:
            if column in OWN_COLUMNS.get(name, ()) or part == "meaning":
                continue
            found = paths.of(f"stores.n.{part}{'.' * bool(column)}{column}")
            assert found.startswith("topology.nodes.n.options."), f"yaml_paths._LAYOUT: {part} of {name}"


def test_traits_that_are_not_all_stated_are_refused_when_the_class_is_imported():
    with pytest.raises(TypeError, match=fields(Traits)[-1].name):
        Traits(**{field.name: True for field in fields(Traits)[:-1]})


def test_a_class_without_traits_has_none():
    class Own:
        traits = "something of its own"

        def process(self, context, rows):
            return rows

    assert traits_of(Own()) == traits_of(lambda context, rows: rows) == traits_of(None) == UNKNOWN


@pytest.mark.parametrize("kind", sorted(classes().values(), key=lambda kind: kind.__name__))
def test_a_subclass_inherits_what_its_state_needs_and_promises_nothing_about_its_output(kind):
    class Derived(kind):
        pass

    traits = traits_of(object.__new__(Derived))
    assert traits.keeps_state_by_key is kind.traits.keeps_state_by_key
    assert traits.by_has_split_key is kind.traits.by_has_split_key
    assert traits.owns_its_store is kind.traits.owns_its_store
    assert not (traits.keeps_key_columns or traits.passes_keys_on)


def test_what_each_processor_states():
    assert all(kind.traits.by_has_split_key for kind in classes().values())
    assert {kind for kind in classes().values() if not kind.traits.keeps_key_columns} == {PerKey}
    assert {kind for kind in classes().values() if kind.traits.passes_keys_on} == {Deduplicate, TableJoin}
    assert all(kind.traits.keeps_state_by_key and kind.traits.owns_its_store for kind in classes().values())


class Own:
    """A processor of a user that states the traits of a count."""

    traits = Count.traits

    def __init__(self, store):
        self.store = store

    def layouts(self):
        return {"s": {"key": {"tailnum": "string"}, "value": {"n": "int64"}}}

    def process(self, context, rows):
        return rows


def test_a_processor_of_ones_own_is_judged_by_its_traits():
    topo = Topology("t")
    topo.source("in", key="origin", partitions=4).process(Own("s"), name="p").sink("o")
    with pytest.raises(
        TopologyError, match=r"'p': keeps state by .tailnum., but its input 'in' is partitioned by .origin."
    ):
        check_keys(topo.build())


@pytest.mark.parametrize("store", [None, "t", 3])
def test_traits_of_a_store_need_its_name(store):
    topo = Topology("t")
    topo.source("in", key="tailnum", partitions=4).process(Own(store), name="p").sink("o")
    with pytest.raises(InputError, match=r"^nodes\.p\.processor\.store: found .*one of s"):
        check_forms(topo.build())
