"""Two watermarks per store, through a whole `Placed` without Spark: nothing that Spark would count is lost."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskplace.spark.processors import Aggregate, Count, Tumbling, count, max_
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.state import expiry
from tests.support.placed_without_spark import World
from tests.support.windows import KEY, MINUTE, SIXTY, START, clicks, hours, quarters, run, sent
from topology import Topology


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


def test_a_row_without_a_time_is_in_no_window_and_counts_as_late(world):
    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    source.process(Count("n", by=KEY, window=Tumbling("at", "1 hour")), name="n").sink(
        "out", target=ParquetSink(world.folder / "out")
    )
    placed = run(world, topo, [clicks(("a", None), ("a", 1))])
    assert world.sent("out") == {0: [("a", START, 1)]}
    assert placed.stats.late == 1


class Gone:
    """Sends the keys that were not seen for some time, with the time when they were seen last."""

    event_time = "at"

    def __init__(self, delay, retention_ms):
        self.delay, self.retention_ms = delay, retention_ms

    def layouts(self):
        columns = {"key": KEY, "value": {"at": "timestamp"}}
        return {"s": {**columns, "time": "at", "retention_ms": self.retention_ms}}

    def process(self, context, rows):
        store = context.store("s")
        store.put_many(rows)
        store.expire()
        return store.gone.select(["k", "at"])


@pytest.mark.parametrize("at_once", [1, 50_000])
def test_what_has_expired_is_sent_also_when_its_key_comes_again(world, monkeypatch, at_once):
    """Sessions: entries that wait to be removed, as they are many or in a slot, are not written over unsent."""
    monkeypatch.setattr(expiry, "REMOVED_PER_BATCH", at_once)

    topo = Topology("t")
    source = topo.source("in", key="k", partitions=1, event_time="at")
    source.process(Gone("1 day", 60_000), name="s").sink("out", target=ParquetSink(world.folder / "out"))
    first = [clicks(("a", 1), ("b", 1), ("c", 1)), clicks(("z", 101)), clicks()]
    run(world, topo, [*first, clicks(("a", 101), ("b", 101)), clicks(("z", 500)), *[clicks()] * 6])
    found = sorted(row for rows in world.sent("out").values() for row in rows)
    kept = [("a", 1), ("a", 101), ("b", 1), ("b", 101), ("c", 1)]
    assert found[:5] == [(k, START + minute * MINUTE) for k, minute in kept]


def test_what_has_expired_is_sent_before_nodes_behind_it_take_it_for_late(world):
    """Each key is seen once and then never again: its window of a minute counts it, an hour later."""

    topo = Topology("t")
    source = topo.source("in", key="k", partitions=2, event_time="at")
    silent = source.process(Gone("1 hour", 3_600_000), name="s")
    minutes = Count("n", by=KEY, window=Tumbling("at", "1 minute", emit="final"))
    silent.process(minutes, name="n").sink("out", target=ParquetSink(world.folder / "out"))
    rows = [clicks((f"k{minute}", minute)) for minute in range(180)]
    placed = run(world, topo, [*rows, clicks(("end", 1_000)), clicks()])
    assert placed.stats.late == 0
    found = sorted(row for rows in world.sent("out").values() for row in rows)
    assert found == sorted((f"k{minute}", START + minute * MINUTE, 1) for minute in range(180))


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
