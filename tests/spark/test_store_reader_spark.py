"""Reading committed state from outside the stream."""

from __future__ import annotations

import pyarrow as pa
import pytest

pytestmark = pytest.mark.spark


def truth(p, column):
    found = {}
    for row in p.rows:
        n, total = found.get(row[column], (0, 0))
        found[row[column]] = (n + 1, total + row[2])
    return found


def test_get_and_get_many_and_to_df_see_the_last_committed_batch(pipeline):
    p = pipeline()
    p.run(0)
    p.run(1)
    by_key = truth(p, 0)
    reader = p.placed.store("by-key")
    n, total = by_key["k7"]
    assert reader.get({"key": "k7"}) == {"n": n, "total": total}
    assert reader.get({"key": "nobody"}) is None
    keys = pa.table({"key": ["k1", "nobody", "k2"]})
    values = [row["value"] for row in reader.get_many(keys).to_pylist()]
    assert values == [
        dict(zip(("n", "total"), by_key["k1"], strict=True)),
        None,
        dict(zip(("n", "total"), by_key["k2"], strict=True)),
    ]
    rows = {row["key"]: (row["n"], row["total"]) for row in reader.to_df().collect()}
    assert rows == by_key
    groups = {row["group"]: (row["n"], row["total"]) for row in p.placed.store("by-group").to_df().collect()}
    assert groups == truth(p, 1)
