"""State behind functions, subclasses and classes that say nothing: one key has one state, or there is an error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from taskplace.errors import InputError
from taskplace.spark.compile.infer import infer
from taskplace.spark.compile.programs import programs
from taskplace.spark.processors import Count, Deduplicate, PerKey, TableJoin, passes_keys_on
from taskplace.spark.registry import Registry
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from topology import Stream, Topology, TopologyError

STRING, INT64 = pa.string(), pa.int64()
KEYS = list("abcdefgh")


def by(*columns: str) -> dict[str, str]:
    return dict.fromkeys(columns, "string")


def as_it_is(context, rows):
    return rows


def other_keys(context, rows):
    """Give the key column other values under the old name."""
    return rows.set_column(0, "k", pc.utf8_upper(rows["k"]))


@passes_keys_on(k="plane")
def renamed(context, rows, *, limit=3):
    return rows.rename_columns(["plane", *rows.column_names[1:]])


class MyCount(Count):
    """A count of a user."""


class Shifting(Count):
    """A count that takes the keys of its state from elsewhere."""

    def process(self, context, rows):
        return super().process(context, other_keys(context, rows))


class Own:
    """A class without `infer` that keeps state."""

    def __init__(self, column: str = "k", change: Any = as_it_is) -> None:
        self.column, self.change = column, change

    def layouts(self):
        return {"s": {"key": {self.column: "string"}, "value": {"v": "int64"}}}

    def process(self, context, rows):
        rows = self.change(context, rows)
        context.store("s").put_many(rows)
        return rows


def source(key="k", partitions=4) -> Stream:
    return Topology("t").source("in", key=key, partitions=partitions)


def refused(stream: Stream, match: str) -> None:
    with pytest.raises(TopologyError, match=match):
        infer(stream.topology.build())


# ------------------------------------------------------------------------- at the start


def per_key(*output: str) -> PerKey:
    def function(key, rows, state):
        return state, [{"k": str(row["k"]).upper()} for row in rows]

    return PerKey("p", function, by=by("k"), state=by("x"), output=by(*output))


@pytest.mark.parametrize("step", [as_it_is, per_key("k", "t"), MyCount("c", by=by("k", "t"))])
def test_behind_a_step_that_declares_nothing_the_key_has_to_be_among_the_columns(step):
    stream = source().process(step, name="step")
    right = Count("n", by=by("k", "t"), over_changes=True)
    infer(stream.process(right, name="right").topology.build())
    refused(
        stream.process(Count("m", by=by("t"), over_changes=True), name="count"),
        r"^node 'count': keeps state by \(t\), but its input 'step' is partitioned by \(k\).*add 'k' to `by`; or, if "
        "'step' only renames the columns, declare that with `passes_keys_on`$",
    )


def test_a_declared_step_gives_the_columns_their_new_names():
    stream = source().process(renamed, name="renamed")
    built = stream.process(Count("n", by=by("plane")), name="right").topology.build()
    assert not programs(built)[0].owned
    refused(stream.process(Count("m", by=by("k")), name="wrong"), r"'wrong': .* is partitioned by \(plane\)")


def test_a_function_named_in_yaml_keeps_its_declaration():
    made = Registry()[f"{__name__}:renamed"](limit=5)
    built = source().process(made).process(Count("n", by=by("plane"))).topology.build()
    assert not programs(built)[0].owned


def test_a_declaration_of_other_than_names_is_refused():
    with pytest.raises(InputError, match=r"^mistaken\.k: found 3, expected the new name of the column"):

        @passes_keys_on(k=3)
        def mistaken(context, rows):
            return rows


# ------------------------------------------------------------------------- in the task


def counted(world: World, *steps: Any) -> Topology:
    stream = source()
    for number, step in enumerate(steps):
        stream = stream.process(step, name=f"step-{number}")
    stream.sink("o", target=ParquetSink(world.folder / "out"))
    return stream.topology


def rows(keys: list[Any] = KEYS, kind: pa.DataType = STRING) -> pa.Table:
    return pa.table({"k": pa.array(keys, kind), "v": pa.array(range(len(keys)), INT64)})


COUNT = Count("n", by=by("k"))


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([other_keys, COUNT], r"node 'step-1', column 'k': .*\(string\).*'step-0', or a node"),
        ([as_it_is, other_keys, COUNT], "'step-0', or a node behind it, has changed the column"),
        ([other_keys, Deduplicate("n", by=by("k"))], "node 'step-1', column 'k'"),
        ([other_keys, MyCount("n", by=by("k"))], "node 'step-1', column 'k'"),
        ([Shifting("n", by=by("k"))], "node 'step-0', column 'k': .*or say in `infer` what its entries"),
        ([Own(change=other_keys)], "node 'step-0', column 'k': .*or say in `infer` what its entries"),
        ([per_key("k"), COUNT], "'step-0', or a node behind it, has changed the column"),
    ],
)
def test_keys_of_other_tasks_are_refused_before_anything_is_written(world, steps, says):
    placed = world.open(counted(world, *steps))
    with pytest.raises(InputError, match=f"{says}"):
        world.batch(placed, 0, **{"in": rows()})
    assert placed.journal.last_batch == -1
    assert world.sent("out") == {}


def test_a_key_that_was_renamed_is_found_from_outside(world):
    """The store has another column with the old name: rows are not split by that one."""

    @passes_keys_on(k="plane")
    def with_another_k(context, table):
        return table.rename_columns(["plane", "v"]).append_column("k", pc.utf8_upper(table["k"]))

    topo = Topology("t")
    stream = topo.source("in", key="v", partitions=2).repartition(key="k", name="again", partitions=4)
    stream.process(with_another_k).process(Count("n", by=by("plane", "k")), name="n")
    placed = world.open(topo)
    world.batch(placed, 0, **{"in": rows()})
    found = [placed.store("n").get({"plane": key, "k": key.upper()}) for key in KEYS]
    assert found == [{"count": 1}] * len(KEYS)


def test_a_stream_that_would_ask_a_table_of_another_task_is_refused(world):
    topo = Topology("t")
    stream, table = (topo.source(name, key="k", partitions=4) for name in ("in", "table"))
    join = TableJoin("s", by=by("k"), columns={"w": "int64"})
    stream.process(other_keys, name="step").join_table(table, join, name="join")
    placed = world.open(topo)
    weights = rows().rename_columns(["k", "w"])
    with pytest.raises(InputError, match=r"node 'join', column 'k'.*'step', or a node behind it, has"):
        world.batch(placed, 0, **{"in": rows(), "table": weights})


@pytest.mark.parametrize("processor", [Count, Deduplicate])
@pytest.mark.parametrize(
    ("kind", "kept", "becomes"),
    [
        (INT64, "int64", lambda column: column.cast(pa.float64())),
        (INT64, "string", lambda column: column.cast(STRING)),
        (pa.int16(), "int64", lambda column: column.cast(INT64)),
        (STRING, "string", lambda column: column.dictionary_encode()),
        (pa.timestamp("us"), "string", lambda column: column),
        (pa.timestamp("us", tz="UTC"), "string", lambda column: column),
    ],
    ids=["floats of pandas", "texts", "wider", "a dictionary", "times without a zone", "times"],
)
def test_a_step_may_change_the_type_of_the_key(world, kind, kept, becomes, processor):
    """The partition follows from the value as the topic had it, whatever type it has on the way."""

    def other_type(context, table):
        return table.set_column(0, "k", becomes(table["k"]))

    topo = counted(world, other_type, processor("n", by={"k": kept}))
    placed = world.open(topo)
    keys = [None, *range(20)] if kind != STRING else [None, *KEYS]
    world.batch(placed, 0, **{"in": rows(keys, kind)})
    assert len(world.stored(placed, "n")) == len(keys)


def test_texts_that_are_one_number_are_one_key_or_refused(world):
    """'7' and '07' are one key for the count: their rows would be in two tasks."""

    def number(context, table):
        return table.set_column(0, "k", pc.cast(table["k"], INT64))

    topo = counted(world, number, Count("n", by={"k": "string"}))
    placed = world.open(topo)
    with pytest.raises(InputError, match=r"node 'step-1', column 'k': .* keys \(string\) that belong to"):
        world.batch(placed, 0, **{"in": rows(["7", "07", "007", "0007", "00007"])})


def test_rows_of_a_batch_without_input_are_compared_with_the_types_of_batches_before(world):
    """A topic without rows in a batch may have any types: the manifest has those by which its rows were split."""

    class Sleeper(Own):
        every_batch = True

        def process(self, context, rows):
            rows = super().process(context, rows) if rows.num_rows else rows
            stored = pa.concat_tables(
                [t.select(["k"]) for t in context.store("s").scan()] or [KEY.empty_table()]
            )
            return stored if not rows.num_rows else rows.select(["k"])

        def layouts(self):
            return {"s": {"key": {"k": "int64"}, "value": {"v": "int64"}}}

    def untyped(context, table):
        return table if table.num_rows else pa.table({"k": pa.nulls(0), "v": pa.nulls(0)})

    KEY = pa.schema([("k", INT64)])  # noqa: N806 - a constant of this test
    topo = Topology("t")
    stream = topo.source("in", key="v", partitions=2).process(untyped, name="untyped")
    stream = stream.repartition(key="k", name="again", partitions=3).process(Sleeper(), name="sleeper")
    stream.process(Count("n", by={"k": "int64"}), name="n")
    placed = world.open(topo)
    world.batch(placed, 0, **{"in": rows(list(range(9)), pa.int32())})
    world.batch(placed, 1, **{"in": rows([], pa.int32())})
    assert world.stored(placed, "n") == [(k, 2) for k in range(9)]


def test_the_keys_of_a_topic_are_checked_by_its_own_number_of_partitions(world):
    """Topics that meet without state may have different numbers: the subtopology has as many tasks as the largest."""
    topo = Topology("t")
    few = topo.source("few", key="k", partitions=2)
    few.merge(topo.source("many", key="k", partitions=5), name="both").sink(
        "all", target=ParquetSink(world.folder / "all")
    )
    few.process(as_it_is, name="step").process(Count("n", by={"k": "int64"}), name="n")
    placed = world.open(topo)
    world.batch(placed, 0, few=rows(list(range(9)), INT64), many=rows(list(range(9)), INT64))
    assert world.stored(placed, "n") == [(k, 1) for k in range(9)]
