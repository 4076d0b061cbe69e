"""From subtopologies to tasks, and tasks without a topology."""

from __future__ import annotations

import contextlib
import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import TaskId, TopicPartition, Topology, TopologyError, TopologyNotReady, group_topics
from topology.tasks import group_partitions, without_collector


def test_tasks_follow_the_largest_count_and_list_what_they_own() -> None:
    topo = Topology("t")
    a, b = topo.source("a", partitions=3), topo.source("b", partitions=1)
    topo.store("kept")
    topo.store("scratch", logged=False)
    a.merge(b).process(name="p", stores=["kept", "scratch"])
    first, *_, last = topo.build().tasks()
    assert first.id == TaskId(0, 0)
    assert first.topic_partitions == (TopicPartition("a", 0), TopicPartition("b", 0))
    assert first.changelog_partitions == (TopicPartition("kept-changelog", 0),)
    assert first.stateful
    assert last.id == TaskId(0, 2)
    assert last.topic_partitions == (TopicPartition("a", 2),)
    assert last.changelog_partitions == (TopicPartition("kept-changelog", 2),)


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("ready", [True, False])
def test_the_garbage_collector_is_left_as_it_was(on: bool, ready: bool) -> None:
    topo = Topology("t")
    topo.source("a", partitions=3 if ready else None)
    built, before = topo.build(), gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        with contextlib.suppress(TopologyNotReady):
            assert len(built.tasks()) == 3
        with pytest.raises(RuntimeError), without_collector():
            assert not gc.isenabled()
            raise RuntimeError
        assert gc.isenabled() == on
    finally:
        (gc.enable if before else gc.disable)()


def test_a_store_without_changelog_still_makes_state() -> None:
    topo = Topology("t")
    topo.source("a", partitions=1).process(name="p", stores=[{"name": "scratch", "logged": False}])
    topo.source("b", partitions=1).process(name="q")
    tasks = topo.build().tasks()
    assert [(t.stateful, t.changelog_partitions) for t in tasks] == [(True, ()), (False, ())]


def test_tasks_come_sorted_by_id_not_by_running_order() -> None:
    topo = Topology("t")
    planes = topo.source("planes", key="k", partitions=11)
    topo.source("flights", partitions=2).repartition("k").join_table(planes)
    built = topo.build()
    assert built.order == (1, 0)
    assert [t.id for t in built.tasks()] == [TaskId(0, p) for p in range(11)] + [
        TaskId(1, p) for p in range(2)
    ]


counts = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=3), st.integers(1, 12), min_size=1, max_size=20
)


@settings(deadline=None)
@given(counts, st.data())
def test_equal_counts_always_meet_and_every_partition_has_one_task(
    found: dict[str, int], data: st.DataObject
) -> None:
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
def test_a_topic_that_joins_at_run_time_renumbers_nothing(
    found: dict[str, int], topic: str, count: int, random: object
) -> None:
    before = {tp: t.id for g in group_topics(found) for t in g.tasks() for tp in t.topic_partitions}
    items = [*found.items(), (topic, count)]
    random.shuffle(items)  # type: ignore[attr-defined]
    after = {tp: t.id for g in group_topics(dict(items)) for t in g.tasks() for tp in t.topic_partitions}
    assert before.items() <= after.items()


def test_bad_topics_are_named() -> None:
    with pytest.raises(TopologyError, match="topic 'a': found 0, expected a whole number >= 1"):
        group_topics({"a": 0})
    with pytest.raises(TopologyError, match=r"changelogs: unknown topic 'totls'; did you mean 'totals'\?"):
        group_topics({"totals": 2}, changelogs=["totls"])


def test_a_changelog_that_no_tasks_could_own_is_refused() -> None:
    with pytest.raises(TopologyError) as caught:
        group_topics({"orders": 4, "totals-changelog": 6}, changelogs=["totals-changelog"])
    assert caught.value.node == "totals-changelog"
    assert str(caught.value) == (
        "changelogs: 'totals-changelog' has 6 partitions, but no input topic has that number; theirs: 4"
    )


def test_one_changelog_may_be_plain_text() -> None:
    [group] = group_topics({"totals": 2, "t": 2}, changelogs="totals")
    assert (group.topics, group.changelogs) == (("t",), ("totals",))


@pytest.mark.parametrize(
    ("topics", "changelogs", "message"),
    [
        (["a"], (), r"topics: found \['a'\], expected a mapping of topics to counts"),
        ({"a": 1}, None, "changelogs: found nothing, expected a list of topics"),
        ({"a": 1}, 3, "changelogs: found 3, expected a list of topics"),
        ({"a": 1}, [3], "changelogs: found 3, expected a name"),
        ({3: 1}, (), "topic: found 3, expected a name"),
    ],
)
def test_topics_are_a_mapping_and_changelogs_a_list(topics: Any, changelogs: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        group_topics(topics, changelogs)


def test_the_largest_topic_has_the_most_tasks() -> None:
    wide = group_partitions(1, [("b", 2), ("a", 5)], ["s-changelog"], stateful=True)
    assert [len(task.topic_partitions) for task in wide] == [2, 2, 1, 1, 1]
    assert [task.changelog_partitions[0].partition for task in wide] == list(range(5))
    assert group_partitions(1, [], stateful=False) == ()


def test_a_count_that_nobody_could_list_is_one_error_at_once() -> None:
    most = 1_000_000
    for count, said in ((10**10, "found 10000000000"), (10**400, "found a number of 1329 bits")):
        for describe in (
            lambda count=count: Topology("t").source("a", partitions=count),
            lambda count=count: Topology("t").source("a").repartition("k", name="r", partitions=count),
            lambda count=count: Topology.from_dict(
                {"name": "t", "sources": {"a": {"partitions": count}}}, {}
            ),
            lambda count=count: group_topics({"a": count}),
        ):
            with pytest.raises(TopologyError, match=rf"{said}, expected at most {most}$"):
                describe()
    topo = Topology("t")
    topo.source("a")
    with pytest.raises(TopologyError, match="found 1000001, expected at most"):
        topo.build().with_partitions({"a": most + 1})


def test_tasks_that_are_too_many_together_are_one_error_at_once() -> None:
    topo = Topology("t")
    for name in ("a", "b", "c"):
        topo.source(name, partitions=400_000)
    with pytest.raises(
        TopologyError, match=r"'t': found 1200000 tasks in 3 subtopologies, expected at most 1000000"
    ):
        topo.build().tasks()


def test_how_long_state_is_kept_is_no_count() -> None:
    assert Topology("t").store("s", retention_ms=10**10).retention_ms == 10**10
