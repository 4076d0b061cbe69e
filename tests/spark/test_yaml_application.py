"""Applications that are YAML alone: what is accepted, and every mistake as one error with its path; no Spark runs."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import types
from functools import partial
from inspect import Signature, signature
from pathlib import Path

import pytest
import yaml

pytest.importorskip("pyspark")

import pyarrow as pa

from taskplace.cli import main
from taskplace.cli.application import internal_plan
from taskplace.errors import ConfigError, InputError
from taskplace.settings import DECLARED, Settings
from taskplace.spark import ForeachBatch, ParquetSink
from taskplace.spark.dotted_keys import entries, topology_section
from taskplace.spark.driver import staging
from taskplace.spark.driver.programs import programs
from taskplace.spark.processors import PerKey
from taskplace.spark.registry import Registry
from taskplace.spark.stub_processors import STATEFUL, Outlines
from taskplace.spark.yaml_application import Declared, declared_topology
from topology import Topology, TopologyError

ORDERS = """
application: {id: orders}
topology:
  sources:
    orders: {key: customer, partitions: 4}
  nodes:
    once: {process: orders, processor: deduplicate, options: {by: {id: long}}}
    spent:
      process: once
      processor: aggregate
      options:
        store: spent-by-customer
        by: {customer: string}
        aggregates: {orders: count, cents: {sum: cents, type: int64}, worst: {max: cents}}
    totals: {sink: spent}
input:
  orders: {format: parquet, path: in, schema: "id long, customer string, cents long", options: {maxFilesPerTrigger: 1}}
output:
  totals: {path: out}
"""


def longest(key, rows, state):
    return state, rows


def clean(context, rows, *, least: int = 0):
    return rows


def make_clean(least):
    return lambda context, rows: rows.slice(least)


class Latest:
    def __init__(self, column: str, limit: int = 3) -> None:
        self.column, self.limit = column, limit

    def layouts(self):
        return {"latest": {"key": {self.column: "string"}, "value": {"at": "timestamp"}}}

    def process(self, context, rows):
        return rows


def show(df, batch_id):
    """The function of a sink."""


HERE = "shop_processors"


@pytest.fixture(autouse=True)
def _own_module(monkeypatch):
    """What an application's own module would have; tests are not importable by name here."""

    module = types.ModuleType(HERE)
    for each in (longest, clean, make_clean, Latest, show):
        setattr(module, each.__name__, each)
    module.lonely = 3
    monkeypatch.setitem(sys.modules, HERE, module)


def settings(**changes) -> Settings:
    """`ORDERS` with values changed: dotted paths with __ between the keys."""
    document = copy.deepcopy(yaml.safe_load(ORDERS))
    for path, value in changes.items():
        *way, last = path.split("__")
        at = document
        for key in way:
            at = at[key]
        at[last] = value
    return Settings.from_mapping(document)


def node(processor, **options) -> dict:
    return {"process": "once", "processor": processor, "options": options}


def test_a_file_without_a_class():
    given = settings()
    assert given.application.cls == DECLARED
    built = Declared(given).topology().build()
    assert (built.name, len(built.tasks())) == ("orders", 4)
    # State is named after its node, unless it has a name.
    assert [store.name for store in built.stores] == ["once", "spent-by-customer"]
    target = built.node("totals").target
    assert isinstance(target, ParquetSink)
    assert target.path.is_absolute()
    (program,) = programs(built)
    assert program.stores["spent-by-customer"].value == pa.schema(
        [("orders", pa.int64()), ("cents", pa.int64()), ("worst", pa.float64())]
    )


def test_overrides_reach_into_the_topology():
    document = yaml.safe_load(ORDERS)
    given = Settings.from_mapping(
        document,
        [
            "topology.sources.orders.partitions=8",
            "topology.nodes.spent.options.aggregates={n: count}",
            "input.orders.options.kafka.group.id=g",
            "input.orders.path=/elsewhere",
        ],
    )
    assert given.topology["sources"]["orders"] == {"key": "customer", "partitions": 8}
    assert given.topology["nodes"]["spent"]["options"]["aggregates"] == {"n": "count"}
    assert given.input["orders"]["options"] == {"maxFilesPerTrigger": 1, "kafka.group.id": "g"}
    assert given.input["orders"]["path"] == "/elsewhere"
    assert document["topology"]["sources"]["orders"]["partitions"] == 4
    assert len(Declared(given).topology().build().tasks()) == 8


