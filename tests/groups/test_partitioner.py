"""The partitioner: Kafka's hash, strict uniformity, the whole batch at once, its options and its arguments."""

from __future__ import annotations

import re
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from taskplace.errors import ConfigError, InputError
from taskplace.groups.partitioner import (
    PartitionerConfig,
    TopicPartitioner,
    UniformStickyPartitioner,
    murmur2,
    partition_for_key,
)
from tests.support.records import config, record_sizes

# What Kafka's own tests expect of its hash, as signed numbers.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}

# What kafka-python's own tests expect, of 1000 partitions.
KNOWN_PARTITIONS = {b"": 681, b"a": 524, b"ab": 434, b"abc": 107, b"123456789": 566, b"\x00 ": 742}


@pytest.mark.parametrize("key", KNOWN_PARTITIONS)
def test_keys_go_where_kafka_python_puts_them(key: bytes) -> None:
    assert partition_for_key(key, 1_000) == KNOWN_PARTITIONS[key]
    assert UniformStickyPartitioner(1_000).partition(key, 1) == KNOWN_PARTITIONS[key]


@pytest.mark.parametrize("key", KNOWN)
def test_the_hash_is_kafkas(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key] % 2**32
    assert partition_for_key(key, 30) == (KNOWN[key] & 0x7FFFFFFF) % 30


@given(st.integers(1, 12), st.integers(1, 3_000), record_sizes, st.integers(0, 2**32))
def test_no_two_partitions_differ_by_a_turn_and_a_record(
    n: int, turn: int, sizes: list[int], seed: int
) -> None:
    partitioner = UniformStickyPartitioner(n, config(turn), seed=seed)
    bytes_of = [0] * n
    for size in sizes:
        bytes_of[partitioner.partition(None, size)] += size
        assert max(bytes_of) - min(bytes_of) < turn + max([1, *sizes])


@given(st.integers(1, 12), st.integers(1, 3_000), record_sizes, st.integers(0, 5), st.data())
def test_a_whole_batch_is_record_by_record(
    n: int, turn: int, sizes: list[int], seed: int, data: st.DataObject
) -> None:
    keys = data.draw(
        st.lists(st.none() | st.binary(max_size=9), min_size=len(sizes), max_size=len(sizes)), "keys"
    )
    ignore = data.draw(st.booleans(), "ignore keys")
    cut = data.draw(st.integers(0, len(sizes)), "where the batch is cut")
    one, whole = (UniformStickyPartitioner(n, config(turn, ignore_keys=ignore), seed=seed) for _ in "12")
    expected = [one.partition(key, size) for key, size in zip(keys, sizes, strict=True)]
    found = [
        *whole.assign(sizes[:cut], keys[:cut]),
        *whole.assign(np.array(sizes[cut:], np.int64), keys[cut:]),
    ]
    assert found == expected


@given(st.integers(1, 5), st.lists(st.integers(1, 400), min_size=1, max_size=60))
def test_a_turn_is_kept_to_its_end(n: int, sizes: list[int]) -> None:
    partitioner = UniformStickyPartitioner(n, config(1_000))
    run = 0
    before = None
    for size in sizes:
        chosen = partitioner.partition(None, size)
        if before is not None and chosen != before:
            assert run > 1_000 - 400  # a full turn, less what the one before ran over
            run = 0
        run += size
        before = chosen


def test_a_huge_record_is_paid_back_without_a_long_search() -> None:
    partitioner = UniformStickyPartitioner(3, config(1))
    chosen = [partitioner.partition(None, 2**50) for _ in range(6)]
    assert sorted(chosen) == [0, 0, 1, 1, 2, 2]


def test_records_without_bytes_stay_where_the_turn_is() -> None:
    one, many = (UniformStickyPartitioner(3, config(1), seed=4) for _ in "ab")
    assert many.assign([0, 0, 0]).tolist() == [one.partition(None, 0) for _ in range(3)]
    assert len(set(many.assign([0, 0, 0]))) == 1
    assert many.assign([]).tolist() == []


def test_keyed_records_do_not_count_for_the_turns() -> None:
    with_keys, without = (UniformStickyPartitioner(4, config(100), seed=3) for _ in "ab")
    seen = []
    for k in range(50):
        with_keys.partition(b"key-%d" % k, 1_000)
        seen.append(with_keys.partition(None, 30))
    assert seen == [without.partition(None, 30) for _ in range(50)]


def test_keys_can_be_ignored() -> None:
    partitioner = UniformStickyPartitioner(4, config(1, ignore_keys=True))
    assert {partitioner.partition(b"same", 1) for _ in range(8)} == {0, 1, 2, 3}


