"""The list of slices: by topic, sorted by partition and writer, and refused if it is damaged."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.errors import CheckpointError
from taskplace.spark.messages import Boundary, Slice
from taskplace.spark.worker.boundary import read_listing, write_listing

LARGE = 2**40
TOPICS = {
    "one/topic": [
        Boundary("a", b"x", {3: Slice(0, 8, 1, 2**32 - 1), 0: Slice(8, LARGE, LARGE, 7)}, task="0_0"),
        Boundary("", b"nothing", {}),
        Boundary("b", b"y", {0: Slice(LARGE, 16, 2, 0)}, task="0_2"),
        Boundary("a", b"x", {3: Slice(96, 8, 1, 5)}, task="0_3"),
    ],
    "without rows": [Boundary("", b"first", {}), Boundary("", b"second", {})],
    "without writers": [],
    "another": [Boundary("d", b"z", {1: Slice(0, 24, 3, 9)})],
}


def test_what_is_written_is_read(tmp_path):
    found = read_listing(tmp_path, write_listing(tmp_path, "inputs/1", TOPICS))
    assert list(found) == list(TOPICS)
    one = found["one/topic"]
    assert (one.head.files, one.head.schemas) == (("a", "b"), (b"x", b"y"))
    assert one.head.writers == ("0_0", "0_2", "0_3")
    assert (one.head.written_to, one.head.written_as) == ((0, 1, 0), (0, 1, 0))
    assert one.slices.tolist() == [
        (0, 0, 8, LARGE, LARGE, 7),
        (0, 1, LARGE, 16, 2, 0),
        (3, 0, 0, 8, 1, 2**32 - 1),
        (3, 2, 96, 8, 1, 5),
    ]
    none = found["without rows"]
    assert (none.head.files, none.head.schemas, len(none.slices)) == (("",), (b"first",), 0)
    assert found["without writers"].head.writers == ()
    assert found["another"].slices.tolist() == [(1, 0, 0, 24, 3, 9)]


@pytest.mark.parametrize(
    "harm", [lambda data: data[:-1], lambda data: data[:-1] + b"?", lambda data: b"?" + data]
)
def test_a_damaged_listing_is_refused(tmp_path, harm):
    listing = write_listing(tmp_path, "inputs/1", TOPICS)
    path = tmp_path / listing.file
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(CheckpointError, match=f"{path}: found"):
        read_listing(tmp_path, listing)


def test_a_missing_listing_is_refused(tmp_path):
    listing = write_listing(tmp_path, "inputs/1", TOPICS)
    (tmp_path / listing.file).unlink()
    with pytest.raises(CheckpointError, match=f"{tmp_path / listing.file}: the file is missing"):
        read_listing(tmp_path, listing)


def test_slices_are_chosen_by_partition(tmp_path):
    found = read_listing(tmp_path, write_listing(tmp_path, "inputs/1", TOPICS))
    one = found["one/topic"]
    assert one.of({3, 0}).tolist() == one.slices.tolist()
    assert one.of([3]).tolist() == one.slices.tolist()[2:]
    assert one.of([1, 2, 4, 100]).tolist() == []
    assert one.of([]).tolist() == []
    assert found["without rows"].of([0, 1]).tolist() == []
    assert found["another"].of([1]).tolist() == found["another"].slices.tolist()


@given(st.lists(st.sets(st.integers(0, 8)), min_size=1, max_size=5), st.sets(st.integers(0, 10)))
def test_those_of_some_partitions_are_the_listed_ones_in_their_order(writers, partitions):
    boundaries = [
        Boundary(f"f{number}", b"s", {partition: Slice(partition, 8, 1, 1) for partition in written})
        for number, written in enumerate(writers)
    ]
    with TemporaryDirectory() as name:
        listing = read_listing(Path(name), write_listing(Path(name), "inputs/1", {"t": boundaries}))["t"]
    expected = [one for one in listing.slices.tolist() if one[0] in partitions]
    assert listing.of(partitions).tolist() == expected
