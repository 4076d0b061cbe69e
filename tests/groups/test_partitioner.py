"""The partitioner: Kafka's hash, strict uniformity, the whole batch at once, leaders that come and go, its options."""

from __future__ import annotations

from itertools import combinations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from taskplace.errors import InputError
from taskplace.groups.partitioner import (
    PartitionerConfig,
    UniformStickyPartitioner,
    murmur2,
    partition_for_key,
)

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


def made(partitions: int, turn: int = 1, seed: int = 0, **more: object) -> UniformStickyPartitioner:
    return UniformStickyPartitioner(partitions, PartitionerConfig(sticky_batch_size=turn, **more), seed=seed)


def shares(partitioner: UniformStickyPartitioner, records: int) -> list[int]:
    """Send records of one byte, one by one. Return how many each partition received."""
    chosen = [partitioner.partition(None, 1) for _ in range(records)]
    return np.bincount(chosen, minlength=partitioner.partitions).tolist()


def test_keys_go_where_kafka_and_kafka_python_put_them():
    for key, partition in KNOWN_PARTITIONS.items():
        assert partition_for_key(key, 1_000) == UniformStickyPartitioner(1_000).partition(key, 1) == partition
    for key, signed in KNOWN.items():
        assert murmur2(key) == signed % 2**32
        assert partition_for_key(key, 30) == (signed & 0x7FFFFFFF) % 30


record_sizes = st.lists(st.integers(0, 5_000), max_size=200)


@given(st.integers(1, 12), st.integers(1, 3_000), record_sizes, st.integers(0, 2**32))
def test_no_two_partitions_differ_by_a_turn_and_a_record(n, turn, sizes, seed):
    partitioner = made(n, turn, seed)
    bytes_of = [0] * n
    for size in sizes:
        bytes_of[partitioner.partition(None, size)] += size
        assert max(bytes_of) - min(bytes_of) < turn + max([1, *sizes])


@given(st.integers(1, 12), st.integers(1, 3_000), record_sizes, st.integers(0, 5), st.data())
def test_a_whole_batch_is_record_by_record(n, turn, sizes, seed, data):
    keys = data.draw(st.lists(st.none() | st.binary(max_size=9), min_size=len(sizes), max_size=len(sizes)))
    ignore = data.draw(st.booleans(), "ignore keys")
    cut = data.draw(st.integers(0, len(sizes)), "where the batch is cut")
    one, whole = (made(n, turn, seed, ignore_keys=ignore) for _ in "12")
    expected = [one.partition(key, size) for key, size in zip(keys, sizes, strict=True)]
    later = whole.assign(sizes[:cut], keys[:cut]), whole.assign(np.array(sizes[cut:], np.int64), keys[cut:])
    assert [*later[0], *later[1]] == expected


def test_a_huge_record_is_paid_back_without_a_long_search():
    partitioner = made(3)
    chosen = [partitioner.partition(None, 2**50) for _ in range(6)]
    assert sorted(chosen) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("turn", [1, 16_384, 2**31, 2**62, 2**63 - 1])
def test_the_largest_records_go_the_same_way_one_by_one_and_at_once(turn):
    one, many = (made(7, turn, seed=5) for _ in range(2))
    sizes = [2**50, 0, 5, 2**50 - 1, 2**31] * 1_700  # their sum is no number of a column any more
    largest = [2**50] * 2**13  # their sum is the first that is no number of a column
    for batch in (sizes, largest, np.array([2**32 - 1, 7] * 20, np.uint32)):
        assert many.assign(batch).tolist() == [one.partition(None, size) for size in batch]


def test_records_without_bytes_stay_where_the_turn_is():
    one, many = (made(3, seed=4) for _ in "ab")
    assert many.assign([0, 0, 0]).tolist() == [one.partition(None, 0) for _ in range(3)]
    assert len(set(many.assign([0, 0, 0]))) == 1
    assert many.assign([]).tolist() == []


