"""Each processor that comes with taskplace is in all the places that have to know of it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from taskplace.errors import InputError
from taskplace.spark import processors
from taskplace.spark.compile.infer import infer
from taskplace.spark.compile.programs import programs
from taskplace.spark.processors import Count, Deduplicate, Facts, PerKey, State, TableJoin
from taskplace.spark.registry import Registry
from taskplace.spark.stub_processors import STATEFUL
from taskplace.spark.yaml_paths import YamlPaths, key_path
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
def test_a_processor_answers_itself_and_is_in_the_registry_and_in_the_docs(name):
    kind = classes()[name]
    assert "infer" in vars(kind), f"{name} has no `infer` of its own"
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
    assert key_path(OPTIONS[name], f"{STATEFUL[name]}('n').by.k") == "by.k"
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


class Other:
    """A node of the user without an answer."""

    def process(self, context, rows):
        return rows


def one_node(processor, key="tailnum"):
    topo = Topology("t")
    topo.source("in", key=key, partitions=4).process(processor, name="p").sink("o")
    return topo.build()


@pytest.mark.parametrize("kind", [Count, Deduplicate, PerKey, TableJoin, Other])
def test_what_a_derived_class_passes_on_is_not_believed_and_its_state_is_compared(kind):
    class Derived(kind):
        pass

    for each, believed in ((kind, kind in (Count, Deduplicate, TableJoin)), (Derived, False)):
        topo = Topology("t")
        rows = topo.source("a", key="k", partitions=4)
        options = {"by": {"k": "string"}, "columns": {"v": "int64"}}
        if issubclass(each, TableJoin):
            node = rows.join_table(topo.source("b", key="k", partitions=4), each("s", **options), name="p")
        elif issubclass(each, PerKey):
            state = {"by": {"k": "string"}, "state": {"v": "int64"}, "output": {"k": "string"}}
            node = rows.process(each("s", lambda key, rows, state: (state, []), **state), name="p")
        else:
            node = rows.process(
                each() if each.__mro__[-2] is Other else each("s", by={"k": "string"}), name="p"
            )
        node.sink("o")
        (program,) = programs(built := topo.build())
        assert all(not route.unsure for route in infer(built)["p"].routes) is believed
        stated = kind is not Other
        assert bool(program.owned) is (stated and each is Derived)
        assert set(infer(built)["p"].states) == ({"s"} if stated else set())


class Own:
    """A processor of a user that states what it keeps."""

    def __init__(self, store):
        self.store = store

    def layouts(self):
        return {"s": {"key": {"tailnum": "string"}, "value": {"n": "int64"}}}

    def infer(self, inputs):
        return Facts(states={self.store: State()})

    def process(self, context, rows):
        return rows


def test_a_processor_of_ones_own_is_judged_by_what_it_states():
    with pytest.raises(
        TopologyError, match=r"'p': keeps state by .tailnum., but its input 'in' is partitioned by .origin."
    ):
        infer(one_node(Own("s"), "origin"))
    assert not programs(one_node(Own("s")))[0].owned


@pytest.mark.parametrize("store", [None, "t", 3])
def test_only_the_state_of_its_own_stores_may_be_stated(store):
    with pytest.raises(InputError, match=r"^nodes\.p\.processor\.infer: found .*one of s$"):
        infer(one_node(Own(store)))
