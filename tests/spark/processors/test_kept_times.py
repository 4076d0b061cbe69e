"""Times that a store keeps in another type than the rows have: rows are late, and entries expire, by what is kept."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from taskplace.spark.processors import Deduplicate, TableJoin
from taskplace.spark.state import expiry
from taskplace.spark.state.store import StoreSchema
from tests.support.expiry import Runs, Task, at

HOUR, DAY = 3600, 86_400
UTC_TIMES = pa.timestamp("us", tz="UTC")


@pytest.fixture
def runs(tmp_path, committed):
    return lambda processor: Runs(tmp_path / processor.store, committed, processor)


def rows(*given: tuple, kind: pa.DataType = UTC_TIMES) -> pa.Table:
    ids, seconds, numbers = zip(*given, strict=True) if given else ((), (), ())
    times = pa.array([at(second) for second in seconds], UTC_TIMES).cast(kind)
    return pa.table({"k": pa.array(ids, pa.string()), "day": times, "n": pa.array(numbers, pa.int64())})


def test_a_key_of_a_day_that_has_expired_passes_no_second_time(runs):
    r = runs(Deduplicate("d", by={"k": "string", "day": "date"}, ttl="1 day", time="day"))
    assert r.batch(None, rows(("a", 23 * HOUR, 1)))[0] != []
    out, late = r.batch(DAY, rows(("a", 23 * HOUR + 1800, 2)))  # its own time has not expired, its day has
    assert (out, late) == ([], 1)


def planes(**more) -> TableJoin:
    columns = {"day": "date", "n": "int64"}
    return TableJoin("t", by={"k": "string"}, columns=columns, ttl="1 day", time="day", **more)


@pytest.mark.parametrize("more", [{}, {"deleted": "gone"}])
def test_a_row_of_the_table_of_an_expired_day_leaves_the_live_one(runs, more):
    r = runs(planes(**more))
    stream, no = pa.table({"k": ["a"]}), pa.array([False])
    r.batch(None, stream, rows(("a", 2 * DAY, 1)).append_column("gone", no))
    late_row = rows(("a", 23 * HOUR, 2)).append_column("gone", no)
    out, late = r.batch(DAY, stream, late_row)
    assert ([row["n"] for row in out], late) == ([1], 1)
    out, late = r.batch(DAY, stream, late_row.set_column(3, "gone", pa.array([True])))
    assert [row["n"] for row in out] == [1], "a late mark removes nothing"
    assert late == 1


@pytest.mark.parametrize("kept", [pa.date32(), pa.date64()])
@pytest.mark.parametrize("given", [UTC_TIMES, pa.timestamp("us"), pa.timestamp("us", "Asia/Tokyo")])
@pytest.mark.parametrize("part", ["key", "value"])
def test_a_row_is_judged_as_its_entry_is(tmp_path, committed, given, kept, part):
    """A row is late exactly where an entry that was made of it is invisible; the index removes it within a slot."""
    layout = {"key": {"k": "string"}, "value": {"n": "int64"}, "time": "day", "retention_ms": 1000 * DAY}
    layout[part]["day"] = kept
    hours = [0, 1, 23, 24, 25, 47, 48, 71]
    table = rows(*((f"{hour:02}", hour * HOUR, hour) for hour in hours), kind=given)
    for watermark in (DAY - 1, DAY, DAY + HOUR, 2 * DAY, 3 * DAY - 1, 3 * DAY):
        live = [hour // 24 * DAY + DAY > watermark for hour in hours]
        task = Task(tmp_path / f"{watermark}", committed, [StoreSchema.of("s", layout)])
        task.batch(None, lambda stores: stores["s"].put_many(table))

        def judged(stores, live=live):
            store = stores["s"]
            assert store.contains_many(table).tolist() == live
            assert store.is_late(table).tolist() == [not there for there in live]
            store.put_many(table)
            assert store.late == 2 * live.count(False)

        task.batch(watermark, judged)
        task.batch(watermark + DAY // expiry.SLOTS, lambda stores: None)
        assert task.stored()["s"] <= live.count(True)


def test_dates_are_judged_alike_whether_they_are_kept_as_dates_or_as_timestamps(runs):
    days = pa.array([date(2026, 1, 1), date(2026, 1, 2)])
    for number, kept in enumerate(("date", "timestamp")):
        r = runs(Deduplicate(f"d{number}", by={"k": "string", "day": kept}, ttl="1 day", time="day"))
        out, late = r.batch(DAY, pa.table({"k": ["a", "a"], "day": days}))
        assert ([row["day"] for row in out], late) == ([date(2026, 1, 2)], 1)
