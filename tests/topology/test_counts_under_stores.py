"""Metadata that changes under stores: judged as `compare` judges it, with remedies that work."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import BuiltTopology, Topology, TopologyError, compare


def beside(b: int) -> BuiltTopology:
    """A store that reads `a` alone; `b` is merged in behind it."""
    topo = Topology("t")
    kept = topo.source("a", key="k", partitions=4).process(name="p", stores=[{"name": "s"}])
    kept.merge(topo.source("b", key="k", partitions=b), name="m")
    return topo.build()


def test_a_topic_that_no_store_reads_may_change() -> None:
    assert beside(4).with_partitions({"b": 2}).readiness()
    assert compare(beside(4), beside(2)).compatible


def test_a_topic_that_changes_the_tasks_of_a_store_may_not() -> None:
    [reason] = beside(4).with_partitions({"b": 6}).readiness().reasons
    assert (reason.kind, reason.topics) == ("changed", ("b",))
    assert str(reason) == (
        "topic 'b': 4 -> 6 partitions: store 's' would be split over 6 tasks instead of 4; go back to 4, or start "
        "a new checkpoint"
    )
    assert not compare(beside(4), beside(6)).compatible


counts = st.integers(1, 4)


@settings(deadline=None)
@given(st.data())
def test_metadata_is_judged_as_a_new_description_is(data: st.DataObject) -> None:
    streams = data.draw(st.integers(1, 4))
    mixed = [data.draw(st.sets(st.integers(0, streams - 1), min_size=1)) for _ in range(3)]
    users = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True))

    def built(sizes: list[int]) -> BuiltTopology:
        topo = Topology("t")
        found = [topo.source(f"t{i}", key="k", partitions=size) for i, size in enumerate(sizes)]
        for number, mix in enumerate(mixed):
            step = topo.process(inputs=[found[i] for i in sorted(mix)], name=f"p{number}")
            step.process(name=f"u{number}", stores=[{"name": f"s{number}"}] if number in users else [])
        return topo.build()

    before, after = (data.draw(st.lists(counts, min_size=streams, max_size=streams)) for _ in range(2))
    later = built(before).with_partitions({f"t{i}": size for i, size in enumerate(after)})
    assert bool(later.readiness()) == compare(built(before), built(after)).compatible


def grouped(a: int, declared: int | None = None) -> BuiltTopology:
    topo = Topology("t")
    again = topo.source("b", key="z", partitions=4).repartition("k", name="r", partitions=declared)
    topo.source("a", key="k", partitions=a).join_table(again, name="j", stores=[{"name": "s"}])
    return topo.build()


def test_no_remedy_is_offered_that_its_group_would_refuse() -> None:
    reasons = grouped(6).with_partitions({"a": 8}).readiness().reasons
    assert [r.topics for r in reasons] == [("a",), ("r-repartition",)] or [r.topics for r in reasons] == [
        ("r-repartition",),
        ("a",),
    ]
    assert not any("on its repartition" in str(reason) for reason in reasons)
    with pytest.raises(TopologyError, match="equal partition counts"):
        grouped(8, declared=6)


def test_repartitions_among_themselves_can_be_given_a_count() -> None:
    topo = Topology("t")
    one = topo.source("a", partitions=3).repartition("k", name="r")
    one.join_table(
        topo.source("b", partitions=2).repartition("k", name="q"), name="j", stores=[{"name": "s"}]
    )
    reasons = topo.build().with_partitions({"a": 5}).readiness().reasons
    assert all("set partitions=3 on its repartition to keep it" in str(reason) for reason in reasons)
    assert len(reasons) == 2


def test_external_topics_that_differ_are_not_mended_by_a_repartition() -> None:
    topo = Topology("t")
    one, two = topo.source("a", key="k", partitions=3), topo.source("b", key="k", partitions=4)
    again = topo.source("c", key="z", partitions=2).repartition("k", name="r")
    again.join_table(one)
    again.join_table(two)
    with pytest.raises(TopologyError, match="create the topics with equal counts"):
        topo.build()