def test_ones_own_functions_classes_and_factories():
    nodes = {
        "a": node(f"{HERE}:clean"),
        "b": node(f"{HERE}:clean", least=3),
        "c": node(f"{HERE}:Latest", column="customer"),
        "d": node(f"{HERE}:make_clean()", least=2),
        "e": node(
            "per-key",
            function=f"{HERE}:longest",
            by={"customer": "string"},
            state={"n": "int"},
            output={"customer": "string"},
        ),
    }
    given = settings(topology__nodes={**settings().topology["nodes"], **nodes})
    built = Declared(given).topology().build()
    assert built.node("a").processor is clean
    assert built.node("b").processor.keywords == {"least": 3}
    assert (built.node("c").processor.column, built.node("c").processor.limit) == ("customer", 3)
    assert built.node("d").processor(None, pa.table({"x": [1, 2, 3]})).num_rows == 1
    assert isinstance(built.node("e").processor, PerKey)
    assert built.node("e").stores == ("e",)
    assert built.node("c").stores == ("latest",)


def test_schemas_as_columns_and_sinks_as_functions():
    given = settings(
        input__orders__schema={
            **{"customer": "string", "id": "long", "cents": "long"},
            "items": "array<struct<a: int, b: int>>",
        },
        output__totals={"foreach": f"{HERE}:show"},
    )
    application = Declared(given)
    assert isinstance(application.topology().build().node("totals").target, ForeachBatch)


def test_a_sink_s_schema():
    columns = {"customer": "string", "cents": "list<decimal(9, 2)>", "orders": "int64", "worst": "double"}
    for change in (
        {"topology__nodes__totals__schema": columns},
        {f"topology__nodes.totals.schema.{name}": kind for name, kind in columns.items()},
    ):
        built = Declared(settings(**change)).topology().build()
        assert staging.declared(built)["totals"].columns == tuple(columns.items())
    with pytest.raises(
        ConfigError, match=r"^topology\.nodes\.totals\.schema\.cents: found 'int46', expected a type"
    ):
        Declared(settings(topology__nodes__totals__schema={"cents": "int46"}))


def test_sources_that_are_no_files():
    kafka = {
        "format": "kafka",
        "options": {"subscribe": "orders"},
        "select": ["cast(key as string) as customer"],
    }
    Declared(settings(input__orders=kafka))
    own = {"format": "com.shop.Source", "schema": "id long, customer string, cents long"}
    Declared(settings(input__orders=own))


