"""A bin gives each task its own rows, in their order, and refuses rows of others."""

from __future__ import annotations

import weakref
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.errors import InputError, TaskplaceError
from taskplace.spark.worker.external import PARTITION, TAG, ExternalRows
from tests.support.attempts import BATCHES, PLANES

SCHEMA = pa.schema([(PARTITION, pa.int32()), ("n", pa.int64())])


class _Setting:
    batch, schema, bytes_per_task = 7, SCHEMA.serialize().to_pybytes(), 1 << 20


def batches(numbers, cuts=()):
    """Return record batches with the row number beside each partition, cut at these rows."""
    table = pa.table(
        {PARTITION: pa.array(numbers, pa.int32()), "n": pa.array(range(len(numbers)), pa.int64())}
    )
    edges = [0, *sorted(cuts), len(numbers)]
    parts = [table.slice(a, b - a).combine_chunks() for a, b in pairwise(edges)]
    return [b.serialize().to_pybytes() for part in parts for b in part.to_batches() if b.num_rows]


@given(
    st.lists(st.sampled_from([2, 5, 9])),
    st.lists(st.integers(0, 8), max_size=3),
    st.sets(st.sampled_from([2, 9])),
)
def test_each_task_gets_its_rows_in_their_order_and_rows_of_named_tasks_are_dropped(numbers, cuts, skipped):
    partitions = {2, 3, 5, 9} - skipped
    cut = batches(numbers, [min(c, len(numbers)) for c in cuts])
    rows = ExternalRows(_Setting, 3, partitions, cut, skipped=skipped)
    for partition in partitions:
        mine = rows.of(partition)
        assert mine.column_names == ["n"]
        assert mine["n"].to_pylist() == [n for n, p in enumerate(numbers) if p == partition]
    assert rows.nbytes == 8 * sum(p in partitions for p in numbers)


def test_rows_of_tasks_that_are_not_named_are_an_error_beside_those_that_are():
    with pytest.raises(TaskplaceError, match=r"batch 7: a bin of partitions \[2\] got rows of \[5\]"):
        ExternalRows(_Setting, 3, {2}, batches([2, 9, 5]), skipped={9}).of(2)


@pytest.mark.parametrize("other", [-254, 0, 3, 258, 65_538])
@pytest.mark.parametrize("partitions", [{2}, {2, 5}, {2, 300}])
def test_no_row_of_another_task_passes_for_one_of_the_bin(partitions, other):
    """Partitions are compared as small numbers, of which 258 and 2 could be one."""
    with pytest.raises(TaskplaceError, match=rf"batch 7: a bin of partitions .* got rows of \[{other}\]"):
        ExternalRows(_Setting, 3, partitions, batches([2, *partitions, other])).of(2)


@pytest.mark.parametrize("high", [255, 256, 65_535, 65_536, 1 << 30])
def test_partitions_may_have_any_number(high):
    rows = ExternalRows(_Setting, 3, {0, 1, high}, batches([high, 0, high, 1, 0]))
    assert [rows.of(one)["n"].to_pylist() for one in (0, 1, high)] == [[1, 4], [3], [0, 2]]


def test_the_tag_of_a_source_stays_with_the_rows(runtime):
    table = pa.Table.from_batches(
        [
            pa.ipc.read_record_batch(pa.py_buffer(b), runtime.UNITED)
            for b in runtime.input(0, BATCHES[0], PLANES)
        ]
    )
    rows = ExternalRows(runtime.setting(runtime.first), 0, {0, 1}, runtime.input(0, BATCHES[0], PLANES))
    assert rows.of(0)[TAG].to_pylist() == table[TAG].to_pylist()
    assert rows.of(1).num_rows == 0


@pytest.mark.parametrize("partitions", [{2}, {2, 5}])
def test_the_bytes_of_the_rows_are_known_once_they_are_decoded(partitions):
    rows = ExternalRows(_Setting, 3, partitions, iter(batches([2] * 10, [4])))
    assert rows.nbytes == 0
    assert rows.of(2)["n"].to_pylist() == list(range(10))
    assert rows.nbytes == 10 * 8


class _Small(_Setting):
    bytes_per_task = 80


class _Brought:
    """Batches of one row each, as Spark brings them. It counts how many of them are held at the same time."""

    def __init__(self, numbers):
        self._made, self._held, self.most = batches(numbers, range(len(numbers))), [], 0

    def __iter__(self):
        for data in self._made:
            buffer = _Held(data)
            self._held.append(weakref.ref(buffer))
            self.most = max(self.most, sum(one() is not None for one in self._held))
            yield buffer
            del buffer


class _Held(bytearray):
    """Bytes with an end that can be observed."""


@pytest.mark.parametrize("partitions", [{2}, {2, 5}])
def test_a_task_with_more_than_its_limit_is_refused_with_its_size_before_all_is_held(partitions):
    brought = _Brought([2] * 100)
    with pytest.raises(InputError, match=r"^task 3_2: found '800 bytes of input in one batch', .* = 80;"):
        ExternalRows(_Small, 3, partitions, brought).of(min(partitions))
    assert 10 < brought.most < 15


def test_a_task_that_is_too_large_is_refused_when_another_one_of_its_bin_asks_first():
    brought = _Brought([2, 5] * 5 + [5] * 50)
    with pytest.raises(InputError, match=r"^task 3_5: found '440 bytes"):
        ExternalRows(_Small, 3, {2, 5}, brought).of(2)
    assert brought.most < 25


def test_other_input_of_the_task_counts():
    assert ExternalRows(_Small, 3, {2}, batches([2] * 7)).of(2, beside=24).num_rows == 7
    with pytest.raises(InputError, match=r"^task 3_2: found '88 bytes"):
        ExternalRows(_Small, 3, {2}, batches([2] * 8)).of(2, beside=24)


@given(st.lists(st.sampled_from([2, 5, 9])), st.lists(st.integers(0, 60), max_size=3))
def test_exactly_the_tasks_above_their_limit_are_refused(numbers, cuts):
    rows = ExternalRows(_Small, 3, {2, 5, 9}, batches(numbers, [min(c, len(numbers)) for c in cuts]))
    if max(map(numbers.count, (2, 5, 9))) > 10:
        with pytest.raises(InputError, match="bytes of input in one batch"):
            rows.of(2)
    else:
        assert rows.of(2).num_rows == numbers.count(2)
