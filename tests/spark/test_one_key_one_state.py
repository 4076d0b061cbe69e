"""The rows of the table "One key, one state" of the guarantees, for processors that say nothing of their rows or state.

What is not known never weakens a check at the start: a class without `infer`, one that answers nothing, one that is
derived from a built-in class, and a function with a store are compared like a count.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from taskplace.errors import InputError
from taskplace.spark.compile.infer import infer
from taskplace.spark.compile.programs import programs
from taskplace.spark.compile.sources import check_sources
from taskplace.spark.processors import Count, Facts, State
from topology import Topology, TopologyError


class Silent:
    """A class without `infer`."""

    def __init__(self, by: dict[str, str]) -> None:
        self.by = by

    def layouts(self) -> Any:
        return {"s": {"key": self.by, "value": {"count": "int64"}}}

    def process(self, context: Any, rows: pa.Table) -> pa.Table:
        return rows


class Empty(Silent):
    """A class that answers nothing."""

    def infer(self, inputs: tuple[Facts, ...]) -> Facts:
        return Facts()


class PassesOn(Silent):
    """A class that passes its rows on, and says nothing of its state."""

    def infer(self, inputs: tuple[Facts, ...]) -> Facts:
        return inputs[0]


class Derived(Count):
    """A class that inherits the answer of a count."""

    def __init__(self, by: dict[str, str]) -> None:
        super().__init__("s", by=by)


class Overriding(Derived):
    """A class that overrides what the answer is about."""

    def process(self, context: Any, rows: pa.Table) -> pa.Table:
        return super().process(context, rows)


def function(by: dict[str, str]) -> Any:
    return lambda context, rows: rows


KINDS = pytest.mark.parametrize("kind", [Silent, Empty, PassesOn, Derived, Overriding, function])


def built(kind: Any, by: dict[str, str], topics: dict[str, int], key: str = "k") -> Any:
    """Return a topology with state by `by` behind topics, by their numbers of partitions, and a function."""
    topo = Topology("t")
    if kind is function:
        topo.store("s", key=by, value={"count": "int64"})
    first, *others = [topo.source(name, key=key or None, partitions=n) for name, n in topics.items()]
    stream = first.merge(*others) if others else first
    step, stores = stream.process(lambda context, rows: rows, name="step"), ["s"] if kind is function else ()
    step.process(kind(by), name="state", stores=stores)
    return topo.build()


@KINDS
def test_the_key_of_a_store_has_all_key_columns_of_every_topic_that_reaches_it(kind):
    infer(built(kind, {"k": "string", "t": "string"}, {"a": 4}))
    with pytest.raises(TopologyError, match=r"^node 'state': keeps state by \(t\).*partitioned by \(k\)"):
        infer(built(kind, {"t": "string"}, {"a": 4}))


@KINDS
@pytest.mark.parametrize(
    ("topics", "key", "says"),
    [({"a": 4}, "", "without a key"), ({"a": 4, "b": 2}, "k", "different numbers of partitions")],
)
def test_topics_that_reach_one_state_have_keys_and_equal_numbers(kind, topics, key, says):
    with pytest.raises(TopologyError, match=f"^node 'state': .*{says}"):
        infer(built(kind, {"k": "string"}, topics, key))


@KINDS
def test_the_values_behind_a_node_that_may_change_them_are_checked_in_the_task(kind):
    (program,) = programs(built(kind, {"k": "string"}, {"a": 4}))
    (owned,) = program.owned
    assert (owned.node, owned.store, owned.changed_by) == ("state", "s", "step")


@KINDS
def test_a_cast_of_the_key_must_not_merge_values(kind):
    topology = built(kind, {"k": "int64"}, {"a": 4})
    check_sources(topology, {"a": StructType().add("k", "long")})
    with pytest.raises(InputError, match="a state key of type int64, but 'a' is partitioned by string"):
        check_sources(topology, {"a": StructType().add("k", "string")})


@KINDS
def test_the_keys_of_topics_that_feed_one_state_have_equal_types(kind):
    topology = built(kind, {"k": "int64"}, {"a": 4, "b": 4})
    schemas = {name: StructType().add("k", "long") for name in "ab"}
    check_sources(topology, schemas)
    with pytest.raises(InputError, match=r"keys have different types|co-partitioned keys of different types"):
        check_sources(topology, schemas | {"b": StructType().add("k", "integer")})


class Stating(Silent):
    """A class that states what the entries of its store belong to."""

    def __init__(self, of: Any) -> None:
        super().__init__({"t": "string"})
        self.of = of

    def infer(self, inputs: tuple[Facts, ...]) -> Facts:
        return Facts(states={"s": State(self.of)})


@pytest.mark.parametrize(
    ("topics", "key", "of"),
    [
        ({"a": 4}, "t", {"key", "id", "task"}),
        ({"a": 4}, "k", {"id", "task"}),
        ({"a": 4, "b": 2}, "t", {"task"}),
        ({"a": 4}, "", {"task"}),
        ({"a": 1}, "", {"key", "id", "task"}),
    ],
)
def test_what_is_stated_of_a_store_decides_what_is_compared(topics, key, of):
    accepted = set()
    for each in ("key", "id", "task"):
        topology = built(lambda by, each=each: Stating(each), {}, topics, key)
        try:
            infer(topology)
            accepted.add(each)
        except TopologyError:
            pass
    assert accepted == of
