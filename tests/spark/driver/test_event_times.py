"""Who says what event time is: sources, processors that declare it, and nodes that know it; without Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from types import LambdaType
from typing import Any

import pyarrow as pa
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
    first,
    max_,
    min_,
)
from taskplace.spark.registry import Registry
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from tests.support.windows import KEY, SIXTY, START, clicks, quarters, run, same
from topology import Stream, Topology, TopologyError


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
    with pytest.raises(TopologyError, match=r"node 'after': uses event time, .* 'mine', which declares no"):
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
    with pytest.raises(
        TopologyError, match=r"node 'n': found the time column 'then', .* at; .* declare 'then'"
    ):
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


# -- event time that is lost on the way: nodes that need it are refused, and a declaration behind the loss ends it


HOUR = timedelta(hours=1)
STAMP = pa.timestamp("us", tz="UTC")


def hourly(column: str, **options: Any) -> Count:
    return Count("n", by=KEY, window=Tumbling(column, "1 hour", emit="final"), **options)


def ending(time: str) -> Deduplicate:
    return Deduplicate("e", by=KEY, ttl="1 hour", time=time, over_changes=True)


def state(**options: Any) -> PerKey:
    return PerKey(
        "p",
        lambda key, rows, state: (None, rows),
        by=KEY,
        state={"at": "timestamp"},
        output={**KEY, "created": "timestamp", "updated": "timestamp"},
        **options,
    )


def merge(topo: Topology) -> Stream:
    """Return a merge of two sources with different event times."""
    created = topo.source("a", key="k", partitions=2, event_time="created")
    updated = topo.source("b", key="k", partitions=2, event_time="updated")
    return created.merge(updated, name="both")


def lags(world: World, topo: Topology) -> dict[str, int]:
    return {
        operator.name: operator.lag for program in world.open(topo).programs for operator in program.operators
    }


def chain(stream: Stream, *steps: Any) -> Stream:
    """Return a stream behind processors and functions of streams; the last processor is the node `after`."""
    for number, step in enumerate(steps, 1):
        last = number == len(steps)
        if isinstance(step, LambdaType) and step is not same:
            stream = step(stream)
        else:
            stream = stream.process(step, name="after" if last else f"step-{number}")
    return stream


BEHIND_MERGE: dict[str, list[Any]] = {
    "a window over one of the columns": [hourly("created")],
    "a window over the other one": [hourly("updated")],
    "a ttl": [ending("created")],
    "a ttl of a function's state": [state(ttl="1 hour", time="at")],
    "behind an undeclared function": [same, hourly("created")],
    "behind an undeclared PerKey": [state(), hourly("created")],
    "behind a repartition": [lambda both: both.repartition(key="k", name="again"), hourly("created")],
    "behind a node that passes rows on": [Deduplicate("d", by=KEY), hourly("created")],
    "behind an aggregate": [
        Aggregate("m", by=KEY, seen=max_("created", "timestamp")),
        hourly("seen", over_changes=True),
    ],
    "behind another merge": [lambda both: both.merge(both.process(same), name="more"), hourly("created")],
}


@pytest.mark.parametrize("steps", BEHIND_MERGE.values(), ids=BEHIND_MERGE)
def test_behind_a_merge_without_a_common_event_time_nodes_that_need_one_are_refused(world, steps):
    topo = Topology("t")
    chain(merge(topo), *steps)
    says = (
        r"node 'after': .* 'both', .*: 'a' has \['created'\], 'b' has \['updated'\]; declare the same column"
    )
    with pytest.raises(TopologyError, match=says):
        world.open(topo)


def test_the_table_of_a_join_needs_an_event_time_as_well(world):
    topo = Topology("t")
    join = TableJoin("t", by=KEY, columns={"created": "timestamp"}, ttl="1 hour", time="created")
    topo.source("in", key="k", partitions=2, event_time="at").join_table(merge(topo), join, name="after")
    with pytest.raises(TopologyError, match=r"node 'after': uses event time, .* 'both', a merge of streams"):
        world.open(topo)


DECLARED: dict[str, Callable[[Stream], Stream]] = {
    "a function": lambda both: both.process(same, name="f", event_time="created", delay="3 hours"),
    "a PerKey": lambda both: both.process(state(event_time="created", delay="3 hours"), name="p"),
    "behind an undeclared function": lambda both: both.process(same, name="g").process(
        same, name="f", event_time="created", delay="3 hours"
    ),
}


@pytest.mark.parametrize("declare", DECLARED.values(), ids=DECLARED)
def test_a_declaration_behind_the_merge_loses_no_row_within_its_delay(world, declare):
    """The rows of `b` were created three hours before they were updated."""
    topo = Topology("t")
    declare(merge(topo)).process(hourly("created"), name="n").sink(
        "out", target=ParquetSink(world.folder / "out")
    )
    placed = world.open(topo)

    def row(created: int, updated: int) -> pa.Table:
        times = [pa.array([START + hours * HOUR], STAMP) for hours in (created, updated)]
        return pa.table({"k": ["x"], "created": times[0], "updated": times[1]})

    for number in range(6):
        world.batch(placed, number, a=row(number, number), b=row(number - 3, number))
    for number in (6, 7):
        world.batch(placed, number, a=row(1000, 1000), b=row(1000, 1000))
    assert sum(n for rows in world.sent("out").values() for *_, n in rows) == 12
    assert placed.stats.late == 0


BEHIND_AGGREGATE: dict[str, list[Any]] = {
    "a window over its first time": [hourly("started", over_changes=True)],
    "a window over its least time": [hourly("least", over_changes=True)],
    "a ttl": [ending("started")],
    "a ttl of a function's state": [state(ttl="1 hour", time="at")],
    "a window over a time that a function makes": [same, hourly("made", over_changes=True)],
}
STARTED = {"started": first("at", "timestamp"), "least": min_("at", "timestamp")}


@pytest.mark.parametrize("steps", BEHIND_AGGREGATE.values(), ids=BEHIND_AGGREGATE)
def test_behind_an_aggregate_that_keeps_no_event_time_nodes_that_need_one_are_refused(world, steps):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    chain(source.process(Aggregate("sums", by=KEY, n=count(), **STARTED), name="sums"), *steps)
    with pytest.raises(TopologyError, match=r"node 'after': .* 'sums', .*\(Aggregate\); .*event_time='at'"):
        world.open(topo)


def test_a_table_s_time_is_no_event_time_of_a_stream_whose_source_has_none(world):
    """The other sources' watermark applies to every column of such a source, but its rows meet older table rows."""

    def topology(**declares: str) -> Topology:
        topo = Topology("t")
        table = topo.source("table", key="k", partitions=1, event_time="at")
        stream = topo.source("in", key="k", partitions=1)
        joined = stream.join_table(table, TableJoin("t", by=KEY, columns={"at": "timestamp"}), name="join")
        joined.process(ending("mine"), name="once")
        both = joined.merge(joined.process(Deduplicate("d", by=KEY), name="d"), name="both")
        both = both.process(same, name="f", **declares) if declares else both
        both.process(hourly("at"), name="after")
        return topo

    with pytest.raises(TopologyError, match=r"node 'after': found the time column 'at', .* not of a table"):
        world.open(topology())
    assert lags(world, topology(event_time="at", delay="1 hour"))["after"] == 60 * SIXTY