def test_keyed_records_do_not_count_for_the_turns_unless_keys_are_ignored():
    with_keys, without = (made(4, 100, seed=3) for _ in "ab")
    seen = []
    for k in range(50):
        with_keys.partition(b"key-%d" % k, 1_000)
        seen.append(with_keys.partition(None, 30))
    assert seen == [without.partition(None, 30) for _ in range(50)]
    ignoring = made(4, ignore_keys=True)
    assert {ignoring.partition(b"same", 1) for _ in range(8)} == {0, 1, 2, 3}


def test_the_turn_is_batch_size_unless_it_is_set():
    assert PartitionerConfig().turn == 16_384
    assert PartitionerConfig.from_properties({"batch.size": 9, "partitioner.sticky.batch.size": 0}).turn == 9
    assert PartitionerConfig.from_properties({"partitioner.sticky.batch.size": 7}).turn == 7
    assert PartitionerConfig(batch_size=0).turn == 1


def test_adaptive_turns_follow_the_queues_and_the_others_do_not():
    partitioner = made(3, adaptive=True, seed=5)
    partitioner.update_load({0: 0, 1: 3, 2: 1})  # weights 4, 1, 3
    partitioner.partition(None, 1)
    assert np.abs(np.array(shares(partitioner, 8_000)) / 1_000 - [4, 1, 3]).max() < 0.3
    partitioner.update_load({0: 2, 1: 2, 2: 2})
    partitioner.partition(None, 1)
    assert np.ptp(shares(partitioner, 300)) <= 2
    told, untold = (made(5, 100, seed=9) for _ in "ab")
    told.update_load({0: 100, 1: 0})
    assert told.assign([40] * 100).tolist() == untold.assign([40] * 100).tolist()


def test_partitions_that_are_not_drained_are_left_out():
    partitioner = made(4, adaptive=True, availability_timeout_ms=500)
    partitioner.update_load({0: 1, 1: 1, 2: 1}, {1: 500, 2: 499})
    assert {partitioner.partition(None, 1) for _ in range(50)} == {0, 2}
    partitioner.update_load({0: 1, 1: 1}, {0: 900, 1: 900})  # nobody is left: better a late one than none
    assert {partitioner.partition(None, 1) for _ in range(50)} == {0, 1}


def test_load_can_be_forgotten_and_does_not_hide_who_has_a_leader():
    partitioner = made(4, adaptive=True, availability_timeout_ms=500)
    partitioner.update_leaders([0, 1, 2])
    partitioner.update_load({0: 9, 1: 0, 2: 0, 3: 0}, {2: 900})
    found = shares(partitioner, 2_000)
    assert found[2] == found[3] == 0 and found[1] > 5 * found[0] > 0
    partitioner.update_load({0: 5, 1: 0, 2: 0}, {0: 900, 1: 900, 2: 900})  # nobody is left: uniform
    partitioner.partition(None, 1)
    assert shares(partitioner, 300) == [100, 100, 100, 0]
    partitioner.update_load(None)
    assert shares(partitioner, 300) == [100, 100, 100, 0]


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        (lambda p: UniformStickyPartitioner(0), "partitions"),
        (lambda p: p.partition(None, -1), "size"),
        (lambda p: p.partition(None, 2**50 + 1), "size"),
        (lambda p: p.assign([1, -1]), "sizes"),
        (lambda p: p.assign(np.array([1, 2**50 + 1])), "sizes"),
        (lambda p: p.assign([1], [None, None]), "keys"),
        (lambda p: p.update_partitions(1), "partitions"),
        (lambda p: PartitionerConfig(batch_size=-1), "config.batch.size"),
    ],
)
def test_bad_input_is_named(wrong, path):
    with pytest.raises(InputError) as error:
        wrong(UniformStickyPartitioner(2))
    assert error.value.path == path


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_partition_without_a_leader_gets_nothing_unless_no_partition_has_one(adaptive):
    partitioner = made(3, adaptive=adaptive)
    for leaders, expected in (([0, 2], [50, 0, 50]), ([1], [0, 100, 0])):
        partitioner.update_leaders(leaders)
        assert shares(partitioner, 100) == expected
    partitioner = made(3, adaptive=adaptive)
    for leaders, most in (([], 33), ([1], 99), (None, 34)):
        partitioner.update_leaders(leaders)
        assert max(shares(partitioner, 99)) <= most


