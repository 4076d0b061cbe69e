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


def test_what_is_not_committed_does_not_show(pipeline, monkeypatch):
    p = pipeline()
    p.run(0)
    before = truth(p, 0)

    def fail(*_args, **_kwargs):
        return 1 // 0

    monkeypatch.setattr(type(p.placed.journal), "commit", fail)
    with pytest.raises(ZeroDivisionError):
        p.placed.process_batch(p.frame([("k7", "g1", 10**6), ("new", "g1", 1)]), 1)
    monkeypatch.undo()
    reader = p.placed.store("by-key")
    assert reader.get({"key": "k7"}) == dict(zip(("n", "total"), before["k7"], strict=True))
    assert reader.get({"key": "new"}) is None
    assert {row["key"]: (row["n"], row["total"]) for row in reader.to_df().collect()} == before


def test_standbys_can_be_read_within_a_bound(pipeline):
    p = pipeline()
    p.run(0)
    p.settle()
    reader = p.placed.store("by-key", copies="standby", max_lag=0)
    assert reader.get({"key": "k7"}) == dict(zip(("n", "total"), truth(p, 0)["k7"], strict=True))