TYPES = "topology.nodes.spent.options"
BAD = [
    # what is changed, and what the error says
    ({"topology__name": "x"}, "topology.name: found 'x', expected nothing; its name is the application's id"),
    (
        {"topology__sourcs": {}},
        "topology.sourcs: found an unknown field, expected one of 4; did you mean 'sources'?",
    ),
    ({"topology__sources": {}}, "topology.sources: missing"),
    (
        {"topology__sources__orders__partitons": 3},
        "topology.sources.orders.partitons: found an unknown field",
    ),
    (
        {"topology__nodes__totals": {"sink": "spend"}},
        "topology.nodes.totals.sink: found 'spend', expected the name",
    ),
    ({"topology__nodes__totals": {"sink": "spend"}}, "did you mean 'spent'?"),
    (
        {"topology__nodes__once__processor": "dedupliate"},
        "topology.nodes.once.processor: found 'dedupliate', expected a registered processor; did you mean 'dedup",
    ),
    ({"topology__nodes__once__processor": f"{HERE}:claen"}, f"did you mean '{HERE}:clean'?"),
    (
        {"topology__nodes__once__processor": f"{HERE}:lonely"},
        f"topology.nodes.once.processor: found '{HERE}:lonely', which is no function and no class",
    ),
    (
        {"topology__nodes__once__processor": "no_such_module:x"},
        "topology.nodes.once.processor: found 'no_such_module:x', expected a module that can be imported",
    ),
    (
        {"topology__nodes__once__options": {"bye": {}}},
        "topology.nodes.once.options.bye: found an unknown option; did",
    ),
    (
        {"topology__nodes__once__options": {}},
        "topology.nodes.once.options.by: found nothing, expected a value",
    ),
    ({"topology__nodes__once__options": 3}, "topology.nodes.once.options: found 3, expected a mapping"),
    (
        {"topology__nodes__once__options__by": ["id"]},
        "topology.nodes.once.options.by: found ['id'], expected columns",
    ),
    (
        {"topology__nodes__once__options__by": {"id": "lnog"}},
        "topology.nodes.once.options.by.id: found 'lnog', expected a column type; did you mean 'long'?",
    ),
    (
        {"topology__nodes__once": node(f"{HERE}:clean", lest=1)},
        "nodes.once.options.lest: found an unknown option; did",
    ),
    (
        {"topology__nodes__once": node(f"{HERE}:clean", rows=1)},
        "nodes.once.options.rows: found an unknown option",
    ),
    (
        {"topology__nodes__once": node(f"{HERE}:Latest")},
        "nodes.once.options.column: found nothing, expected a value",
    ),
    (
        {"topology__nodes__once": node(f"{HERE}:Latest", colum="x")},
        "options.colum: found an unknown option; did you",
    ),
    (
        {"topology__nodes__spent__options__aggregates": {}},
        f"{TYPES}.aggregates: found {{}}, expected names with",
    ),
    (
        {"topology__nodes__spent__options__aggregates": {"n": "sum"}},
        f"{TYPES}.aggregates.n: found 'sum', expected 'count', or a function and its column like",
    ),
    (
        {"topology__nodes__spent__options__aggregates": {"n": {"maxx": "a"}}},
        f"{TYPES}.aggregates.n: found the function 'maxx', expected a known one; did you mean 'max'?",
    ),
    (
        {"topology__nodes__spent__options__aggregates": {"n": {"max": "a", "min": "a"}}},
        f"{TYPES}.aggregates.n: found {{'max': 'a', 'min': 'a'}}, expected 'count', or",
    ),
    (
        {"topology__nodes__spent__options__aggregates": {"n": {"max": 3}}},
        f"{TYPES}.aggregates.n.max: found 3",
    ),
    (
        {"topology__nodes__spent__options__aggregates": {"n": {"max": "a", "type": "in64"}}},
        f"{TYPES}.aggregates.n.type: found 'in64', expected a column type; did you mean 'int64'?",
    ),
    (
        {"topology__nodes__spent__options__aggregates": {"by": "count"}},
        f"{TYPES}.aggregates.by: found a name",
    ),
    ({"topology__nodes__spent__options__store": "a/b"}, "a/b"),
    (
        {"topology__nodes__more": node("table-join", by={"id": "long"}, columns={"a": "int"}, how="leftt")},
        "topology.nodes.more.options.how: found 'leftt', expected left or inner; did you mean 'left'?",
    ),
    (
        {"topology__nodes__more": node("table-join", by={"id": "long"}, columns={"a": "int"}, deleted=True)},
        "topology.nodes.more.options.deleted: found True, expected the name of a column of booleans",
    ),
    (
        {"topology__nodes__more": node("per-key", function="x", by=1, state=1, output=1)},
        "options.function: found 'x'",
    ),
    ({"topology__nodes__more": {"process": "once"}}, "more: found 'no processor'"),
    ({"input": {}}, "input.orders: found None, expected a source of Spark's"),
    ({"input__order": {}}, "input.order: found an unknown key"),
    ({"input__orders": 3}, "input.orders: found 3"),
    ({"input__orders__formt": "csv"}, "did you mean 'format'?"),
    (
        {"input__orders__format": "parqet"},
        "input.orders.format: found 'parqet', expected a format that Spark knows; did",
    ),
    ({"input__orders__format": None}, "input.orders.format: found None"),
    ({"input__orders__path": None}, "input.orders.path: found None, expected a directory or a URI"),
    ({"input__orders__schema": None}, "input.orders.schema: found None, expected the columns of the files"),
    ({"input__orders__schema": 3}, "input.orders.schema: found 3"),
    (
        {"input__orders__schema": "customer strng"},
        "input.orders.schema.customer: found 'strng', expected one of Spark's types; did you mean 'string'?",
    ),
    ({"input__orders__schema": {"customer": "strin"}}, "input.orders.schema.customer: found 'strin'"),
    (
        {"input__orders__schema": "id long, costumer string"},
        "input.orders.schema: found 'id, costumer', expected the key column 'customer' among them; did you mean 'cost",
    ),
    ({"input__orders__options": [1]}, "input.orders.options: found [1]"),
    ({"input__orders__options": {"a": [1]}}, "input.orders.options.a: found [1]"),
    ({"input__orders__select": "id"}, "input.orders.select: found 'id', expected a list of SQL expressions"),
    (
        {"output": {}},
        "output.totals: found None, expected {path: a directory} or {foreach: 'module:function'}",
    ),
    ({"output__total": {"path": "x"}}, "output.total: unknown sink; did you mean 'totals'?"),
    ({"output__totals": {"pth": "x"}}, "output.totals.pth: found an unknown key"),
    ({"output__totals": {"path": 3}}, "output.totals.path: found 3"),
    ({"output__totals": {"path": "file://nas/x"}}, "output.totals.path: found 'file://nas/x'"),
    ({"output__totals": {"path": "s3://bucket/x"}}, "output.totals.path: found 's3://bucket/x'"),
    ({"output__totals": {"foreach": f"{HERE}:shwo"}}, f"output.totals.foreach: found '{HERE}:shwo'"),
]


