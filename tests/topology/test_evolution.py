"""Comparing two topologies: what changed, and whether state can be kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from topology import BuiltTopology, Topology, TopologyError, compare


def base(
    *,
    name: str = "stats",
    store: str = "delays",
    key: str = "tailnum",
    partitions: int | None = 4,
    logged: bool = True,
    retention_ms: int | None = None,
    before: Callable[[Topology], Any] = lambda t: None,
    after: Callable[[Topology], Any] = lambda t: None,
) -> Topology:
    topo = Topology("t")
    before(topo)
    flights = topo.source("flights", key=key, partitions=partitions)
    stores = [{"name": store, "logged": logged, "retention_ms": retention_ms}] if store else []
    flights.process(name=name, stores=stores)
    after(topo)
    return topo


def stateless(topo: Topology) -> None:
    topo.source("other", partitions=2).process(name="pass")


def second(store: str) -> Callable[[Topology], None]:
    def add(topo: Topology) -> None:
        topo.source("planes", partitions=3).process(name="fleet", stores=[{"name": store}])

    return add


def test_equal_topologies_differ_in_nothing() -> None:
    found = compare(base().build(), base().build())
    assert (found.added, found.removed, found.renumbered, found.reasons, found.notes) == ((), (), (), (), ())
    assert found.compatible
    assert str(found) == "existing state can be kept"


def test_parts_at_the_end_keep_the_state() -> None:
    found = compare(base().build(), base(after=second("fleet-store")).build())
    assert found.compatible
    assert found.added == ("node fleet", "node planes", "store fleet-store")
    assert found.notes == ("store 'fleet-store' is new: it starts empty",)


def test_parts_at_the_front_renumber_and_lose_the_state() -> None:
    found = compare(base().build(), base(before=stateless).build())
    assert not found.compatible
    assert found.renumbered == ((0, 1),)
    assert found.reasons == (
        "store 'delays': was in subtopology 0, is now in 1, but its state belongs to tasks 0_*; "
        "declare new parts after the old ones to keep the numbers",
    )


def test_renumbering_without_state_is_a_note() -> None:
    found = compare(base(store="").build(), base(store="", before=stateless).build())
    assert found.compatible
    assert found.renumbered == ((0, 1),)
    assert found.notes == ("subtopology 0 (or a part of it) is now 1, without any state to move",)


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (
            base(partitions=6),
            "topic 'flights': 4 -> 6 partitions, but the keys of store 'delays' are split into 4 partitions",
        ),
        (base(key="carrier"), "store 'delays': was keyed by (tailnum), is now keyed by (carrier)"),
        (
            base(logged=False),
            "store 'delays': was logged, is now not logged; its changelog would be incomplete",
        ),
        (base(store="lateness"), "subtopology 0: store 'delays' removed and store 'lateness' added, which"),
        (base(name="again", store="lateness"), "store 'delays' removed and store 'lateness' added"),
    ],
)
def test_what_stands_against_keeping_state(new: Topology, reason: str) -> None:
    found = compare(base().build(), new.build())
    assert not found.compatible
    assert len(found.reasons) == 1
    assert reason in found.reasons[0]
    assert found.explain().startswith("existing state cannot be kept:\n  - ")


def test_more_tasks_by_another_topic_split_the_store_otherwise() -> None:
    def wider(topo: Topology) -> None:
        topo.source("more", key="tailnum", partitions=9).process(name="p2", stores=["delays"])

    [reason] = compare(base().build(), base(after=wider).build()).reasons
    assert reason == "store 'delays': was split over 4 tasks, is now split over 9"


def test_a_renamed_node_or_opaque_object_keeps_the_state() -> None:
    found = compare(base().build(), base(name="statistics").build())
    assert found.compatible
    assert (found.added, found.removed) == (("node statistics",), ("node stats",))


def test_a_store_that_only_goes_or_forgets_otherwise_is_a_note() -> None:
    gone = compare(base().build(), base(store="").build())
    assert gone.compatible
    assert gone.notes == ("store 'delays' is removed: its state is no longer used",)
    other = compare(base().build(), base(retention_ms=5).build())
    assert other.compatible
    assert other.notes == ("store 'delays': retention_ms was None, is now 5",)


def test_another_pipeline_in_the_place_of_a_removed_one_is_refused() -> None:
    old, new = base(after=second("fleet-store")), base(after=stateless)
    assert compare(old.build(), new.build()).compatible

    def elsewhere(topo: Topology) -> None:
        topo.source("airports", partitions=3).process(name="busy", stores=[{"name": "load"}])

    found = compare(old.build(), base(after=elsewhere).build())
    assert found.reasons == (
        "subtopology 1: store 'fleet-store' removed and store 'load' added, which would start empty; "
        "keep the old name, or remove first and add in a later run",
    )


def test_two_parts_that_become_one_move_a_store() -> None:
    joined = base(after=second("fleet-store"))
    topo = Topology("t")
    flights = topo.source("flights", key="tailnum", partitions=4)
    stats = flights.process(name="stats", stores=[{"name": "delays"}])
    fleet = topo.source("planes", partitions=3).process(name="fleet", stores=[{"name": "fleet-store"}])
    stats.merge(fleet)
    found = compare(joined.build(), topo.build())
    assert found.renumbered == ((1, 0),)
    assert any("store 'fleet-store': was in subtopology 1, is now in 0" in r for r in found.reasons)


def test_unknown_counts_are_not_compared() -> None:
    assert compare(base().build(), base(partitions=None).build()).compatible
    assert compare(base(partitions=None).build(), base().build()).compatible


def test_a_checkpoint_keeps_the_structure_as_json() -> None:
    stored = json.loads(json.dumps(base().build().to_dict()))
    assert compare(stored, base().build()).compatible
    assert not compare(stored, base(key="carrier").build().to_dict()).compatible


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({}, "old.schema: found nothing, expected 'taskplace.topology/1'"),
        ({"schema": "taskplace.topology/1"}, "old: not a topology's structure, Object missing"),
        ({"schema": "taskplace.topology/1", "subtopologies": [3]}, "old: not a topology's structure"),
        ({"schema": "taskplace.topology/1", "subtopologies": 3}, "old: not a topology's structure"),
        ({"schema": "taskplace.topology/1", "subtopologies": [{"id": 0}]}, "old: not a topology's structure"),
        (None, "old: found nothing, expected a built topology or its structure"),
        (3, "old: found 3, expected a built topology or its structure"),
        ("x", "old: found 'x', expected a built topology or its structure"),
        (Topology, "old: found <class .*Topology'>, expected a built topology"),
        (BuiltTopology, "old: found <class .*BuiltTopology'>, expected a built topology"),
    ],
)
def test_a_damaged_structure_is_one_error(stored: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        compare(stored, base().build())
    with pytest.raises(TopologyError, match=message.replace("old", "new", 1)):
        compare(base().build(), stored)


@pytest.mark.parametrize("field", ["nodes", "stores", "partitions", "id"])
@pytest.mark.parametrize("value", [None, 3, "x", [3], [{}]])
def test_any_damage_inside_is_one_error(field: str, value: object) -> None:
    stored = json.loads(json.dumps(base().build().to_dict()))
    stored["subtopologies"][0][field] = value
    try:
        compare(stored, base().build())
    except TopologyError as error:
        assert str(error).startswith("old: not a topology's structure")


@pytest.mark.parametrize(
    ("way", "value", "wrong"),
    [
        (("partitions",), "4", "`$.subtopologies[0].partitions`"),
        (("partitions",), -1, "`$.subtopologies[0].partitions`"),
        (("partitions",), True, "`$.subtopologies[0].partitions`"),
        (("id",), "x", "`$.subtopologies[0].id`"),
        (("nodes", 0, "partitions"), "4", "nodes[0].partitions`"),
        (("nodes", 0, "partitions"), 0, "nodes[0].partitions`"),
        (("nodes", 0, "topic"), 5, "nodes[0].topic`"),
        (("nodes", 0, "topic"), None, "a source without a topic"),
        (("nodes", 0, "key"), "tailnum", "nodes[0].key`"),
        (("nodes", 0, "key"), None, "nodes[0].key`"),
        (("nodes", 0, "key"), [5], "nodes[0].key[0]`"),
        (("nodes", 0, "name"), None, "nodes[0].name`"),
        (("nodes", 1, "name"), "flights", "'flights' is there twice"),
        (("nodes", 1, "stores"), "delays", "nodes[1].stores`"),
        (("nodes", 1, "stores"), ["other"], "'other'"),
        (("nodes", 1, "parents"), ["other"], "'other'"),
        (("nodes", 1, "parents"), "flights", "nodes[1].parents`"),
        (("stores", 0, "name"), 5, "stores[0].name`"),
        (("stores", 0, "logged"), "no", "stores[0].logged`"),
    ],
)
def test_damage_that_could_pass_for_a_structure_is_one_error(way: Any, value: Any, wrong: str) -> None:
    stored = json.loads(json.dumps(base().build().to_dict()))
    *above, last = way
    at = stored["subtopologies"][0]
    for step in above:
        at = at[step]
    at[last] = value
    with pytest.raises(TopologyError, match=f"^old: not a topology's structure, .*{re.escape(wrong)}"):
        compare(stored, base().build())
    with pytest.raises(TopologyError, match=f"^new: not a topology's structure, .*{re.escape(wrong)}"):
        compare(base().build(), stored)


def test_a_part_that_is_there_twice_is_damage() -> None:
    stored = json.loads(json.dumps(base().build().to_dict()))
    stored["subtopologies"] *= 2
    with pytest.raises(TopologyError, match="0 is there twice"):
        compare(stored, base().build())


def test_a_changelog_that_comes_is_not_whole_either() -> None:
    [reason] = compare(base(logged=False).build(), base().build()).reasons
    assert reason == "store 'delays': was not logged, is now logged; its changelog would be incomplete"


def test_a_pipeline_is_known_again_by_its_topic_alone() -> None:
    def reading(name: str, store: str, *, first: bool) -> Topology:
        topo = Topology("t")
        if first:
            topo.source("x", key="k", partitions=2).process(name="other")
        topo.source("a", key="k", partitions=2, name=name).process(name=f"p-{name}", stores=[{"name": store}])
        return topo

    # Another number, other nodes, another store: what is the same is the topic.
    found = compare(reading("one", "s", first=False).build(), reading("two", "s2", first=True).build())
    assert found.reasons == (
        "subtopology 0: store 's' removed and store 's2' added, which would start empty; keep the old name, or remove "
        "first and add in a later run",
    )


def test_the_kind_of_a_join_is_written_down_and_compared() -> None:
    def joined(kind: str) -> Topology:
        topo = Topology("t")
        one, two = (topo.source(name, key="k", partitions=2) for name in "ab")
        getattr(one, f"join_{kind}")(two, name="j", stores=[{"name": "s"}])
        return topo

    table, stream = joined("table").build(), joined("stream").build()
    assert [node.get("join") for node in table.to_dict()["subtopologies"][0]["nodes"]] == [
        None,
        None,
        "table",
    ]
    assert table.fingerprint() != stream.fingerprint()
    found = compare(table, stream)
    assert found.compatible
    assert found.notes == ("node 'j': was a table join, is now a stream join",)


def test_the_fingerprint_follows_the_structure_only() -> None:
    prints = [
        base().build(),
        base(name="x").build(),
        base(store="x").build(),
        base(key="x").build(),
        base(partitions=5).build(),
        base(logged=False).build(),
        base(before=stateless).build(),
        base(after=stateless).build(),
    ]
    assert len({b.fingerprint() for b in prints}) == len(prints)
    assert base().build().fingerprint() == base().build().fingerprint()
    assert (
        base(partitions=None).build().with_partitions({"flights": 4}).fingerprint() == prints[0].fingerprint()
    )
    # Written down once: another value means that existing checkpoints no longer match.
    assert prints[0].fingerprint() == "ec8141a3e7d162bff70122bdef54de8224fae2049fe93f1847d0c22cc7cf125f"