def test_a_turn_ends_when_its_partition_loses_its_leader():
    partitioner = made(4, 1_000)
    current = partitioner.partition(None, 10)
    partitioner.update_leaders(p for p in range(4) if p != current)
    assert partitioner.partition(None, 10) != current


def test_keyed_records_go_to_partitions_without_a_leader_too():
    told, untold = (made(12, 100) for _ in "ab")
    told.update_leaders([0])
    keys = [b"%d" % k for k in range(50)]
    assert told.assign([1] * 50, keys).tolist() == untold.assign([1] * 50, keys).tolist()


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("records"), st.lists(st.integers(0, 300), max_size=40)),
        st.tuples(st.just("leaders"), st.sets(st.integers(0, 5))),
        st.tuples(st.just("grow"), st.integers(0, 2)),
    ),
    max_size=25,
)
FOUND = [
    ("grow", 2), ("records", [1, 83, 300, 293]), ("leaders", {0, 2}), ("records", [0, 0, 0, 88, 300, 300]),
    ("leaders", set()), ("grow", 1), ("records", [0, 79, 299, 120, 300]),
]  # fmt: skip


@example(2, 378, FOUND, 1)
@given(st.integers(1, 4), st.integers(1, 500), EVENTS, st.integers(0, 99))
def test_those_with_a_leader_stay_uniform_whatever_happens_to_the_others(n, turn, events, seed):
    """Records count from when both partitions of a pair have a leader, and none without one gets any.

    One that has just got its leader waits for the next round, so the other may have had a turn more.
    """
    partitioner, whole = (made(n, turn, seed) for _ in "12")
    since = dict.fromkeys(combinations(range(n), 2), (0, 0, 1))
    got, led = [0] * n, set(range(n))
    largest = 1
    nobody = False  # no partition has a leader, so all get records
    for kind, what in events:
        alone = False  # only new partitions had a leader for a moment
        if kind == "records":
            chosen = [partitioner.partition(None, size) for size in what]
            assert whole.assign(what).tolist() == chosen
            for size, p in zip(what, chosen, strict=True):
                assert p in led
                got[p] += size
                largest = max(largest, size)
                for (a, b), (at_a, at_b, turns) in since.items():
                    if {a, b} <= led:
                        assert abs(got[a] - at_a - got[b] + at_b) < turns * turn + 2 * largest
            continue
        if kind == "leaders":
            named = {p for p in what if p < n}
            for one in (partitioner, whole):
                one.update_leaders(named)
            nobody, now = not named, named or set(range(n))
        else:
            now = {*led, *range(n, n + what)} if len(led) < n else set(range(n + what))
            nobody, alone = False, nobody and what > 0
            n += what
            got += [0] * (n - len(got))
            for one in (partitioner, whole):
                one.update_partitions(n)
                one.update_leaders(now)
        for a, b in combinations(range(n), 2):
            if alone or not {a, b} <= now or not {a, b} <= led or (a, b) not in since:
                since[a, b] = (got[a], got[b], 2)
        led = now


def test_new_partitions_take_part_and_forget_the_load():
    partitioner = made(2, adaptive=True, seed=3)
    partitioner.update_load({0: 0, 1: 50})
    partitioner.update_partitions(4)
    assert np.ptp(shares(partitioner, 400)) <= 3
    assert partitioner.partition(b"21", 1) == partition_for_key(b"21", 4)
    partitioner.update_partitions(4)
    with pytest.raises(InputError, match="partitions: found 3, expected at least 4"):
        partitioner.update_partitions(3)
