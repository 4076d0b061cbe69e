"""`ProcessorTester` does what a task of a stream does with one processor."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from taskplace.errors import InputError
from taskplace.spark.processors import Aggregate, Count, Deduplicate, Tumbling, count, max_
from taskplace.spark.state import expiry
from taskplace.spark.testing import ProcessorTester
from tests.support.placed_without_spark import World
from topology import Topology, TopologyError

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def row(k: str, minute: int) -> dict:
    return {"k": k, "at": NOON + timedelta(minutes=minute)}


def hours() -> Aggregate:
    window = Tumbling("at", "1 hour", grace="5 minutes", emit="final")
    return Aggregate("hours", by={"k": "string"}, window=window, n=count())


def test_windows_close_by_the_watermark_and_late_rows_are_counted():
    with ProcessorTester(hours(), key="k", event_time="at", delay="10 minutes") as tester:
        first = tester.batch([row("a", 0), row("a", 59), row("b", 10)])
        assert (first.rows.num_rows, first.watermark, first.late_watermark) == (0, None, None)
        second = tester.batch([row("a", 76), row("a", 30)])
        assert second.watermark == NOON + timedelta(minutes=49)
        assert (second.rows.num_rows, second.late, second.late_watermark) == (0, 0, None)
        third = tester.batch([row("a", 58)])  # in time by the watermark of the batch before, 12:49
        assert third.watermark == NOON + timedelta(minutes=66)
        assert sorted((each["k"], each["n"]) for each in third.rows.to_pylist()) == [("a", 4), ("b", 1)]
        assert third.expired == {"hours": 2}
        assert tester.batch([row("b", 20)]).late == 1
        assert [(entry["k"], entry["n"]) for entry in tester.store("hours")] == [("a", 1)]


def test_it_sends_what_a_stream_sends(world: World):
    sent = []

    class Kept:
        def publish(self, spark, batch_id, files):
            import pyarrow.parquet as pq

            sent.append([each for file in files for each in pq.read_table(file).to_pylist()])

    topology = Topology("t")
    source = topology.source("in", key="k", partitions=1, event_time="at", delay="10 minutes")
    source.process(hours(), name="hours").sink("out", target=Kept())
    world.come(1)
    placed = world.open(topology)
    batches = [[row("a", 0), row("b", 70)], [row("a", 61), row("a", 3)], [row("b", 160)], [row("a", 90)]]
    with ProcessorTester(hours(), key="k", event_time="at", delay="10 minutes") as tester:
        for number, rows in enumerate(batches):
            world.batch(placed, number, **{"in": pa.Table.from_pylist(rows)})
            mine = tester.batch(rows).rows.to_pylist()
            theirs = sent.pop() if sent else []
            assert sorted(map(repr, mine)) == sorted(map(repr, theirs)), number


def test_functions_and_processors_without_stores():
    with ProcessorTester(lambda context, rows: rows.slice(1)) as tester:
        assert tester.batch(pa.table({"n": [1, 2]})).rows.to_pylist() == [{"n": 2}]
        with pytest.raises(InputError, match="store: found 'seen', expected one of"):
            tester.store("seen")


def test_a_second_run_has_to_send_the_same_rows():
    numbers = iter(range(9))
    says = "process: found 'other rows when batch 0 ran again', expected the same rows"
    made = ProcessorTester(lambda context, rows: pa.table({"n": [next(numbers)]}))
    with made as tester, pytest.raises(InputError, match=says):
        tester.batch([{"n": 1}])


def test_a_batch_that_fails_changes_nothing_and_may_be_given_again():
    class Picky:
        def layouts(self):
            return {"seen": {"key": {"k": "string"}, "value": {"n": "int64"}}}

        def process(self, context, rows):
            context.store("seen").put_many(rows)
            if None in rows["n"].to_pylist():
                raise ArithmeticError("no number")
            return rows

    with ProcessorTester(Picky(), key="k") as tester:
        tester.batch([{"k": "a", "n": 1}])
        with pytest.raises(ArithmeticError, match="no number"):
            tester.batch(pa.table({"k": ["a"], "n": pa.array([None], pa.int64())}))
        assert tester.store("seen") == [{"k": "a", "n": 1}]
        tester.batch([{"k": "a", "n": 2}])
        assert tester.store("seen") == [{"k": "a", "n": 2}]


def test_a_batch_removes_a_limited_number_of_entries(monkeypatch):
    monkeypatch.setattr(expiry, "REMOVED_PER_BATCH", 2)
    once = Deduplicate("seen", by={"k": "string"}, ttl="1 minute", time="at")
    with ProcessorTester(once, key="k", event_time="at") as tester:
        tester.batch([row(k, 0) for k in "abc"])
        tester.batch([row("z", 60)])
        assert tester.batch().expired == {"seen": 2}
        assert tester.batch().expired == {"seen": 1}
        assert [entry["k"] for entry in tester.store("seen")] == ["z"]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: ProcessorTester(Count("n", by={"page": "string"}), key="user"), "keeps state by .page."),
        (lambda: ProcessorTester(hours(), key="k"), "a time to live, but no source with an event time"),
        (lambda: ProcessorTester(print, inputs=3), "ProcessorTester.inputs: found 3"),
        (lambda: ProcessorTester(3), "expected an object with process"),
    ],
)
def test_what_a_start_refuses_is_refused(made, says):
    with pytest.raises((InputError, TopologyError), match=says):
        made()


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ((), "batch.rows: found .*, expected rows, or an empty pyarrow.Table with columns"),
        (([3],), "batch.rows: found .*expected a list of dicts, or a pyarrow.Table"),
        (([], []), "found '2 arguments', expected rows of at most 1 input"),
        (([{"k": 1}, {"k": "a"}],), "batch.rows: found"),
        (([{"k": Decimal("1e-999999999")}],), "batch.rows: found .*precision"),
    ],
)
def test_rows_that_are_none(rows, says):
    made = ProcessorTester(Count("n", by={"k": "string"}), key="k")
    with made as tester, pytest.raises(InputError, match=says):
        tester.batch(*rows)


def test_times_that_python_does_not_have_are_sent_and_named():
    """And compared, when a batch runs again."""
    year_11103, nan = pa.array([2**58, 0], pa.timestamp("us", "UTC")), pa.array([float("nan"), 1.0])
    rows = pa.table({"k": ["a", "b"], "at": year_11103, "x": nan})
    newest = Aggregate("s", by={"k": "string"}, at=max_("at", "timestamp"), x=max_("x", "float64"))
    with ProcessorTester(newest, key="k") as tester:
        assert tester.batch(rows).rows["at"].combine_chunks() == year_11103
        with pytest.raises(InputError, match=r"^store 's'\.at: found '11103-.*Z', expected values that"):
            tester.store("s")


def test_nothing_is_left_behind():
    tester = ProcessorTester(Count("n", by={"k": "string"}), key="k")
    folder = Path(tester._folder.name)
    tester.batch([{"k": "a"}])
    assert folder.exists()
    tester.close()
    assert not folder.exists()
