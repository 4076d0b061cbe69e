"""Processors that forget by event time: what is sent and kept, late rows, and what is refused."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.messages import History
from taskplace.spark.processors import (
    Aggregate,
    Count,
    Deduplicate,
    PerKey,
    TableJoin,
    Tumbling,
    count,
    last,
    max_,
)
from taskplace.spark.processors.base import Context, call, layouts
from taskplace.spark.state import expiry
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.expiry import SECOND
from taskplace.spark.state.store import Store, StoreSchema
from tests.support.expiry import TTL, Runs, Task, at, micros, table


@pytest.fixture
def runs(tmp_path, committed):
    return lambda processor: Runs(tmp_path, committed, processor)


def test_deduplication_within_a_time(runs):
    r = runs(Deduplicate("seen", by={"k": "string"}, ttl="100 seconds", time="at"))
    rows, late = r.batch(None, table([("a", 1, 0), ("a", 2, 5), ("b", 3, 90)]))
    assert [row["n"] for row in rows] == [1, 3]
    assert late == 0
    rows, late = r.batch(60, table([("a", 4, 70), ("b", 5, 70)]))
    assert rows == []  # both are remembered
    rows, late = r.batch(120, table([("a", 6, 130), ("b", 7, 130), ("c", 8, 10)]))
    assert [row["n"] for row in rows] == [6]  # a is forgotten, b is not; c is too late to know
    assert late == 1
    rows, _ = r.batch(10_000, table([]))
    assert r.task.stored() == {"seen": 0, "seen~expiry": 0}


def test_a_window_is_counted_until_it_closes(runs):
    window = Tumbling("at", "60 seconds", grace="30 seconds")
    r = runs(Aggregate("hourly", by={"k": "string"}, window=window, n=count(), top=max_("n", "int64")))
    rows, _ = r.batch(None, table([("a", 1, 0), ("a", 5, 59), ("a", 2, 60), ("b", 3, 61)]))
    assert sorted((row["k"], row["window_start"], row["n"], row["top"]) for row in rows) == [
        ("a", at(0), 2, 5),
        ("a", at(60), 1, 2),
        ("b", at(60), 1, 3),
    ]
    rows, late = r.batch(89, table([("a", 9, 1)]))  # within the grace
    assert [(row["window_start"], row["n"], row["top"]) for row in rows] == [(at(0), 3, 9)]
    rows, late = r.batch(90, table([("a", 9, 1), ("a", 1, 65)]))
    assert [(row["window_start"], row["n"]) for row in rows] == [(at(60), 2)]
    assert late == 1


def test_windows_of_wild_times_are_counted_apart_and_stop_nothing(tmp_path):
    counts = Count("w", by={"k": "string"}, window=Tumbling("at", "1 hour"))
    schema = StoreSchema.of("w", layouts(counts)["w"])
    times = pa.array([expiry.FIRST, expiry.LAST, 0, 1, None], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    rows = pa.table({"k": ["a"] * 5, "at": times})
    # The last window never ends; a row without a time is in no window.
    for watermark, counted, late in ((None, [1, 1, 2], 1), (expiry.LAST, [1], 4)):
        with Copy(tmp_path / "copy", schema.databases) as copy:
            copy.bring_to(History(), tmp_path)
            store = Store(schema, copy, watermark)
            out = call(counts, Context("0_0", 0, 0, {"w": store}, expiry.as_datetime(watermark)), rows)
        assert sorted(out["count"].to_pylist()) == counted
        assert store.late == late


@settings(max_examples=30, deadline=None)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 80)), max_size=8),
        max_size=8,
    )
)
def test_final_windows_come_once_each_and_are_right(batches, committed):
    """Times come in order but for 20 s: with that delay, the watermark never makes a row late."""
    with tempfile.TemporaryDirectory() as folder:
        r = Runs(
            Path(folder),
            committed,
            Count("w", by={"k": "string"}, window=Tumbling("at", "30 seconds", emit="final")),
        )
        truth: dict[tuple, int] = {}
        got: dict[tuple, int] = {}
        newest = None
        for number, batch in enumerate([*batches, [], []]):
            rows = [(k, n, 60 * number + t) for k, n, t in batch]
            watermark = None if newest is None else newest - 80
            out, late = r.batch(10**6 if number > len(batches) else watermark, table(rows))
            assert late == 0
            for key, _, time in rows:
                start = at(time // 30 * 30)
                truth[(key, start)] = truth.get((key, start), 0) + 1
                newest = max(newest or 0, time)
            for row in out:
                assert (row["k"], row["window_start"]) not in got, "sent twice"
                got[(row["k"], row["window_start"])] = row["count"]
        assert got == truth


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 5000),
    grace=st.integers(0, 300),
    steps=st.lists(
        st.tuples(
            st.integers(0, 2000),  # how far the watermark goes on
            st.lists(st.tuples(st.sampled_from("ab"), st.integers(-400, 4000)), max_size=4),  # from there
        ),
        min_size=1,
        max_size=12,
    ),
)
def test_a_final_window_is_sent_in_the_first_batch_whose_watermark_has_reached_its_end(
    size, grace, steps, committed
):
    window = Tumbling("at", f"{size} seconds", grace=f"{grace} seconds" if grace else 0, emit="final")
    first = -(micros(0) // SECOND) % size  # windows are counted from 1970
    with tempfile.TemporaryDirectory() as folder:
        r = Runs(Path(folder), committed, Count("w", by={"k": "string"}, window=window))
        watermark = 0
        open_: dict[tuple[str, int], int] = {}
        for forward, rows in steps:
            watermark += forward
            due = {w: n for w, n in open_.items() if w[1] + size + grace <= watermark}
            out, late = r.batch(watermark, table([(k, 0, watermark + t) for k, t in rows]))
            sent = {(row["k"], row["window_start"]): row["count"] for row in out}
            assert sent == {(k, at(start)): n for (k, start), n in due.items()}, f"watermark {watermark}"
            assert len(out) == len(due)
            open_ = {w: n for w, n in open_.items() if w not in due}
            too_late = 0
            for key, time in rows:
                start = first + (watermark + time - first) // size * size
                if start + size + grace <= watermark:
                    too_late += 1
                else:
                    open_[key, start] = open_.get((key, start), 0) + 1
            assert late == too_late
        assert r.task.stored()["w"] == len(open_)


def test_a_time_that_is_not_in_the_key_goes_by_slots_and_one_that_is_does_not(tmp_path, committed):
    """An entry that is updated often is entered in the index once a slot; a window's time never changes."""
    slot = 3.125  # seconds: 100 s / 32
    ends = {}
    for name, column in {"value": "at", "key": "window_start"}.items():
        key = {"k": "string"} | ({"window_start": "timestamp"} if name == "key" else {})
        value = {"n": "int64"} | ({"at": "timestamp"} if name == "value" else {})
        layout = {"key": key, "value": value, "time": column, "retention_ms": TTL * 1000}
        task = Task(tmp_path / name, committed, [StoreSchema.of(name, layout)])
        rows = table([("a", 1, 1)]).rename_columns(["k", "n", column])
        task.batch(0, lambda s, name=name, rows=rows: s[name].put_many(rows))
        ends[name] = next(
            second
            for second in range(TTL - 2, TTL + 10)
            if task.batch(second, lambda s: None) or not task.stored()[name]
        )
    assert ends["key"] == TTL + 1
    assert TTL + 1 < ends["value"] <= TTL + 1 + slot + 1


