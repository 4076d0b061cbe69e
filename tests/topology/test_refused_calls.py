"""Calls that are refused: one error in one line that names the node; a refused call leaves nothing behind."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import Node, Store, Stream, Topology, TopologyError, names, violations
from topology.graph import split

Call = Callable[[Any, Any], object]
MOST = 1_000_000


class Declares:
    def __init__(self, *stores: str, fail: bool = False, layouts: Any = None) -> None:
        self.stores, self.fail, self.given = stores, fail, layouts

    def layouts(self) -> Any:
        if self.fail:
            raise RuntimeError("from the processor")
        return self.given if self.given is not None else {s: {"key": {"k": "int64"}} for s in self.stores}


def started() -> tuple[Topology, Stream]:
    topo = Topology("t")
    topo.store("known")
    source = topo.source("a", key="k", partitions=2)
    source.process(name="p", stores=["known"])
    topo.source("r-source", key="k", partitions=2)
    return topo, source


def laid(layouts: Any) -> Call:
    return lambda t, a: a.process(Declares(layouts=layouts), name="q")


CALLS: list[tuple[Call, str | None, str]] = [
    # names
    (lambda t, a: a.process(name="p"), "p", "node 'p': the name is used twice, by a processor and by a"),
    (lambda t, a: a.sink("p"), "p", "node 'p': the name is used twice"),
    (lambda t, a: a.repartition("k", name="p"), "p", "node 'p': the name is used twice"),
    (lambda t, a: a.repartition("k", name="r"), "r-source", "node 'r-source': the name is used twice"),
    (lambda t, a: a.process(name=3), None, "processor name: found 3, expected a name"),
    (lambda t, a: a.repartition("k", name="p q"), "p q", "repartition name: found 'p q', expected 1 to 200"),
    (lambda t, a: a.repartition("k", name="x" * 201), "x" * 201, "expected 1 to 200 letters"),
    (lambda t, a: a.sink("x" * 256), "x" * 256, "found a sink's name of 256 bytes, expected at most 255"),
    (lambda t, a: a.sink("ü" * 43), "ü" * 43, "found a sink's name of 258 bytes"),
    (lambda t, a: a.process(name="n" * 254).sink(), "n" * 254 + "-sink", "bytes, expected at most 255"),
    # inputs
    (lambda t, a: t.source(""), None, "source topic: found ''"),
    (lambda t, a: t.source("a", name="x"), "x", "node 'x': topic 'a' is already read by node 'a'"),
    (lambda t, a: t.process(inputs=[], name="q"), "q", "node 'q': a processor without input"),
    (lambda t, a: t.process(inputs=a), None, "topology 't', process.inputs: found Stream('a'), expected a"),
    (lambda t, a: t.process(inputs="a", name="q"), None, "node 'q'.inputs: found 'a', expected a list of"),
    (lambda t, a: t.process(inputs=[a, a], name="q"), "q", "node 'q': found inputs ['a', 'a'], expected each"),
    (lambda t, a: a.merge(Topology("other").source("p")), "p", "belongs to topology 'other', not to 't'"),
    (lambda t, a: a.merge(a, name="q"), "q", "node 'q': found inputs ['a', 'a']"),
    (lambda t, a: a.merge(name="q"), "q", "node 'q': a merge of one stream"),
    (lambda t, a: a.merge([a]), "a", "topology 't', beside 'a': found [Stream('a')] as an input"),
    (lambda t, a: a.join_table(None), "a", "topology 't', beside 'a': found nothing as an input"),
    (lambda t, a: a.join_stream("b"), "a", "topology 't', beside 'a': found 'b' as an input"),
    # counts and keys
    (lambda t, a: t.source("b", partitions=0), "b", "source 'b'.partitions: found 0, expected a whole number"),
    (lambda t, a: t.source("b", partitions="12"), "b", "source 'b'.partitions: found '12', expected a whole"),
    (lambda t, a: t.source("b", partitions=MOST + 1), "b", f"found {MOST + 1}, expected at most {MOST}"),
    (lambda t, a: t.source("b", partitions=10**400), "b", f"a number of 1329 bits, expected at most {MOST}"),
    (lambda t, a: a.repartition("k", name="q", partitions=-1), "q", "repartition 'q'.partitions: found -1"),
    (lambda t, a: a.repartition(5), "a", "repartition of 'a'.key: found 5"),
    (lambda t, a: a.repartition(["x", "x"], name="q"), "q", "repartition 'q'.key: found"),
    (lambda t, a: t.source("b", key=[1]), "b", "source 'b'.key: found [1], expected a list of column names"),
    (lambda t, a: t.source("b", key={"k", "l"}), "b", "expected a list of column names"),
    (lambda t, a: t.source("b", key=(k for k in "kl")), "b", "expected a list of column names"),
    (lambda t, a: t.source("b", key=["k", "k"]), "b", "expected each column once"),
    # stores
    (lambda t, a: t.store("known"), "known", "store 'known': declared twice"),
    (lambda t, a: t.store("../p"), "../p", "store name: found '../p', expected 1 to 200 letters"),
    (lambda t, a: t.store("s", logged="no"), "s", "store 's'.logged: found 'no', expected true or false"),
    (lambda t, a: t.store("s", retention_ms=0), "s", "store 's'.retention_ms: found 0, expected a whole"),
    (lambda t, a: a.process(name="q", stores=3), "q", "node 'q'.stores: found 3, expected a list of stores"),
    (lambda t, a: a.process(name="q", stores=None), "q", "node 'q'.stores: found nothing"),
    (lambda t, a: a.process(name="q", stores=["s", "s"]), "q", "expected each store once"),
    (lambda t, a: a.process(name="q", stores=[{"name": "s"}, 3]), "q", "found 3, expected the name of a store"),
    (lambda t, a: a.process(stores=[{}]), "a-process", "node 'a-process'.stores: found {}, expected a store"),
    (lambda t, a: a.process(stores=[{"name": 3}]), "a-process", "store name: found 3, expected 1 to 200"),
    (lambda t, a: a.process(stores=[{"name": "s", True: 1}]), "a-process", "found the field True, expected"),
    (lambda t, a: a.process(stores=[{"name": "s"}, {"name": "known"}]), "known", "declared twice"),
    (lambda t, a: a.process(stores=[Store("s"), Store("s2", logged=3)]), "s2", "store 's2'.logged: found 3"),
    (lambda t, a: a.join_table(a, name="p", stores=[{"name": "s"}]), "p", "used twice"),
    # what a processor declares
    (laid(5), "q", "node 'q', layouts(): found 5, expected a mapping of stores to their layouts"),
    (laid({"s": 5}), "q", "node 'q', layouts(): found 5 for store 's', expected a mapping"),
    (laid({"a/b": {}}), "q", "node 'q', layouts(): store name: found 'a/b'"),
    (laid({"s": {"logged": "no"}}), "q", "node 'q', layouts(): store 's'.logged: found 'no'"),
    (laid({"s": {3: 4}}), "q", "found the field 3, expected strings as field names"),
    (lambda t, a: a.process(dict, name="q"), "q", "node 'q'.processor: found the class dict"),
    (lambda t, a: a.process(3, name="q"), "q", "node 'q'.processor: found 3, expected an object with"),
    # options that are nearly a parameter
    (lambda t, a: t.source("b", partition=8), "b", "source 'b'.partition: found an unknown option; did you"),
    (lambda t, a: t.store("s", loged=False), "s", "store 's'.loged: found an unknown option"),
    (lambda t, a: t.process(inputs=[a], name="q", store="s"), "q", "node 'q'.store: found an unknown option"),
    (lambda t, a: a.process(store=["s"]), "a", "process of 'a'.store: found an unknown option"),
    (lambda t, a: a.process(name="q", stores=[{"name": "s", "loged": 1}]), "q", "did you mean 'logged'?"),
    (lambda t, a: a.join_table(a, store="s"), "a", "did you mean 'stores'?"),
    (lambda t, a: a.join_stream(a, store="s"), "a", "did you mean 'stores'?"),
    (lambda t, a: a.repartition("k", partition=8), "a", "did you mean 'partitions'?"),
    (lambda t, a: a.sink("o", targets="x"), "o", "node 'o'.targets: found an unknown option"),
    (lambda t, a: a.sink("o", target=" "), "o", "node 'o'.target: found ' '"),
    (lambda t, a: a.merge(a, names="x"), "a", "did you mean 'name'?"),
]  # fmt: skip


def contents(topo: Topology) -> tuple[Any, ...]:
    return copy.deepcopy((topo._nodes, topo._stores, topo._topics, topo._names.stems))


@pytest.mark.parametrize(("call", "node", "says"), CALLS, ids=[case[2][:60] for case in CALLS])
def test_a_refused_call_names_its_node_and_leaves_nothing_behind(call, node, says):
    topo, a = started()
    before = contents(topo)
    with pytest.raises(TopologyError) as caught:
        call(topo, a)
    assert says in str(caught.value) and caught.value.node == node
    assert "\n" not in str(caught.value)
    if "n" * 254 in topo._nodes:
        return  # the call before it was right
    assert contents(topo) == before
    # The same names can be used afterwards, and the automatic ones are the first ones.
    assert a.process(stores=[{"name": "s"}, {"name": "s2"}]).name == "a-process"
    assert a.repartition("k").name == "a-by-k-source"
    assert a.repartition("k", name="again").name == "again-source"
    assert violations(topo.build()) == ()


def test_an_error_of_a_processor_leaves_nothing_behind():
    topo, a = started()
    before = contents(topo)
    with pytest.raises(RuntimeError):
        a.process(Declares("s", fail=True), stores=[{"name": "s2"}])
    assert contents(topo) == before


@settings(deadline=None)
@given(st.lists(st.sampled_from([case for case in CALLS if "n" * 254 not in (case[1] or "")]), max_size=8))
def test_refused_calls_in_between_change_nothing(calls):
    clean, a = started()
    tried, b = started()
    for number, (call, *_) in enumerate(calls):
        with pytest.raises(TopologyError):
            call(tried, b)
        for stream in (a, b):
            stream.process().repartition("k").process(stores=[{"name": f"store{number}"}]).sink()
    assert tried.build().to_dict() == clean.build().to_dict()


BUILDS: list[tuple[Call, str | None, str]] = [
    (lambda t, a: a.process(name="q", stores=["know"]), "q", "node 'q': unknown store 'know'; did you mean"),
    (lambda t, a: t.store("s"), "s", "store 's': no node uses it"),
    # joins
    (lambda t, a: a.join_table(t.source("b", partitions=2), name="j"), "j", "cannot join 'b', which has no (c"),
    (lambda t, a: a.merge(t.source("b", key="l", partitions=2), name="m").join_table(a, name="j"), "j",
        "node 'j': cannot join 'm', which has no (common) key; declare"),
    (lambda t, a: a.join_table(t.source("b", key=["k", "l"], partitions=2), name="j"), "j",
        "node 'j': cannot join 'a' by (k) with 'b' by (k, l); repartition"),
    (lambda t, a: t.source("c", key=["l", "k"], partitions=2).join_table(
        t.source("b", key=["k", "l"], partitions=2), name="j"), "j",
        "equal keys would lie in different partitions; declare the columns in the same order"),
    (lambda t, a: a.join_table(t.source("b", key="k", partitions=3), name="j"), "j",
        "node 'j': joined topics need equal partition counts, found a=2, b=3; create the topics with equal"),
    (lambda t, a: a.join_table(t.source("b", partitions=1).repartition("k", name="q", partitions=4), name="j"),
        "j", "found a=2, q-repartition=4; set the count of the group on the repartition"),
    # topics that would be one
    (lambda t, a: t.source("delays-changelog").process(stores=[{"name": "delays"}]), "delays",
        "store 'delays': its topic 'delays-changelog' and 'delays-changelog' of source"),
    (lambda t, a: a.process(stores=[{"name": "a.b"}, {"name": "a_b"}]), "a_b",
        "its topic 'a_b-changelog' and 'a.b-changelog' of store 'a.b' are the same to Kafka"),
    (lambda t, a: (t.source("r_1-repartition"), a.repartition("k", name="r.1")), "r.1",
        "repartition 'r.1': its topic 'r.1-repartition' and 'r_1-repartition' of source"),
    (lambda t, a: (a.repartition("k", name="r.1"), a.repartition("k", name="r_1")), "r_1",
        "repartition 'r_1': its topic 'r_1-repartition' and 'r.1-repartition' of repartition 'r.1'"),
    (lambda t, a: a.sink("o", target="known-changelog"), "known", "'known-changelog' of sink 'o' are the same"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "node", "says"), BUILDS, ids=[case[2][:60] for case in BUILDS])
def test_a_refused_build_names_its_node(call, node, says):
    topo, a = started()
    call(topo, a)
    with pytest.raises(TopologyError) as caught:
        topo.build()
    assert says in str(caught.value) and caught.value.node == node


def test_topics_that_do_not_collide():
    topo = Topology("t")
    a = topo.source("a.b", key="k", partitions=1)
    a.merge(topo.source("a_b"), topo.source("s-changelog")).process(
        name="p", stores=[{"name": "s", "logged": False}, {"name": "a.b"}, {"name": "a_b", "logged": False}]
    )
    for name, target in (("one", "a.b"), ("two", "x"), ("three", "x"), ("four", object())):
        a.sink(name, target=target)
    a.sink("x" * 255)
    assert violations(topo.build()) == ()


def test_graphs_that_no_call_makes():
    with pytest.raises(TopologyError, match="topology: found no nodes"):
        Topology("t").build()
    with pytest.raises(TopologyError, match=r"node 'b': unknown input 'aa'; did you mean 'aaa'\?"):
        split([Node("aaa", "source", topic="aaa"), Node("b", "processor", ("aa",))], [])
    topo, _ = started()
    with pytest.raises(TopologyError, match=r"unknown node 'know'; known: "):
        topo.build().node("know")


def test_options_that_are_like_no_parameter_are_kept():
    topo = Topology("t")
    options = {"by": "k", "keep": 10, "ttl": 5, "time": "at", "window": "1 h"}
    source = topo.source("a", event_time="at", delay="5 minutes", rows=3)
    source.process(name="p", stores=[{"name": "s", "value": 1}], **options)
    assert topo.build().node("a").options == {"event_time": "at", "delay": "5 minutes", "rows": 3}
    assert topo.build().node("p").options == options


def test_limits_are_still_taken():
    assert names.check_count(MOST, "n") == MOST
    assert names.check_legal_name("x" * 200, "name") == "x" * 200
    assert [len(names.legal("x" * length)) for length in (179, 180, 181)] == [179, 180, 180]
    assert names.legal("x" * 180) == "x" * 180
    assert Topology("t").store("s", retention_ms=10**10).retention_ms == 10**10
