"""Sampled keys have to be in the partition of the key; an error names the record and shows no key."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import pyarrow as pa
import pytest

from taskplace.errors import InputError
from taskplace.spark.worker.hashing import partitions_of
from taskplace.spark.worker.partition_checks import SAMPLED, PartitionedTopic

FLIGHTS = PartitionedTopic(topic="flights", partitions=4, partitioner="murmur2", key_bytes="key")
KEYS = [f"secret-{number}".encode() for number in range(4000)]


def rows_of(partition: int, *more: bytes) -> pa.Table:
    own = [
        key
        for key, at in zip(KEYS, partitions_of(pa.array(KEYS), "murmur2", 4), strict=True)
        if at == partition
    ]
    return pa.table({"key": [*own, *more], "offset": range(1000, 1000 + len(own) + len(more))})


@pytest.mark.parametrize("partition", range(4))
def test_keys_of_the_partition_pass(partition):
    assert rows_of(partition).num_rows > 10 * SAMPLED
    FLIGHTS.check(rows_of(partition), partition)


def test_a_key_of_another_partition_is_an_error_without_the_key():
    (other,) = rows_of(3)["key"].to_pylist()[:1]
    rows = rows_of(2).slice(0, 5)
    rows = pa.concat_tables([rows, pa.table({"key": [None, other, other], "offset": [77, 78, 79]})])
    with pytest.raises(InputError) as raised:
        FLIGHTS.check(rows, 2)
    assert str(raised.value).startswith(
        "topic 'flights', partition 2, offset 78: found 'a key that belongs to partition 3 of 4 by murmur2 (2 of 8 "
        "sampled keys belong elsewhere)', expected keys that their producers put into"
    )
    assert "secret" not in str(raised.value)


def test_samples_are_spread_over_the_rows():
    """A producer that begins to use another partitioner in the middle of a batch is noticed in this batch."""
    wrong = rows_of(0)
    rows = pa.concat_tables([rows_of(1), wrong])
    with pytest.raises(InputError, match="found 'a key that belongs to partition 0 of 4"):
        FLIGHTS.check(rows, 1)


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()])
def test_without_offsets_the_error_leads_to_the_key_without_showing_it(kind):
    rows = rows_of(0)
    key = rows["key"][0].as_py()
    with pytest.raises(InputError) as raised:
        FLIGHTS.check(pa.table({"key": rows["key"].cast(kind)}), 1)
    digits = hashlib.sha256(key).hexdigest()[:8]
    assert str(raised.value).startswith(
        f"topic 'flights', partition 1: found 'a key of {len(key)} bytes, whose SHA-256 begins with {digits}, that "
        "belongs to partition 0 of 4 by murmur2"
    )
    assert "secret" not in str(raised.value)
    with pytest.raises(InputError) as raised:
        FLIGHTS.check(rows, 1)
    assert "SHA-256" not in str(raised.value), "the offset is enough"


# ---------------------------------------------------------------------------------- records, in parts


def records_of(partition: int, count: int = 400, *, first: int = 0) -> pa.Table:
    own = [key for key in rows_of(partition)["key"].to_pylist() if key is not None][:count]
    return pa.table({"key": pa.array(own, pa.binary()), "offset": range(first, first + len(own))})


def test_records_are_sampled_over_all_parts_of_a_range(monkeypatch):
    compared = []
    monkeypatch.setattr(
        PartitionedTopic,
        "_compare",
        lambda self, keys, sampled, partition: compared.extend(sampled["offset"]),
    )
    check = FLIGHTS.of_records(1, 0, 400)
    for start in range(0, 400, 30):
        check(records_of(1).slice(start, 30))
    found = [each.as_py() for each in compared]
    assert len(found) <= SAMPLED and found == sorted(set(found))
    assert found[0] == 0 and max(b - a for a, b in pairwise(found)) <= 7


def test_a_part_with_keys_of_another_partition_is_noticed():
    check = FLIGHTS.of_records(1, 0, 800)
    check(records_of(1))
    check(records_of(1).slice(0, 0))
    with pytest.raises(InputError, match=r"partition 1, offset 40\d: .* that belongs to partition 2"):
        check(records_of(2, first=400))


def test_gaps_of_a_compacted_topic_leave_samples():
    """The first record behind a gap is compared, also if few are left."""
    check = FLIGHTS.of_records(1, 0, 1_000_000)
    with pytest.raises(InputError, match="offset 999999"):
        check(records_of(3, 1, first=999_999))
