"""Two watermarks per store, through a whole `Placed` without Spark: nothing that Spark would count is lost."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.codec import sealed
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
    sum_,
)
from taskplace.spark.registry import Registry
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.state import expiry
from tests.support.placed_without_spark import World
from topology import Topology, TopologyError

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SIXTY = 60 * 10**6  # a minute, in microseconds
KEY = {"k": "string"}


def clicks(*rows: tuple[str, int | None]) -> pa.Table:
    """Return rows of a key and a time in minutes."""
    at = [None if minute is None else START + minute * MINUTE for _, minute in rows]
    return pa.table(
        {"k": pa.array([k for k, _ in rows], pa.string()), "at": pa.array(at, pa.timestamp("us", tz="UTC"))}
    )


def quarters(**options: Any) -> Tumbling:
    return Tumbling("at", "15 minutes", emit="final", **options)


def hours(
    world: World, first: Tumbling, second: Tumbling, *, repartition: bool, partitions: int = 2
) -> Topology:
    """Return windows of windows: clicks by quarter of an hour, summed up by hour."""
    topo = Topology("hours")
    source = topo.source("in", key="k", partitions=partitions, event_time="at", delay="10 minutes")
    small = source.process(Count("small", by=KEY, window=first), name="small")
    if repartition:
        small = small.repartition(key="k", name="again", partitions=partitions + 1)
    large = small.process(Aggregate("large", by=KEY, window=second, n=sum_("count", "int64")), name="large")
    large.sink("out", target=ParquetSink(world.folder / "out"))
    return topo


def sent(world: World) -> Counter[tuple[str, datetime]]:
    """Return how often each key's windows were counted, all batches together; each window comes once."""
    found = [row for rows in world.sent("out").values() for row in rows]
    assert len({row[:2] for row in found}) == len(found), "a window was sent twice"
    return Counter({(k, start): n for k, start, n, *_ in found})


def run(world: World, topology: Topology, batches: list[pa.Table], **options: Any) -> Any:
    placed = world.open(topology, **options)
    for number, rows in enumerate(batches):
        world.batch(placed, number, **{"in": rows})
    return placed


@pytest.mark.parametrize("repartition", [False, True], ids=["one-task", "repartition"])
@pytest.mark.parametrize("column", ["window_start", "window_time"])
def test_windows_of_windows_count_every_row(world, column, repartition):
    """A click a minute for four hours, ten minutes a batch: 240 of them, by quarter and then by hour."""
    topo = hours(
        world, quarters(time="window_time"), Tumbling(column, "1 hour", emit="final"), repartition=repartition
    )
    batches = [clicks(*(("a", 10 * b + i) for i in range(10))) for b in range(24)]
    far = [clicks(("z", 10_000)), clicks(), clicks()]
    placed = run(world, topo, batches + far)
    assert sent(world) == {("a", START + h * 60 * MINUTE): 60 for h in range(4)}
    assert placed.stats.late == 0


