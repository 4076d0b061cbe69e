"""State kept by columns that the input is not split by: refused where it shows, left alone where it does not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.spark.compile.infer import infer
from taskplace.spark.processors import Aggregate, Count, Deduplicate, PerKey, TableJoin, Tumbling, count
from taskplace.spark.processors.aggregate import WINDOW
from topology import Stream, Topology, TopologyError


def by(*columns: str) -> dict[str, str]:
    return dict.fromkeys(columns, "string")


def source(key, partitions=4) -> Stream:
    return Topology("t").source("in", key=key, partitions=partitions)


def two(one, other, keys=("k", "k")) -> list[Stream]:
    """Return two sources, by their numbers of partitions."""
    topo = Topology("t")
    return [topo.source(n, key=k, partitions=p) for n, k, p in zip("ab", keys, (one, other), strict=True)]


def as_it_is(context, rows):
    """A function, which moves no row."""
    return rows


def judged(stream: Stream) -> None:
    infer(stream.topology.build())


def refused(stream: Stream, says: str, node: str | None = None) -> None:
    with pytest.raises(TopologyError, match=says) as caught:
        judged(stream)
    assert node in (None, caught.value.node)


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, unique=True), st.sets(st.sampled_from("abc"), min_size=1))
def test_refused_is_exactly_what_splits_a_key(key, columns):
    counted = source(key).process(Count("c", by=by(*sorted(columns))), name="count")
    if lacking := ", ".join(repr(column) for column in key if column not in columns):
        refused(counted, rf"node 'count': keeps state by \(.*add {lacking} to `by`$", "count")
    else:
        judged(counted)


KEYED = {
    "aggregate": Aggregate("s", by=by("k"), n=count()),
    "window": Count("s", by=by("k"), window=Tumbling("at", "1 hour")),
    "per key": PerKey("s", lambda key, rows, state: (state, rows), by=by("k"), state=by("x"), output=by("x")),
}


@pytest.mark.parametrize("processor", KEYED.values(), ids=KEYED)
def test_all_that_keep_state_by_key_are_judged(processor):
    judged(source("k").process(processor))
    refused(source("o").process(processor), r"partitioned by \(o\)")


@pytest.mark.parametrize("between", [None, as_it_is], ids=["directly", "behind a function"])
@pytest.mark.parametrize(
    "processor",
    [*KEYED.values(), Deduplicate("s", by=by("k")), Deduplicate("s", by=by("k", "id"))],
    ids=[*KEYED, "keys", "ids of keys"],
)
def test_topics_that_spread_one_key_over_several_tasks(processor, between):
    """Without a key each row goes to any task; of merged topics, each has tasks of its own for a key."""

    def behind(stream: Stream) -> Stream:
        return (stream if between is None else stream.process(between)).process(processor, name="node")

    judged(behind(source(None, partitions=1)))
    refused(behind(source(None)), r"^node 'node': keeps .* 'in' are .* without a key.* by \(k.*\)$")
    refused(behind(source("k").repartition(partitions=3, name="spread")), "without a key")
    (a, b) = two(6, 6)
    judged(behind(a.merge(b)))
    (a, b) = two(12, 6)
    refused(
        behind(a.merge(b)),
        r"^node 'node': keeps state by key, but its input topics have different numbers of partitions "
        r"\('a' has 12, 'b' has 6\), so rows of one key reach several tasks; give the topics equal numbers, or "
        "repartition the input first$",
        "node",
    )
    (a, b) = two(12, 6)
    judged(behind(a.merge(b).repartition("k", name="again")))
    (a, b) = two(4, 4, ("k", None))
    refused(behind(a.merge(b)), "'b' are partitioned without a key")


def test_a_repartition_is_what_counts():
    again = source("origin").repartition("tailnum", name="again")
    judged(again.process(Count("c", by=by("tailnum"))))
    counted = again.process(Count("d", by=by("origin")))
    refused(counted, r"input 'again-source' is partitioned by \(tailnum\)")


def test_either_side_of_a_table_join_is_judged():
    stream, table = two(4, 4, (["origin", "hour"], ["origin", "hour"]))
    joined = stream.join_table(
        table, TableJoin("w", by=by("origin", "hour"), columns=by("visib")), name="join"
    )
    judged(joined)
    judged(joined.process(Count("c", by=by("hour", "origin", "visib"))))
    refused(joined.process(Count("d", by=by("visib")), name="again"), "node 'again'")
    stream, table = two(4, 4, (["origin", "hour"], ["origin", "hour"]))
    join = TableJoin("w", by=by("origin"), columns=by("visib"))
    refused(stream.join_table(table, join), "add 'hour' to `by`")


def test_columns_that_are_kept_stay_known():
    once = source("tailnum").process(Deduplicate("seen", by=by("tailnum", "id")))
    counted = once.process(Count("c", by=by("tailnum", "day")))
    judged(counted.process(Count("d", by=by("tailnum"), over_changes=True)))
    refused(counted.process(Count("e", by=by("day"), over_changes=True), name="days"), "node 'days'")


def test_streams_that_are_merged_have_to_be_keyed_alike():
    def merged(*key, by_=("k", "m"), then=None):
        one, other = two(4, 4, (["k"], list(key)))
        both = one.merge(other)
        return (both.process(then) if then else both).process(Count("c", by=by(*by_)), name="count")

    judged(merged("k"))
    refused(merged("k", by_=("l",)), r"partitioned by \(k\)")
    refused(merged("m", by_=("k",)), r"partitioned by \(m\)")
    says = r": .* input topics are partitioned by \(k\) and \(m\), so rows of one key .* in the same order"
    refused(merged("m"), f"node 'count'{says}")
    for then in (as_it_is, Deduplicate("seen", by=by("k", "m"))):
        refused(merged("m", then=then), says)


@pytest.mark.parametrize("other", [["l", "k"], ["l"], ["k"]])
def test_what_meets_is_split_by_the_same_columns_in_the_same_order(other):
    """A row's task follows from the hash of its columns in turn: of (k, l) it is another one than of (l, k)."""
    says = r"partitioned by \(.*\) and \(|cannot join"
    one, two_ = two(4, 4, (["k", "l"], other))
    refused(one.merge(two_).process(Count("c", by=by("k", "l"))), says)
    one, two_ = two(4, 4, (["k", "l"], other))
    refused(one.join_table(two_, TableJoin("w", by=by("l", "k"), columns=by("visib"))), says)


