"""The partitioner: Kafka's hash, strict uniformity, the whole batch at once, and KIP-794's argument as a simulation."""

from __future__ import annotations

import doctest
import importlib.util
import re
import sys
import threading
from itertools import combinations
from pathlib import Path
from types import ModuleType

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from taskplace.errors import ConfigError, InputError
from taskplace.partitioner import (
    PartitionerConfig,
    TopicPartitioner,
    UniformStickyPartitioner,
    murmur2,
    partition_for_key,
)

ROOT = Path(__file__).parents[1]

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


def config(turn: int, **more: bool) -> PartitionerConfig:
    return PartitionerConfig(sticky_batch_size=turn, **more)  # type: ignore[arg-type]


sizes = st.lists(st.integers(0, 5_000), max_size=200)


@given(st.integers(1, 12), st.integers(1, 3_000), sizes, st.integers(0, 2**32))
def test_no_two_partitions_differ_by_a_turn_and_a_record(
    n: int, turn: int, sizes: list[int], seed: int
) -> None:
    partitioner = UniformStickyPartitioner(n, config(turn), seed=seed)
    bytes_of = [0] * n
    for size in sizes:
        bytes_of[partitioner.partition(None, size)] += size
        assert max(bytes_of) - min(bytes_of) < turn + max([1, *sizes])


@given(st.integers(1, 12), st.integers(1, 3_000), sizes, st.integers(0, 5), st.data())
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


def bytes_of(partitioner: UniformStickyPartitioner, sizes: list[int]) -> list[int]:
    """Send records one by one; return what each partition got, in bytes."""
    out = [0] * partitioner.partitions
    for size in sizes:
        out[partitioner.partition(None, size)] += size
    return out


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
    for kind, what in events:
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
            now = named or set(range(n))
        else:
            assert isinstance(what, int)
            now = (
                {*(led if len(led) < n else ()), *range(n, n + what)}
                if len(led) < n
                else set(range(n + what))
            )
            n += what
            got += [0] * (n - len(got))
            for one in (partitioner, whole):
                one.update_partitions(n)
                one.update_leaders(now)
        for a, b in combinations(range(n), 2):
            if not {a, b} <= now or not {a, b} <= led or (a, b) not in since:
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


# ------------------------------------------------------------------------------------------------- many topics


def test_each_topic_is_partitioned_as_by_a_partitioner_of_its_own() -> None:
    counts = {"a": 3, "b": 5, "c": 2}
    found = []
    for order in (["a", "b", "c"], ["c", "a", "b"]):
        both = TopicPartitioner(counts, config(100), seed=7)
        sent: dict[str, list[int]] = {t: [] for t in counts}
        for k in range(90):
            for topic in order:
                sent[topic].append(both.partition(topic, None, 30 + k))
        found.append(sent)
        rest = {t: both.assign(t, [40] * 50, [b"x", *[None] * 49]).tolist() for t in order}
        assert all(rest[t][0] == partition_for_key(b"x", counts[t]) for t in order)
    assert found[0] == found[1]
    assert found[0]["a"] != [p % 3 for p in found[0]["b"]]
    other = TopicPartitioner(counts, config(100), seed=8)
    assert [other.partition("b", None, 30 + k) for k in range(90)] != found[0]["b"]


