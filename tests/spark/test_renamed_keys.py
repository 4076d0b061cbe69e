"""State behind declared new names of key columns: one key has one state, or the topology is refused at the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.compile.infer import infer
from taskplace.spark.compile.sources import check_sources
from taskplace.spark.ddl import struct_type
from taskplace.spark.processors import Count, Deduplicate, Facts, PerKey, TableJoin, passes_keys_on
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from topology import Stream, Topology, TopologyError

TEXTS = ["7", "07", "007", "0007"] * 2


class Renames:
    """Gives columns new names, as a class that says so."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def infer(self, inputs: tuple[Facts, ...]) -> Facts:
        return Facts(routes=inputs[0].routes_as(**self.names))

    def process(self, context: Any, rows: pa.Table) -> pa.Table:
        return rows.rename_columns([self.names.get(name, name) for name in rows.column_names])


def as_function(**names: str) -> Any:
    return passes_keys_on(**names)(lambda context, rows: Renames(names).process(context, rows))


def as_class(**names: str) -> Any:
    return Renames(names)


HOW = pytest.mark.parametrize("renames", [as_function, as_class])
PROCESSORS = {
    "count": lambda kind: Count("s", by={"p": kind}),
    "deduplicate": lambda kind: Deduplicate("s", by={"p": kind}),
    "per key": lambda kind: PerKey(
        "s", lambda key, rows, state: (state, rows), by={"p": kind}, state={"n": "int64"}, output={"p": kind}
    ),
}


def source(topo: Topology | None = None, name: str = "a", key: Any = "k") -> Stream:
    return (topo or Topology("t")).source(name, key=key, partitions=4)


def frame(**columns: str) -> StructType:
    schema = struct_type(columns.items())
    assert schema is not None
    return schema


def judged(stream: Stream, **frames: StructType) -> None:
    built = stream.topology.build()
    infer(built)
    check_sources(built, frames)


# ------------------------------------------------------------------------- types


@HOW
@pytest.mark.parametrize("make", PROCESSORS.values(), ids=PROCESSORS)
@pytest.mark.parametrize(
    ("found", "kept", "says"),
    [
        ("string", "int64", "partitioned by string"),
        ("timestamp", "date", r"partitioned by timestamp\[us, tz=UTC\]"),
        ("string", "string", None),
        ("long", "string", None),
    ],
)
def test_the_type_of_the_topic_s_column_counts(renames, make, found, kept, says):
    stream = source().process(renames(k="p"), name="step").process(make(kept), name="keeps")
    if says is None:
        judged(stream, a=frame(k=found))
        return
    with pytest.raises(InputError, match=rf"^node 'keeps', column 'p': .*{says} \(its column 'k'\)"):
        judged(stream, a=frame(k=found))


@HOW
def test_another_column_that_the_topic_has_under_the_new_name_does_not_count(renames):
    """Rows are not split by that column, whatever its type."""
    stream = source().process(renames(k="p", p="q"), name="step").process(Count("s", by={"p": "int64"}))
    judged(stream, a=frame(k="long", p="double"))
    with pytest.raises(InputError, match="partitioned by double"):
        judged(stream, a=frame(k="double", p="long"))


@pytest.mark.parametrize("how", ["a merge", "a join", "a shared store"])
def test_a_topic_with_new_names_that_meets_another(how):
    """The other topic, `b`, has the name from the start; `a` has another column of that name."""
    topo = Topology("t")
    renamed = source(topo).process(as_function(k="p"), name="step")
    other, by = source(topo, "b", key="p"), {"p": "int64"}
    if how == "a merge":
        stream = renamed.merge(other).process(Count("s", by=by), name="keeps")
    elif how == "a join":
        join = TableJoin("s", by=by, columns={"v": "int64"})
        stream = topo.process(join, inputs=[renamed, other], name="keeps")
    else:
        topo.store("s")
        stream = renamed.process(Deduplicate("s", by=by), stores=["s"], name="keeps")
        other.process(Deduplicate("s", by=by), stores=["s"], name="keeps-too")

    def types(k: str, p: str) -> dict[str, StructType]:
        return {"a": frame(k=k, p="double"), "b": frame(p=p, v="long")}

    judged(stream, **types("long", "long"))
    with pytest.raises(InputError, match=r"^node 'keeps', column 'p': .*'a' .*string \(its column 'k'\)"):
        judged(stream, **types("string", "string"))
    with pytest.raises(InputError, match="different types"):
        judged(stream, **types("int", "long"))


@HOW
@pytest.mark.parametrize("again", [False, True], ids=["a source", "a repartition"])
def test_a_task_judges_the_rows_that_come(world: World, renames, again):
    topo = Topology("t")
    stream = topo.source("a", key="x" if again else "k", partitions=4)
    stream = stream.repartition("k", name="again", partitions=4) if again else stream
    stream = stream.process(renames(k="p"), name="step")
    stream.process(Count("s", by={"p": "int64"}), name="keeps")
    placed = world.open(topo)
    with pytest.raises(InputError, match=r"node 'keeps', column 'p': .*string \(its column 'k'\)"):
        world.batch(placed, 0, a=pa.table({"x": range(8), "k": TEXTS}))
    assert placed.journal.last_batch == -1
    placed = world.open(topo)
    world.batch(placed, 0, a=pa.table({"x": range(8), "k": range(8)}))
    assert world.stored(placed, "s") == [(number, 1) for number in range(8)]


