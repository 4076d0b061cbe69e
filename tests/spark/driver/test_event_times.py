"""Who says what event time is: sources, processors that declare it, and nodes that know it; without Spark."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from taskplace.errors import InputError
from taskplace.spark.processors import (
    Aggregate,
    Count,
    Deduplicate,
    PerKey,
    TableJoin,
    Tumbling,
    count,
    event_time,
    max_,
)
from taskplace.spark.registry import Registry
from tests.support.windows import KEY, clicks, quarters, run, same
from topology import Topology, TopologyError


def behind(processor: Any, node: Any, **options: Any) -> Topology:
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    source.process(processor, name="mine", **options).process(node, name="after")
    return topo


@event_time("at", delay="5 minutes")
def declared(context, rows):
    return rows


NEEDS_TIME = [
    Count("n", by=KEY, window=Tumbling("at", "1 hour")),
    Deduplicate("n", by=KEY, ttl="1 hour", time="at"),
    Aggregate("n", by=KEY, seen=max_("at", "timestamp"), ttl="1 hour", time="seen"),
    PerKey(
        "n", lambda *_: (None, []), by=KEY, state={"at": "timestamp"}, output=KEY, ttl="1 hour", time="at"
    ),
]


@pytest.mark.parametrize("node", NEEDS_TIME, ids=lambda node: type(node).__name__)
def test_who_goes_by_time_behind_one_that_does_not_declare_it_is_refused(world, node):
    with pytest.raises(
        TopologyError, match=r"node 'after': uses event time, .* 'mine', which declares no event time"
    ):
        world.open(behind(same, node))
    for processor, options in ((declared, {}), (same, {"event_time": "at"})):
        world.open(behind(processor, node, **options))


def test_what_is_declared_holds_the_nodes_behind_back(world):
    topo = behind(declared, Count("n", by=KEY, window=quarters()))
    placed = run(
        world, topo, [clicks(("a", 0)), clicks(("a", 18)), clicks(), clicks(("a", 1)), clicks(("a", 40))]
    )
    assert placed.stats.late == 0, "18 minutes less 5 are not yet the end of the first window"
    world.batch(placed, 5, **{"in": clicks()})
    world.batch(placed, 6, **{"in": clicks(("a", 1))})
    assert placed.stats.late == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"event_time": 5}, r"mine\.event_time: found 5"),
        ({"delay": "1 hour"}, r"mine\.delay: found '1 hour', expected event_time as well"),
        ({"event_time": "at", "delay": "soon"}, r"mine\.delay: found 'soon'"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(world, options, message):
    with pytest.raises(InputError, match=message):
        world.open(behind(same, NEEDS_TIME[0], **options))


def test_a_node_that_knows_the_times_of_its_rows_takes_no_declaration(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    source.process(Count("n", by=KEY, window=quarters(time="ends")), name="n", event_time="ends")
    with pytest.raises(TopologyError, match="node 'n': found the option event_time, expected none"):
        world.open(topo)


def test_a_declared_column_that_does_not_come_is_refused_in_the_task(world):
    placed = world.open(behind(same, Count("n", by=KEY), event_time="then"))
    with pytest.raises(InputError, match=r"mine\.event_time: found .*, expected a column 'then'"):
        world.batch(placed, 0, **{"in": clicks(("a", 1))})
    assert placed.journal.last is None


def test_a_window_over_what_is_no_event_time_is_refused(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    source.process(Count("n", by=KEY, window=Tumbling("then", "1 hour")), name="n")
    with pytest.raises(TopologyError, match=r"node 'n': found the time column 'then', expected .* one of at"):
        world.open(topo)


def test_a_merge_has_the_times_that_all_have_and_the_slowest_of_them(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    late = source.process(declared, name="late")
    both = source.process(same, name="same", event_time="at").merge(late, name="both")
    both.process(Count("n", by=KEY, window=Tumbling("at", "15 minutes")), name="n")
    (program,) = world.open(topo).programs
    lags = {operator.name: operator.lag for operator in program.operators}
    assert lags["n"] == 300_000_000


def test_a_table_is_judged_by_its_own_time_and_the_join_sends_the_stream_s(world):
    topo = Topology("t")
    stream = topo.source("in", key="k", partitions=1, event_time="at")
    table = topo.source("table", key="k", partitions=1)
    join = TableJoin("t", by=KEY, columns={"then": "timestamp"}, ttl="1 hour", time="then")
    joined = stream.join_table(table, join, name="join")
    joined.process(Count("n", by=KEY, window=Tumbling("at", "1 hour")), name="n")
    world.open(topo)


def test_functions_keep_what_they_declare_when_they_get_options():
    def mine(context, rows, *, keep=1):
        return rows

    mine.every_batch, mine.event_time = True, "at"
    module = sys.modules[__name__]
    module.mine = mine  # type: ignore[attr-defined]
    try:
        made = Registry()[f"{__name__}:mine"](keep=2, event_time="at", delay="1 s")
    finally:
        del module.mine
    assert (made.every_batch, made.event_time, made.keywords) == (True, "at", {"keep": 2})


def test_an_aggregate_s_keys_and_newest_times_are_event_times(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    latest = Aggregate("m", by=KEY, n=count(), seen=max_("at", "timestamp"))
    stream = source.process(latest, name="m")
    stream.process(Count("n", by=KEY, window=Tumbling("seen", "1 hour"), over_changes=True), name="n")
    world.open(topo)