def test_a_late_row_of_the_table_leaves_the_key_its_live_one(runs):
    join = TableJoin(
        "t", by={"k": "string"}, columns={"m": "int64", "at": "timestamp"}, ttl="100 seconds", time="at"
    )
    r = runs(join)
    stream = pa.table({"k": ["a"]})

    def joined(watermark, *rows):
        found, late = r.batch(watermark, stream, table(rows).rename_columns(["k", "m", "at"]))
        return [row["m"] for row in found], late

    assert joined(0, ("a", 1, 60)) == ([1], 0)
    assert joined(120, ("a", 2, 10)) == ([1], 1)
    assert joined(120, ("a", 3, 70), ("a", 4, 10)) == ([3], 1)
    assert joined(120) == ([3], 0)


def test_an_aggregate_that_a_late_row_would_end_stays_and_is_sent_as_it_is(runs):
    r = runs(
        Aggregate(
            "g",
            by={"k": "string"},
            rows=count(),
            seen=last("at", "timestamp"),
            ttl="100 seconds",
            time="seen",
        )
    )

    def sent(watermark, *rows):
        found, late = r.batch(watermark, table(rows))
        return sorted((row["k"], row["rows"], row["seen"]) for row in found), late

    assert sent(None, ("a", 0, 60), ("a", 0, 61)) == ([("a", 2, at(61))], 0)
    assert sent(120, ("a", 0, 10)) == ([("a", 2, at(61))], 1), "what the store has"
    assert sent(120, ("b", 0, 10), ("a", 0, 10)) == ([("a", 2, at(61)), ("b", 1, at(10))], 2), (
        "b is not known"
    )
    assert sent(120, ("a", 0, 10), ("a", 0, 62)) == ([("a", 4, at(62))], 0), "all of a batch count as one"
    assert sent(120, ("a", 0, 130), ("c", 0, 10), ("d", 0, 131)) == (
        [("a", 5, at(130)), ("c", 1, at(10)), ("d", 1, at(131))],
        1,
    )
    assert [row["k"] for row in r.task.batch(120, lambda s: next(s["g"].scan()).to_pylist())] == ["a", "d"]


