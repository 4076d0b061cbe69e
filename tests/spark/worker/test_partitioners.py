"""Partitions of keys, compared with the partitioners of librdkafka, kafka-python and our own, key by key."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import confluent_kafka
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from taskplace.errors import InputError
from taskplace.groups.partitioner import partition_for_key
from taskplace.spark.worker.hashing import ANY, known_partitioner, partitions_of

COUNTS = (1, 2, 7, 12, 4096, 2**31 - 1)
ABOVE = 0xFFFFFFFF


def keys(seed: int = 7) -> list[bytes]:
    """Return keys of many lengths: of some lengths a few, of others more than are hashed one by one."""
    rng = random.Random(seed)
    lengths = [*range(70), *([0, 1, 2, 3, 4, 5, 7, 8, 16, 36] * 64), 1_000_003]
    made = [rng.randbytes(length) for length in lengths]
    rng.shuffle(made)
    return made


@pytest.fixture(scope="module")
def librdkafka() -> ctypes.CDLL:
    """The library that confluent-kafka brings along."""
    site = Path(confluent_kafka.__file__).parents[1]
    (path,) = site.glob("confluent_kafka.libs/librdkafka-*.so*")
    return ctypes.CDLL(str(path))


@pytest.mark.parametrize("partitioner", ["murmur2", "consistent", "fnv1a"])
@pytest.mark.parametrize("partitions", COUNTS)
def test_partitions_are_those_of_librdkafka(librdkafka, partitioner, partitions):
    function = getattr(librdkafka, f"rd_kafka_msg_partitioner_{partitioner}")
    function.restype = ctypes.c_int32
    function.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p
    ]  # fmt: skip
    every = keys()
    expected = [function(None, key, len(key), partitions, None, None) for key in every]
    assert partitions_of(pa.array(every), partitioner, partitions).tolist() == expected


@pytest.mark.parametrize("partitions", COUNTS)
def test_murmur2_is_that_of_kafka_python_and_the_partitioner_of_taskplace(partitions):
    every = keys(8)
    found = partitions_of(pa.array(every), "murmur2", partitions).tolist()
    assert found == [(murmur2_of_kafka_python(key) & 0x7FFFFFFF) % partitions for key in every]
    assert found == [partition_for_key(key, partitions) for key in every]


@given(st.lists(st.none() | st.binary(max_size=9)), st.sampled_from(["murmur2", "consistent", "fnv1a"]))
def test_a_partition_does_not_depend_on_the_other_keys(payloads, partitioner):
    together = partitions_of(pa.array(payloads, pa.binary()), partitioner, 12).tolist()
    alone = [partitions_of(pa.array([key], pa.binary()), partitioner, 12)[0] for key in payloads]
    many = partitions_of(pa.array(payloads * (33), pa.binary()), partitioner, 12).tolist()
    assert together == alone and many == together * (33)


@pytest.mark.parametrize(
    "name", ["murmur2", "murmur2_random", "consistent", "consistent_random", "fnv1a_random"]
)
def test_producers_of_librdkafka_put_keys_there(name):
    """A producer sends to a cluster in this process, which librdkafka brings along. Its topics have 4 partitions."""
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "partitioner": name, "log_level": 0})
    where: dict[bytes, set[int]] = {}
    for key in {*keys()[:200], b""}:
        producer.produce(
            "t",
            key=key[:100],
            on_delivery=lambda error, sent: where.setdefault(sent.key() or b"", set()).add(sent.partition()),
        )
    assert producer.flush(30) == 0
    found = partitions_of(pa.array(list(where)), known_partitioner(name, "p"), 4).tolist()
    checked = [
        (partition, sent) for partition, sent in zip(found, where.values(), strict=True) if partition != ANY
    ]
    assert len(checked) > 50
    assert all({partition} == sent for partition, sent in checked)


def test_keys_that_decide_nothing():
    payloads = pa.array([None, b"", b"a"])
    assert partitions_of(payloads, "consistent", 4).tolist()[:2] == [ANY, 0]
    assert partitions_of(payloads, "consistent_random", 4).tolist()[:2] == [ANY, ANY]
    assert partitions_of(payloads, "murmur2", 4)[0] == ANY != partitions_of(payloads, "murmur2", 4)[1]


def test_chunked_and_sliced_keys():
    every = keys()[:100]
    whole = partitions_of(pa.array(every), "murmur2", 12).tolist()
    assert partitions_of(pa.chunked_array([every[:7], every[7:]]), "murmur2", 12).tolist() == whole
    assert partitions_of(pa.array(every)[5:50], "murmur2", 12).tolist() == whole[5:50]


def test_an_unknown_partitioner():
    with pytest.raises(InputError, match=r"p: found 'murmur3', expected one of .*did you mean 'murmur2'"):
        known_partitioner("murmur3", "p")
