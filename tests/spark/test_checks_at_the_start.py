"""Checks at the start, called directly: what they refuse, and the limits of what they take."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from taskplace.errors import InputError
from taskplace.spark.compile.forms import check_form
from taskplace.spark.compile.infer import infer
from taskplace.spark.compile.keys import KeyTypes, alike
from taskplace.spark.processors import Count
from taskplace.spark.processors.facts import Facts
from taskplace.spark.worker.external import check_size
from taskplace.spark.worker.partition_checks import Owned
from topology import Node, Topology

BY = {"k": "string"}


class Passes:
    """A processor that says that it passes its rows on."""

    def infer(self, inputs: tuple[Facts, ...]) -> Facts:
        return Facts(columns=inputs[0].columns)

    def process(self, context: object, *inputs: pa.Table) -> pa.Table:
        return inputs[0]


def one_source(processor: Any, **options: Any) -> Any:
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).process(processor, name="p", **options)
    return topo.build()


@pytest.mark.parametrize(
    ("time", "found"),
    [("at", None), ("att", "no column 'att'"), ("n", "'n', int64"), ("k", "'k', string"), ("none", None)],
)
def test_a_declared_event_time_is_a_time_of_the_output(time: str, found: str | None) -> None:
    built = one_source(Passes(), event_time=time)
    columns = {"in": {"k": "string", "at": "timestamp", "n": "bigint", "none": "void"}}
    if found is None:
        infer(built, columns)
        return
    with pytest.raises(InputError) as caught:
        infer(built, columns)
    assert (caught.value.path, caught.value.found) == ("node 'p', event_time", found)


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        ("string", True),
        ("void", True),
        ("struct<value: binary>", False),
        ("array<int>", False),
        (pa.duration("us"), False),
    ],
)
def test_a_key_of_a_repartition_is_of_a_type_that_has_a_hash(kind: str, taken: bool) -> None:
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).repartition(key="x", name="again")
    if taken:
        infer(topo.build(), {"in": {"k": "string", "x": kind}})
        return
    with pytest.raises(InputError, match=r"^node 'again', key: found .*, expected a key of type boolean"):
        infer(topo.build(), {"in": {"k": "string", "x": kind}})


def test_a_class_is_no_processor() -> None:
    with pytest.raises(
        InputError, match=r"^nodes\.n\.processor: found 'the class Count', expected an instance of the"
    ):
        check_form(Node("n", "processor", ("a",), processor=Count))


def merged(partitions: int = 4) -> Any:
    topo = Topology("t")
    a, b = (topo.source(name, key=["k", "l"], partitions=partitions) for name in "ab")
    a.merge(b).process(Count("n", by=BY | {"l": "string"}), name="n")
    return topo.build()


@pytest.mark.parametrize(
    ("b", "message"),
    [
        (["string", "int"], None),
        (["string", "void"], None),
        (["string", "bigint"], "a: string, int32; b: string, int64"),
        (["binary", "int"], "a: string, int32; b: binary, int32"),
    ],
)
def test_keys_are_compared_column_by_column(b: list[str], message: str | None) -> None:
    check = KeyTypes(merged(), alike(merged(), infer(merged())))
    if message is None:
        check({"a": ["string", "int"], "b": b})
        return
    with pytest.raises(InputError, match=rf"^topics a, b: found .*{message}"):
        check({"a": ["string", "int"], "b": b})


def test_topics_of_a_join_and_of_a_store_are_compared_in_more_than_one_task() -> None:
    assert alike(merged(), infer(merged())) == (("a", "b"),)
    assert alike(merged(1), infer(merged(1))) == ()
    topo = Topology("t")
    left, right = (topo.source(name, key="k", partitions=2) for name in ("left", "right"))
    left.join_table(right, lambda context, rows, table: rows, name="j")
    topo.source("alone", partitions=2)
    assert alike(topo.build(), infer(topo.build())) == (("left", "right"),)


def test_a_task_takes_as_many_bytes_as_its_limit() -> None:
    check_size(80, "0_0", 80)
    with pytest.raises(InputError, match=r"^task 0_0: found '80 bytes of input .*= 79;"):
        check_size(80, "0_0", 79)


def ownership(kept: pa.DataType, hashed: str, changed_by: str = "f") -> Any:
    owned = Owned(
        node="n", store="s", columns=(("k", kept),), topics=("in",), partitions=1, changed_by=changed_by
    )
    return partial(owned.check, hashed={"in": [hashed]}, partition=0)


@pytest.mark.parametrize(
    ("kept", "hashed", "value", "found"),
    [
        (pa.string(), "string", "x", None),
        (pa.string(), "int64", "7", None),
        (pa.string(), "int64", "x", "values of type string that int64 does not have"),
        (pa.int64(), "int32", 2**40, "values of type int64 that int32 does not have"),
        (pa.string(), "large_string", "x", None),
        (pa.string(), "timestamp[us]", "2026-01-01 00:00:00", None),
        (pa.string(), "timestamp[us]", "soon", "values of type string that timestamp[us] does not have"),
        (
            pa.string(),
            "list<item: int64>",
            "x",
            "a topic's key of type list<item: int64>, which a task cannot hash",
        ),
    ],
)
def test_a_key_is_hashed_as_the_topic_has_it(
    kept: pa.DataType, hashed: str, value: Any, found: str | None
) -> None:
    check = ownership(kept, hashed)
    rows = pa.table({"k": pa.array([value], kept)})
    if found is None:
        check(rows)
        return
    with pytest.raises(InputError) as caught:
        check(rows)
    assert caught.value.path == "node 'n', column 'k'"
    assert str(caught.value.found).startswith(found)