def test_a_declared_delay_is_added_to_the_slowest_time_before_the_loss(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    windows = Count("w", by=KEY, window=Tumbling("at", "15 minutes", emit="final", time="ends"))
    sums = source.process(windows, name="w").process(Count("sums", by=KEY), name="sums")
    declared = sums.process(same, name="f", event_time="made", delay="1 minute")
    declared.process(hourly("made", over_changes=True), name="n")
    assert lags(world, topo)["n"] == 15 * SIXTY - 1 + SIXTY


def test_times_that_only_some_streams_of_a_merge_have_still_count_for_declarations_behind_it(world):
    """A function may go on with the start of a window, which is no event time of the merge."""
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    windows = Count("w", by=KEY, window=Tumbling("at", "15 minutes", emit="final", time="at"))
    both = source.process(windows, name="w").merge(source, name="both")
    both.process(hourly("at"), name="n")
    both.process(same, name="f", event_time="window_start").process(ending("window_start"), name="once")
    found = lags(world, topo)
    assert (found["n"], found["once"]) == (0, 15 * SIXTY - 1)


def test_a_checkpoint_goes_on_when_a_function_that_declares_an_event_time_is_added(world):
    def topology(*, declares: bool) -> Topology:
        topo = Topology("t")
        source = topo.source("in", key="k", partitions=1, event_time="at")
        sums = source.process(Aggregate("sums", by=KEY, seen=max_("at", "timestamp")), name="sums")
        if declares:
            sums = sums.process(same, name="f", event_time="seen", delay="1 minute")
        sums.process(hourly("seen", over_changes=True), name="n")
        return topo

    placed = world.open(topology(declares=False))
    world.batch(placed, 0, **{"in": clicks(("a", 0), ("a", 50))})
    placed.close()
    again = world.open(topology(declares=True))
    world.batch(again, 1, **{"in": clicks(("a", 51))})
    assert [n for *_, n in world.stored(again, "n")] == [2]


def test_without_any_event_time_nothing_is_lost(world):
    topo = Topology("t")
    one, other = (topo.source(name, key="k", partitions=1) for name in ("a", "b"))
    both = one.merge(other, name="both").process(same, name="f").process(same, name="g", event_time="at")
    both.process(Count("n", by=KEY), name="n")
    assert set(lags(world, topo).values()) == {0}
