"""Writers of a repartition: types of which one holds the other's values are one, others are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from taskplace.errors import InputError
from taskplace.spark.placed import Placed
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from tests.support.sink_streams import KEYS, TASKS, table
from topology import Topology

pytestmark = pytest.mark.usefixtures("frames_with_a_session")


def relayed(world: World, tables: Sequence[pa.Table], key: str | None = "k") -> Placed:
    """Return a stream whose tasks send these tables through a repartition, and into a merge with themselves."""
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=TASKS)
    sent = source.process(lambda context, rows: tables[context.partition], name="p")
    relay = sent.repartition(key=key, name="relay", partitions=2)
    relay.process(lambda context, rows: rows, name="q").sink("out", target=ParquetSink(world.folder / "out"))
    return world.open(topo)


def everywhere() -> dict[str, pa.Table]:
    return {"in": pa.table({"k": KEYS})}


def test_writers_of_a_repartition_may_have_other_types_of_the_same_values(world):
    tables = [
        table(k=["a"], n=([1], pa.int32()), d=["x"]),
        table(n=[2**40], k=["b"], d=pa.array(["y"]).dictionary_encode()),
        table(k=["c"], n=pa.nulls(1), d=pa.nulls(1)),
    ]
    world.batch(relayed(world, tables), 0, **everywhere())
    assert world.sent("out") == {0: [("a", 1, "x"), ("b", 2**40, "y"), ("c", None, None)]}


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (
            table(k=["b", "c"], n=[1.0, None]),
            r"column 'n': found 'double from task 0_1, int64 from task 0_0'.*pandas",
        ),
        (table(k=["b"]), r"columns \['k'\] from task 0_1"),
    ],
)
def test_writers_of_a_repartition_that_disagree_are_refused(world, other, says):
    placed = relayed(world, [table(k=["a"], n=[1]), other, table(k=[], n=[])])
    with pytest.raises(InputError, match=rf"repartition 'relay-repartition'.*{says}"):
        world.batch(placed, 0, **everywhere())
    assert placed.journal.last_batch == -1


def test_a_key_without_a_type_goes_where_nulls_go(world):
    tables = [table(k=["a"], n=[1]), table(k=pa.nulls(1), n=[2]), table(k=([None], pa.string()), n=[3])]
    placed = relayed(world, tables)
    world.batch(placed, 0, **everywhere())
    assert placed.journal.identity["keys"]["relay-repartition"] == ["string"]
    tables[:] = [table(k=pa.nulls(1), n=[1]) for _ in range(3)]
    world.batch(placed, 1, **everywhere())
    assert [len(rows) for rows in world.sent("out").values()] == [3, 3]