@pytest.mark.parametrize("asked", [False, True])
def test_many_threads_lose_no_record_and_leave_every_topic_uniform(asked: bool) -> None:
    counts = {"a": 3, "b": 7}
    partitioner = TopicPartitioner(counts.__getitem__ if asked else counts, config(100), seed=2)
    threads, each, largest = 6, 1_500, 90
    start = threading.Barrier(threads)
    sent: list[list[tuple[str, int, int]]] = [[] for _ in range(threads)]
    failed: list[BaseException] = []

    def work(own: int) -> None:
        start.wait()
        try:
            for k in range(each):
                topic, size = "ab"[(k + own) % 2], 1 + (k * 7 + own) % largest
                if k % 50:
                    sent[own].append((topic, partitioner.partition(topic, None, size), size))
                else:
                    for p in partitioner.assign(topic, [size] * 3).tolist():
                        sent[own].append((topic, p, size))
        except BaseException as error:
            failed.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=work, args=(own,)) for own in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(before)
    assert not failed
    records = [record for mine in sent for record in mine]
    assert len(records) == threads * (each + 2 * (each // 50))
    for topic, n in counts.items():
        got = np.bincount(
            [p for t, p, _ in records if t == topic],
            weights=[size for t, _, size in records if t == topic],
            minlength=n,
        )
        assert got.max() - got.min() < 100 + largest


def test_threads_wait_for_each_other_within_a_topic_only() -> None:
    inside, go_on, behind, done = (threading.Event() for _ in range(4))
    asked: list[str] = []

    def partitions(topic: str) -> int:
        asked.append(topic)
        if asked.count("slow") == 1 and topic == "slow":
            inside.set()
            assert go_on.wait(60)
        return 2

    partitioner = TopicPartitioner(partitions)

    def second() -> None:
        behind.set()
        partitioner.partition("slow", None, 1)
        done.set()

    first = threading.Thread(target=partitioner.partition, args=("slow", None, 1))
    first.start()
    assert inside.wait(60)
    other = threading.Thread(target=second)
    other.start()
    assert behind.wait(60)
    assert partitioner.partition("quick", None, 1) in (0, 1)  # not held up by the slow one
    assert asked == ["slow", "quick"] and not done.is_set()
    go_on.set()
    first.join()
    other.join()
    assert done.is_set() and asked == ["slow", "quick", "slow"]


def test_counts_grow_by_word_or_by_asking_and_topics_can_begin_anew() -> None:
    told = TopicPartitioner({"a": 1}, config(1))
    told.partition("a", None, 1)
    told.update_partitions("a", 3)
    told.update_partitions("b", 2)
    assert set(told.assign("a", [1] * 9).tolist()) == {0, 1, 2}
    assert set(told.assign("b", [1] * 4).tolist()) == {0, 1}
    with pytest.raises(InputError, match=r"partitions.a: found 2, expected at least 3, as before"):
        told.update_partitions("a", 2)
    told.forget("a")
    with pytest.raises(InputError, match="topic: found 'a', expected one of 1 topics"):
        told.partition("a", None, 1)
    told.update_partitions("a", 2)
    assert set(told.assign("a", [1] * 9).tolist()) == {0, 1}

    now = {"a": 2}
    asked = TopicPartitioner(lambda topic: now[topic], config(1))
    asked.partition("a", None, 1)
    now["a"] = 4
    assert set(asked.assign("a", [1] * 12).tolist()) == {0, 1, 2, 3}
    asked.update_leaders("a", [3])
    assert set(asked.assign("a", [1] * 12).tolist()) == {3}
    now["a"] = 3
    with pytest.raises(InputError, match=r"partitions.a: found 3, expected at least 4"):
        asked.partition("a", None, 1)
    asked.forget("a")
    assert set(asked.assign("a", [1] * 12).tolist()) == {0, 1, 2}
    with pytest.raises(InputError, match="the function is asked"):
        asked.update_partitions("a", 9)


def test_load_of_one_topic_changes_nothing_for_another() -> None:
    told, untold = (TopicPartitioner({"a": 3, "b": 3}, config(1, adaptive=True), seed=4) for _ in "ab")
    told.update_load("a", {0: 50, 1: 0, 2: 0})
    told.on_new_batch("b", 0)
    assert told.assign("b", [1] * 99).tolist() == untold.assign("b", [1] * 99).tolist()
    assert np.bincount(told.assign("a", [1] * 500), minlength=3)[0] < 50


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: UniformStickyPartitioner(0), "partitions: found 0"),
        (lambda: UniformStickyPartitioner(2).partition(None, -1), "size: found -1"),
        (lambda: UniformStickyPartitioner(2).assign([1, -1]), "sizes[1]: found -1"),
        (lambda: UniformStickyPartitioner(2).assign([1], [None, None]), "keys: found '2 keys'"),
        (lambda: UniformStickyPartitioner(2).update_load({2: 0}), "queues: found {2: 0}"),
        (lambda: UniformStickyPartitioner(2).update_leaders([0, 2]), "available: found 2"),
        (lambda: UniformStickyPartitioner(2).update_leaders([True]), "available: found True"),
        (lambda: UniformStickyPartitioner(2).update_leaders(1), "available: found 1"),  # type: ignore[arg-type]
        (lambda: UniformStickyPartitioner(2).update_leaders("01"), "available: found '01'"),  # type: ignore[arg-type]
        (lambda: TopicPartitioner({"a": 0}), "partitions.a: found 0"),
        (lambda: TopicPartitioner(3), "partitions: found 3"),  # type: ignore[arg-type]
        (lambda: TopicPartitioner({"a": 1}, seed=-1), "seed: found -1"),
        (lambda: TopicPartitioner({"flights": 1}).partition("flihgts", None, 1), "did you mean 'flights'"),
        (lambda: TopicPartitioner(lambda t: 0).partition("a", None, 1), "partitions.a: found 0"),
        (lambda: TopicPartitioner(lambda t: 1).partition("", None, 1), "topic: found ''"),
        (lambda: PartitionerConfig(batch_size=-1), "batch.size: found -1"),
        (lambda: PartitionerConfig(ignore_keys=1), "partitioner.ignore.keys: found 1"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_named(wrong: object, message: str) -> None:
    with pytest.raises((InputError, ConfigError), match=re.escape(message)):
        wrong()  # type: ignore[operator]


# -------------------------------------------------------------------------------------------- the text's argument


@pytest.fixture(scope="module")
def plot() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plot_partitioner", ROOT / "benchmarks/plot_partitioner.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", range(3))
def test_the_old_one_favours_the_slow_broker_and_ours_does_not(plot: ModuleType, seed: int) -> None:
    print(f"seed {seed}")
    old, ours = (plot.run(name, slow=0.1, seconds=3, seed=seed) for name in plot.NAMES[:2])
    assert plot.slow_share(old) > 2
    difference = max(ours.records.values()) - min(ours.records.values())
    assert difference * plot.RECORD < plot.BATCH + plot.RECORD
    assert ours.most_waiting < old.most_waiting


def test_ours_begins_to_batch_after_five_records(plot: ModuleType) -> None:
    begin = {
        name: plot.run(name, slow=10, fast=10, seconds=0.05).first_wait
        for name in (*plot.NAMES, plot.ROTATING)
    }
    # Five in flight, and the next one waits: for one partition, or for each of the thirty.
    assert begin["uniform"] == plot.IN_FLIGHT + 1
    assert begin[plot.ROTATING] == plot.IN_FLIGHT * plot.PARTITIONS + 1
    assert begin["sticky (KIP-480)"] > 4 * plot.IN_FLIGHT


def test_a_slow_broker_gets_the_same_in_larger_batches(plot: ModuleType) -> None:
    ours = plot.run("uniform", slow=0.1, seconds=3)
    equal = plot.run("uniform", slow=0.005, seconds=3)
    per_batch = [one.sent[plot.SLOW] / one.batches[plot.SLOW] for one in (ours, equal)]
    assert per_batch[0] > 2 * per_batch[1]
    assert ours.records == equal.records


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_the_seed_alone_decides(seed: int) -> None:
    a, b = (UniformStickyPartitioner(7, config(50), seed=seed).assign([20] * 300) for _ in "ab")
    assert (a == b).all()


def test_the_picture_and_the_table_of_the_page_are_what_the_simulation_says(plot: ModuleType) -> None:
    page = (ROOT / "docs/partitioner.md").read_text(encoding="utf-8")
    assert " | ".join(plot.HEADER) in page
    titles = re.findall(r"slow / others = ([\d.]+)", plot.PICTURE.read_text(encoding="utf-8"))
    in_table = re.findall(r"^\| (?:sticky \(KIP-480\)|uniform|adaptive) \| ([\d.]+) \|", page, re.M)
    ours = f"{plot.slow_share(plot.run('uniform', slow=0.1)):.2f}"
    assert titles == in_table and titles[1] == ours


def test_the_examples_of_the_page_run() -> None:
    found = doctest.testfile(str(ROOT / "docs/partitioner.md"), module_relative=False)
    assert found.attempted >= 5
    assert found.failed == 0


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
    with pytest.raises(
        InputError, match=r"^size: found .*, expected a whole number of bytes, 0 to 1125899906842624"
    ):
        p.partition(None, size)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^sizes\[1\]: found .*, expected a whole number of bytes"):
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
