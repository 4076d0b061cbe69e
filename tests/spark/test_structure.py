"""What a checkpoint was made with, and what may continue it; no Spark needed."""

from __future__ import annotations

import json

import pytest

from taskplace.errors import CheckpointError
from taskplace.spark.driver import structure
from taskplace.spark.driver.programs import programs
from taskplace.spark.processors import Aggregate, Deduplicate, count, sum_
from taskplace.spark.state.files import sealed_json
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


def unsealed(text):
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def commit(root, batch=0):
    """A batch is committed, as far as the structure is concerned."""
    (root / "manifests").mkdir(exist_ok=True)
    (root / "manifests" / f"{batch:010d}.json").touch()


def test_the_same_and_an_addition_fit(tmp_path):
    structure.check(tmp_path, *build())  # nothing is there yet
    structure.write(tmp_path, *build())
    commit(tmp_path)
    structure.check(tmp_path, *build())
    structure.check(tmp_path, *build(extra=True))


def test_a_topology_binds_from_its_first_commit_on(tmp_path):
    first = structure.write(tmp_path, *build())
    structure.check(tmp_path, *build(by="int64"))  # nothing was committed with the first
    assert structure.write(tmp_path, *build()).id == first.id
    commit(tmp_path)
    structure.write(tmp_path, *build(extra=True))
    structure.check(tmp_path, *build())
    structure.write(tmp_path, *build())  # taken back before it committed anything
    commit(tmp_path, 1)
    with pytest.raises(CheckpointError, match="'counts' was laid out as"):
        structure.check(tmp_path, *build(by="int64"))


def test_a_store_that_comes_back_is_another_one(tmp_path):
    def incarnations(batch, **what):
        kept = structure.write(tmp_path, *build(**what))
        commit(tmp_path, batch)
        return {name: schema.databases for p in kept.programs for name, schema in p.stores.items()}

    assert incarnations(0, extra=True) == {"counts": ("counts",), "more": ("more",)}
    assert incarnations(1, extra=True) == {"counts": ("counts",), "more": ("more",)}
    assert incarnations(2) == {"counts": ("counts",)}
    assert incarnations(3, extra=True) == {"counts": ("counts",), "more": ("more~1",)}
    assert incarnations(4, extra=True) == {"counts": ("counts",), "more": ("more~1",)}
    structure.write(tmp_path, *build())  # never commits
    assert incarnations(5, extra=True) == {"counts": ("counts",), "more": ("more~1",)}


def test_a_missing_file_beside_manifests_is_an_error(tmp_path):
    structure.write(tmp_path, *build())
    commit(tmp_path, 7)
    (tmp_path / structure.FILE).unlink()
    for judge in (structure.check, structure.write):
        with pytest.raises(CheckpointError, match=r"structure\.json: the file is missing.* up to batch 7"):
            judge(tmp_path, *build())


def test_a_time_to_live_may_change_but_not_come_or_go(tmp_path):
    def forgetting(**how):
        topo = Topology("t")
        source = topo.source("s", key=["k"], partitions=2, event_time="at")
        source.process(Deduplicate("seen", by={"k": "string", "at": "timestamp"}, **how))
        built = topo.build()
        return built, programs(built)

    structure.write(tmp_path, *forgetting(ttl="1 day", time="at"))
    commit(tmp_path)
    structure.check(tmp_path, *forgetting(ttl="2 days", time="at"))
    with pytest.raises(CheckpointError, match="'seen' was laid out as"):
        structure.check(tmp_path, *forgetting())


@pytest.mark.parametrize("changed", [{"by": "int64"}, {"n": sum_("v", "int64"), "m": count()}])
def test_another_layout_of_a_store_is_refused_with_both_layouts(tmp_path, changed):
    structure.write(tmp_path, *build())
    commit(tmp_path)
    with pytest.raises(CheckpointError, match=r"store 'counts' was laid out as .*'k', 'string'.*, is "):
        structure.check(tmp_path, *build(**changed))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"id": "x"}',
        '{"id": "x", "structures": [3]}',
        '{"id": "x", "structures": [{"from_batch": 0, "topology": 3, "stores": {}, "incarnations": {}}]}',
        '{"id": "x", "structures": [{"from_batch": 0, "topology": {}, "stores": {}, "incarnations": {}}]}',
    ],
)
def test_a_damaged_file_is_named(tmp_path, text):
    body = unsealed(text)
    (tmp_path / structure.FILE).write_text(text if body is None else sealed_json(body))
    commit(tmp_path)
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
