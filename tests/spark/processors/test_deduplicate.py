"""Deduplicate: each key once, the first row of it, in the rows' order."""

from __future__ import annotations

import math
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.processors import Deduplicate

SCHEMA = pa.schema([("id", pa.string()), ("leg", pa.int64()), ("n", pa.int64())])
keys = st.tuples(st.none() | st.sampled_from(["a", "b"]), st.none() | st.integers(0, 1))


def table(drawn: list[tuple]) -> pa.Table:
    rows = [{"id": name, "leg": leg, "n": n} for n, (name, leg) in enumerate(drawn)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@settings(print_blob=True, deadline=None, max_examples=40)
@given(st.lists(st.lists(keys, max_size=10), min_size=1, max_size=4))
def test_within_and_across_batches(bench, batches):
    with tempfile.TemporaryDirectory() as folder:
        run = bench(Path(folder), Deduplicate("seen", by={"id": "string", "leg": "int64"}))
        seen: dict[tuple, int] = {}
        for batch, drawn in enumerate(batches):
            wanted = []
            for n, key in enumerate(drawn):
                if key not in seen:
                    seen[key] = batch
                    wanted.append(n)
            out = run.run(table(drawn))
            assert out.schema == SCHEMA
            assert out["n"].to_pylist() == wanted
        stored = {(row["id"], row["leg"]): row["seen_in_batch"] for row in run.stored("seen")}
        assert stored == seen


def test_what_is_one_key_in_the_store_goes_through_once(bench, tmp_path):
    run = bench(tmp_path, Deduplicate("seen", by={"x": "float64"}))
    rows = pa.table({"x": [-0.0, 0.0, math.nan, -math.nan, None], "n": [0, 1, 2, 3, 4]})
    assert run.run(rows)["n"].to_pylist() == [0, 2, 4]
    assert run.run(rows)["n"].to_pylist() == []


def test_keys_of_one_declared_value_go_through_once(bench, tmp_path):
    """Two times of one day are one key when the key is a day; the row itself stays as it came."""
    run = bench(tmp_path, Deduplicate("seen", by={"day": "date"}))
    times = [datetime(2013, 1, day, hour, tzinfo=timezone.utc) for day, hour in ((1, 1), (1, 2), (2, 1))]
    out = run.run(pa.table({"day": pa.array(times, pa.timestamp("us", tz="UTC"))}))
    assert out["day"].to_pylist() == [times[0], times[2]]


def test_a_missing_key_column_is_named(bench, tmp_path):
    run = bench(tmp_path, Deduplicate("seen", by={"id": "string"}))
    with pytest.raises(InputError, match=r"Deduplicate\('seen'\)\.by\.id: found \['ids'\]"):
        run.run(pa.table({"ids": ["a"]}))
