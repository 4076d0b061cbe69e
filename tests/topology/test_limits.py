"""Values at the limits of what a topology takes, and graphs that are damaged in one place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from topology import Topology, TopologyError, built, compare, names, violations
from topology.errors import nearest


def test_a_topology_has_as_many_tasks_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built, "MOST_PARTITIONS", 5)
    topo = Topology("t")
    topo.source("a", partitions=2)
    topo.source("b", partitions=3)
    assert len(topo.build().tasks()) == 5
    topo.source("c", partitions=1)
    with pytest.raises(TopologyError, match="found 6 tasks in 3 subtopologies, expected at most 5"):
        topo.build().tasks()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (10, None),
        (1, None),
        (0, "found 0, expected a whole number >= 1"),
        (11, "found 11, expected at most 10"),
        (2**64 - 1, f"found {2**64 - 1}, expected at most 10"),
        (2**64, "found a number of 65 bits, expected at most 10"),
    ],
)
def test_a_number_is_at_most_the_limit(value: int, message: str | None) -> None:
    if message is None:
        assert names.check_count(value, "n", most=10) == value
        return
    with pytest.raises(TopologyError) as caught:
        names.check_count(value, "n", "node", 10)
    assert (str(caught.value), caught.value.node) == (f"n: {message}", "node")


@pytest.mark.parametrize("bits", [64, 65])
def test_the_name_nearest_to_a_number_is_sought_up_to_64_bits(bits: int) -> None:
    number = 2 ** (bits - 1)
    wanted = f"did you mean '{number}'?" if bits == 64 else f"known: {number}"
    assert nearest(number, [str(number)]) == wanted


@pytest.mark.parametrize(("length", "kept"), [(180, True), (181, False)])
def test_a_legal_name_is_kept_up_to_its_limit(length: int, kept: bool) -> None:
    text = "x" * length
    found = names.legal(text)
    assert (found == text) is kept
    assert len(found) == 180
    assert names.check_legal_name("x" * 200, "name") == "x" * 200
    with pytest.raises(TopologyError, match="expected 1 to 200 letters"):
        names.check_legal_name("x" * 201, "name")


@pytest.mark.parametrize("part", ["registry", "targets"])
@pytest.mark.parametrize("given", [["upper"], {1: str.upper}, "upper"])
def test_processors_and_targets_are_given_by_name(part: str, given: Any) -> None:
    document = {"name": "t", "sources": {"a": None}}
    with pytest.raises(TopologyError, match=rf"^{part}: found .*, expected a mapping by name$"):
        Topology.from_dict(document, **({"registry": {}} | {part: given}))


def state(first: tuple[str, ...], *users: str) -> Any:
    """Return a topology in which these nodes use the store. It has the other nodes as well."""
    topo = Topology("t")
    rows = topo.source("in", key="k", partitions=2)
    topo.store("s")
    for name in first:
        rows.process(name=name, stores=["s"] if name in users else ())
    return topo.build()


ALL = ("a", "b", "c")


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        (state(ALL, "a", "b"), state(ALL, "a"), True),
        (state(ALL, "a"), state(ALL, "a", "b"), True),
        (state(("a", "c"), "a"), state(("b", "c"), "b"), True),
        (state(ALL, "a"), state(ALL, "b"), False),
    ],
    ids=["one node less", "one node more", "renamed", "another node's"],
)
def test_a_store_is_another_one_if_it_goes_from_one_known_node_to_another(
    old: Any, new: Any, kept: bool
) -> None:
    reasons = compare(old, new).reasons
    assert (reasons == ()) is kept
    assert kept or "was the state of node 'a', is now the state of node 'b'" in reasons[0]


def node(name: str, kind: str = "processor", parents: tuple[str, ...] = (), **more: Any) -> Any:
    return SimpleNamespace(name=name, kind=kind, parents=parents, topic=None, internal=False, **more)


def graph(*subtopologies: list[Any], order: tuple[int, ...]) -> tuple[str, ...]:
    subs = [SimpleNamespace(id=i, nodes=nodes, stores=()) for i, nodes in enumerate(subtopologies)]
    nodes = [each for sub in subtopologies for each in sub]
    return violations(
        SimpleNamespace(subtopologies=subs, nodes=nodes, order=order, readiness=lambda: False)  # type: ignore[arg-type]
    )


def test_data_flows_within_a_subtopology_from_earlier_to_later_nodes() -> None:
    assert graph([node("a"), node("b", parents=("a",))], order=(0,)) == ()
    assert graph([node("b", parents=("a",)), node("a")], order=(0,)) == (
        "node 'b' does not follow its input 'a'",
    )
    assert graph([node("a", parents=("a",))], order=(0,)) == ("node 'a' does not follow its input 'a'",)
    assert graph([node("a")], [node("b", parents=("a",))], order=(0, 1)) == (
        "node 'b' does not follow its input 'a'",
    )
    assert graph([node("b", parents=("a",))], [node("a")], order=(0, 1)) == (
        "node 'b' does not follow its input 'a'",
    )


def test_a_repartition_is_read_by_a_later_subtopology() -> None:
    def ends(*apart: bool) -> tuple[str, ...]:
        writer, reader = node("w", "repartition"), node("r", "source")
        writer.topic = reader.topic = "t"
        reader.internal = True
        return (
            graph([writer], [reader], order=(0, 1))
            if apart == (True,)
            else graph([writer, reader], order=(0,))
        )

    assert ends(True) == ()
    assert ends(False) == ("repartition 'w' is read before it is written",)
