"""Rows of a shuffle in pinned Spark tasks, on a real local-cluster: all of them, in order, in little memory."""

from __future__ import annotations

import pyarrow as pa
import pytest

from taskplace.errors import TaskplaceError
from taskplace.spark.bridge import Bridge, shuffles
from taskplace.spark.bridge import bridge as pairing
from taskplace.spark.worker.external import with_batches

pytestmark = pytest.mark.spark

PARTITIONS = 7
EMPTY = {2, 5}  # no row has these partitions


def what_came(elements):
    """Yield the element, its executor, and the number and sum of its rows by partition."""
    from taskplace.spark.worker import identity

    for element, batches in elements:
        counts: dict[int, list[int]] = {}
        for batch in batches:
            schema = pa.schema([("p", pa.int32()), ("value", pa.int64())])
            rows = pa.ipc.read_record_batch(pa.py_buffer(batch), schema)
            for row in rows.to_pylist():
                count = counts.setdefault(row["p"], [0, 0])
                count[0], count[1] = count[0] + 1, count[1] + row["value"]
        yield element.decode(), identity.executor()[0], counts


def reads_nothing(elements):
    """Leave the batches unread."""
    import os

    for element, _ in elements:
        yield element.decode(), os.getpid()


@pytest.fixture
def shuffled(cluster):
    """A shuffle of 25,000 rows, several Arrow batches a bin; two partitions are empty; in reverse order."""
    bridge = Bridge(cluster)
    spread = cluster.range(25_000).selectExpr(
        "cast(element_at(array(0, 1, 3, 4, 6), cast(id % 5 as int) + 1) as int) p", "id value"
    )
    return bridge, bridge.arrow_input(spread, list(reversed(range(PARTITIONS))), "p")


def expected(start, end):
    """Return counts and sums of the rows in a range of positions; position 0 is the last partition."""
    numbers = {p: i for i, p in enumerate((0, 1, 3, 4, 6))}
    found = {}
    for p in (PARTITIONS - 1 - position for position in range(start, end)):
        if p not in EMPTY:
            found[p] = [5_000, sum(range(numbers[p], 25_000, 5))]
    return found


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_each_bin_gets_the_rows_of_its_range_where_it_is_pinned(shuffled, monkeypatch, at_once):
    monkeypatch.setattr(pairing, "PAIRED_AT_ONCE", at_once)
    bridge, arrow = shuffled
    ranges = [
        (0, 1),
        (1, 2),
        (2, 5),
        (5, 6),
        (6, 6),
        (6, 7),
    ]  # the second has no rows, the fifth no partition
    executors = bridge.executors()
    wanted = [executors[i % len(executors)] for i in range(len(ranges))]
    elements = [f"{i} {e.id}".encode() for i, e in enumerate(wanted)]
    job = bridge.pinned(elements, [e.location for e in wanted], what_came, arrow, ranges)
    answers = bridge.run(job, range(len(ranges)), tag="bins")
    assert [answer[0] for answer in answers] == [f"{i} {e.id}" for i, e in enumerate(wanted)]
    assert [answer[1] for answer in answers] == [e.id for e in wanted]
    assert [answer[2] for answer in answers] == [expected(*range_) for range_ in ranges]
    some = bridge.run(job, [3, 1], tag="some bins")  # the same shuffle, read once more by some
    assert [answer[2] for answer in some] == [expected(5, 6), {}]


def test_ranges_may_overlap(shuffled):
    """Tasks of one bin may lie between those of another one, which drops their rows."""
    bridge, arrow = shuffled
    ranges, location = [(3, 7), (0, 5), (1, 6)], bridge.executors()[0].location
    job = bridge.pinned([b"0", b"1", b"2"], [location] * 3, what_came, arrow, ranges)
    answers = bridge.run(job, range(3), tag="overlapping")
    assert [answer[2] for answer in answers] == [expected(*range_) for range_ in ranges]


def test_a_worker_that_leaves_rows_unread_goes_on(shuffled):
    bridge, arrow = shuffled
    executor = bridge.executors()[0]
    job = bridge.pinned([b"bin"], [executor.location], reads_nothing, arrow, [(0, PARTITIONS)])
    processes = [bridge.run(job, [0], tag=f"unread-{i}")[0][1] for i in range(8)]
    assert len(set(processes)) < len(processes)  # Spark uses processes again; an executor may have several


def test_a_bin_may_have_more_rows_than_half_the_executors_heap(cluster):
    """350 MB of rows in a bin, on executors of 900 MB, of which Spark itself takes a part."""
    bridge = Bridge(cluster)
    wide = cluster.range(350).selectExpr("cast(0 as int) p", "repeat(cast(id as string), 400000) value")
    arrow = bridge.arrow_input(wide.selectExpr("p", "substring(value, 1, 1000000) value"), [0], "p")

    def lengths(elements):
        for _, batches in elements:
            sizes = [len(batch) for batch in batches]
            yield sum(sizes), max(sizes)

    executors = bridge.executors()
    before = {executor.id for executor in executors}
    job = bridge.pinned([b"bin"], [executors[0].location], lengths, arrow, [(0, 1)])
    (whole, largest) = bridge.run(job, [0], tag="wide")[0]
    assert whole > 300_000_000 and largest <= shuffles.BYTES_AT_ONCE * 1.1
    assert {executor.id for executor in bridge.executors()} == before


def test_a_bin_whose_rows_are_missing_is_an_error():
    with pytest.raises(TaskplaceError, match="found no rows in its range of the shuffle"):
        list(with_batches(lambda elements: elements, []))