def test_a_window_that_a_batch_both_fills_and_closes_has_the_rows_of_that_batch(world):
    """By the watermark of the batch before they are not late; by the batch's own the window is over."""
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    source.process(Count("n", by=KEY, window=quarters()), name="n").sink(
        "out", target=ParquetSink(world.folder / "out")
    )
    placed = run(
        world, topo, [clicks(("a", 0)), clicks(("a", 60)), clicks(("a", 1), ("a", 2)), clicks(("a", 3))]
    )
    assert world.sent("out") == {2: [("a", START, 3)]}
    assert placed.stats.late == 1, "the last one comes when the window is closed"
    assert placed.store("n").get({"k": "a", "window_start": START}) is None
    assert placed.store("n").get({"k": "a", "window_start": START + 60 * MINUTE}) == {"count": 1}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_limit_of_what_is_sent_at_once_loses_nothing_behind_it(data, tmp_path_factory):
    """Two windows a batch at most: the hours behind them wait for the quarters that are still to come."""
    minutes = data.draw(st.lists(st.lists(st.integers(0, 50), max_size=12), min_size=1, max_size=5))
    # In order but for 50 minutes: with that delay, no row is late.
    rows = [[("abc"[m % 3], 55 * b + m) for m in batch] for b, batch in enumerate(minutes)]
    repartition, partitions = data.draw(st.booleans()), data.draw(st.integers(1, 3))
    kills = data.draw(st.sets(st.integers(0, 8), max_size=2))
    with pytest.MonkeyPatch.context() as patch:
        world = World(tmp_path_factory.mktemp("limit"), patch)
        patch.setattr(expiry, "REMOVED_PER_BATCH", 2)
        topo = partial(
            hours,
            world,
            quarters(time="ends"),
            Tumbling("ends", "1 hour", emit="final"),
            repartition=repartition,
            partitions=partitions,
        )
        placed = world.open(topo())
        for number, batch in enumerate([*rows, [("z", 10_000)], *([[]] * 60)]):
            if number in kills:
                placed.close()
                placed = world.open(topo())
            world.batch(placed, number, **{"in": clicks(*batch)})
        truth = Counter((k, START + m // 60 * 60 * MINUTE) for batch in rows for k, m in batch)
        assert sent(world) == truth
        assert placed.stats.late == 0
        last = placed.journal.last
        assert not last.held
        assert last.expired == {"small": last.watermark - 15 * SIXTY, "large": last.watermark - 60 * SIXTY}


def test_the_number_of_partitions_does_not_show(tmp_path):
    rows = [clicks(*((f"u{i % 7}", 9 * b + (i * 11) % 61) for i in range(20))) for b in range(12)]
    found = []
    for partitions in (1, 2, 5):
        with pytest.MonkeyPatch.context() as patch:
            world = World(tmp_path / str(partitions), patch)
            topo = hours(
                world, quarters(), Tumbling("window_start", "1 hour"), repartition=True, partitions=partitions
            )
            placed = run(world, topo, rows)
            found.append((world.sent("out"), world.stored(placed, "small"), placed.stats.late))
    assert found[0] == found[1] == found[2]
    assert found[0][2] > 0, "rows are late, for each of them alike"


def test_a_row_without_a_time_is_in_no_window_and_counts_as_late(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    source.process(Count("n", by=KEY, window=Tumbling("at", "1 hour")), name="n").sink(
        "out", target=ParquetSink(world.folder / "out")
    )
    placed = run(world, topo, [clicks(("a", None), ("a", 1))])
    assert world.sent("out") == {0: [("a", START, 1)]}
    assert placed.stats.late == 1


def test_a_checkpoint_of_an_older_version_goes_on_by_the_watermark_that_it_has(world, monkeypatch):
    """Its manifests have one watermark for all; nothing that was sent by it is sent again."""
    topo = partial(
        hours, world, quarters(), Tumbling("window_start", "1 hour", emit="final"), repartition=True
    )
    rows = [clicks(*(("a", 10 * b + i) for i in range(10))) for b in range(12)]
    placed = run(world, topo(), rows)
    last = placed.journal.last
    monkeypatch.setattr(placed.journal, "last", None)
    placed.close()
    plain = {name: value for name, value in asdict(last).items() if name not in ("expired", "held", "schema")}
    path = world.folder / "checkpoint" / "manifests" / f"{last.batch:010d}.json"
    path.write_bytes(sealed({"schema": "taskplace.manifest/5", **plain}))
    again = world.open(topo())
    assert again.journal.last.expired is None
    world.batch(again, 12, **{"in": clicks(("a", 500))})
    world.batch(again, 13, **{"in": clicks()})
    watermark = again.journal.last.watermark
    assert again.journal.last.expired == {
        "small": watermark - 15 * SIXTY,
        "large": watermark - (15 * SIXTY - 1) - 60 * SIXTY,
    }
    assert set(sent(world)) == {("a", START), ("a", START + 60 * MINUTE)}


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
    with pytest.raises(CheckpointError, match="'emit': 'final'"):
        world.open(in_windows(world, Tumbling("at", "15 minutes")))


def test_aggregates_see_the_start_of_the_windows_that_came(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    small = source.process(Count("small", by=KEY, window=quarters(time="ends")), name="small")
    large = Aggregate(
        "large",
        by=KEY,
        window=Tumbling("ends", "1 hour", emit="final"),
        newest=max_("window_start", "timestamp"),
        n=count(),
    )
    small.process(large, name="large").sink("out", target=ParquetSink(world.folder / "out"))
    run(world, topo, [clicks(("a", 1), ("a", 20), ("a", 35), ("a", 50)), clicks(("b", 400)), clicks()])
    assert world.sent("out") == {2: [("a", START, START + 45 * MINUTE, 4)]}


def test_a_store_of_windows_belongs_to_one_node(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    for name in "ab":
        source.process(Count("n", by=KEY, window=quarters()), name=name)
    with pytest.raises(InputError, match=r"stores\.n: found \"windows of node 'a', .*a store of its own"):
        world.open(topo)


@pytest.mark.parametrize("at_once", [1, 50_000])
def test_what_has_expired_is_sent_also_when_its_key_comes_again(world, monkeypatch, at_once):
    """Sessions: entries that wait to be removed, as they are many or in a slot, are not written over unsent."""
    monkeypatch.setattr(expiry, "REMOVED_PER_BATCH", at_once)

    class Sessions:
        event_time, delay = "at", "1 day"

        def layouts(self):
            return {"s": {"key": KEY, "value": {"at": "timestamp"}, "time": "at", "retention_ms": 60_000}}

        def process(self, context, rows):
            store = context.store("s")
            store.put_many(rows)
            store.expire()
            return store.gone.select(["k", "at"])

    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    source.process(Sessions(), name="s").sink("out", target=ParquetSink(world.folder / "out"))
    first = [clicks(("a", 1), ("b", 1), ("c", 1)), clicks(("z", 101)), clicks()]
    run(world, topo, [*first, clicks(("a", 101), ("b", 101)), clicks(("z", 500)), *[clicks()] * 6])
    found = sorted(row for rows in world.sent("out").values() for row in rows)
    kept = [("a", 1), ("a", 101), ("b", 1), ("b", 101), ("c", 1)]
    assert found[:5] == [(k, START + minute * MINUTE) for k, minute in kept]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"evnt_time": "at"}, r"nodes\.n\.evnt_time: found an unknown key, .*did you mean 'event_time'"),
        (
            {"ttl": "1 hour", "time": "at"},
            r"nodes\.n\.ttl: found '1 hour', expected no such option: .* give others to the processor itself",
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
    with pytest.raises(
        CheckpointError, match="made with event_time of 'in' = 'at', this application has 'then'"
    ):
        world.open(topo("then"))


def test_a_processor_is_told_both_watermarks_whatever_stores_it_has_beside(world):
    seen = []

    class Looks:
        def layouts(self):
            layout = {"key": KEY, "value": {"at": "timestamp"}}
            return {"kept": layout, "forgets": {**layout, "time": "at", "retention_ms": 60_000}}

        def process(self, context, rows):
            seen.append((context.late_watermark, context.watermark))
            return rows

    topo = Topology("t")
    topo.source("in", key="k", partitions=1, event_time="at").process(Looks(), name="looks")
    run(world, topo, [clicks(("a", 1)), clicks(("a", 5)), clicks(("a", 9))])
    assert seen == [(None, None), (None, START + MINUTE), (START + MINUTE, START + 5 * MINUTE)]


def test_a_date_stands_for_its_whole_day(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    seen = Aggregate("n", by=KEY, n=count(), day=max_("at", "date"), ttl="1 hour", time="day")
    source.process(seen, name="n").sink("out", target=ParquetSink(world.folder / "out"))
    batches = [clicks(("a", minute)) for minute in (720, 730, 731, 735)]
    placed = run(world, topo, batches)
    assert [rows[0][1] for _, rows in sorted(world.sent("out").items())] == [1, 2, 3, 4]
    assert placed.stats.late == 0
    for number, minute in ((4, 24 * 60 + 61), (5, 25 * 60 + 62), (6, 25 * 60 + 63)):
        world.batch(placed, number, **{"in": clicks(("b", minute))})
    assert placed.store("n").get({"k": "a"}) is None


# ------------------------------------------------------------------------------ who says what event time is


def behind(processor: Any, node: Any, **options: Any) -> Topology:
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    source.process(processor, name="mine", **options).process(node, name="after")
    return topo


def same(context, rows):
    return rows


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
        TopologyError, match=r"node 'after': goes by event time, .* 'mine', which does not declare"
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
    with pytest.raises(TopologyError, match="node 'n': found event_time, expected none"):
        world.open(topo)


def test_a_declared_column_that_does_not_come_is_refused_in_the_task(world):
    placed = world.open(behind(same, Count("n", by=KEY), event_time="then"))
    with pytest.raises(InputError, match=r"mine\.event_time: found \"'then', no column\""):
        world.batch(placed, 0, **{"in": clicks(("a", 1))})
    assert placed.journal.last is None


def test_a_window_over_what_is_no_event_time_is_refused(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    source.process(Count("n", by=KEY, window=Tumbling("then", "1 hour")), name="n")
    with pytest.raises(
        TopologyError, match=r"node 'n': goes by the time 'then', .* expected one of \['at'\]"
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
    join = TableJoin("t", on=KEY, columns={"then": "timestamp"}, ttl="1 hour", time="then")
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
    stream.process(Count("n", by=KEY, window=Tumbling("seen", "1 hour")), name="n")
    world.open(topo)
