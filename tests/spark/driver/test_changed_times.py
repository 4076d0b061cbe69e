"""Times that change between runs - grace, time to live, event time -, through a whole `Placed` without Spark."""

from __future__ import annotations

import pytest

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.processors import Count, Deduplicate, Tumbling
from taskplace.spark.sinks import ParquetSink
from tests.support.placed_without_spark import World
from tests.support.windows import KEY, MINUTE, START, clicks, quarters, run, same, sent
from topology import Topology


def in_windows(world: World, window: Tumbling) -> Topology:
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    source.process(Count("n", by=KEY, window=window), name="n").sink(
        "out", target=ParquetSink(world.folder / "out")
    )
    return topo


def test_a_longer_grace_opens_no_window_that_was_sent(world):
    first = run(
        world, in_windows(world, quarters()), [clicks(("a", 0), ("a", 1)), clicks(("a", 40)), clicks()]
    )
    first.close()
    again = world.open(in_windows(world, quarters(grace="1 hour")))
    world.batch(again, 3, **{"in": clicks(("a", 2), ("a", 20))})
    assert again.stats.late == 2, "both of their windows were over"
    world.batch(again, 4, **{"in": clicks(("a", 31))})
    world.batch(again, 5, **{"in": clicks(("a", 1000))})
    world.batch(again, 6, **{"in": clicks()})
    assert sent(world) == {("a", START): 2, ("a", START + 30 * MINUTE): 2}


def test_a_longer_time_to_live_brings_nothing_back(world):
    def topo(ttl):
        topo = Topology("t")
        source = topo.source("in", key="k", partitions=1, event_time="at")
        once = source.process(Deduplicate("seen", by=KEY, ttl=ttl, time="at"), name="once")
        once.sink("out", target=ParquetSink(world.folder / "out"))
        return topo

    run(world, topo("10 minutes"), [clicks(("a", 0)), clicks(("b", 30)), clicks()]).close()
    again = world.open(topo("1 day"))
    world.batch(again, 3, **{"in": clicks(("a", 5), ("a", 25))})
    assert again.stats.late == 1, "what was forgotten may have had this key"
    assert [row[1] for row in world.sent("out")[3]] == [START + 25 * MINUTE]


def test_what_is_sent_of_windows_cannot_change_under_open_ones(world):
    run(world, in_windows(world, quarters()), [clicks(("a", 0))]).close()
    with pytest.raises(CheckpointError, match="'emit' was 'final' and is 'changes'"):
        world.open(in_windows(world, Tumbling("at", "15 minutes")))


def test_a_store_of_windows_belongs_to_one_node(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    for name in "ab":
        source.process(Count("n", by=KEY, window=quarters()), name=name)
    with pytest.raises(InputError, match=r"stores\.n: found \"windows of node 'a' .*a separate store"):
        world.open(topo)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"evnt_time": "at"}, r"nodes\.n\.evnt_time: found 'at', .*did you mean 'event_time'"),
        (
            {"ttl": "1 hour", "time": "at"},
            r"nodes\.n\.ttl: found '1 hour', expected only the options event_time and delay; "
            "pass other options to the processor itself",
        ),
    ],
)
def test_an_option_of_a_node_that_nobody_reads_is_refused(world, options, message):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    source.process(Deduplicate("d", by=KEY), name="n", **options)
    with pytest.raises(InputError, match=message):
        world.open(topo)
    if "ttl" not in options:
        topo = Topology("t")
        topo.source("in", key="k", partitions=1).process(same, name="n", **options)
        with pytest.raises(InputError, match=message):
            world.open(topo)


def test_another_column_as_event_time_of_a_source_is_refused(world):
    def topo(column):
        topo = Topology("t")
        source = topo.source("in", key="k", partitions=1, event_time=column)
        source.process(Count("n", by=KEY, window=Tumbling(column, "1 hour")), name="n")
        return topo

    both = clicks(("a", 1)).append_column("then", clicks(("a", 0))["at"])
    run(world, topo("at"), [both]).close()
    with pytest.raises(CheckpointError, match="created with event_time of 'in' = 'at', found 'then'"):
        world.open(topo("then"))
