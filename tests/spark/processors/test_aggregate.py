"""Aggregate and Count, against a plain Python model over several batches."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.processors import Aggregate, Count, Tumbling, avg, count, first, last, max_, min_, sum_
from taskplace.spark.state.store import StoreSchema
from tests.support.aggregates import rows, table

AGGREGATES = {
    "rows": count(),
    "known": count("n"),
    "total": sum_("n", "int64"),
    "total_x": sum_("x"),
    "least": min_("n", "int64"),
    "least_x": min_("x"),
    "least_s": min_("s", "string"),
    "greatest": max_("n", "int64"),
    "greatest_x": max_("x"),
    "first_s": first("s"),
    "first_n": first("n", "int64"),
    "last_s": last("s"),
    "last_x": last("x", "float64"),
    "mean": avg("x"),
    "mean_n": avg("n", "int64"),
    "total_again": sum_("n", "int64"),  # several aggregates of one column, and two that are the same
    "rows_again": count(),
}


def model(values: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the aggregates of all rows of one key, in the order they came."""
    n, x, s = ([row[c] for row in values if row[c] is not None] for c in ("n", "x", "s"))
    return {
        "rows": len(values),
        "known": len(n),
        "total": sum(n) if n else None,
        "total_x": sum(x) if x else None,
        "least": min(n, default=None),
        "least_x": min(x, default=None),
        "least_s": min((t.encode() for t in s), default=None),
        "greatest": max(n, default=None),
        "greatest_x": max(x, default=None),
        "first_s": s[0] if s else None,
        "first_n": n[0] if n else None,
        "last_s": s[-1] if s else None,
        "last_x": x[-1] if x else None,
        "mean": sum(x) / len(x) if x else None,
        "mean_n": sum(n) / len(n) if n else None,
        "total_again": sum(n) if n else None,
        "rows_again": len(values),
    }


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"least_s": row["least_s"].encode() if isinstance(row["least_s"], str) else row["least_s"]}


@settings(print_blob=True, deadline=None, max_examples=40)
@given(st.lists(rows, min_size=1, max_size=4))
def test_every_aggregate_over_several_batches(bench, batches):
    with tempfile.TemporaryDirectory() as folder:
        run = bench(Path(folder), Aggregate("a", by={"tail": "string", "leg": "int32"}, **AGGREGATES))
        seen: dict[tuple, list[dict[str, Any]]] = {}
        for drawn in batches:
            touched = set()
            for row in table(drawn).to_pylist():
                key = (row["tail"], row["leg"])
                touched.add(key)
                seen.setdefault(key, []).append(row)
            out = run.run(table(drawn))
            assert out.column_names == ["tail", "leg", *AGGREGATES]
            found = {(row.pop("tail"), row.pop("leg")): comparable(row) for row in out.to_pylist()}
            assert len(found) == out.num_rows, "each key once"
            assert found == {key: model(seen[key]) for key in touched}


def test_what_is_one_key_in_the_store_is_one_group(bench, tmp_path):
    """Arrow groups 0.0 and -0.0, and one NaN and another, apart."""
    run = bench(tmp_path, Count("n", by={"x": "float64"}))
    keys = pa.table({"x": pa.array([0.0, -0.0, math.nan, -math.nan, None, -0.0])})
    for times in (1, 2):
        found = {str(row["x"]): row["count"] for row in run.run(keys).to_pylist()}
        assert found == {"0.0": 3 * times, "nan": 2 * times, "None": times}


def test_chunked_and_sliced_rows(bench, tmp_path):
    whole = table([("a", i % 3, i, i / 2, str(i)) for i in range(30)])
    chunked = pa.concat_tables([whole.slice(0, 7), whole.slice(7, 0), whole.slice(7)]).slice(3, 20)
    results = []
    for name, given_rows in (("c", chunked), ("w", chunked.combine_chunks())):
        run = bench(tmp_path / name, Aggregate("a", by={"leg": "int32"}, **AGGREGATES))
        results.append(run.run(given_rows).to_pylist())
    assert results[0] == results[1]


def test_names_that_would_share_a_column_are_refused():
    with pytest.raises(InputError, match=r"Aggregate\('a'\)\.x_sum: found \"the column 'x_sum' twice\""):
        Aggregate("a", by={"k": "int64"}, x=avg("x"), x_sum=sum_("y"))
    with pytest.raises(InputError, match=r"Aggregate\('a'\)\.k: found \"the column 'k' twice\""):
        Aggregate("a", by={"k": "int64"}, k=count())


def test_nothing_to_do_is_refused():
    for by, aggregates in (({}, {"n": count()}), ({"k": "int64"}, {})):
        with pytest.raises(InputError, match="at least one key column and one aggregate"):
            Aggregate("a", by=by, **aggregates)


def test_a_layout_says_what_its_numbers_mean_and_of_which_columns():
    def meaning(processor: Aggregate) -> Any:
        (layout,) = processor.layouts().values()
        return layout["meaning"]

    aggregates = {"total": sum_("v"), "n": count(), "known": count("v"), "mean": avg("v"), "top": max_("v")}
    said = {
        "total": "sum",
        "n": "count_all",
        "known": "count",
        "mean_sum": "sum",
        "mean_count": "count",
        "top": "max",
        **dict.fromkeys(
            [f"column of {name}" for name in ("total", "known", "mean_sum", "mean_count", "top")], "v"
        ),
    }
    assert meaning(Aggregate("s", by={"k": "int64"}, **aggregates)) == said
    assert meaning(Aggregate("s", by={"k": "int64"}, ttl="1 day", time="k", **aggregates)) == said
    hours = [Tumbling("at", "1 hour"), Tumbling("other", "3600000 ms", grace="5 minutes", emit="final")]
    for window in hours:
        assert meaning(Count("s", by={"k": "int64"}, window=window)) == {
            "count": "count_all",
            "window": "3600000 ms",
            "emit": window.emit,
            "column of window_start": window.column,
        }


def test_a_schema_keeps_the_meaning_in_one_order():
    layout = {"key": {"k": "int64"}, "value": {"b": "int64", "a": "int64"}}
    assert StoreSchema.of("s", layout).meaning == ()
    one = StoreSchema.of("s", layout | {"meaning": {"b": "sum", "a": "max"}})
    other = StoreSchema.of("s", layout | {"meaning": {"a": "max", "b": "sum"}})
    assert one.meaning == other.meaning == (("a", "max"), ("b", "sum"))
    forgets = StoreSchema.of("s", Count("s", by={"k": "int64"}, window=Tumbling("at", "5 ms")).layouts()["s"])
    of = ("column of window_start", "at")
    assert forgets.meaning == (of, ("count", "count_all"), ("emit", "changes"), ("window", "5 ms"))
    for wrong in ("sum", {"a": 1}, [("a", "sum")]):
        with pytest.raises(
            InputError, match=r"stores\.s\.meaning: .*expected a mapping of strings to strings"
        ):
            StoreSchema.of("s", layout | {"meaning": wrong})
