"""Calls that are refused: they leave nothing behind, and say in one error what was wrong with them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology import Store, Stream, Topology, TopologyError, violations


def started() -> tuple[Topology, Stream]:
    topo = Topology("t")
    topo.store("known")
    source = topo.source("a", key="k", partitions=2)
    source.process(name="p", stores=["known"])
    topo.source("r-source", partitions=2)
    return topo, source


class Declares:
    def __init__(self, *stores: str, fail: bool = False) -> None:
        self.stores, self.fail = stores, fail

    def layouts(self) -> dict[str, dict[str, Any]]:
        if self.fail:
            raise RuntimeError("from the processor")
        return {store: {"key": {"k": "int64"}} for store in self.stores}


REFUSED: list[Callable[[Topology, Stream], object]] = [
    lambda t, a: a.repartition("k", name="r"),  # its reading end would be `r-source`, which is there
    lambda t, a: a.repartition("k", name="p"),
    lambda t, a: a.repartition("k", partitions=0),
    lambda t, a: a.repartition("k", name="x y"),
    lambda t, a: a.process(name="p", stores=[{"name": "s"}]),
    lambda t, a: a.process(stores=[{"name": "s"}, {"name": "x y"}]),
    lambda t, a: a.process(stores=[{"name": "s"}, {"name": "known"}]),
    lambda t, a: a.process(stores=[Store("s"), Store("s2", logged=3)]),  # type: ignore[arg-type]
    lambda t, a: a.process(stores=[{"name": "s"}, 3]),  # type: ignore[list-item]
    lambda t, a: a.process(Declares("s", "x y")),
    lambda t, a: a.process(Declares("s"), stores=[{"name": "s", "key": {"k": "string"}}]),
    lambda t, a: a.process(Declares("s", fail=True), stores=[{"name": "s2"}]),
    lambda t, a: a.join_table(a, name="p", stores=[{"name": "s"}]),
    lambda t, a: a.merge(a),
    lambda t, a: a.sink("p"),
    lambda t, a: a.sink(target="x\ny"),
    lambda t, a: t.process(inputs=[a, a], stores=[{"name": "s"}]),
    lambda t, a: t.source("a"),
    lambda t, a: t.source("b", name="p"),
    lambda t, a: t.store("known"),
    lambda t, a: t.store("s", logged="no"),  # type: ignore[arg-type]
]


def contents(topo: Topology) -> tuple[Any, ...]:
    return copy.deepcopy((topo._nodes, topo._stores, topo._topics, topo._names.stems))


@pytest.mark.parametrize("call", REFUSED)
def test_a_refused_call_leaves_nothing_behind(call: Callable[[Topology, Stream], object]) -> None:
    topo, a = started()
    before = contents(topo)
    with pytest.raises((TopologyError, RuntimeError)) as caught:
        call(topo, a)
    if caught.type is not RuntimeError:
        assert caught.type is TopologyError
        assert "\n" not in str(caught.value)
    assert contents(topo) == before
    # The same names can be used afterwards, and the automatic ones are the first ones.
    assert a.process(stores=[{"name": "s"}, {"name": "s2"}]).name == "a-process"
    assert a.repartition("k").name == "a-by-k-source"
    assert a.repartition("k", name="again").name == "again-source"
    assert violations(topo.build()) == ()


@settings(deadline=None)
@given(st.lists(st.integers(0, len(REFUSED) - 1), max_size=8))
def test_refused_calls_in_between_change_nothing(calls: list[int]) -> None:
    clean, a = started()
    tried, b = started()
    for number, call in enumerate(calls):
        with pytest.raises((TopologyError, RuntimeError)):
            REFUSED[call](tried, b)
        for stream in (a, b):
            stream.process().repartition("k").process(stores=[{"name": f"store{number}"}]).sink()
    assert tried.build().to_dict() == clean.build().to_dict()


BAD: list[tuple[Callable[[Topology, Stream], object], str]] = [
    (
        lambda t, a: t.process("P", inputs=a),
        "topology 't', process.inputs: found Stream('a'), expected a list of",
    ),
    (
        lambda t, a: t.process("P", inputs=None, name="q"),
        "node 'q'.inputs: found nothing, expected a list of streams",
    ),
    (
        lambda t, a: t.process("P", inputs="a", name="q"),
        "node 'q'.inputs: found 'a', expected a list of streams",
    ),
    (
        lambda t, a: a.process(name="q", stores=None),
        "node 'q'.stores: found nothing, expected a list of stores",
    ),
    (lambda t, a: a.process(name="q", stores=3), "node 'q'.stores: found 3, expected a list of stores"),
    (
        lambda t, a: a.process(name="q", stores=[{"name": "s", True: 1}]),
        "found the field True, expected strings as field names",
    ),
    (
        lambda t, a: a.process(name="q", stores=[{"name": 3}]),
        "store name: found 3, expected 1 to 200 letters",
    ),
    (lambda t, a: a.process(name=3), "processor name: found 3, expected a name"),
    (lambda t, a: t.source("b", key={"k", "l"}), "expected a list of column names"),
    (lambda t, a: t.source("b", key=(k for k in "kl")), "expected a list of column names"),
    (lambda t, a: t.source("b", key={"k": 1}.keys()), "expected a list of column names"),
    (lambda t, a: t.process("P", inputs=[]), "a processor without input"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[case[1][:50] for case in BAD])
def test_what_is_no_list_is_one_error(call: Callable[[Any, Any], object], message: str) -> None:
    topo, a = started()
    with pytest.raises(TopologyError) as caught:
        call(topo, a)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# -- options that are slips of the pen -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "message", "node"),
    [
        (lambda t, _: t.source("b", partition=8), "source 'b'.partition: found an unknown option", "b"),
        (lambda t, _: t.source("b", keys="k"), "did you mean 'key'?", "b"),
        (lambda t, _: t.store("s", loged=False), "store 's'.loged: found an unknown option", "s"),
        (lambda t, _: t.store("s", retention=5), "did you mean 'retention_ms'?", "s"),
        (lambda _, a: a.process(name="p", store=["s"]), "node 'p'.store: found an unknown option", "p"),
        (lambda _, a: a.process(store=["s"]), "process of 'a'.store: found an unknown option", "a"),
        (lambda _, a: a.process(name="p", stores=[{"name": "s", "loged": 1}]), "did you mean 'logged'?", "p"),
        (lambda t, a: t.process(inputs=[a], name="p", store="s"), "node 'p'.store: found", "p"),
        (lambda t, a: a.join_table(t.source("b", key="k"), store="s"), "did you mean 'stores'?", "a"),
        (lambda t, a: a.join_stream(t.source("b", key="k"), store="s"), "did you mean 'stores'?", "a"),
        (lambda _, a: a.repartition("k", partition=8), "did you mean 'partitions'?", "a"),
        (lambda _, a: a.sink("o", targets="x"), "node 'o'.targets: found an unknown option", "o"),
        (lambda t, a: a.merge(t.source("b"), names="x"), "did you mean 'name'?", "a"),
    ],
)
def test_a_misspelt_parameter_is_not_kept_as_an_option(
    call: Callable[[Any, Any], object], message: str, node: str
) -> None:
    topo = Topology("t")
    a = topo.source("a", key="k")
    with pytest.raises(TopologyError) as caught:
        call(topo, a)
    assert message in str(caught.value)
    assert caught.value.node == node


def test_options_that_are_like_no_parameter_are_kept() -> None:
    topo = Topology("t")
    source = topo.source("a", event_time="at", delay="5 minutes", rows=3)
    source.process(
        name="p", by="k", keep=10, ttl=5, time="at", window="1 h", stores=[{"name": "s", "value": 1}]
    )
    built = topo.build()
    assert built.node("a").options == {"event_time": "at", "delay": "5 minutes", "rows": 3}
    assert built.node("p").options == {"by": "k", "keep": 10, "ttl": 5, "time": "at", "window": "1 h"}


def test_a_misspelt_field_among_a_sources_or_a_stores_options_has_its_path() -> None:
    written: dict[str, Any] = {"name": "t", "sources": {"a": {"options": {"partition": 8}}}}
    with pytest.raises(
        TopologyError, match=r"^sources.a.options.partition: found an unknown option; did you"
    ):
        Topology.from_dict(written)
    written = {"name": "t", "sources": {"a": None}, "stores": {"s": {"options": {"loged": True}}}}
    with pytest.raises(
        TopologyError, match=r"^stores.s.options.loged: found an unknown option; did you mean"
    ):
        Topology.from_dict(written)
    # A step's options are its processor's own.
    step = {"process": "a", "processor": "p", "options": {"store": "s"}}
    topo = Topology.from_dict({"name": "t", "sources": {"a": None}, "nodes": {"n": step}}, {"p": dict})
    assert topo.build().node("n").processor == {"store": "s"}


# -- errors that name the node ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "node", "message"),
    [
        (lambda a: a.repartition(5), "a", "repartition of 'a'.key: found 5"),
        (lambda a: a.repartition(["x", "x"], name="r"), "r", "repartition 'r'.key: found"),
        (lambda a: a.topology.source("b", key=5), "b", "source 'b'.key: found 5"),
        (lambda a: a.process(name="p", stores=["s", "s"]), "p", "node 'p'.stores: found"),
        (lambda a: a.process(name="p", stores=None), "p", "node 'p'.stores: found nothing"),
        (lambda a: a.process(stores=[{"logged": False}]), "a-process", "node 'a-process'.stores: found"),
        (lambda a: a.process(stores=[{"name": None}]), "a-process", "store name: found nothing"),
        (lambda a: a.process(stores=[Store("")]), "", "store name: found ''"),
        (lambda a: a.process(name=5), None, "processor name: found 5"),
        (lambda a: a.sink("o", target=" "), "o", "node 'o'.target: found ' '"),
        (lambda a: a.join_table(None), "a", "topology 't', beside 'a': found nothing as an input"),
        (lambda a: a.join_stream("b"), "a", "topology 't', beside 'a': found 'b' as an input"),
        (lambda a: a.merge([a]), "a", "topology 't', beside 'a': found [Stream('a')] as an input"),
    ],
)
def test_the_error_of_a_call_names_the_node(call: Callable[[Any], object], node: Any, message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        call(Topology("t").source("a", key="k"))
    assert message in str(caught.value)
    assert caught.value.node == node


def test_a_sink_may_not_write_to_an_internal_topic() -> None:
    for target in ("s-changelog", "r-repartition"):
        topo = Topology("t")
        a = topo.source("a", key="k", partitions=1)
        a.repartition("k", name="r").process(name="p", stores=[{"name": "s"}]).sink("o", target=target)
        with pytest.raises(
            TopologyError, match=f"its topic '{target}' and '{target}' of sink 'o' are the same"
        ):
            topo.build()
    topo = Topology("t")
    a = topo.source("a", key="k", partitions=1)
    a.process(name="p", stores=[{"name": "s.t"}]).sink("o", target="s_t-changelog")
    with pytest.raises(TopologyError, match=r"'s_t-changelog' of sink 'o' are the same to Kafka"):
        topo.build()


def test_sinks_may_share_a_topic_and_write_to_one_that_is_read() -> None:
    topo = Topology("t")
    a = topo.source("a", key="k", partitions=1)
    a.sink("one", target="a")
    a.sink("two", target="x")
    a.sink("three", target="x")
    a.sink("four", target=object())
    assert topo.build().readiness()
