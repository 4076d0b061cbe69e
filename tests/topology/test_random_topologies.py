"""Random descriptions, judged by a second, plain implementation of the rules.

A description is a list of calls drawn by hypothesis. The plain implementation below (colouring until nothing changes,
no graph library) says whether it is refused, and what its parts and counts have to be. hypothesis prints the
description and the seed of a failure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from topology import BuiltTopology, Stream, Topology, TopologyError, TopologyNotReady, compare, violations

Call = tuple[str, int, int, int, int]  # verb, one input, another input, a count (0: none, -1: unknown), a key

VERBS = ["source", "source", "process", "process", "both", "join", "merge", "repartition", "sink"]
KEYS = [("k",), ("k",), ("k",), ("k", "l"), ("l", "k"), ("l",), ()]
COUNTS = [0, 0, 0, 4, 4, 6]


def listed(counts: list[int]) -> st.SearchStrategy[list[Call]]:
    place, key = st.integers(0, 50), st.integers(0, len(KEYS) - 1)
    one = st.tuples(st.sampled_from([*VERBS, "join"]), place, place, st.sampled_from(counts), key)
    # Descriptions with one key all over are joined deeper; with many, more joins are refused.
    alike = one.map(lambda call: (*call[:4], 0))
    return st.lists(alike, min_size=1, max_size=25) | st.lists(one, min_size=1, max_size=12)


calls = listed(COUNTS)
waiting = listed([*COUNTS, -1, -1])


def make(described: list[Call], prefix: str = "", into: Topology | None = None) -> Topology:
    """Return the topology of a description; inputs are chosen among the streams there are so far."""
    topo = into if into is not None else Topology("random")
    streams: list[Stream] = [topo.source(f"{prefix}first", key="k", partitions=4)]
    for number, (verb, one, other, count, key) in enumerate(described):
        name, stream, partner = (
            f"{prefix}n{number}",
            streams[one % len(streams)],
            streams[other % len(streams)],
        )
        if verb == "source":
            streams.append(topo.source(name, key=KEYS[key], partitions=None if count < 0 else count or 4))
        elif verb in ("process", "both"):
            # A few stores, so that some are shared.
            stores = [f"{prefix}s{other % 8}"] if count > 0 else []
            for store in stores:
                if store not in topo._stores:
                    topo.store(store, logged=bool(other % 3))
            inputs = dict.fromkeys([stream, partner] if verb == "both" else [stream])
            streams.append(topo.process(inputs=inputs.keys(), name=name, stores=stores))
        elif verb == "join":
            streams.append(
                stream.join_table(partner, name=name) if one % 2 else stream.join_stream(partner, name=name)
            )
        elif verb == "merge" and stream.name != partner.name:
            streams.append(stream.merge(partner, name=name))
        elif verb == "repartition":
            streams.append(stream.repartition(KEYS[key], name=name, partitions=count if count > 0 else None))
        elif verb == "sink":
            stream.sink(name)
    return topo


@dataclass
class Plain:
    """What the rules say about a description, the slow and obvious way."""

    topo: Topology
    part: dict[str, str] = field(default_factory=dict)  # node -> the first node of its part
    behind: dict[str, set[str]] = field(default_factory=dict)  # node -> topics its records come from
    groups: list[set[str]] = field(default_factory=list)
    loops: bool = False
    unequal: bool = False
    apart: bool = False  # a join whose sides are not split by the same key

    def __post_init__(self) -> None:
        nodes = list(self.topo._nodes.values())
        self.part = {n.name: n.name for n in nodes}
        place = {n.name: i for i, n in enumerate(nodes)}
        links = [(n.name, p) for n in nodes for p in n.parents]
        links += [
            (a.name, b.name) for a, b in itertools.combinations(nodes, 2) if set(a.stores) & set(b.stores)
        ]
        changed = True
        while changed:
            changed = False
            for a, b in links:
                low = min(self.part[a], self.part[b], key=place.__getitem__)
                changed |= {self.part[a], self.part[b]} != {low}
                self.part[a] = self.part[b] = low
        reader = {n.topic: n.name for n in nodes if n.internal}
        feeds = {
            (self.part[n.name], self.part[reader[n.topic]])
            for n in nodes
            if n.kind == "repartition" and n.topic
        }
        for _ in nodes:
            feeds |= {(a, d) for a, b in feeds for c, d in feeds if b == c}
        self.loops = any(a == b for a, b in feeds)
        keys: dict[str, tuple[str, ...]] = {}
        for node in nodes:  # in declared order, inputs come first
            above = [keys[p] for p in node.parents]
            keys[node.name] = node.key if node.topic else above[0]
            if node.kind == "join":
                left, right = above
                unlike = left != right and sorted(left) == sorted(right)
                self.apart |= not left or not right or len(left) != len(right) or unlike
            elif not node.topic and len({*above}) > 1:
                keys[node.name] = ()
            own = {node.topic} if node.kind == "source" and node.topic else set()
            self.behind[node.name] = own.union(*(self.behind[p] for p in node.parents))
            if node.kind == "join":
                self.groups.append(set(self.behind[node.name]))
        while any(a & b for a, b in itertools.combinations(self.groups, 2)):
            a, b = next((a, b) for a, b in itertools.combinations(self.groups, 2) if a & b)
            self.groups = [g for g in self.groups if g is not a and g is not b] + [a | b]
        fixed = {n.topic: n.partitions for n in nodes if n.partitions is not None}
        self.unequal = any(len({fixed[t] for t in g if t in fixed}) > 1 for g in self.groups)


def built_or_refused(topo: Topology) -> BuiltTopology | None:
    """Build; a refusal has to be one that the plain rules demand, and the other way round."""
    plain = Plain(topo)
    if plain.loops or plain.unequal or plain.apart:
        with pytest.raises(TopologyError) as caught:
            topo.build()
        text = str(caught.value)
        kinds = {"a cycle": plain.loops, "cannot join": plain.apart, "need equal": plain.unequal}
        said = next(kind for kind in kinds if kind in text)
        event(f"refused: {said}")
        assert kinds[said]
        assert ("a cycle" in text) == plain.loops
        assert caught.value.node in topo._nodes
        return None
    built = topo.build()
    event(f"subtopologies: {min(len(built.subtopologies), 5)}")
    return built


@settings(max_examples=200, deadline=None)
@given(waiting)
def test_every_description_is_built_right_or_refused_rightly(described):
    topo = make(described)
    built = built_or_refused(topo)
    if built is None:
        return
    assert violations(built) == ()
    plain = Plain(topo)
    # The same parts, counted by their first node.
    firsts = list(dict.fromkeys(plain.part.values()))
    assert {n.name: firsts.index(plain.part[n.name]) for n in built.nodes} == {
        n.name: sub.id for sub in built.subtopologies for n in sub.nodes
    }
    assert {frozenset(g) for g in plain.groups if len(g) > 1} == {
        frozenset(g) for g in built.copartition_groups
    }
    # Every count is the declared one, the group's, or the writer's.
    for node in built.nodes:
        if node.kind == "repartition" and topo._nodes[node.name].partitions is None:
            group = next((g for g in plain.groups if node.topic in g), {node.topic})
            known = {built.partitions[t] for t in group if t} - {None}
            assert known == {node.partitions} - {None}
            if len(group) == 1:
                assert (node.partitions or 0) == built.subtopology_of(node.name).partitions
    unknown = {t for t, count in built.partitions.items() if count is None and not t.endswith("-repartition")}
    assert {r.topics for r in built.readiness().reasons} == {(t,) for t in unknown}
    if unknown:
        with pytest.raises(TopologyNotReady):
            built.tasks()
    else:
        assert built.tasks() == make(described).build().tasks()
    assert built.fingerprint() == make(described).build().fingerprint()
    assert compare(built, built.to_dict()).compatible


@settings(max_examples=150, deadline=None)
@given(calls, calls)
def test_unrelated_parts_at_the_end_change_nothing(described, appended):
    topo = make(described)
    built = built_or_refused(topo)
    more = make(appended, "z", into=topo)
    if built is None or (longer := built_or_refused(more)) is None:
        return
    assert longer.subtopologies[: len(built.subtopologies)] == built.subtopologies
    assert longer.tasks()[: len(built.tasks())] == built.tasks()
    found = compare(built, longer)
    assert found.compatible
    assert found.renumbered == found.removed == ()


@settings(max_examples=150, deadline=None)
@given(waiting, st.lists(st.tuples(st.integers(0, 10), st.sampled_from([None, 4, 6])), max_size=6))
def test_metadata_never_crashes_and_the_first_counts_bring_everything_back(described, changes):
    built = built_or_refused(make(described))
    if built is None:
        return
    external = [n.topic for n in built.nodes if n.kind == "source" and not n.internal and n.topic]
    now, ran = built, bool(built.readiness())
    for which, count in changes:
        now = now.with_partitions({external[which % len(external)]: count})
        assert ran or all(r.kind != "changed" for r in now.readiness().reasons), "nothing has run yet"
        ran = ran or bool(now.readiness())
        if now.readiness():
            assert violations(now) == ()
        else:
            held = {n.topic for sub in built.subtopologies if sub.stores for n in sub.sources}
            changed = [r for r in now.readiness().reasons if r.kind == "changed"]
            assert all(set(r.topics) <= held for r in changed), "only stores hold counts"
        assert now.describe() and now.to_dot() and now.fingerprint()
    back = now.with_partitions({topic: built.partitions[topic] for topic in external})
    if built.readiness():
        assert back.readiness(), back.readiness().reason
        assert back.tasks() == built.tasks()
    assert back.fingerprint() == built.fingerprint()


def written(described: list[Call]) -> Callable[[], Topology]:
    """Return the description as a document, with its nodes in the opposite order."""
    topo = make(described)
    nodes: dict[str, object] = {}
    for node in reversed(list(topo._nodes.values())):
        inputs = [p.removesuffix("-source") for p in node.parents]
        entry: dict[str, object] = {}
        if node.kind == "source":
            continue
        verb = {"processor": "process", "join": f"join_{node.join}"}.get(node.kind, node.kind)
        entry[verb] = inputs
        if node.stores:
            entry["stores"] = list(node.stores)
        if node.kind == "repartition":
            entry |= {"key": list(node.key), "partitions": node.partitions}
        nodes[node.name] = entry
    document = {
        "name": topo.name,
        "sources": {
            n.name: {"key": list(n.key), "partitions": n.partitions}
            for n in topo._nodes.values()
            if n.kind == "source" and not n.internal
        },
        "stores": {s.name: {"logged": s.logged} for s in topo._stores.values()},
        "nodes": nodes,
    }
    return lambda: Topology.from_dict(document)


@settings(max_examples=100, deadline=None)
@given(calls)
def test_a_document_in_any_order_is_the_same_topology_but_for_numbers(described):
    built = built_or_refused(make(described))
    if built is None:
        return
    found = written(described)().build()
    assert violations(found) == ()
    assert {n.name: n for n in found.nodes} == {n.name: n for n in built.nodes}
    assert {frozenset(n.name for n in s.nodes) for s in found.subtopologies} == {
        frozenset(n.name for n in s.nodes) for s in built.subtopologies
    }
