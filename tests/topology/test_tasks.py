"""From subtopologies to tasks, and tasks without a topology."""

from __future__ import annotations

import contextlib
import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import TaskId, TopicPartition, Topology, TopologyError, TopologyNotReady, built, group_topics
from topology.tasks import group_partitions, without_collector


def test_tasks_follow_the_largest_count_and_list_what_they_own():
    topo = Topology("t")
    a, b = topo.source("a", partitions=11), topo.source("b", partitions=1)
    topo.store("kept")
    topo.store("scratch", logged=False)
    a.merge(b).process(name="p", stores=["kept", "scratch"])
    topo.source("c", partitions=1).process(stores=[{"name": "unlogged", "logged": False}])
    topo.source("d", partitions=1)
    tasks = topo.build().tasks()
    assert [t.id for t in tasks] == [*(TaskId(0, p) for p in range(11)), TaskId(1, 0), TaskId(2, 0)]
    assert tasks[0].topic_partitions == (TopicPartition("a", 0), TopicPartition("b", 0))
    assert tasks[10].topic_partitions == (TopicPartition("a", 10),)
    assert tasks[10].changelog_partitions == (TopicPartition("kept-changelog", 10),)
    assert [(t.stateful, t.changelog_partitions) for t in tasks[11:]] == [(True, ()), (False, ())]
    wide = group_partitions(1, [("b", 2), ("a", 5)], ["s-changelog"], stateful=True)
    assert [len(task.topic_partitions) for task in wide] == [2, 2, 1, 1, 1]
    assert group_partitions(1, [], stateful=False) == ()


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("ready", [True, False])
def test_the_garbage_collector_is_left_as_it_was(on, ready):
    topo = Topology("t")
    topo.source("a", partitions=3 if ready else None)
    whole, before = topo.build(), gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        with contextlib.suppress(TopologyNotReady):
            assert len(whole.tasks()) == 3
        with pytest.raises(RuntimeError), without_collector():
            assert not gc.isenabled()
            raise RuntimeError
        assert gc.isenabled() == on
    finally:
        (gc.enable if before else gc.disable)()


def test_a_topology_has_as_many_tasks_as_allowed(monkeypatch):
    monkeypatch.setattr(built, "MOST_PARTITIONS", 5)
    topo = Topology("t")
    topo.source("a", partitions=2)
    topo.source("b", partitions=3)
    assert len(topo.build().tasks()) == 5
    topo.source("c", partitions=1)
    with pytest.raises(TopologyError, match="found 6 tasks in 3 subtopologies, expected at most 5"):
        topo.build().tasks()


counts = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=3), st.integers(1, 12), min_size=1, max_size=20
)


@settings(deadline=None)
@given(counts, st.data())
def test_equal_counts_always_meet_and_every_partition_has_one_task(found, data):
    drawn = data.draw(st.sets(st.sampled_from(sorted(found))))
    read = {count for topic, count in found.items() if topic not in drawn}
    logs = {topic for topic in drawn if found[topic] in read}
    if logs != drawn:
        with pytest.raises(TopologyError, match="but no input topic has that number"):
            group_topics(found, drawn)
    tasks = [task for group in group_topics(found, logs) for task in group.tasks()]
    owner = {tp: task.id for task in tasks for tp in (*task.topic_partitions, *task.changelog_partitions)}
    assert owner.keys() == {(topic, p) for topic, count in found.items() for p in range(count)}
    assert sum(len(t.topic_partitions) + len(t.changelog_partitions) for t in tasks) == len(owner)
    for (topic, partition), task in owner.items():
        assert task == TaskId(found[topic], partition)
    assert len({task.id for task in tasks}) == len(tasks)
    assert all(task.stateful == bool(task.changelog_partitions) for task in tasks)


@settings(deadline=None)
@given(counts, st.text("ijk", min_size=1, max_size=2), st.integers(1, 12), st.randoms(use_true_random=False))
def test_a_topic_that_joins_at_run_time_renumbers_nothing(found, topic, count, random):
    before = {tp: t.id for g in group_topics(found) for t in g.tasks() for tp in t.topic_partitions}
    items = [*found.items(), (topic, count)]
    random.shuffle(items)
    after = {tp: t.id for g in group_topics(dict(items)) for t in g.tasks() for tp in t.topic_partitions}
    assert before.items() <= after.items()


@pytest.mark.parametrize(
    ("topics", "changelogs", "says"),
    [
        ({"a": 0}, (), "topic 'a': found 0, expected a whole number >= 1"),
        ({"a": 10**10}, (), "found 10000000000, expected at most 1000000"),
        ({"totals": 2}, ["totls"], r"changelogs: unknown topic 'totls'; did you mean 'totals'\?"),
        (["a"], (), r"topics: found \['a'\], expected a mapping of topics to counts"),
        ({"a": 1}, None, "changelogs: found nothing, expected a list of topics"),
        ({"a": 1}, [3], "changelogs: found 3, expected a name"),
        ({3: 1}, (), "topic: found 3, expected a name"),
        ({"a": 4, "log": 6}, ["log"], "'log' has 6 partitions, but no input topic has that number; theirs: 4"),
    ],
)  # fmt: skip
def test_topics_that_are_refused(topics, changelogs, says):
    with pytest.raises(TopologyError, match=says):
        group_topics(topics, changelogs)


def test_one_changelog_may_be_plain_text():
    [group] = group_topics({"totals": 2, "t": 2}, changelogs="totals")
    assert (group.topics, group.changelogs) == (("t",), ("totals",))
