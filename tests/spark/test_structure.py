"""What a checkpoint was made with, and what may continue it; no Spark needed."""

from __future__ import annotations

import pytest

from taskplace.errors import CheckpointError
from taskplace.spark.driver import structure
from taskplace.spark.driver.programs import programs
from taskplace.spark.processors import Aggregate, count, sum_
from topology import Topology


def build(by="string", extra=False, **aggregates):
    topo = Topology("t")
    source = topo.source("s", key=["k"], partitions=2)
    source.process(Aggregate("counts", by={"k": by}, **(aggregates or {"n": count()})), name="count").sink(
        "out"
    )
    if extra:
        topo.source("other", key=["k"], partitions=2).process(
            Aggregate("more", by={"k": "string"}, n=count()), name="more"
        )
    built = topo.build()
    return built, programs(built)


def test_the_same_and_an_addition_fit(tmp_path):
    structure.check(tmp_path, *build())  # nothing is there yet
    structure.write(tmp_path, *build())
    structure.check(tmp_path, *build())
    structure.check(tmp_path, *build(extra=True))


@pytest.mark.parametrize("changed", [{"by": "int64"}, {"n": sum_("v", "int64"), "m": count()}])
def test_another_layout_of_a_store_is_refused_with_both_layouts(tmp_path, changed):
    structure.write(tmp_path, *build())
    with pytest.raises(CheckpointError, match=r"store 'counts' was laid out as .*'k', 'string'.*, is "):
        structure.check(tmp_path, *build(**changed))


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / structure.FILE).write_text("{")
    with pytest.raises(CheckpointError, match=r"structure\.json: damaged"):
        structure.check(tmp_path, *build())


def test_a_repartition_whose_key_is_of_another_type_is_refused():
    import pyarrow as pa

    from taskplace.errors import InputError

    topo = Topology("t")
    orders = topo.source("orders", key=["id"], partitions=2)
    names = topo.source("names", key=["customer"], partitions=2)
    by_customer = orders.repartition(key=["customer"], name="by-customer")
    by_customer.join_table(names, lambda context, left, right: left, name="joined").sink("out")
    program = programs(topo.build())[-1]
    assert program.groups

    def inputs(kind):
        internal = pa.table({"customer": pa.array([1], kind)})
        return {program.internal[0]: internal, "names": pa.table({"customer": pa.array([1], pa.int64())})}

    program.check_keys(inputs(pa.int64()))
    with pytest.raises(InputError, match=r"co-partitioned keys of different types.*int32"):
        program.check_keys(inputs(pa.int32()))