@pytest.mark.parametrize(("changes", "says"), BAD, ids=lambda v: str(v)[:60])
def test_a_mistake_is_one_error_with_its_path(changes, says):
    with pytest.raises((InputError, TopologyError)) as caught:
        Declared(settings(**changes))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_class_of_ones_own_needs_a_topology_to_read_one():
    bare = Settings.from_mapping({"application": {"id": "x", "class": "a:B"}})
    with pytest.raises(ConfigError, match=r"^topology: found None, expected sources and nodes$"):
        declared_topology(bare)


# -- overrides --------------------------------------------------------------------------------------------------


#: `ORDERS`, as overrides of a file that has the rest.
OVERRIDES = [
    "topology.sources.orders.key=customer",
    "topology.sources.orders.partitions=4",
    "topology.nodes.once={process: orders, processor: deduplicate, options: {by: {id: long}}}",
    "topology.nodes.spent.process=once",
    "topology.nodes.spent.processor=aggregate",
    "topology.nodes.spent.options.store=spent-by-customer",
    "topology.nodes.spent.options.by={customer: string}",
    "topology.nodes.spent.options.aggregates={orders: count, cents: {sum: cents, type: int64}, worst: {max: cents}}",
    "topology.nodes.totals.sink=spent",
    "input.orders.format=parquet",
    "input.orders.path=in",
    "input.orders.schema=id long, customer string, cents long",
    "input.orders.options.maxFilesPerTrigger=1",
    "output.totals.path=out",
]


def test_overrides_can_say_all_that_a_file_says():
    told = Declared(Settings.from_mapping({"application": {"id": "orders"}}, OVERRIDES))
    nested = Declared(settings())
    assert told.topology().build().to_dict() == nested.topology().build().to_dict()
    assert told.topology().build().node("spent").options == nested.topology().build().node("spent").options
    assert (
        told.topology().build().node("totals").target.path
        == nested.topology().build().node("totals").target.path
    )
    assert vars(told._inputs["orders"]) == vars(nested._inputs["orders"])


