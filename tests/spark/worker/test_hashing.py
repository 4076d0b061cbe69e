"""`spark_hash` against what a real Spark said (`make_spark_hashes.py`), and its own rules."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import random
import time
from pathlib import Path
from types import ModuleType

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.worker.hashing import (
    ANY,
    hashed_as,
    known_partitioner,
    partition_of,
    partitions_of,
    spark_hash,
)
from tests.differential.hashing import hashed

HERE = Path(__file__).parent
RECORDED = json.loads((HERE / "spark_hashes.json").read_text())


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_spark_hashes", HERE / "make_spark_hashes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES: dict[str, pa.Table] = _script().cases()


def test_every_case_was_recorded():
    assert list(CASES) == list(RECORDED["cases"])


@pytest.mark.parametrize("name", CASES)
def test_equals_spark(name):
    columns = CASES[name].columns
    assert spark_hash(columns).tolist() == RECORDED["cases"][name]["hashes"]
    assert partition_of(columns, RECORDED["of"]).tolist() == RECORDED["cases"][name]["partitions"]


@pytest.mark.parametrize("name", CASES)
def test_slices_and_chunks_do_not_matter(name):
    table = CASES[name]
    wanted = RECORDED["cases"][name]["hashes"]
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1)])
    assert spark_hash(chunked.columns).tolist() == wanted
    assert spark_hash([c.combine_chunks().slice(1, 2) for c in table.columns]).tolist() == wanted[1:3]
    assert spark_hash([c.slice(0, 0) for c in table.columns]).tolist() == []


@settings(print_blob=True, deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.none() | st.text(max_size=30), st.none() | st.integers(-(2**63), 2**63 - 1))),
    st.integers(1, 500),
)
def test_a_row_has_one_hash_whatever_is_beside_it(rows, partitions):
    columns = [pa.array([a for a, _ in rows], pa.string()), pa.array([b for _, b in rows], pa.int64())]
    together = partition_of(columns, partitions)
    alone = [int(partition_of([c.slice(i, 1) for c in columns], partitions)[0]) for i in range(len(rows))]
    assert together.tolist() == alone
    assert together.dtype == np.int32
    assert not len(rows) or (together.min() >= 0 and together.max() < partitions)


#: What keys may be of, by the values to try them with.
KINDS: dict[str, list[pa.DataType]] = {
    "numbers": [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()],
    "times": [
        pa.timestamp("us"),
        pa.timestamp("us", tz="UTC"),
        pa.timestamp("us", tz="Asia/Tokyo"),
        pa.date32(),
    ],
    "texts": [
        *(pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view()),
        *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_string())),
    ],
    "flags": [pa.bool_(), pa.int32()],
}
VALUES = {
    "numbers": [0, 1, -1, 7, 127, -128],
    "times": [0, 86_400_000_000, -86_400_000_000],
    "texts": ["", "a", "abcd", "abcde"],
    "flags": [0, 1],
}


@pytest.mark.parametrize("values", KINDS)
def test_types_that_are_hashed_as_one_send_equal_values_to_one_partition(values):
    found: dict[str, set[tuple[int, ...]]] = {}
    for kind in KINDS[values]:
        if values == "times" and pa.types.is_date(kind):
            column = pa.array([0, 1, -1], pa.int32()).cast(kind)
        elif values == "times":
            column = pa.array(VALUES[values], pa.int64()).cast(kind)
        else:
            column = pa.array(VALUES[values]).cast(kind)
        try:
            hashes = tuple(spark_hash([column]).tolist())
        except InputError:  # no key is of this type
            continue
        found.setdefault(hashed_as(kind), set()).add(hashes)
    assert len(found) > 1
    assert all(len(hashes) == 1 for hashes in found.values()), found


def test_what_is_hashed_otherwise_is_called_otherwise():
    kinds = [pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.bool_(), pa.timestamp("us")]
    assert len({hashed_as(kind) for kind in kinds}) == len(kinds)
    assert len({hashed_as(kind) for kind in (pa.int8(), pa.int16(), pa.int32())}) == 1
    assert hashed_as(pa.timestamp("us")) == hashed_as(pa.timestamp("us", tz="Asia/Tokyo"))
    assert hashed_as(pa.timestamp("ms")) != hashed_as(pa.timestamp("us"))


def _one_by_one(keys: list[bytes]) -> list[int]:
    """Return the hashes by the definition: word by word, then byte by byte."""
    found = [hashed(key, "binary", 42) for key in keys]
    return [one - (1 << 32) if one >> 31 else one for one in found]


@settings(print_blob=True, deadline=None, max_examples=30)
@given(
    st.lists(st.integers(0, 40), max_size=120),
    st.lists(st.integers(0, 3_000), max_size=6),
    st.integers(0, 2**32),
)
def test_any_mix_of_lengths_is_hashed_by_the_definition(short, long, seed):
    random = np.random.default_rng(seed)
    keys = [random.bytes(length) for length in random.permutation([*short, *long]).astype(int)]
    column = pa.array([b"before", *keys, b"after"], pa.binary())
    assert spark_hash([column])[1:-1].tolist() == _one_by_one(keys)
    assert spark_hash([column.slice(1, len(keys))]).tolist() == _one_by_one(keys)


def test_one_long_key_does_not_make_the_others_dear():
    def seconds(keys):
        column, start = pa.array(keys, pa.binary()), time.process_time()
        spark_hash([column])
        return time.process_time() - start

    short, long = [b"12345678"] * 50_000, [b"x" * (1 << 18)]
    apart = seconds(short) + seconds(long)
    assert seconds(short + long) < 20 * apart  # it was several hundred times that


# -- partitions of keys, compared with the partitioners of librdkafka, kafka-python and our own, key by key


COUNTS = (1, 2, 7, 12, 4096, 2**31 - 1)
ABOVE = 0xFFFFFFFF


def keys(seed: int = 7) -> list[bytes]:
    """Return keys of many lengths."""
    rng = random.Random(seed)
    return [rng.randbytes(length) for length in [*[*range(70)] * 4, 1_000_003]]


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
