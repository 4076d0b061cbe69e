"""Rows to aggregate."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

SCHEMA = pa.schema(
    [("tail", pa.string()), ("leg", pa.int32()), ("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())]
)
rows = st.lists(
    st.tuples(
        st.none() | st.sampled_from(["a", "b"]),
        st.none() | st.integers(0, 1),
        st.none() | st.integers(-(2**40), 2**40),
        st.none() | st.integers(-1000, 1000).map(lambda n: n / 8),  # sums of eighths are exact in any order
        st.none() | st.text(max_size=3),
    ),
    max_size=12,
)


def table(drawn: list[tuple]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in drawn], schema=SCHEMA)