def test_no_input_is_split_by_a_window_that_is_made_behind_it():
    again = source("tailnum").repartition([WINDOW], name="again")
    judged(again.process(Count("c", by=by(WINDOW))))
    windows = again.process(Count("d", by=by("tailnum"), window=Tumbling("at", "1 hour")))
    refused(windows, r"keeps state by \(tailnum\), .* partitioned by \(window_start\)")


def test_one_task_has_all_rows():
    judged(source("origin", partitions=1).process(Count("c", by=by("tailnum"))))
    refused(source("origin", partitions=None).process(Count("c", by=by("tailnum"))), "partition")


@pytest.mark.parametrize("function", [None, as_it_is], ids=["directly", "behind a function"])
def test_a_table_with_another_number_of_partitions(function):
    stream, table = two(4, 3)
    table = table if function is None else table.process(function)
    join = TableJoin("s", by=by("k"), columns=by("c"))
    joined = stream.topology.process(join, inputs=[stream, table], name="node")
    refused(joined, r"different numbers of partitions \('a' has 4, 'b' has 3\)")


@pytest.mark.parametrize(
    ("keys", "partitions", "says", "node"),
    [
        ((None, "k"), 4, "state by key, but the rows of 'a' are partitioned without", "node-a"),
        (("k", None), 4, "state by key, but the rows of 'b' are partitioned without", "node-b"),
        (("k", "k"), 3, "different numbers of partitions", "node-b"),
        (("k", ["k", "o"]), 4, r"share a store .* partitioned by \(k\) and \(k, o\)", "node-b"),
        (("k", "k"), 4, "", ""),
    ],
)
def test_a_store_that_two_nodes_share(keys, partitions, says, node):
    streams = two(4, partitions, keys)
    streams[0].topology.store("seen")
    for name, rows in zip("ab", streams, strict=True):
        rows.process(Deduplicate("seen", by=by("k", "o")), stores=["seen"], name=f"node-{name}")
    if says:
        refused(streams[0], says, node)
    else:
        judged(streams[0])