@pytest.mark.parametrize(
    ("given", "nested"),
    [
        ({"a.path": "/x"}, {"a": {"path": "/x"}}),
        ({"a.b": {"path": "/x"}}, {"a.b": {"path": "/x"}}),
        ({"a.b.path": "/x"}, {"a.b": {"path": "/x"}}),
        ({"a.b": {}, "a.b.pth": "/x"}, {"a.b": {"pth": "/x"}}),
        ({"a": {"path": "/x"}, "a.b.path": "/y"}, {"a": {"path": "/x"}, "a.b": {"path": "/y"}}),
        ({"a.options.x.y": 1, "a.options.x.z": 2}, {"a": {"options": {"x.y": 1, "x.z": 2}}}),
        ({"a.options": {"x": 1}, "a.options.y": 2}, {"a": {"options": {"x": 1, "y": 2}}}),
        ({"a": {"path": "/x"}, "a.b": {"path": "/y"}}, {"a": {"path": "/x"}, "a.b": {"path": "/y"}}),
        ({"typo": 3}, {"typo": 3}),
    ],
)
def test_where_a_name_ends(given, nested):
    assert entries("output", given, ("path", "foreach", "options")) == nested


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"a": {"path": 1}, "a.path": 2}, "output.a.path"),
        ({"a": 3, "a.path": 2}, "output.a.path"),
        ({"a.options": {"x": 1}, "a.options.x": 2}, "output.a.options.x"),
    ],
)
def test_what_is_given_flat_and_nested_is_given_twice(given, path):
    with pytest.raises(ConfigError, match=f"^{path}: found 'a key given twice', expected one value$"):
        entries("output", given, ("path", "options"))


def test_flat_nodes_beside_nodes():
    assert topology_section({"nodes": {"o": {"sink": "p"}}, "nodes.p": {"process": "a"}, "other": 1}) == {
        "nodes": {"o": {"sink": "p"}, "p": {"process": "a"}},
        "other": 1,
    }
    with pytest.raises(ConfigError, match=r"^topology\.nodes\.o: found 'a key given twice'"):
        topology_section({"nodes": {"o": {"sink": "p"}}, "nodes.o": {"sink": "q"}})
    with pytest.raises(
        ConfigError, match=r"^topology\.nodes\.o\.sink: found 'a name', expected a list alone"
    ):
        topology_section({"nodes": [{"sink": "p"}], "nodes.o.sink": "q"})


# -- names of state, and of options -----------------------------------------------------------------------------


def test_state_of_a_node_without_a_name_is_named_after_the_node_too():
    nodes = [
        {"process": "orders", "processor": "deduplicate", "options": {"by": {"id": "long"}}},
        {"process": "orders-process", "processor": "count", "options": {"by": {"customer": "string"}}},
        {"name": "totals", "sink": "orders-process-2"},
    ]
    built = Declared(settings(topology__nodes=nodes)).topology().build()
    assert [store.name for store in built.stores] == ["orders-process", "orders-process-2"]


@pytest.mark.parametrize("name", ["factory", "given", "of", "function", "self"])
def test_an_option_may_have_any_name(name):
    def own(context, rows, *, option=1):
        return option

    # The same function, with an option of that name.
    parameters = [
        p.replace(name=name) if p.name == "option" else p for p in signature(own).parameters.values()
    ]
    named = partial(lambda own, context, rows, **options: own(context, rows, option=options[name]), own)
    named.__signature__ = Signature(parameters)
    sys.modules[HERE].own = named
    nodes = {**settings().topology["nodes"], "x": node(f"{HERE}:own", **{name: 5})}
    built = Declared(settings(topology__nodes=nodes)).topology().build()
    assert built.node("x").processor(None, None) == 5


# -- showing a topology -----------------------------------------------------------------------------------------


ROOT = Path(__file__).resolve().parents[2]
BLOCKED = "import sys\nfor name in sys.argv[1].split(','): sys.modules[name] = None\n"
WITHOUT_SPARK = "pyspark,py4j"
WITHOUT_THE_EXTRA = "pyspark,py4j,pyarrow,lmdb,pandas,psutil"


