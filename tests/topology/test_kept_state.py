"""Which changes leave keys where they are looked up, and which do not: one pair of topologies per rule."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from topology import BuiltTopology, Topology, compare

Describe = Callable[[Topology], object]


def built(describe: Describe) -> BuiltTopology:
    topo = Topology("t")
    describe(topo)
    return topo.build()


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


def plain(
    topo: Topology, *, store: str = "s", name: str = "p", behind: bool = False, topic: str = "a"
) -> None:
    stream = topo.source(topic, key="k", partitions=4)
    if behind:
        stream = stream.process(name="pass").repartition("k", name="r")
    stream.process(name=name, stores=[{"name": store}] if store else [])


def ordered(topo: Topology, *, key: tuple[str, ...] = ("x", "y")) -> None:
    topo.source("a", key=key, partitions=4).process(name="p", stores=[{"name": "s"}])


def inputs(topo: Topology, *, order: str = "ab") -> None:
    streams = {name: topo.source(name, key="k", partitions=4) for name in "ab"}
    topo.process(None, inputs=[streams[name] for name in order], name="p", stores=[{"name": "s"}])


LOST: list[tuple[str, Describe, Describe, str]] = [
    (
        "moved to a source with other partitions",
        two_sources,
        lambda t: two_sources(t, keep="b"),
        "store 's': node 'p' looked up keys from 'a', now looks up keys from 'b'",
    ),
    (
        "moved to a source with equal partitions",
        lambda t: two_sources(t, b=4),
        lambda t: two_sources(t, b=4, keep="b"),
        "store 's': node 'p' looked up keys from 'a', now looks up keys from 'b'",
    ),
    (
        "the smaller source of a merge replaced",
        merged,
        lambda t: merged(t, second="c", partitions=3),
        "store 's': node 'p' looked up keys from 'a' + 'b', now looks up keys from 'a' + 'c'",
    ),
    (
        "the smaller source of a merge grown",
        merged,
        lambda t: merged(t, partitions=3),
        "topic 'b': 2 -> 3 partitions, but the keys of store 's' are split into 2 partitions",
    ),
    (
        "the second source of a merge keyed otherwise",
        merged,
        lambda t: merged(t, key="l"),
        "store 's': was keyed by (k), is now keyed by (l), in topic 'b'",
    ),
    (
        "the source replaced by one like it",
        plain,
        lambda t: plain(t, topic="b"),
        "store 's': node 'p' looked up keys from 'a', now looks up keys from 'b'",
    ),
    (
        "the source replaced and the node renamed",
        plain,
        lambda t: plain(t, topic="b", name="q"),
        "store 's': was used with keys from 'a', is now used with keys from 'b'",
    ),
    (
        "a join's table keyed otherwise",
        join,
        lambda t: join(t, right="y"),
        "store 's': was keyed by (x), is now keyed by (y), in topic 'b'",
    ),
    (
        "a join's sides swapped",
        join,
        lambda t: join(t, swapped=True),
        "store 's': node 'j' looked up keys from 'a', then 'b', now looks up keys from 'b', then 'a'",
    ),
    (
        "a processor's inputs swapped",
        inputs,
        lambda t: inputs(t, order="ba"),
        "node 'p' looked up keys from 'a', then 'b', now looks up keys from 'b', then 'a'",
    ),
    (
        "two stores exchanged",
        two_stores,
        lambda t: two_stores(t, first="t", second="s"),
        "store 's': was the state of node 'p', is now the state of node 'q'",
    ),
    (
        "two stores exchanged that read the same",
        lambda t: two_stores(t, same=True),
        lambda t: two_stores(t, same=True, first="t", second="s"),
        "store 's': was the state of node 'p', is now the state of node 'q'",
    ),
    (
        "key columns in another order",
        ordered,
        lambda t: ordered(t, key=("y", "x")),
        "store 's': was keyed by (x, y), is now keyed by (y, x), in topic 'a'",
    ),
    (
        "a repartition by another key",
        chained,
        lambda t: chained(t, key="l"),
        "store 's': was keyed by (k), is now keyed by (l), in topic 'r-repartition'",
    ),
    (
        "a repartition with another count",
        chained,
        lambda t: chained(t, partitions=4),
        "topic 'r-repartition': 3 -> 4 partitions, but the keys of store 's' are split into 3 partitions",
    ),
    (
        "a repartition renamed",
        chained,
        lambda t: chained(t, by="q"),
        "keys from 'r-repartition', now looks up keys from 'q-repartition'",
    ),
    (
        "a second user that reads otherwise",
        lambda t: shared(t, users="p"),
        lambda t: shared(t, q_reads="b"),
        "store 's': was used with keys from 'a', is now used with keys from 'a' and 'b'",
    ),
    (
        "put behind a repartition",
        plain,
        lambda t: plain(t, behind=True),
        "store 's': was in subtopology 0, is now in 1",
    ),
    (
        "renamed and put behind a repartition, store and node",
        plain,
        lambda t: plain(t, behind=True, store="s2", name="p2"),
        "subtopology 0: store 's' removed and store 's2' added, which would start empty",
    ),
    (
        "all of it renamed, the source too",
        plain,
        lambda t: plain(t, topic="b", behind=True, store="s2", name="p2"),
        "subtopology 0: store 's' removed and store 's2' added, which would start empty",
    ),
]


@pytest.mark.parametrize(("_what", "old", "new", "reason"), LOST, ids=[case[0] for case in LOST])
def test_keys_that_would_be_looked_up_elsewhere(
    _what: str, old: Describe, new: Describe, reason: str
) -> None:
    found = compare(built(old), built(new))
    assert not found.compatible
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


KEPT: list[tuple[str, Describe, Describe]] = [
    ("nothing changed", join, join),
    ("a processor added before it", with_step, lambda t: with_step(t, steps=3)),
    ("a processor without a name added before it", with_step, lambda t: with_step(t, named=False)),
    ("a processor before it removed", with_step, plain),
    ("the node renamed", plain, lambda t: plain(t, name="q")),
    ("what a repartition is fed by replaced", chained, lambda t: chained(t, upstream="b")),
    ("a second user that reads alike", lambda t: shared(t, users="p"), shared),
    ("a second user gone that read alike", shared, lambda t: shared(t, users="q")),
    (
        "another source in the subtopology grown",
        lambda t: merged_with(t, partitions=2),
        lambda t: merged_with(t, partitions=3),
    ),
    ("the kind of a join", join, lambda t: join(t, kind="stream")),
    ("a store removed", plain, lambda t: plain(t, store="")),
    ("a store added", lambda t: plain(t, store=""), plain),
    (
        "a store removed in one pipeline, another added in another one",
        lambda t: (plain(t), plain(t, topic="z", name="n", store="")),
        lambda t: (plain(t, store=""), plain(t, topic="z", name="n", store="m")),
    ),
]


@pytest.mark.parametrize(("_what", "old", "new"), KEPT, ids=[case[0] for case in KEPT])
def test_keys_that_are_looked_up_where_they_lie(_what: str, old: Describe, new: Describe) -> None:
    found = compare(built(old), built(new))
    assert found.compatible, found.explain()


def test_counts_that_are_not_known_are_not_compared_but_topics_are() -> None:
    def waiting(topic: str) -> Describe:
        return lambda t: t.source(topic, key="k").process(name="p", stores=[{"name": "s"}])

    assert compare(built(waiting("a")), built(plain)).compatible
    assert not compare(built(waiting("b")), built(plain)).compatible


@pytest.mark.parametrize("size", [200])
def test_many_reasons_are_found_in_one_go(size: int) -> None:
    def many(partitions: int) -> Describe:
        def describe(topo: Topology) -> None:
            for number in range(size):
                stream = topo.source(f"t{number}", key="k", partitions=partitions)
                stream.process(name=f"p{number}", stores=[{"name": f"s{number}"}])

        return describe

    assert len(compare(built(many(2)), built(many(3))).reasons) == size
