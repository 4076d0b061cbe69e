"""Groups of rows: their order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from taskplace.spark.processors.groups import grouped


def test_groups_are_in_order_of_first_appearance():
    for seed in range(30):
        numbers = np.random.default_rng(seed).integers(0, 50, 200)
        texts = [f"k{number % 7}" for number in numbers]
        keys = [pa.chunked_array([texts]), pa.chunked_array([pa.array(numbers)])]
        of_groups, (count,) = grouped(keys, [("count_all", None)])
        rows = list(zip(texts, numbers.tolist(), strict=True))
        found = list(zip(*(column.to_pylist() for column in of_groups), strict=True))
        assert found == list(dict.fromkeys(rows)), seed
        assert count.to_pylist() == [rows.count(key) for key in found], seed