def command(missing, *arguments, where=ROOT):
    code = f"{BLOCKED}from taskplace.cli import main\nsys.exit(main(sys.argv[2:]))"
    return subprocess.run(
        [sys.executable, "-c", code, missing, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )


@pytest.mark.parametrize("missing", [WITHOUT_SPARK, WITHOUT_THE_EXTRA])
def test_a_topology_in_yaml_shows_without_spark(missing):
    shown = command(missing, "topology", "examples/table_join.yaml", "--output", "json")
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr == ""
    known = declared_topology(Settings.load(ROOT / "examples/table_join.yaml")).build()
    assert json.loads(shown.stdout) == known.to_dict()


def test_a_class_that_needs_spark_is_one_error_that_names_the_extra(tmp_path):
    (tmp_path / "needy.py").write_text("import pyspark\nclass App:\n    pass\n")
    (tmp_path / "needy.yaml").write_text("application: {id: needy, class: 'needy:App'}\n")
    for arguments in (("topology", "needy.yaml"), ("run", "--check", "needy.yaml")):
        shown = command(WITHOUT_SPARK, *arguments, where=tmp_path)
        assert (shown.returncode, shown.stdout) == (2, "")
        assert shown.stderr.startswith("taskplace: application.class: found 'needy:App', expected")
        assert "it needs 'pyspark" in shown.stderr
        assert shown.stderr.endswith("pip install 'taskplace[spark]'\n")
        assert shown.stderr.count("\n") == 1


def test_the_main_example_shows_without_spark():
    shown = command(WITHOUT_SPARK, "topology", "conf/flights.yaml")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Processor: with-weather (stores: [weather-by-hour])" in shown.stdout


@pytest.mark.parametrize("missing", [WITHOUT_SPARK, WITHOUT_THE_EXTRA])
def test_running_yaml_alone_without_spark_is_no_riddle(missing):
    shown = command(missing, "run", "--check", "examples/table_join.yaml")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert shown.stderr.startswith("taskplace: topology: found 'no Spark', expected the packages that run")
    assert shown.stderr.endswith("pip install 'taskplace[spark]'\n")


def test_processors_of_ones_own_need_the_extra_to_be_shown(tmp_path):
    (tmp_path / "own.yaml").write_text(
        "application: {id: own}\ntopology: {sources: {a: }, nodes: {x: {process: a, processor: 'm:f'}}}\n"
    )
    shown = command(WITHOUT_THE_EXTRA, "topology", "own.yaml", where=tmp_path)
    assert shown.returncode == 2
    assert "topology.nodes.x.processor: found 'm:f'" in shown.stderr
    assert "pip install 'taskplace[spark]'" in shown.stderr


def test_what_shows_without_arrow_is_what_there_is():
    assert set(STATEFUL) == set(Registry())
    assert {name: Registry.defaults(name, "n") for name in [*STATEFUL, "m:f"]} == {
        name: Outlines.defaults(name, "n") for name in [*STATEFUL, "m:f"]
    }
    with pytest.raises(TopologyError, match="'cuont', expected a registered processor; did you mean 'count'"):
        Topology.from_dict(
            {"name": "t", "sources": {"a": None}, "nodes": {"x": {"process": "a", "processor": "cuont"}}},
            Outlines(),
        )


def test_a_topology_shows_before_input_and_output_are_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    document = yaml.safe_load(ORDERS)
    del document["input"], document["output"]
    Path("orders.yaml").write_text(yaml.safe_dump(document))
    assert main(["topology", "orders.yaml", "--set", "topology.sources.orders.partitions=7"]) == 0
    shown = capsys.readouterr().out
    assert "Processor: once (stores: [once])" in shown
    assert "Sink: totals (topic: totals)" in shown
    assert "subtopology 0: 7 tasks, once, spent-by-customer" in shown
    assert main(["run", "--check", "orders.yaml"]) == 2, "running needs them"
    assert "output.totals" in capsys.readouterr().err


def test_the_plain_document_of_the_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/topology.md").read_text()
    Path("plain.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    assert main(["topology", "plain.yaml"]) == 0
    text = page.split(">>> print(built.describe())\n")[1].split("\n\n```")[0]
    shown = capsys.readouterr().out
    assert shown.startswith(text.replace("<BLANKLINE>", "").rstrip())
    assert "subtopology 1: 6 tasks, delays" in shown
    assert main(["topology", "plain.yaml", "--dot", "--set", "nodes.by-aircraft.partitions=3"]) == 0
    assert "by-aircraft-repartition\\n3 partitions" in capsys.readouterr().out
    assert main(["topology", "plain.yaml", "--set", "nodes.stats.stores=[{name: d, loged: false}]"]) == 2
    assert "nodes.stats.stores[0].loged: found an unknown field" in capsys.readouterr().err


def test_what_is_neither_is_still_said_to_be_no_application(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text("topologi: {}\n")
    assert main(["topology", "x.yaml"]) == 2
    assert "did you mean 'topology'" in capsys.readouterr().err


def test_a_topology_without_sources_is_said_to_lack_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text("name: t\nnodes:\n  p: {process: a}\n")
    assert main(["topology", "x.yaml"]) == 2
    assert capsys.readouterr().err == "taskplace: sources: missing, expected the topology's sources\n"


def test_the_plan_of_internal_topics_is_lines_to_print():
    topo = Topology("t")
    topo.source("a", key="k", partitions=2).process(name="p", stores=[{"name": "s", "retention_ms": 9}])
    assert internal_plan(topo.build()).splitlines() == [
        "internal topics:",
        "topic        partitions  cleanup.policy  retention.ms",
        "s-changelog           2  compact,delete  9",
    ]
    waiting = topo.build().with_partitions({"a": None})
    assert internal_plan(waiting) == "internal topics: not known before the topology is ready\n"
    found = topo.build().with_partitions({"s-changelog": 3})
    assert "s-changelog           2" in internal_plan(found), "what is planned, not what was found"
    stateless = Topology("t")
    stateless.source("a", partitions=2)
    assert internal_plan(stateless.build()) == ""


def test_a_table_join_has_an_order_and_marks_that_remove():
    made = Registry()["table-join"](
        store="prices", by={"k": "string"}, columns={"at": "long"}, order_by="at", deleted="gone"
    )
    assert made.layouts() == {"prices": {"key": {"k": "string"}, "value": {"at": "long"}}}
    assert (made.order_by, made.deleted) == (("at",), "gone")


SPENT = "topology__nodes__spent__options"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"input__orders__schema": "id long, customer string"},
            "topology.nodes.spent, cents: found \"no column 'cents'\", expected one of ['customer', 'id']",
        ),
        (
            {"input__orders__schema": {"idd": "long", "customer": "string", "cents": "long"}},
            "topology.nodes.once, by.id: found \"no column 'id'\", expected one of ['cents', 'customer', "
            "'idd']; did you mean 'idd'?",
        ),
        (
            {"input__orders__schema": "id long, customer string, cents long, Cents int"},
            "input.orders.schema: found \"columns 'cents' and 'Cents', which are one name to Spark\"",
        ),
        (
            {"input__orders__schema": "id long, customer string COLLATE UTF8_LCASE, cents long"},
            "input.orders.schema: found \"a key of ['string collate UTF8_LCASE']\"",
        ),
        (
            {f"{SPENT}__by": {"customer": "int64"}},
            "topology.nodes.spent, column 'customer': found \"state kept by int64, and 'orders' split by string\"",
        ),
        (
            {"topology__sources__orders__options": {"event_time": "att"}},
            "topology.sources.orders.options.event_time: found \"no column 'att'\"",
        ),
        (
            {"topology__sources__orders__options": {"event_time": "cents"}},
            "topology.sources.orders.options.event_time: found \"'cents', bigint\", expected a timestamp or date",
        ),
        (
            {f"{SPENT}__aggregates": {"worst": {"max": "cents", "type": "timestamp"}}},
            "topology.nodes.spent, worst: found \"'cents', bigint\", expected a timestamp or date column",
        ),
        (
            {
                "topology__sources__orders": {"partitions": 4},
                "topology__nodes": {"totals": {"sink": "orders"}},
                "input__orders__schema": "tags map<string, string>",
            },
            "input.orders.schema: found \"no key, and columns that Spark cannot hash: {'tags': 'map<string,string>'}\"",
        ),
        (  # behind an aggregate, which says what it sends on
            {
                "topology__nodes__more": {
                    **node("count", by={"customer": "string", "wosrt": "double"}),
                    "process": "spent",
                }
            },
            "topology.nodes.more, by.wosrt: found \"no column 'wosrt'\"",
        ),
        (
            {"topology__nodes__again": {"repartition": "spent", "key": "costumer"}},
            "topology.nodes.again, key: found \"no column 'costumer'\", expected one of ['cents', 'customer', "
            "'orders', 'worst']; did you mean 'customer'?",
        ),
        (
            {
                "topology__nodes__again": {"repartition": "once", "key": "tags"},
                "input__orders__schema": "id long, customer string, cents long, tags array<string>",
            },
            "topology.nodes.again, key: found \"'tags', array<string>\", expected a key of type boolean",
        ),
        (
            {
                "topology__nodes__again": {"repartition": "once", "key": "cents"},
                "input__orders__schema": "id long, customer string, cents decimal(9, 2)",
            },
            "topology.nodes.again, key: found \"'cents', decimal(9,2)\", expected a key of type boolean",
        ),
        (
            {"topology__nodes__totals__schema": {"customer": "string", "orders": "long", "cent": "long"}},
            "topology.nodes.totals.schema: found \"a column 'cent'\", expected the columns that come to it: ['cents', "
            "'customer', 'orders', 'worst']; did you mean 'cents'?",
        ),
        (
            {"topology__nodes__totals__schema": {"customer": "string", "orders": "long", "cents": "long"}},
            "topology.nodes.totals.schema: found \"no column 'worst'\", expected the columns that come to it",
        ),
        (
            {
                "topology__sources__users": {"key": "customer", "partitions": 4},
                "topology__nodes__joined": {
                    "join_table": ["orders", "users"],
                    "processor": "table-join",
                    "options": {"by": {"customer": "string"}, "columns": {"Cents": "int64"}},
                },
                "input__users": {"format": "json", "path": "u", "schema": "customer string, Cents long"},
            },
            "topology.nodes.joined, TableJoin('joined'): found \"['cents'] on both sides\"",
        ),
    ],
)
def test_a_declared_schema_is_compared_with_what_the_topology_takes(changes, says):
    with pytest.raises((InputError, TopologyError)) as caught:
        Declared(settings(**changes))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"input__orders__schema": "id long, customer string, cents long, took interval day to second"},
        {"input__orders__schema": "id long, customer string COMMENT 'who, if anybody'"},
        {"input__orders__select": ["id", "who as customer"]},
        {
            "input__orders__schema": "id long, customer varchar(9), cents dec(9, 2) NOT NULL, tags map<string, int>",
            f"{SPENT}__aggregates": {"cents": {"sum": "cents", "type": "decimal(18, 2)"}},
        },
        {
            "spark": {"conf": {"spark.sql.caseSensitive": True}},
            "input__orders__schema": "id long, customer string, cents long, Cents int",
        },
    ],
)
def test_what_is_not_known_of_a_source_is_left_to_the_start(changes):
    Declared(settings(**changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"topology__nodes__more": {"sink": "once"}, "output__more": {"path": "there/../out"}},
            "expected one of its own: by batch id, the rows of one sink would pass for the other's",
        ),
        (
            {
                "topology__nodes__totals": {"sink": "once", "schema": {"batch_id": "long"}},
                "input__orders__select": ["*"],
            },
            "topology.nodes.totals.batch_id: found 'a column that the sink's target adds itself",
        ),
        (
            {
                "topology__nodes__totals__options": {"shema": "id long"},
                "topology__nodes__totals__schema": None,
            },
            "topology.nodes.totals.options.shema: found",
        ),
        (
            {"topology__nodes__totals__options": {"event_time": "at"}},
            "topology.nodes.totals.options.event_time: found 'at', expected no such option: a sink reads schema",
        ),
        (
            {"topology__nodes__again": {"repartition": "once", "key": "id", "options": {"delay": "5 s"}}},
            "topology.nodes.again.options.delay: found '5 s', expected no such option: a repartition reads none",
        ),
    ],
)
def test_what_a_start_refuses_of_sinks_and_options_a_check_refuses(changes, says):
    with pytest.raises((InputError, TopologyError)) as caught:
        Declared(settings(**changes))
    assert says in str(caught.value).replace('"', "'")


def test_a_check_says_what_the_start_would(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("orders.yaml").write_text(ORDERS.replace("cents long", "cent long"))
    assert main(["run", "--check", "orders.yaml"]) == 2
    assert "topology.nodes.spent, cents: found \"no column 'cents'\"" in capsys.readouterr().err
