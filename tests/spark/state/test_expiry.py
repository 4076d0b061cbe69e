"""Stores that forget by event time: against a plain model, on replays, and on followers."""

from __future__ import annotations

import tempfile
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.messages import Change, History, Position
from taskplace.spark.processors import PerKey
from taskplace.spark.state import expiry
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.expiry import FIRST, LAST, SECOND
from taskplace.spark.state.store import Store, StoreSchema
from taskplace.spark.worker.lookup import _unexpired
from taskplace.spark.worker.program import Program
from tests.support.expiry import TTL, Task, at, micros, table

SCHEMA = StoreSchema.of(
    "seen",
    {
        "key": {"k": "string"},
        "value": {"n": "int64", "at": "timestamp"},
        "time": "at",
        "retention_ms": TTL * 1000,
    },
)


@pytest.fixture
def task(tmp_path, committed):
    return Task(tmp_path, committed, [SCHEMA])


steps = st.lists(
    st.tuples(
        st.integers(0, 60),  # how far the watermark goes on
        st.lists(
            st.tuples(st.sampled_from("abcdef"), st.integers(0, 9), st.none() | st.integers(-150, 60)),
            max_size=5,
        ),  # puts: times relative to the watermark
        st.lists(st.sampled_from("abcdef"), max_size=2),  # deletes
        st.integers(1, 4),  # the most that are removed
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps, by_slot=st.booleans())
def test_what_is_seen_is_what_a_plain_model_has_and_copies_agree(steps, by_slot, committed, contents):
    with tempfile.TemporaryDirectory() as folder:
        task = Task(Path(folder), committed, [SCHEMA])
        model: dict[str, tuple[int, int | None]] = {}
        watermark = 0
        for forward, puts, deletes, limit in steps:
            watermark += forward

            def live(time, watermark=watermark):
                return time is None or time > watermark - TTL

            rows = [(k, n, None if t is None else watermark + t) for k, n, t in puts]

            def work(stores, rows=rows, deletes=deletes, limit=limit):
                store = stores["seen"]
                store.put_many(table(rows))
                store.delete_many(pa.table({"k": pa.array(deletes, pa.string())}))
                found = store.get_many(table([(k, 0, None) for k in "abcdef"]))
                scanned = {r["k"]: (r["n"], r["at"]) for t in store.scan() for r in t.to_pylist()}
                if not by_slot:
                    store.expire(limit)
                return found, scanned, store.late

            (values, found), scanned, late = task.batch(watermark, work, limit=limit)
            # A row that comes too late is not taken: the key keeps what it has, of this batch or from before.
            model.update({k: (n, t) for k, n, t in rows if live(t)})
            for key in deletes:
                model.pop(key, None)
            model = {k: entry for k, entry in model.items() if live(entry[1])}
            expected = {k: (n, at(t)) for k, (n, t) in model.items()}
            assert scanned == expected
            got = zip("abcdef", values.to_pylist(), found, strict=True)
            assert {k: (v["n"], v["at"]) for k, v, there in got if there} == expected
            assert late == sum(not live(t) for _, _, t in rows)
        # All go in the end, but those without a time; the index goes with them.
        watermark += 10 * TTL
        for _ in range(60):
            task.batch(watermark, lambda stores: None, limit=3)
        forever = sum(t is None for _, t in model.values())
        assert task.stored() == {"seen": forever, "seen~expiry": 0}
        with task.copy("follower") as follower, task.copy() as active:
            follower.bring_to(task.history, task.folder)
            active.bring_to(task.history, task.folder)
            assert contents(follower) == contents(active)


def test_a_replay_of_a_batch_forgets_the_same_whatever_was_done_before(task):
    task.batch(0, lambda s: s["seen"].put_many(table([(str(i), i, i) for i in range(50)])))
    with task.copy() as copy:  # an attempt that loses: it has committed its copy, and no manifest names it
        copy.bring_to(task.history, task.folder)
        store = Store(SCHEMA, copy, micros(130))
        store.put_many(table([("new", 1, 170)]))
        store.expire()
        lost = store.changes()
        copy.commit(lost, Position(1, "lost", 500))

    def again(stores):
        stores["seen"].put_many(table([("new", 1, 170)]))
        stores["seen"].expire()
        return stores["seen"].changes()

    assert task.batch(130, again) == lost
    removed = [key for key, value in lost["seen"].items() if value is None]
    assert len(removed) == 31  # 0..30 have expired

    def by_slot(stores):
        stores["seen"].expire(by_slot=True)
        return stores["seen"].changes()

    removed = [key for key, value in task.batch(145, by_slot)["seen"].items() if value is None]
    assert 11 <= len(removed) <= 14  # 31..45 have expired; the last slot of 3 s is not due yet


@settings(max_examples=60, deadline=None)
@given(steps=steps, at_once=st.sampled_from([1, 2, 50_000]))
def test_a_processor_gets_each_entry_in_the_batch_in_which_it_expires(steps, at_once, committed):
    """Also if its key comes again. None is lost, and none comes twice. Those that find no room come next."""
    with tempfile.TemporaryDirectory() as folder:
        task = Task(Path(folder), committed, [SCHEMA])
        model: dict[str, tuple[int, int]] = {}
        due: list[tuple[str, int]] = []
        watermark = number = 0
        quiet = [(0, [], [], 1)] * 30
        for forward, puts, *_ in [*steps, *quiet, (10 * TTL, [], [], 1), *quiet]:
            before, watermark = watermark, watermark + forward
            # Each row is another one, so that it is known again. Rows are late by the watermark of the batch before.
            rows = [(k, number + i, before + t) for i, (k, _, t) in enumerate(puts) if t is not None]
            number += len(puts)

            def work(stores, rows=rows):
                stores["seen"].put_many(table(rows))
                stores["seen"].expire(at_once)
                return [(row["k"], row["n"]) for row in stores["seen"].gone.to_pylist()], stores["seen"].held

            sent, held = task.batch(before, work, now=watermark)
            # What has expired by the watermark before, and is still there, is sent when its key comes again.
            model.update({k: (n, t) for k, n, t in rows if t > before - TTL})
            for k, (n, t) in list(model.items()):
                if t <= watermark - TTL:
                    due.append((k, n))
                    del model[k]
            assert set(sent) <= set(due), "none too early"
            assert len(set(sent)) == len(sent)
            due = [one for one in due if one not in sent]
            assert held is not None or not due, "none too late"
        assert not due and not model
        assert task.stored() == {"seen": 0, "seen~expiry": 0}


def test_an_entry_that_is_updated_often_is_entered_in_the_index_once_a_slot(task):
    records = []
    for second in range(10):  # slots of 100 s / 32, above 3 s
        task.batch(0, lambda s, t=second: s["seen"].put_many(table([("a", t, t)])))
        records.append(task.history.changes[-1].records)
    assert task.stored()["seen"] == 1
    assert sum(records) == 10 + task.stored()["seen~expiry"] <= 10 + 4


@pytest.mark.parametrize(("ttl_s", "slot_s"), [(1, 1), (32, 1), (33, 33 / 32), (64, 2), (86_400, 2_700)])
def test_a_slot_is_a_part_of_the_ttl_but_a_second_at_least(ttl_s, slot_s):
    assert expiry.slot_of(ttl_s * 1_000_000) == slot_s * 1_000_000


def test_nothing_expires_as_long_as_there_is_no_watermark(task):
    task.batch(None, lambda s: s["seen"].put_many(table([("a", 1, -(10**6))])))
    assert task.batch(None, lambda s: s["seen"].contains_many(table([("a", 0, 0)])).tolist()) == [True]
    assert task.batch(0, lambda s: s["seen"].contains_many(table([("a", 0, 0)])).tolist()) == [False]


def test_readers_from_outside_do_not_see_what_has_expired():
    from taskplace.spark.state.rows import RowCodec

    keys = RowCodec(SCHEMA.key).encode(table([("old", 0, 0), ("new", 0, 0), ("none", 0, 0)]))
    values = RowCodec(SCHEMA.value).encode(table([("", 1, 0), ("", 2, 90), ("", 0, 0)]))
    stored = [values[0], values[1], None]
    assert _unexpired(SCHEMA, keys, stored, micros(100)) == (None, values[1], None)
    assert _unexpired(SCHEMA, keys, stored, None) == tuple(stored)


def test_a_row_that_comes_too_late_leaves_its_key_as_it_is(task):
    def put(*rows):
        def work(stores):
            store = stores["seen"]
            for each in rows:
                store.put_many(table(each))
            return [row["n"] for row in store.get_many(table([("a", 0, 0)]))[0].to_pylist()], store.late

        return work

    assert task.batch(0, put([("a", 1, 50)])) == ([1], 0)
    assert task.batch(110, put([("a", 2, 10)])) == ([1], 1), "what the copy has stays"
    assert task.batch(110, put([("a", 3, 60), ("a", 4, 10)])) == ([3], 1), (
        "the last that has not expired wins"
    )
    assert task.batch(110, put([("a", 5, 61)], [("a", 6, 10)])) == ([5], 1), (
        "what the batch has written stays"
    )
    assert task.batch(110, put()) == ([5], 0)
    assert task.batch(500, put([("a", 7, 10)])) == ([None], 1), "what has expired does not come back"
    task.batch(1000, put())
    assert task.stored() == {"seen": 0, "seen~expiry": 0}


# -- event times at and beyond the limits: of 64 bits, of every unit, and of Python's datetime


#: Microseconds per unit, as a fraction.
UNITS = {
    pa.timestamp("s"): (SECOND, 1),
    pa.timestamp("ms"): (1000, 1),
    pa.timestamp("us"): (1, 1),
    pa.timestamp("ns"): (1, 1000),
    pa.timestamp("us", tz="UTC"): (1, 1),
    pa.timestamp("s", tz="Europe/Berlin"): (SECOND, 1),
    pa.date32(): (86_400 * SECOND, 1),
    pa.date64(): (1000, 1),
}
DAY_MS = 86_400_000

near_limits = st.integers(0, 10**7).flatmap(
    lambda off: st.sampled_from([FIRST + off, LAST - off, off, -off, 10**15 + off])
)
whole = st.integers(FIRST, LAST) | near_limits
ttls = st.integers(1000, 10**16) | st.sampled_from([1000, 32 * SECOND, 10**16])
#: The newest time less a delay, which is of any length.
watermarks = whole.flatmap(lambda newest: st.just(newest) | st.integers(0, 10**16).map(lambda d: newest - d))
kinds = st.sampled_from(sorted(UNITS, key=str))


def column(kind: pa.DataType, raw: list[int | None]) -> pa.ChunkedArray:
    """Return stored times of a type, without going through Python's datetime."""
    width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    return pa.chunked_array([pa.array(raw, width).view(kind)])


def fitting(kind: pa.DataType, raw: int) -> int:
    """Return a number that such a column can have."""
    if pa.types.is_date32(kind):
        return max(-(1 << 31), min(raw, (1 << 31) - 1))
    return raw // DAY_MS * DAY_MS if pa.types.is_date64(kind) and raw > FIRST + DAY_MS else raw


@settings(print_blob=True, deadline=None, max_examples=300)
@given(
    kind=kinds, raw=st.lists(st.none() | whole, max_size=6), ttl=ttls, watermark=watermarks, edge=st.data()
)
def test_an_entry_has_expired_when_its_time_and_ttl_are_at_or_before_the_watermark(
    kind, raw, ttl, watermark, edge
):
    multiplier, divisor = UNITS[kind]
    # Of what is drawn at random little is near the edge: some times are put there.
    limit = (watermark - ttl) * divisor // multiplier
    raw += [at for at in (limit - 1, limit, limit + 1) if FIRST <= at <= LAST and edge.draw(st.booleans())]
    raw = [None if at is None else fitting(kind, at) for at in raw]
    expected = [
        at is not None and at * multiplier + ttl * divisor <= watermark * divisor for at in raw
    ]  # in integers without limits
    assert expiry.expired(column(kind, raw), ttl, watermark).tolist() == expected


@settings(print_blob=True, deadline=None, max_examples=300)
@given(kind=kinds, raw=st.lists(st.none() | whole, max_size=6))
def test_microseconds_of_any_unit_are_right_or_the_nearest_there_are(kind, raw):
    multiplier, divisor = UNITS[kind]
    raw = [None if at is None else fitting(kind, at) for at in raw]
    times, known = expiry.micros(column(kind, raw))
    assert known.tolist() == [at is not None for at in raw]
    there = [at for at in raw if at is not None]
    assert times[known].tolist() == [max(FIRST, min(at * multiplier // divisor, LAST)) for at in there]


@settings(print_blob=True, deadline=None, max_examples=300)
@given(times=st.lists(whole, min_size=1, max_size=6), ttl=ttls)
def test_the_index_takes_any_time_and_sorts_by_when_it_is_due(times, ttl):
    slot = max(ttl // expiry.SLOTS, SECOND)
    ends = expiry.due(np.array(times, np.int64), ttl).tolist()
    assert ends == [min((time // slot + 1) * slot, LAST) for time in times]
    keys = [expiry.index_key(end, b"k") for end in ends]
    assert [expiry.due_of(key) for key in sorted(keys)] == sorted(ends)
    assert {len(key) for key in keys} == {24}


@given(micros=whole | st.integers(FIRST - 10**17, LAST))
@example(micros=-62_135_596_800_000_001)
@example(micros=253_402_300_800_000_000)
def test_a_watermark_is_a_datetime_whatever_it_is(micros):
    first, last = -62_135_596_800_000_000, 253_402_300_799_999_999
    found = expiry.as_datetime(micros)
    since = found - datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert found.tzinfo is timezone.utc
    assert (since.days * 86_400 + since.seconds) * SECOND + since.microseconds == max(
        first, min(micros, last)
    )


@settings(print_blob=True, deadline=None, max_examples=40)
@given(
    times=st.lists(whole, min_size=1, max_size=5, unique=True), ttl_ms=st.integers(1, 10**12), data=st.data()
)
def test_a_store_forgets_what_has_expired_and_nothing_else_at_the_limits_too(times, ttl_ms, data):
    schema = StoreSchema.of(
        "s", {"key": {"k": "int64"}, "value": {"at": "timestamp"}, "time": "at", "retention_ms": ttl_ms}
    )
    newest = data.draw(st.sampled_from(times))
    rows = pa.table({"k": range(len(times)), "at": column(pa.timestamp("us", tz="UTC"), times)})
    live = {k for k, at in enumerate(times) if at + 1000 * ttl_ms > newest}
    with tempfile.TemporaryDirectory() as folder, Copy(Path(folder), schema.databases) as copy:
        history = History()
        for batch, watermark in enumerate((None, newest)):
            copy.bring_to(history, Path(folder))
            store = Store(schema, copy, watermark)
            store.expire()
            if watermark is None:
                store.put_many(rows)
            else:
                assert {k for table in store.scan() for k in table["k"].to_pylist()} == live
                assert not live & set(store.gone["k"].to_pylist())
            history = History((*history.changes, Change(batch, f"a{batch}", history.end.attempt, 0, 0)))
            copy.commit(store.changes(), history.end)
        copy.bring_to(history, Path(folder))
        late = Store(schema, copy, newest)
        late.put_many(rows)
        assert late.late == len(times) - len(live)


def test_the_newest_event_time_is_found_in_any_unit():
    rows = pa.table({"at": column(pa.timestamp("s"), [5, LAST, None])})
    program = Program(0, (), {}, event_times={"A": "at"})
    assert program.newest({"A": rows}) == {"A": LAST}


def test_a_function_per_key_is_not_given_times_that_python_does_not_have(bench, tmp_path):
    run = bench(
        tmp_path,
        PerKey("s", lambda *_: (None, []), by={"k": "string"}, state={"n": "int64"}, output={"k": "string"}),
    )
    rows = pa.table({"k": ["a"], "at": column(pa.timestamp("us", tz="UTC"), [LAST])})
    with pytest.raises(InputError, match=r"PerKey\('s'\)\.rows\.at: .*expected values that Python can"):
        run.run(rows)
