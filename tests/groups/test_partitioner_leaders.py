"""The partitioner with partitions that have no leader, lose it, or are new: the others stay uniform."""

from __future__ import annotations

from itertools import combinations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from taskplace.errors import InputError
from taskplace.groups.partitioner import PartitionerConfig, UniformStickyPartitioner, partition_for_key
from tests.support.records import bytes_of, config


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_partition_without_a_leader_gets_nothing_in_either_mode(adaptive: bool) -> None:
    partitioner = UniformStickyPartitioner(3, config(1, adaptive=adaptive))
    partitioner.update_leaders([0, 2])
    assert bytes_of(partitioner, [1] * 100) == [50, 0, 50]
    one = UniformStickyPartitioner(2, config(1, adaptive=adaptive))
    one.update_leaders([1])
    assert bytes_of(one, [1] * 100) == [0, 100]


def test_without_any_leader_every_partition_gets_its_share() -> None:
    partitioner = UniformStickyPartitioner(3, config(1))
    partitioner.update_leaders([])
    assert bytes_of(partitioner, [1] * 99) == [33, 33, 33]
    partitioner.update_leaders([1])
    assert bytes_of(partitioner, [1] * 99) == [0, 99, 0]
    partitioner.update_leaders(None)
    assert max(bytes_of(partitioner, [1] * 99)) <= 34


def test_a_turn_ends_when_its_partition_loses_its_leader() -> None:
    partitioner = UniformStickyPartitioner(4, config(1_000))
    current = partitioner.partition(None, 10)
    partitioner.update_leaders(p for p in range(4) if p != current)
    assert partitioner.partition(None, 10) != current


def test_what_a_partition_missed_without_a_leader_is_not_paid_back() -> None:
    partitioner = UniformStickyPartitioner(3, config(10))
    partitioner.update_leaders([0, 1])
    bytes_of(partitioner, [5] * 1_000)
    partitioner.update_leaders([0, 1, 2])
    after = bytes_of(partitioner, [5] * 60)
    assert max(after) - min(after) < 10 + 2 * 5


def test_a_leader_that_comes_and_goes_does_not_disturb_the_round_of_the_others() -> None:
    partitioner = UniformStickyPartitioner(4, config(100), seed=6)
    got = np.zeros(4, np.int64)
    for k in range(400):
        partitioner.update_leaders([0, 1, 2, 3] if k % 2 else [0, 1, 2])
        got += bytes_of(partitioner, [100])
        assert got[:3].max() - got[:3].min() < 100 + 2 * 100


def test_keyed_records_go_to_partitions_without_a_leader_too() -> None:
    told, untold = (UniformStickyPartitioner(12, config(100)) for _ in "ab")
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


@example(
    2,
    378,
    [
        ("grow", 2),
        ("records", [1, 83, 300, 293]),
        ("leaders", {0, 2}),
        ("records", [0, 0, 0, 88, 300, 300]),
        ("leaders", set()),
        ("grow", 1),
        ("records", [0, 79, 299, 120, 300]),
    ],
    1,
)
@given(st.integers(1, 4), st.integers(1, 500), EVENTS, st.integers(0, 99))
def test_those_with_a_leader_stay_uniform_whatever_happens_to_the_others(
    n: int, turn: int, events: list[tuple[str, object]], seed: int
) -> None:
    """Records count from when both partitions of a pair have a leader, and none without one gets any.

    One that has just got its leader waits for the next round, so the other may have had a turn more.
    """
    partitioner = UniformStickyPartitioner(n, config(turn), seed=seed)
    whole = UniformStickyPartitioner(n, config(turn), seed=seed)
    since = dict.fromkeys(combinations(range(n), 2), (0, 0, 1))
    got, led = [0] * n, set(range(n))
    largest = 1
    nobody = False  # no partition has a leader, so all get records
    for kind, what in events:
        alone = False  # only new partitions had a leader for a moment
        if kind == "records":
            assert isinstance(what, list)
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
            assert isinstance(what, set)
            named = {p for p in what if p < n}
            for one in (partitioner, whole):
                one.update_leaders(named)
            nobody, now = not named, named or set(range(n))
        else:
            assert isinstance(what, int)
            now = (
                {*(led if len(led) < n else ()), *range(n, n + what)}
                if len(led) < n
                else set(range(n + what))
            )
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


def test_new_partitions_take_part_and_forget_the_load() -> None:
    partitioner = UniformStickyPartitioner(2, config(1, adaptive=True), seed=3)
    partitioner.update_load({0: 0, 1: 50})
    partitioner.update_partitions(4)
    after = bytes_of(partitioner, [1] * 400)
    assert max(after) - min(after) <= 3
    assert partitioner.partition(b"21", 1) == partition_for_key(b"21", 4)
    partitioner.update_partitions(4)
    with pytest.raises(InputError, match="partitions: found 3, expected at least 4"):
        partitioner.update_partitions(3)


def test_load_can_be_forgotten_and_does_not_hide_who_has_a_leader() -> None:
    own = PartitionerConfig(sticky_batch_size=1, adaptive=True, availability_timeout_ms=500)
    partitioner = UniformStickyPartitioner(4, own)
    partitioner.update_leaders([0, 1, 2])
    partitioner.update_load({0: 9, 1: 0, 2: 0, 3: 0}, {2: 900})
    counts = bytes_of(partitioner, [1] * 2_000)
    assert counts[2] == counts[3] == 0 and counts[1] > 5 * counts[0] > 0
    partitioner.update_load({0: 5, 1: 0, 2: 0}, {0: 900, 1: 900, 2: 900})  # nobody is left: uniform
    partitioner.partition(None, 1)
    assert bytes_of(partitioner, [1] * 300) == [100, 100, 100, 0]
    partitioner.update_load(None)
    assert bytes_of(partitioner, [1] * 300) == [100, 100, 100, 0]
