"""Groups of rows: their order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from taskplace.spark.processors.groups import Groups


def test_groups_are_in_order_of_first_appearance():
    for seed in range(30):
        numbers = np.random.default_rng(seed).integers(0, 50, 200)
        texts = [f"k{number % 7}" for number in numbers]
        keys = [pa.chunked_array([texts]), pa.chunked_array([pa.array(numbers)])]
        groups = Groups(keys)
        count = groups.of(groups.add("count_all")).to_pylist()
        rows = list(zip(texts, numbers.tolist(), strict=True))
        found = list(zip(*(column.to_pylist() for column in groups.keys), strict=True))
        assert found == list(dict.fromkeys(rows)), seed
        assert count == [rows.count(key) for key in found], seed
