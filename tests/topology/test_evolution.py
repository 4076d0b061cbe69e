"""Comparing two topologies: what changed, and whether state can be kept; one pair of topologies per rule."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from topology import BuiltTopology, Topology, TopologyError, compare

Describe = Callable[[Topology], object]


def built(*describe: Describe) -> BuiltTopology:
    topo = Topology("t")
    for each in describe:
        each(topo)
    return topo.build()


def plain(
    topo: Topology,
    *,
    store: str = "s",
    name: str = "p",
    behind: bool = False,
    topic: str = "a",
    partitions: int | None = 4,
    keep: dict[str, Any] | None = None,
) -> None:
    stream = topo.source(topic, key="k", partitions=partitions)
    if behind:
        stream = stream.process(name="pass").repartition("k", name="r")
    stream.process(name=name, stores=[{"name": store, **(keep or {})}] if store else [])


def other(topo: Topology, *, store: str = "", topic: str = "z") -> None:
    plain(topo, topic=topic, name=f"of-{topic}", store=store)


def two_sources(topo: Topology, *, a: int = 4, b: int = 2, keep: str = "a", name: str = "b") -> None:
    """A processor on one of two sources, which a merge puts into one subtopology."""
    one, two = topo.source("a", key="k", partitions=a), topo.source(name, key="k", partitions=b)
    one.merge(two, name="both")
    (one if keep == "a" else two).process(name="p", stores=[{"name": "s"}])


def merged(topo: Topology, *, second: str = "b", partitions: int = 2, key: str = "k") -> None:
    one = topo.source("a", key="k", partitions=4)
    two = topo.source(second, key=key, partitions=partitions)
    one.merge(two, name="both").process(name="p", stores=[{"name": "s"}])


def join(topo: Topology, *, right: str = "x", swapped: bool = False, kind: str = "table") -> None:
    one, two = topo.source("a", key="x", partitions=4), topo.source("b", key=right, partitions=4)
    left, other = (two, one) if swapped else (one, two)
    add = left.join_table if kind == "table" else left.join_stream
    add(other, name="j", stores=[{"name": "s"}])


def two_stores(topo: Topology, *, first: str = "s", second: str = "t", same: bool = False) -> None:
    one = topo.source("a", key="k", partitions=4)
    two = one if same else topo.source("b", key="k", partitions=4)
    one.merge(two, name="both") if not same else None
    stores = {name: topo.store(name) for name in ("s", "t")}
    one.process(name="p", stores=[stores[first]])
    two.process(name="q", stores=[stores[second]])


def chained(
    topo: Topology, *, upstream: str = "a", key: str = "k", partitions: int = 3, by: str = "r"
) -> None:
    one, two = topo.source("a", key="i", partitions=2), topo.source("b", key="i", partitions=5)
    one.process(name="first")
    two.process(name="second")
    again = (one if upstream == "a" else two).repartition(key, name=by, partitions=partitions)
    again.process(name="p", stores=[{"name": "s"}])


def shared(topo: Topology, *, users: str = "pq", q_reads: str = "a") -> None:
    one, two = topo.source("a", key="k", partitions=4), topo.source("b", key="k", partitions=2)
    one.merge(two, name="both")
    topo.store("s")
    if "p" in users:
        one.process(name="p", stores=["s"])
    if "q" in users:
        (one if q_reads == "a" else two).process(name="q", stores=["s"])


def used_by(topo: Topology, *, node: str) -> None:
    """One of two nodes, both of which are there in any case, uses the store."""
    rows, store = topo.source("a", key="k", partitions=4), topo.store("s")
    for name in "pq":
        rows.process(name=name, stores=[store] if name == node else [])


def ordered(topo: Topology, *, key: tuple[str, ...] = ("x", "y")) -> None:
    topo.source("a", key=key, partitions=4).process(name="p", stores=[{"name": "s"}])


def inputs(topo: Topology, *, order: str = "ab") -> None:
    streams = {name: topo.source(name, key="k", partitions=4) for name in "ab"}
    topo.process(None, inputs=[streams[name] for name in order], name="p", stores=[{"name": "s"}])


LOST: list[tuple[Describe, Describe, str]] = [
    (two_sources, lambda t: two_sources(t, keep="b"),
        "node 'p' looked up keys from 'a', now looks up keys from 'b'"),
    (lambda t: two_sources(t, b=4), lambda t: two_sources(t, b=4, keep="b"),
        "store 's': node 'p' looked up keys from 'a', now looks up keys from 'b'"),
    (merged, lambda t: merged(t, second="c", partitions=3),
        "keys from 'a' + 'b', now looks up keys from 'a' + 'c'"),
    (merged, lambda t: merged(t, partitions=3),
        "topic 'b': 2 -> 3 partitions, but the keys of store 's' are split into 2 partitions"),
    (merged, lambda t: merged(t, key="l"), "store 's': was keyed by (k), is now keyed by (l), in topic 'b'"),
    (plain, lambda t: plain(t, topic="b"), "node 'p' looked up keys from 'a', now looks up keys from 'b'"),
    (plain, lambda t: plain(t, topic="b", name="q"), "was used with keys from 'a', is now used with keys from 'b'"),
    (join, lambda t: join(t, right="y"), "store 's': was keyed by (x), is now keyed by (y), in topic 'b'"),
    (join, lambda t: join(t, swapped=True), "keys from 'a', then 'b', now looks up keys from 'b', then 'a'"),
    (inputs, lambda t: inputs(t, order="ba"), "keys from 'a', then 'b', now looks up keys from 'b', then 'a'"),
    (two_stores, lambda t: two_stores(t, first="t", second="s"),
        "store 's': was the state of node 'p', is now the state of node 'q'"),
    (lambda t: two_stores(t, same=True), lambda t: two_stores(t, same=True, first="t", second="s"),
        "store 's': was the state of node 'p', is now the state of node 'q'"),
    (lambda t: used_by(t, node="p"), lambda t: used_by(t, node="q"),
        "store 's': was the state of node 'p', is now the state of node 'q'"),
    (ordered, lambda t: ordered(t, key=("y", "x")), "was keyed by (x, y), is now keyed by (y, x), in topic 'a'"),
    (chained, lambda t: chained(t, key="l"), "was keyed by (k), is now keyed by (l), in topic 'r-repartition'"),
    (chained, lambda t: chained(t, partitions=4), "topic 'r-repartition': 3 -> 4 partitions"),
    (chained, lambda t: chained(t, by="q"), "keys from 'r-repartition', now looks up keys from 'q-repartition'"),
    (lambda t: shared(t, users="p"), lambda t: shared(t, q_reads="b"),
        "store 's': was used with keys from 'a', is now used with keys from 'a' and 'b'"),
    (plain, lambda t: plain(t, behind=True),
        "store 's': was in subtopology 0, is now in 1, but its state belongs to tasks 0_*; declare new parts after"),
    (plain, lambda t: plain(t, keep={"logged": False}), "store 's': was logged, is now not logged; its changelog"),
    # a store that goes and another one that comes may be one that was renamed
    (plain, lambda t: plain(t, store="u"), "subtopology 0: store 's' removed and store 'u' added, which would"),
    (plain, lambda t: plain(t, behind=True, store="u", name="q"), "store 's' removed and store 'u' added"),
    (plain, lambda t: plain(t, topic="b", behind=True, store="u", name="q"),
        "store 's' removed and store 'u' added, which would start empty; keep the old name, or remove first"),
    (lambda t: (plain(t), other(t, store="v")), lambda t: (plain(t), other(t, topic="y", store="u")),
        "subtopology 1: store 'v' removed and store 'u' added"),
    (
        lambda t: plain(t, store="u"),  # another number, other nodes: what is the same is the topic
        lambda t: (other(t), plain(t, name="q")),
        "subtopology 0: store 'u' removed and store 's' added",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "reason"), LOST)
def test_keys_that_would_be_looked_up_elsewhere(old, new, reason):
    found = compare(built(old), built(new))
    assert not found.compatible and found.explain().startswith("existing state cannot be kept:\n  - ")
    assert reason in found.explain()
    assert len(found.reasons) == len({line.partition(":")[0] for line in found.reasons}), (
        "one cause per store"
    )
    assert "\n" not in "".join(found.reasons)
    assert not compare(built(new), built(old)).compatible, "and not the other way round"


def with_step(topo: Topology, *, steps: int = 1, named: bool = True) -> None:
    stream = topo.source("a", key="k", partitions=4)
    for number in range(steps):
        stream = stream.process(name=f"step{number}" if named else None)
    stream.process(name="p", stores=[{"name": "s"}])


def merged_with(topo: Topology, *, partitions: int) -> None:
    """The store hangs on `a` alone; `b` is in the same subtopology, but never comes near it."""
    one, two = topo.source("a", key="k", partitions=4), topo.source("b", key="k", partitions=partitions)
    one.process(name="p", stores=[{"name": "s"}]).merge(two, name="both")


KEPT: list[tuple[Describe, Describe, tuple[str, ...]]] = [
    (join, join, ()),
    (with_step, lambda t: with_step(t, steps=3), ()),
    (with_step, lambda t: with_step(t, named=False), ()),
    (with_step, plain, ()),
    (plain, lambda t: plain(t, name="q"), ()),
    (chained, lambda t: chained(t, upstream="b"),
        ("subtopology 0 (or a part of it) is now 1, without any state to move", )),
    (lambda t: shared(t, users="p"), shared, ()),
    (shared, lambda t: shared(t, users="q"), ()),
    (lambda t: merged_with(t, partitions=2), lambda t: merged_with(t, partitions=3), ()),
    (join, lambda t: join(t, kind="stream"), ("node 'j': was a table join, is now a stream join",)),
    (plain, lambda t: plain(t, store=""), ("store 's' is removed: its state is no longer used",)),
    (lambda t: plain(t, store=""), plain, ("store 's' is new: it starts empty",)),
    (plain, lambda t: plain(t, keep={"retention_ms": 5}), ("store 's': retention_ms was None, is now 5",)),
    (plain, lambda t: (plain(t), other(t, store="u")), ("store 'u' is new: it starts empty",)),
    (lambda t: (plain(t), other(t)), lambda t: (plain(t, store=""), other(t, store="u")),
        ("store 's' is removed: its state is no longer used", "store 'u' is new: it starts empty")),
    (lambda t: plain(t, store=""), lambda t: (other(t), plain(t, store="")),
        ("subtopology 0 (or a part of it) is now 1, without any state to move", )),
    (plain, lambda t: plain(t, partitions=None), ()),
    (lambda t: plain(t, partitions=None), plain, ()),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "notes"), KEPT)
def test_keys_that_are_looked_up_where_they_lie(old, new, notes):
    found = compare(built(old), json.loads(json.dumps(built(new).to_dict())))
    assert found.compatible, found.explain()
    assert found.notes == notes


def test_parts_that_are_added_removed_and_renumbered():
    found = compare(built(plain), built(plain, lambda t: other(t, store="u")))
    assert found.added == ("node of-z", "node z", "store u")
    assert (found.removed, found.renumbered) == ((), ())
    found = compare(built(plain), built(lambda t: plain(t, name="q")))
    assert (found.added, found.removed) == (("node q",), ("node p",))
    assert compare(built(plain), built(other, plain)).renumbered == ((0, 1),)
    assert str(compare(built(plain), built(plain))) == "existing state can be kept"


def wider(topo: Topology) -> None:
    plain(topo)
    topo.source("more", key="k", partitions=9).process(name="p2", stores=["s"])


def one_part(topo: Topology) -> None:
    first = topo.source("a", key="k", partitions=4).process(name="p", stores=[{"name": "s"}])
    first.merge(topo.source("z", key="k", partitions=4).process(name="of-z", stores=[{"name": "u"}]))


def test_reasons_that_hold_in_one_direction():
    [reason] = compare(built(plain), built(wider)).reasons
    assert reason == "store 's': was split over 4 tasks, is now split over 9"
    found = compare(built(plain, lambda t: other(t, store="u")), built(one_part))
    assert found.renumbered == ((1, 0),)
    assert any("store 'u': was in subtopology 1, is now in 0" in reason for reason in found.reasons)
    waiting = built(lambda t: plain(t, topic="b", partitions=None))
    assert not compare(waiting, built(plain)).compatible, (
        "counts that are not known are not compared, topics are"
    )


def test_many_reasons_are_found_in_one_go():
    def many(partitions):
        def describe(topo):
            for number in range(200):
                stream = topo.source(f"t{number}", key="k", partitions=partitions)
                stream.process(name=f"p{number}", stores=[{"name": f"s{number}"}])

        return describe

    assert len(compare(built(many(2)), built(many(3))).reasons) == 200


@pytest.mark.parametrize(
    ("way", "value", "wrong"),
    [
        ((), None, "found nothing, expected a built topology or its structure"),
        ((), "x", "found 'x', expected a built topology or its structure"),
        ((), BuiltTopology, "expected a built topology"),
        (("schema",), None, "schema: found nothing, expected 'taskplace.topology/1'"),
        (("subtopologies",), 3, "not a topology's structure"),
        (("subtopologies", 1), "again", "0 is there twice"),
        (("subtopologies", 0, "nodes"), 3, "nodes`"),
        (("subtopologies", 0, "stores"), [{}], "stores[0]`"),
        (("subtopologies", 0, "partitions"), "4", "`$.subtopologies[0].partitions`"),
        (("subtopologies", 0, "partitions"), -1, "`$.subtopologies[0].partitions`"),
        (("subtopologies", 0, "partitions"), True, "`$.subtopologies[0].partitions`"),
        (("subtopologies", 0, "id"), "x", "`$.subtopologies[0].id`"),
        (("subtopologies", 0, "nodes", 0, "partitions"), 0, "nodes[0].partitions`"),
        (("subtopologies", 0, "nodes", 0, "topic"), 5, "nodes[0].topic`"),
        (("subtopologies", 0, "nodes", 0, "topic"), None, "a source without a topic"),
        (("subtopologies", 0, "nodes", 0, "key"), "k", "nodes[0].key`"),
        (("subtopologies", 0, "nodes", 0, "key"), [5], "nodes[0].key[0]`"),
        (("subtopologies", 0, "nodes", 0, "name"), None, "nodes[0].name`"),
        (("subtopologies", 0, "nodes", 1, "name"), "a", "'a' is there twice"),
        (("subtopologies", 0, "nodes", 1, "stores"), ["other"], "'other'"),
        (("subtopologies", 0, "nodes", 1, "parents"), ["other"], "'other'"),
        (("subtopologies", 0, "stores", 0, "name"), 5, "stores[0].name`"),
        (("subtopologies", 0, "stores", 0, "logged"), "no", "stores[0].logged`"),
    ],
)
def test_what_is_no_structure_and_damage_that_could_pass_for_one_are_one_error(way, value, wrong):
    stored = at = json.loads(json.dumps(built(plain).to_dict()))
    for step in way[:-1]:
        at = at[step]
    if value == "again":
        at.append(at[0])
    elif way:
        at[way[-1]] = value
    else:
        stored = value
    for name, pair in (("old", (stored, built(plain))), ("new", (built(plain), stored))):
        with pytest.raises(TopologyError, match=rf"^{name}\b.*{re.escape(wrong)}"):
            compare(*pair)


def test_the_fingerprint_follows_the_structure_only():
    different: list[Describe] = [
        plain,
        join,
        lambda t: join(t, kind="stream"),
        lambda t: plain(t, name="x"),
        lambda t: plain(t, store="x"),
        lambda t: plain(t, partitions=5),
        lambda t: plain(t, keep={"logged": False}),
        lambda t: (other(t), plain(t)),
        lambda t: (plain(t), other(t)),
        ordered,
        lambda t: ordered(t, key=("y", "x")),
    ]
    prints = [built(each).fingerprint() for each in different]
    assert len(set(prints)) == len(prints)
    assert [built(each).fingerprint() for each in different] == prints
    waiting = built(lambda t: plain(t, partitions=None))
    assert waiting.with_partitions({"a": 4}).fingerprint() == prints[0]
    # Written down once: another value means that existing checkpoints no longer match.
    assert prints[0] == "1ab612e7aeba91d79fadfa4e7380a6930dd771fce60918a8153bca26885fcecb"
