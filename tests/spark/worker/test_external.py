"""A bin gives each task its own rows, in their order, and refuses rows of others."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.errors import TaskplaceError
from taskplace.spark.worker.external import PARTITION, TAG, ExternalRows
from tests.support.attempts import BATCHES, PLANES

SCHEMA = pa.schema([(PARTITION, pa.int32()), ("n", pa.int64())])


class _Setting:
    batch, schema = 7, SCHEMA.serialize().to_pybytes()


def batches(numbers, cuts=()):
    """Return record batches with the row number beside each partition, cut at these rows."""
    table = pa.table(
        {PARTITION: pa.array(numbers, pa.int32()), "n": pa.array(range(len(numbers)), pa.int64())}
    )
    edges = [0, *sorted(cuts), len(numbers)]
    parts = [table.slice(a, b - a).combine_chunks() for a, b in pairwise(edges)]
    return [b.serialize().to_pybytes() for part in parts for b in part.to_batches() if b.num_rows]


@given(st.lists(st.sampled_from([2, 5, 9])), st.lists(st.integers(0, 8), max_size=3), st.data())
def test_each_task_gets_its_rows_in_their_order(numbers, cuts, data):
    partitions = set(numbers) | set(data.draw(st.lists(st.sampled_from([2, 3, 5, 9]), min_size=1)))
    rows = ExternalRows(_Setting, partitions, batches(numbers, [min(c, len(numbers)) for c in cuts]))
    for partition in partitions:
        mine = rows.of(partition)
        assert mine.column_names == ["n"]
        assert mine["n"].to_pylist() == [n for n, p in enumerate(numbers) if p == partition]


@pytest.mark.parametrize("partitions", [{2}, {2, 3}])
def test_rows_of_other_tasks_are_an_error(partitions):
    with pytest.raises(TaskplaceError, match=r"batch 7: a bin of partitions .* got rows of \[5\]"):
        ExternalRows(_Setting, partitions, batches([2, 5])).of(2)


def test_the_tag_of_a_source_stays_with_the_rows(runtime):
    table = pa.Table.from_batches(
        [
            pa.ipc.read_record_batch(pa.py_buffer(b), runtime.UNITED)
            for b in runtime.input(0, BATCHES[0], PLANES)
        ]
    )
    rows = ExternalRows(runtime.setting(runtime.first), {0, 1}, runtime.input(0, BATCHES[0], PLANES))
    assert rows.of(0)[TAG].to_pylist() == table[TAG].to_pylist()
    assert rows.of(1).num_rows == 0


@pytest.mark.parametrize("partitions", [{2}, {2, 5}])
def test_the_bytes_of_the_rows_are_known_once_they_are_decoded(partitions):
    rows = ExternalRows(_Setting, partitions, iter(batches([2] * 10, [4])))
    assert rows.nbytes == 0
    assert rows.of(2)["n"].to_pylist() == list(range(10))
    assert rows.nbytes == 10 * 8
