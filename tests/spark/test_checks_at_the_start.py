"""Checks at the start, called directly: what they refuse, and the limits of what they take."""

from __future__ import annotations

import functools
from typing import Any

import pyarrow as pa
import pytest

from taskplace.errors import InputError
from taskplace.spark.compile.infer import infer
from taskplace.spark.compile.keys import KeyTypes, alike
from taskplace.spark.compile.programs import programs
from taskplace.spark.processors import Aggregate, Count, PerKey, TableJoin, sum_
from taskplace.spark.processors.facts import Facts
from taskplace.spark.worker.external import check_size
from taskplace.spark.worker.partition_checks import Owned
from topology import Topology

BY = {"k": "string"}


def one_source(processor: Any, **options: Any) -> Any:
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).process(processor, name="p", **options)
    return topo.build()


# -- what is no processor


def one(context, rows):
    return rows


def two(context, rows, table, *, least=3):
    return rows


def one_by_one(context, rows):
    yield rows


def declared(infer: Any) -> Any:
    """Return a processor with this method `infer`."""
    return type("Declared", (), {"infer": infer, "process": lambda self, context, rows: rows})()


@pytest.mark.parametrize(
    ("processor", "says"),
    [
        (two, r"'a function with the parameters \(context, rows, table, \*, least=3\)', expected param"),
        (TableJoin("j", by=BY, columns={"v": "long"}), r"'TableJoin\.process with the parameters \(cont"),
        ("a name", "'a name', expected an object with process"),
        (object(), "<object object at .*>, expected an object with process"),
        (None, "'no processor', expected an object with process"),
        (one_by_one, "'a generator function', expected a function of"),
        (declared(lambda self, a, b: None), r"'Declared\.infer with the parameters \(a, b\)'"),
    ],
)
def test_what_is_no_processor(processor, says):
    with pytest.raises(InputError, match=rf"^nodes\.p\.processor: found {says}"):
        programs(one_source(processor))


def test_an_answer_that_is_no_facts():
    with pytest.raises(InputError, match=r"^nodes\.p\.processor\.infer: found .*, expected an object of"):
        programs(one_source(declared(lambda self, inputs: None)))


def test_a_join_of_one_input():
    topo = Topology("t")
    rows, more = (topo.source(name, key="k", partitions=2) for name in ("in", "more"))
    rows.join_table(more, Aggregate("s", by=BY, n=sum_("n")), name="p")
    says = r"found 'Aggregate\.process with the parameters \(context, rows\)'.*2 inputs: in, more$"
    with pytest.raises(InputError, match=says):
        programs(topo.build())


@pytest.mark.parametrize(
    "processor", [one, lambda *inputs: inputs[1], functools.partial(two, table=None), max, Count("c", by=BY)]
)
def test_processors_that_are_let_through(processor):
    programs(one_source(processor))


@pytest.mark.parametrize(
    "function", [lambda key, rows: (None, []), lambda key: None, lambda key, rows, state, x: None]
)
def test_the_function_of_a_per_key(function):
    with pytest.raises(InputError, match=r"^PerKey\('s'\)\.function: .*expected a function of \(key, rows,"):
        PerKey("s", function, by=BY, state=BY, output=BY)


# -- types


@pytest.mark.parametrize(
    ("time", "found"),
    [("at", None), ("att", "no column 'att'"), ("n", "'n', int64"), ("k", "'k', string"), ("none", None)],
)
def test_a_declared_event_time_is_a_time_of_the_output(time: str, found: str | None) -> None:
    built = one_source(declared(lambda self, inputs: Facts(columns=inputs[0].columns)), event_time=time)
    columns = {"in": {"k": "string", "at": "timestamp", "n": "bigint", "none": "void"}}
    if found is None:
        infer(built, columns)
        return
    with pytest.raises(InputError) as caught:
        infer(built, columns)
    assert (caught.value.path, caught.value.found) == ("node 'p', event_time", found)


@pytest.mark.parametrize("kind", ["struct<value: binary>", "array<int>", pa.duration("us")])
def test_a_key_of_a_repartition_is_of_a_type_that_has_a_hash(kind: str) -> None:
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).repartition(key="x", name="again")
    for hashed in ("string", "void"):
        infer(topo.build(), {"in": {"k": "string", "x": hashed}})
    with pytest.raises(InputError, match=r"^node 'again', key: found .*, expected a key of type boolean"):
        infer(topo.build(), {"in": {"k": "string", "x": kind}})


def merged(partitions: int = 4) -> Any:
    topo = Topology("t")
    a, b = (topo.source(name, key=["k", "l"], partitions=partitions) for name in "ab")
    a.merge(b).process(Count("n", by=BY | {"l": "string"}), name="n")
    return topo.build()


def test_keys_are_compared_column_by_column() -> None:
    check = KeyTypes(merged(), alike(merged(), infer(merged())))
    for fits in (["string", "int"], ["string", "void"]):
        check({"a": ["string", "int"], "b": fits})
    for b, says in ((["string", "bigint"], "string, int64"), (["binary", "int"], "binary, int32")):
        with pytest.raises(InputError, match=rf"^topics a, b: found .*a: string, int32; b: {says}"):
            check({"a": ["string", "int"], "b": b})


def test_topics_of_a_join_and_of_a_store_are_compared_in_more_than_one_task() -> None:
    assert alike(merged(), infer(merged())) == (("a", "b"),)
    assert alike(merged(1), infer(merged(1))) == ()
    topo = Topology("t")
    left, right = (topo.source(name, key="k", partitions=2) for name in ("left", "right"))
    left.join_table(right, lambda context, rows, table: rows, name="j")
    topo.source("alone", partitions=2)
    assert alike(topo.build(), infer(topo.build())) == (("left", "right"),)


# -- in the task


def test_a_task_takes_as_many_bytes_as_its_limit() -> None:
    check_size(80, "0_0", 80)
    with pytest.raises(InputError, match=r"^task 0_0: found '80 bytes of input .*= 79;"):
        check_size(80, "0_0", 79)


@pytest.mark.parametrize(
    ("kept", "hashed", "value", "found"),
    [
        ("string", "string", "x", None),
        ("string", "int64", "7", None),
        ("string", "int64", "x", "values of type string that int64 does not have"),
        ("int64", "int32", 2**40, "values of type int64 that int32 does not have"),
        ("string", "large_string", "x", None),
        ("string", "timestamp[us]", "2026-01-01 00:00:00", None),
        ("string", "timestamp[us]", "soon", "values of type string that timestamp[us] does not have"),
        ("string", "list<item: int64>", "x", "a topic's key of type list<item: int64>, which a task"),
    ],
)
def test_a_key_is_hashed_as_the_topic_has_it(kept: str, hashed: str, value: Any, found: str | None) -> None:
    kind = pa.type_for_alias(kept)
    owned = Owned(node="n", store="s", columns=(("k", kind),), topics=("in",), partitions=1, changed_by="f")
    check = functools.partial(owned.check, hashed={"in": [hashed]}, partition=0)
    rows = pa.table({"k": pa.array([value], kind)})
    if found is None:
        check(rows)
        return
    with pytest.raises(InputError) as caught:
        check(rows)
    assert caught.value.path == "node 'n', column 'k'"
    assert str(caught.value.found).startswith(found)