# ------------------------------------------------------------------------- names


@pytest.mark.parametrize("steps", [[{"k": "l"}], [{"k": "p"}, {"l": "p"}], [{"k": "p", "l": "p"}]])
def test_a_key_column_under_the_name_of_another_one_is_refused(steps):
    stream = source(key=["k", "l"])
    for number, names in enumerate(steps):
        stream = stream.process(as_function(**names), name=f"step-{number}")
    name = f"step-{len(steps) - 1}"
    with pytest.raises(TopologyError, match=rf"^node '{name}': .*give each a name of its own") as caught:
        infer(stream.topology.build())
    assert caught.value.node == name


def test_one_topic_that_comes_under_two_names_is_refused_before_one_state():
    """The rows of both ways lie where the topic's key says, and that is another column for each of them."""
    stream = source()
    both = stream.merge(stream.process(as_function(k="p"), name="step"), name="both")
    with pytest.raises(TopologyError, match=r"^node 'n': .*input topics are partitioned by \(k\) and \(p\)"):
        infer(both.process(Count("n", by={"k": "int64", "p": "int64"}), name="n").topology.build())


# ------------------------------------------------------------------------- reading from outside


def asked(monkeypatch: pytest.MonkeyPatch, reader: Any, key: dict[str, Any]) -> tuple[Any, int]:
    """Return the value of a key, and how many tasks were asked for it."""
    tasks: list[Any] = []
    ask = type(reader)._ask

    def noted(self: Any, wanted: Any, files: Any = None) -> Any:
        tasks.extend(wanted)
        return ask(self, wanted, files)

    with monkeypatch.context() as patch:
        patch.setattr(type(reader), "_ask", noted)
        return reader.get(key), len(tasks)


@HOW
def test_a_renamed_key_is_looked_up_in_its_own_task_alone(world: World, monkeypatch, renames):
    topo = source().process(renames(k="p"), name="step").process(Count("s", by={"p": "int64"})).topology
    placed = world.open(topo)
    world.batch(placed, 0, a=pa.table({"k": range(8)}))
    monkeypatch.setitem(placed.journal.identity, "keys", {"a": ["bigint"]})
    reader = placed.store("s")
    assert [asked(monkeypatch, reader, {"p": key}) for key in range(8)] == [({"count": 1}, 1)] * 8
    assert asked(monkeypatch, reader, {"p": 99}) == (None, 1)


def test_a_key_is_looked_up_by_the_partitions_of_its_topic(world: World, monkeypatch):
    """A subtopology has as many tasks as its largest topic has partitions."""
    topo = Topology("t")
    few, many = (topo.source(name, key="k", partitions=n) for name, n in (("few", 2), ("many", 5)))
    few.merge(many, name="both").sink("all", target=ParquetSink(world.folder / "all"))
    few.process(Count("s", by={"k": "int64"}), name="s")
    placed, rows = world.open(topo), pa.table({"k": range(9)})
    world.batch(placed, 0, few=rows, many=rows)
    monkeypatch.setitem(placed.journal.identity, "keys", {"few": ["bigint"], "many": ["bigint"]})
    found = [asked(monkeypatch, placed.store("s"), {"k": key}) for key in range(10)]
    assert found == [({"count": 1}, 1)] * 9 + [(None, 1)]


def test_behind_what_promises_only_names_every_task_is_asked(world: World, monkeypatch):
    class OnlyNames(Renames):
        def infer(self, inputs: tuple[Facts, ...]) -> Facts:
            return Facts(columns=inputs[0].columns)

    topo = source().process(OnlyNames({}), name="step").process(Count("s", by={"k": "int64"})).topology
    placed = world.open(topo)
    world.batch(placed, 0, a=pa.table({"k": range(8)}))
    monkeypatch.setitem(placed.journal.identity, "keys", {"a": ["bigint"]})
    assert asked(monkeypatch, placed.store("s"), {"k": 99}) == (None, 4)


# ------------------------------------------------------------------------- another driver


def test_a_restart_that_splits_the_state_by_another_of_its_columns_is_refused(world: World):
    """The topic's key is the same: it becomes another column of the state's key, so keys belong to other tasks."""

    def counted(new: str, other: str) -> Topology:
        def step(context: Any, rows: pa.Table) -> pa.Table:
            return rows.rename_columns([new, other])

        named = passes_keys_on(k=new)(step)
        count = Count("s", by={"p": "int64", "q": "int64"})
        return source().process(named, name="step").process(count, name="keeps").topology

    rows = pa.table({"k": [1, 2, 3], "v": [3, 2, 1]})
    world.batch(world.open(counted("p", "q")), 0, a=rows)
    with pytest.raises(CheckpointError, match=r"store 's' was split by \(p\), and is now split by \(q\)"):
        world.batch(world.open(counted("q", "p")), 1, a=rows)
    placed = world.open(counted("p", "q"))
    world.batch(placed, 1, a=rows)
    assert world.stored(placed, "s") == [(1, 3, 2), (2, 2, 2), (3, 1, 2)]
