"""The partitioner of many topics: each as by one of its own, from many threads."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from taskplace.errors import InputError
from taskplace.groups.partitioner import TopicPartitioner, partition_for_key
from tests.support.records import config


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
    with pytest.raises(InputError, match=r"partitions.a: found 2, expected at least 3, the number so far"):
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
    with pytest.raises(InputError, match="the function returns it"):
        asked.update_partitions("a", 9)


def test_load_of_one_topic_changes_nothing_for_another() -> None:
    told, untold = (TopicPartitioner({"a": 3, "b": 3}, config(1, adaptive=True), seed=4) for _ in "ab")
    told.update_load("a", {0: 50, 1: 0, 2: 0})
    told.on_new_batch("b", 0)
    assert told.assign("b", [1] * 99).tolist() == untold.assign("b", [1] * 99).tolist()
    assert np.bincount(told.assign("a", [1] * 500), minlength=3)[0] < 50