def test_the_turn_is_batch_size_unless_it_is_set() -> None:
    assert PartitionerConfig().turn == 16_384
    assert PartitionerConfig.from_properties({"batch.size": 9, "partitioner.sticky.batch.size": 0}).turn == 9
    assert PartitionerConfig.from_properties({"partitioner.sticky.batch.size": 7}).turn == 7
    assert PartitionerConfig(batch_size=0).turn == 1


def test_adaptive_turns_follow_the_queues() -> None:
    partitioner = UniformStickyPartitioner(3, config(1, adaptive=True), seed=5)
    partitioner.update_load({0: 0, 1: 3, 2: 1})  # weights 4, 1, 3
    partitioner.partition(None, 1)
    counts = np.bincount([partitioner.partition(None, 1) for _ in range(8_000)], minlength=3)
    assert np.abs(counts / 1_000 - [4, 1, 3]).max() < 0.3
    partitioner.update_load({0: 2, 1: 2, 2: 2})
    partitioner.partition(None, 1)
    even = np.bincount([partitioner.partition(None, 1) for _ in range(300)], minlength=3)
    assert even.max() - even.min() <= 2


def test_partitions_that_are_not_drained_or_have_no_leader_are_left_out() -> None:
    own = PartitionerConfig(sticky_batch_size=1, adaptive=True, availability_timeout_ms=500)
    partitioner = UniformStickyPartitioner(4, own)
    partitioner.update_load({0: 1, 1: 1, 2: 1}, {1: 500, 2: 499})
    assert {partitioner.partition(None, 1) for _ in range(50)} == {0, 2}
    partitioner.update_load({0: 1, 1: 1}, {0: 900, 1: 900})  # nobody is left: better a late one than none
    assert {partitioner.partition(None, 1) for _ in range(50)} == {0, 1}


