"""Partition counts: co-partition groups, counts of repartitions, and metadata that changes."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topology import BuiltTopology, Topology, TopologyError, TopologyNotReady, compare

STORE = [{"name": "s"}]


def kinds(built: BuiltTopology) -> list[str]:
    return [reason.kind for reason in built.readiness().reasons]


def test_merges_several_inputs_and_self_joins_group_nothing():
    topo = Topology("t")
    a, b = topo.source("a", key="k", partitions=3), topo.source("b", key="k", partitions=7)
    a.merge(b, name="m")
    topo.process("P", inputs=[a, b], name="both")
    a.join_stream(a, name="pairs")
    built = topo.build()
    assert (built.copartition_groups, built.subtopologies[0].partitions) == ((), 7)
    assert (built.node("m").key, built.node("pairs").parents) == (("k",), ("a", "a"))


# -- metadata
def stateful(partitions: int | None = None) -> BuiltTopology:
    topo = Topology("t")
    topo.source("flights", key="k", partitions=partitions).process(name="stats", stores=[{"name": "delays"}])
    return topo.build()


def test_a_missing_source_is_a_state_until_metadata_comes():
    built = stateful()
    assert [(r.kind, r.topics) for r in built.readiness().reasons] == [("missing", ("flights",))]
    assert (built.subtopologies[0].partitions, built.node("flights").partitions) == (0, None)
    with pytest.raises(TopologyNotReady, match="topology 't' is not ready: topic 'flights': missing"):
        built.tasks()
    ready = built.with_partitions({"flights": 3})
    assert ready.readiness() and ready.readiness().reason == ""
    assert (ready.node("flights").partitions, len(ready.tasks())) == (3, 3)
    assert not built.readiness(), "the old object stays as it was"
    gone = ready.with_partitions({"flights": None})
    assert kinds(gone) == ["missing"]
    assert gone.with_partitions({"flights": 3}).tasks() == ready.tasks()
    assert kinds(gone.with_partitions({"flights": 4})) == ["changed"], "the store's count is remembered"


def test_a_count_that_changes_under_a_store_is_refused_as_a_state():
    built = stateful(12).with_partitions({"flights": 16})
    assert built.readiness().reason == (
        "topic 'flights': 12 -> 16 partitions, but the keys of store 'delays' are split into 12 partitions; "
        "go back to 12, or start a new checkpoint"
    )
    assert built.with_partitions({"flights": 12}).readiness()
    topo = Topology("t")
    topo.source("a", partitions=3).process(name="p")
    assert len(topo.build().with_partitions({"a": 5}).tasks()) == 5, "without a store it may change"


def test_what_hangs_on_an_unknown_count_is_unknown():
    topo = Topology("t")
    topo.source("a").repartition("k", name="r").repartition("l", name="q", partitions=2).process()
    built = topo.build()
    assert built.partitions == {"a": None, "r-repartition": None, "q-repartition": 2}
    assert kinds(built) == ["missing"]
    assert [sub.partitions for sub in built.subtopologies] == [0, 0, 2]


def joined() -> BuiltTopology:
    topo = Topology("t")
    topo.source("a", key="k").join_table(topo.source("b", key="k"), name="j", stores=STORE)
    return topo.build()


def test_only_counts_with_which_it_could_run_are_something_to_go_back_to():
    half = joined().with_partitions({"a": 3})
    assert kinds(half) == ["missing"]
    mixed = half.with_partitions({"b": 4})
    assert kinds(mixed) == ["unequal"] and "found a=3, b=4" in mixed.readiness().reason
    whole = mixed.with_partitions({"a": 4})
    assert whole.readiness() and half.with_partitions({"a": 4, "b": 4}).readiness()
    assert kinds(whole.with_partitions({"a": 5, "b": 5})) == ["changed", "changed"]
    # What ran once is held, also over a time in which it could not run.
    away = whole.with_partitions({"a": None}).with_partitions({"a": 3, "b": 3})
    assert [r.topics for r in away.readiness().reasons] == [("a",), ("b",)]
    assert away.with_partitions({"a": 4, "b": 4}).readiness()


def test_counts_cannot_be_written_to():
    built = stateful(3)
    for copied in (built, pickle.loads(pickle.dumps(built)), copy.deepcopy(built)):  # noqa: S301 - made here
        assert copied.partitions == {"flights": 3}
        assert kinds(copied.with_partitions({"flights": 4})) == ["changed"]
        with pytest.raises(TypeError):
            copied.partitions["flights"] = 99


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ({"flight": 3}, r"with_partitions\['flight'\]: unknown topic; did you mean 'flights'\?"),
        ({"s-changelog": 3}, r"with_partitions\['s-changelog'\]: unknown topic"),
        ({"flights": 0}, r"with_partitions\['flights'\]: found 0, expected a whole number >= 1"),
        ({"flights": True}, "found true"),
        ({"flights": 2.0}, "found 2.0"),
        ({"flights": 1_000_001}, "found 1000001, expected at most"),
        (["a"], r"with_partitions: found .*, expected a mapping of topics to counts"),
    ],
)  # fmt: skip
def test_metadata_itself_has_to_make_sense(counts, says):
    with pytest.raises(TopologyError, match=says):
        stateful().with_partitions(counts)


# -- counts under stores: judged as `compare` judges them, with remedies that work
def beside(b: int) -> BuiltTopology:
    """A store that reads `a` alone; `b` is merged in behind it."""
    topo = Topology("t")
    kept = topo.source("a", key="k", partitions=4).process(name="p", stores=STORE)
    kept.merge(topo.source("b", key="k", partitions=b), name="m")
    return topo.build()


def test_a_topic_that_changes_the_tasks_of_a_store_may_not_change():
    assert beside(4).with_partitions({"b": 2}).readiness()
    [reason] = beside(4).with_partitions({"b": 6}).readiness().reasons
    assert str(reason) == (
        "topic 'b': 4 -> 6 partitions: store 's' would be split over 6 tasks instead of 4; go back to 4, or start "
        "a new checkpoint"
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_metadata_is_judged_as_a_new_description_is(data):
    streams = data.draw(st.integers(1, 4))
    mixed = [data.draw(st.sets(st.integers(0, streams - 1), min_size=1)) for _ in range(3)]
    users = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True))

    def built(sizes):
        topo = Topology("t")
        found = [topo.source(f"t{i}", key="k", partitions=size) for i, size in enumerate(sizes)]
        for number, mix in enumerate(mixed):
            step = topo.process(inputs=[found[i] for i in sorted(mix)], name=f"p{number}")
            step.process(name=f"u{number}", stores=[{"name": f"s{number}"}] if number in users else [])
        return topo.build()

    counts = st.lists(st.integers(1, 4), min_size=streams, max_size=streams)
    before, after = data.draw(counts), data.draw(counts)
    later = built(before).with_partitions({f"t{i}": size for i, size in enumerate(after)})
    assert bool(later.readiness()) == compare(built(before), built(after)).compatible


def test_a_remedy_is_offered_only_if_its_group_takes_it():
    topo = Topology("t")
    again = topo.source("b", key="z", partitions=4).repartition("k", name="r")
    topo.source("a", key="k", partitions=6).join_table(again, name="j", stores=STORE)
    reasons = topo.build().with_partitions({"a": 8}).readiness().reasons
    assert {r.topics for r in reasons} == {("a",), ("r-repartition",)}
    assert not any("on its repartition" in str(reason) for reason in reasons)
    topo = Topology("t")
    one = topo.source("a", partitions=3).repartition("k", name="r")
    one.join_table(topo.source("b", partitions=2).repartition("k", name="q"), name="j", stores=STORE)
    reasons = topo.build().with_partitions({"a": 5}).readiness().reasons
    assert len(reasons) == 2
    assert all("set partitions=3 on its repartition to keep it" in str(reason) for reason in reasons)
    topo = Topology("t")
    topo.source("a", partitions=3).repartition("k", name="r", partitions=3).process(name="p", stores=STORE)
    assert topo.build().with_partitions({"a": 5}).readiness(), "a declared count holds"
