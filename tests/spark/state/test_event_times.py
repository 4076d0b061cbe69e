"""Event times at and beyond the limits: of 64 bits, of every unit, and of Python's datetime."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.messages import Change, History
from taskplace.spark.processors import PerKey
from taskplace.spark.state import expiry
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.expiry import FIRST, LAST, SECOND
from taskplace.spark.state.store import Store, StoreSchema
from taskplace.spark.worker.program import Program

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
    since = found - datetime(1970, 1, 1, tzinfo=UTC)
    assert found.tzinfo is UTC
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
    with pytest.raises(
        InputError, match=r"PerKey\('s'\)\.rows\.at: .*expected values that Python can represent"
    ):
        run.run(rows)