def test_without_the_option_load_changes_nothing() -> None:
    told, untold = (UniformStickyPartitioner(5, config(100), seed=9) for _ in "ab")
    told.update_load({0: 100, 1: 0})
    assert told.assign([40] * 100).tolist() == untold.assign([40] * 100).tolist()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: UniformStickyPartitioner(0), "partitions: found 0"),
        (lambda: UniformStickyPartitioner(2).partition(None, -1), "size: found -1"),
        (lambda: UniformStickyPartitioner(2).assign([1, -1]), "sizes[1]: found -1"),
        (lambda: UniformStickyPartitioner(2).assign([1], [None, None]), "keys: found '2 keys'"),
        (lambda: UniformStickyPartitioner(2).update_load({2: 0}), "queues: found 2"),
        (lambda: UniformStickyPartitioner(2).update_leaders([0, 2]), "available: found 2"),
        (lambda: UniformStickyPartitioner(2).update_leaders([True]), "available: found true"),
        (lambda: UniformStickyPartitioner(2).update_leaders(1), "available: found 1"),  # type: ignore[arg-type]
        (lambda: UniformStickyPartitioner(2).update_leaders("01"), "available: found '01'"),  # type: ignore[arg-type]
        (lambda: TopicPartitioner({"a": 0}), "partitions.a: found 0"),
        (lambda: TopicPartitioner(3), "partitions: found 3"),  # type: ignore[arg-type]
        (lambda: TopicPartitioner({"a": 1}, seed=-1), "seed: found -1"),
        (lambda: TopicPartitioner({"flights": 1}).partition("flihgts", None, 1), "did you mean 'flights'"),
        (lambda: TopicPartitioner(lambda t: 0).partition("a", None, 1), "partitions.a: found 0"),
        (lambda: TopicPartitioner(lambda t: 1).partition("", None, 1), "topic: found ''"),
        (lambda: UniformStickyPartitioner(2).update_load({0: "1"}), "queues: found '1'"),  # type: ignore[dict-item]
        (lambda: UniformStickyPartitioner(2).update_load({"0": 1}), "queues: found '0'"),  # type: ignore[dict-item]
        (lambda: UniformStickyPartitioner(2).update_load({-1: 1}), "queues: found -1"),
        (lambda: UniformStickyPartitioner(2).update_load({0: -1}), "queues: found -1"),
        (lambda: UniformStickyPartitioner(2).update_load({0: 0}, {1: True}), "waited_ms: found true"),
        (lambda: UniformStickyPartitioner(2).update_leaders([-1]), "available: found -1"),
        (lambda: UniformStickyPartitioner(2).assign("12"), "sizes: found '12'"),  # type: ignore[arg-type]
        (lambda: UniformStickyPartitioner(2).assign({1: 2}), "sizes: found {1: 2}"),  # type: ignore[arg-type]
        (lambda: UniformStickyPartitioner(2).assign(iter([1])), "sizes: found <"),  # type: ignore[arg-type]
        (lambda: UniformStickyPartitioner(2).assign(np.array([1, 2**50 + 1])), "sizes[1]: found "),
        (lambda: UniformStickyPartitioner(2).partition("k", 1), "key: found 'k', expected bytes"),  # type: ignore[arg-type]
        (
            lambda: UniformStickyPartitioner(2).update_partitions(1),
            "partitions: found 1, expected at least 2",
        ),
        (
            lambda: TopicPartitioner({"a": 2}).update_partitions("a", 1),
            "partitions.a: found 1, expected at least 2",
        ),
        (lambda: PartitionerConfig(batch_size=-1), "batch.size: found -1"),
        (lambda: PartitionerConfig(ignore_keys=1), "partitioner.ignore.keys: found 1"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_named(wrong: object, message: str) -> None:
    with pytest.raises((InputError, ConfigError), match=re.escape(message)):
        wrong()  # type: ignore[operator]


@pytest.mark.parametrize(
    "size",
    [
        -1,
        2**50 + 1,
        2**62,
        2**63,
        2**64,
        1.0,
        1.5,
        float("nan"),
        True,
        None,
        "7",
        np.float64(3),
        np.bool_(True),
    ],
)
def test_what_is_no_size_is_refused_by_both_alike(size: object) -> None:
    p = UniformStickyPartitioner(3, seed=1)
    with pytest.raises(InputError, match=r"^size: found .*, expected an integer from 0 to 1125899906842624"):
        p.partition(None, size)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^sizes\[1\]: found .*, expected an integer from 0 to"):
        p.assign([5, size, 5])  # type: ignore[list-item]
    assert p.assign([]).tolist() == []
    for sizes in ([[1], [3]], np.array([1.5]), np.zeros((2, 2), np.int64), np.array([2**51])):
        with pytest.raises(InputError, match=r"^sizes"):
            p.assign(sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize("as_array", [False, True])
def test_of_several_that_are_no_size_the_first_is_named(as_array: bool) -> None:
    sizes = [5, -7, 5, -8, 2**51]
    with pytest.raises(InputError, match=r"^sizes\[1\]: found .*-7"):
        UniformStickyPartitioner(3).assign(np.array(sizes) if as_array else sizes)


@pytest.mark.parametrize("turn", [1, 16_384, 2**31, 2**62, 2**63 - 1])
def test_the_largest_records_go_the_same_way_one_by_one_and_at_once(turn: int) -> None:
    config = PartitionerConfig(sticky_batch_size=turn)
    one, many = (UniformStickyPartitioner(7, config, seed=5) for _ in range(2))
    sizes = [2**50, 0, 5, 2**50 - 1, 2**31] * 1_700  # their sum is no number of a column any more
    assert many.assign(sizes).tolist() == [one.partition(None, size) for size in sizes]
    largest = [2**50] * 2**13  # their sum is the first that is no number of a column
    assert many.assign(largest).tolist() == [one.partition(None, size) for size in largest]
    rest = np.array([2**32 - 1, 7] * 20, np.uint32)
    assert many.assign(rest).tolist() == [one.partition(None, size) for size in rest]


def test_what_is_at_the_limit_is_taken() -> None:
    p = UniformStickyPartitioner(2, seed=1)
    assert len(p.assign(np.array([2**50, 0], np.uint64))) == 2
    assert p.partition(None, 2**50) in (0, 1)
    p.update_load({0: 0, 1: 0}, {0: 0})
    p.update_leaders([0, 1])
    p.update_partitions(2)
    topics = TopicPartitioner({"a": 2})
    topics.update_partitions("a", 2)
    assert topics.partition("a", None, 1) in (0, 1)


@pytest.mark.parametrize("seed", [-1, 1.5, "7", None, True])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(InputError, match=r"^seed: found"):
        UniformStickyPartitioner(2, seed=seed)
    with pytest.raises(InputError, match=r"^seed: found"):
        TopicPartitioner({"a": 2}, seed=seed)


@pytest.mark.parametrize("config", [{"batch.size": 5}, 5, PartitionerConfig])
def test_a_configuration_is_a_partitioner_config(config: Any) -> None:
    with pytest.raises(InputError, match=r"^config: found .*, expected a PartitionerConfig"):
        UniformStickyPartitioner(2, config)
    with pytest.raises(InputError, match=r"^config: found .*, expected a PartitionerConfig"):
        TopicPartitioner({"a": 2}, config)


def test_a_topic_has_at_most_ten_million_partitions() -> None:
    with pytest.raises(InputError, match=r"^partitions: found 10000001, expected .* at most 10000000"):
        UniformStickyPartitioner(10_000_001)