def remembering(function, **output):
    """A time by key, remembered for 100 seconds; `output` is what is sent on beside the key."""
    layout = {"by": {"k": "string"}, "state": {"at": "timestamp"}, "output": {"k": "string", **output}}
    return PerKey("s", function, **layout, ttl="100 seconds", time="at")


def test_a_state_that_has_expired_already_is_not_taken(runs):
    def newest(key, rows, state):
        return {"at": rows[-1]["at"]}, [{"k": key["k"], "before": state and state["at"]}]

    r = runs(remembering(newest, before="timestamp"))
    assert r.batch(0, table([("a", 0, 60)]))[1] == 0
    assert r.batch(120, table([("a", 0, 10)])) == ([{"k": "a", "before": at(60)}], 1)
    assert r.batch(120, table([("a", 0, 61)])) == ([{"k": "a", "before": at(60)}], 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Deduplicate("s", by={"k": "string"}, ttl="1 day"),
            r"Deduplicate\('s'\).time: found nothing, expected both ttl and time, or neither",
        ),
        (lambda: Deduplicate("s", by={"k": "string"}, ttl="soon", time="at"), r"ttl: found 'soon'"),
        (
            lambda: Deduplicate("s", by={"k": "string"}, ttl=0, time="at"),
            r"ttl: found 0, expected a duration above 0",
        ),
        (lambda: Deduplicate("s", by={"k": "string"}, ttl=-5, time="at"), r"ttl: found -5"),
        (
            lambda: Aggregate(
                "s", by={"k": "string"}, window=Tumbling("at", "1 h"), ttl=5, time="k", n=count()
            ),
            "a window and a ttl', expected only the window: it adds 'window_start' and defines when",
        ),
        (
            lambda: Aggregate("s", by={"window_start": "date"}, window=Tumbling("at", "1 h"), n=count()),
            "a window and a column 'window_start'",
        ),
        (
            lambda: Count("s", by={"k": "string"}, window=Tumbling("at", "1 h", emit="last")),
            r"\.emit: found 'last'",
        ),
        (
            lambda: StoreSchema.of(
                "s", {"key": {"k": "string"}, "value": {"n": "int64"}, "time": "n", "retention_ms": 5}
            ),
            "n', int64\", expected a timestamp or date column",
        ),
        (
            lambda: StoreSchema.of(
                "s", {"key": {"k": "string"}, "value": {"n": "duration[us]"}, "time": "n", "retention_ms": 5}
            ),
            r"n', duration\[us\]\", expected a timestamp or date column",
        ),
        (
            lambda: StoreSchema.of("s", {"key": {"k": "string"}, "value": {"n": "int64"}, "retention_ms": 5}),
            "both or neither: an entry expires",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
