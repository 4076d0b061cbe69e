"""Partition counts that come later, change, or go away: states with a reason."""

from __future__ import annotations

import copy
import pickle

import pytest

from topology import BuiltTopology, Topology, TopologyError, TopologyNotReady


def stateful(partitions: int | None = None) -> BuiltTopology:
    topo = Topology("t")
    flights = topo.source("flights", key="k", partitions=partitions)
    flights.process(name="stats", stores=[{"name": "delays"}])
    return topo.build()


def test_a_missing_source_is_a_state_until_metadata_comes() -> None:
    built = stateful()
    assert not built.readiness()
    assert [(r.kind, r.topics) for r in built.readiness().reasons] == [("missing", ("flights",))]
    assert built.subtopologies[0].partitions == 0
    assert built.node("flights").partitions is None
    with pytest.raises(TopologyNotReady, match="topology 't' is not ready: topic 'flights': missing"):
        built.tasks()
    ready = built.with_partitions({"flights": 3})
    assert ready.readiness().ready
    assert ready.readiness().reason == ""
    assert ready.node("flights").partitions == 3
    assert len(ready.tasks()) == 3
    assert not built.readiness(), "the old object stays as it was"


def test_a_source_that_goes_away_is_missing_and_may_come_back() -> None:
    built = stateful(3)
    gone = built.with_partitions({"flights": None})
    assert [r.kind for r in gone.readiness().reasons] == ["missing"]
    back = gone.with_partitions({"flights": 3})
    assert back.readiness()
    assert back.tasks() == built.tasks()
    other = gone.with_partitions({"flights": 4})
    assert [r.kind for r in other.readiness().reasons] == ["changed"], (
        "the count under the store is remembered"
    )


def test_a_count_that_changes_under_a_store_is_refused_as_a_state() -> None:
    built = stateful(12).with_partitions({"flights": 16})
    assert built.readiness().reason == (
        "topic 'flights': 12 -> 16 partitions, but the keys of store 'delays' are split into 12 partitions; "
        "go back to 12, or start a new checkpoint"
    )
    assert [r.kind for r in built.with_partitions({"flights": 17}).readiness().reasons] == ["changed"]
    assert built.with_partitions({"flights": 12}).readiness()


def test_a_count_without_a_store_may_change() -> None:
    topo = Topology("t")
    topo.source("a", partitions=3).process(name="p")
    built = topo.build().with_partitions({"a": 5})
    assert built.readiness()
    assert len(built.tasks()) == 5


def test_a_count_upstream_reaches_a_store_behind_an_open_repartition() -> None:
    topo = Topology("t")
    by_k = topo.source("a", partitions=3).repartition("k", name="r")
    by_k.process(name="p", stores=[{"name": "s", "logged": False}])
    [reason] = topo.build().with_partitions({"a": 5}).readiness().reasons
    assert (reason.kind, reason.topics) == ("changed", ("r-repartition",))
    assert "set partitions=3 on its repartition to keep it" in str(reason)

    held = Topology("t")
    by_k = held.source("a", partitions=3).repartition("k", name="r", partitions=3)
    by_k.process(name="p", stores=[{"name": "s"}])
    assert held.build().with_partitions({"a": 5}).readiness(), "a declared count holds"


def test_joined_topics_are_checked_again() -> None:
    topo = Topology("t")
    topo.source("a", key="k").join_table(topo.source("b", key="k"), name="j")
    built = topo.build()
    assert [r.topics for r in built.readiness().reasons] == [("a",), ("b",)]
    half = built.with_partitions({"a": 3})
    assert [r.kind for r in half.readiness().reasons] == ["missing"]
    unequal = half.with_partitions({"b": 4})
    assert [r.kind for r in unequal.readiness().reasons] == ["unequal"]
    assert "found a=3, b=4" in unequal.readiness().reason
    assert unequal.with_partitions({"b": 3}).readiness()


def test_what_hangs_on_an_unknown_count_is_unknown() -> None:
    topo = Topology("t")
    topo.source("a").repartition("k", name="r").repartition("l", name="q", partitions=2).process()
    built = topo.build()
    assert built.partitions == {"a": None, "r-repartition": None, "q-repartition": 2}
    assert len(built.readiness().reasons) == 1
    assert [sub.partitions for sub in built.subtopologies] == [0, 0, 2]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"flight": 3}, r"with_partitions\['flight'\]: unknown topic; did you mean 'flights'\?"),
        ({"s-changelog": 3}, r"with_partitions\['s-changelog'\]: unknown topic"),
        ({"flights": 0}, r"with_partitions\['flights'\]: found 0, expected a whole number >= 1"),
        ({"flights": True}, "found true"),
        ({"flights": 2.0}, "found 2.0"),
    ],
)
def test_metadata_itself_has_to_make_sense(counts: dict[str, int], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        stateful().with_partitions(counts)


def joined(store: bool = True) -> BuiltTopology:
    topo = Topology("t")
    stores = [{"name": "s"}] if store else []
    topo.source("a", key="k").join_table(topo.source("b", key="k"), name="j", stores=stores)
    return topo.build()


def test_counts_that_never_fitted_are_nothing_to_go_back_to() -> None:
    unequal = joined().with_partitions({"a": 3, "b": 4})
    assert [r.kind for r in unequal.readiness().reasons] == ["unequal"]
    fits = unequal.with_partitions({"a": 4})
    assert fits.readiness(), fits.readiness().reason
    assert [r.kind for r in fits.with_partitions({"a": 5, "b": 5}).readiness().reasons] == [
        "changed",
        "changed",
    ]


def test_counts_before_all_topics_are_there_are_nothing_to_go_back_to() -> None:
    half = joined().with_partitions({"a": 3})
    assert [r.kind for r in half.readiness().reasons] == ["missing"]
    whole = half.with_partitions({"a": 4, "b": 4})
    assert whole.readiness(), whole.readiness().reason
    assert whole.with_partitions({"a": 4}).readiness()
    # What ran once is held, also over a time in which it could not run.
    away = whole.with_partitions({"a": None}).with_partitions({"a": 3, "b": 3})
    assert [r.topics for r in away.readiness().reasons] == [("a",), ("b",)]
    assert away.with_partitions({"a": 4, "b": 4}).readiness()


def test_counts_cannot_be_written_to() -> None:
    built = stateful(3)
    with pytest.raises(TypeError, match="does not support item assignment"):
        built.partitions["flights"] = 99  # type: ignore[index]
    for copied in (pickle.loads(pickle.dumps(built)), copy.deepcopy(built)):  # noqa: S301 - made in this line
        assert copied.partitions == built.partitions == {"flights": 3}
        assert copied.with_partitions({"flights": 4}).readiness().reasons[0].kind == "changed"
        with pytest.raises(TypeError):
            copied.partitions["flights"] = 99


@pytest.mark.parametrize("counts", [["a"], None, "a", 3])
def test_metadata_is_a_mapping(counts: object) -> None:
    with pytest.raises(
        TopologyError, match=r"with_partitions: found .*, expected a mapping of topics to counts"
    ):
        stateful().with_partitions(counts)  # type: ignore[arg-type]
