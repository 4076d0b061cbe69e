"""State kept by columns that the input is not split by: refused where it shows, left alone where it does not."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.spark.compile.infer import infer
from taskplace.spark.processors import Aggregate, Count, Deduplicate, PerKey, TableJoin, Tumbling, count
from taskplace.spark.processors.aggregate import WINDOW
from topology import Stream, Topology, TopologyError


def by(*columns: str) -> dict[str, str]:
    return dict.fromkeys(columns, "string")


def source(key, partitions=4) -> Stream:
    return Topology("t").source("flights", key=key, partitions=partitions)


def judged(stream: Stream) -> None:
    infer(stream.topology.build())


@pytest.mark.parametrize(
    ("key", "columns", "lacking"),
    [
        ("tailnum", ["tailnum"], None),
        ("tailnum", ["tailnum", "day"], None),
        ("tailnum", ["day", "tailnum"], None),
        ("origin", ["tailnum"], "'origin'"),
        (["tailnum", "day"], ["tailnum"], "'day'"),
        (["origin", "day"], ["tailnum"], "'origin', 'day'"),
    ],
)
def test_the_key_has_to_be_among_the_columns(key, columns, lacking):
    counted = source(key).process(Count("c", by=by(*columns)), name="count")
    if lacking is None:
        judged(counted)
        return
    with pytest.raises(
        TopologyError, match=rf"node 'count': keeps state by \(.*add {lacking} to `by`$"
    ) as caught:
        judged(counted)
    assert caught.value.node == "count"


def per_key(*columns):
    return PerKey("s", lambda key, rows, state: (state, rows), by=by(*columns), state=by("x"), output=by("x"))


@pytest.mark.parametrize(
    "processor",
    [
        Aggregate("s", by=by("tailnum"), n=count()),
        Count("s", by=by("tailnum"), window=Tumbling("at", "1 hour")),
        per_key("tailnum"),
    ],
    ids=["aggregate", "window", "per key"],
)
def test_all_that_keep_state_by_key_are_judged(processor):
    judged(source("tailnum").process(processor))
    with pytest.raises(TopologyError, match=r"partitioned by \(origin\)"):
        judged(source("origin").process(processor))


def test_a_repartition_is_what_counts():
    again = source("origin").repartition("tailnum", name="again")
    judged(again.process(Count("c", by=by("tailnum"))))
    with pytest.raises(TopologyError, match=r"input 'again-source' is partitioned by \(tailnum\)"):
        judged(again.process(Count("d", by=by("origin"))))


def test_either_side_of_a_table_join_is_judged():
    topo = Topology("t")
    flights, weather = (
        topo.source(name, key=["origin", "hour"], partitions=4) for name in ("flights", "weather")
    )
    right = TableJoin("w", by=by("origin", "hour"), columns=by("visib"))
    joined = flights.join_table(weather, right, name="join")
    judged(joined)
    judged(joined.process(Count("c", by=by("hour", "origin", "visib"))))
    with pytest.raises(TopologyError, match="node 'again'"):
        judged(joined.process(Count("d", by=by("visib")), name="again"))
    wrong = Topology("t")
    sides = [wrong.source(name, key=["origin", "hour"], partitions=4) for name in ("flights", "weather")]
    with pytest.raises(TopologyError, match="add 'hour' to `by`"):
        judged(sides[0].join_table(sides[1], TableJoin("w", by=by("origin"), columns=by("visib"))))


def test_columns_that_are_kept_stay_known():
    once = source("tailnum").process(Deduplicate("seen", by=by("tailnum", "id")))
    counted = once.process(Count("c", by=by("tailnum", "day")))
    judged(counted.process(Count("d", by=by("tailnum"), over_changes=True)))
    with pytest.raises(TopologyError, match="node 'days'"):
        judged(counted.process(Count("e", by=by("day"), over_changes=True), name="days"))


def test_streams_that_are_merged_have_to_be_keyed_alike():
    def merged(*key, by_=("k", "m"), then=None):
        topo = Topology("t")
        one, two = topo.source("a", key=["k"], partitions=4), topo.source("b", key=list(key), partitions=4)
        both = one.merge(two)
        return (both.process(then) if then else both).process(Count("c", by=by(*by_)), name="count")

    judged(merged("k"))
    with pytest.raises(TopologyError, match=r"partitioned by \(k\)"):
        judged(merged("k", by_=("l",)))
    message = (
        r"node 'count': .* input topics are partitioned by \(k\) and \(m\), so rows of one key .* in the same "
        "order"
    )
    with pytest.raises(TopologyError, match=message):
        judged(merged("m"))
    with pytest.raises(TopologyError, match=message.replace("'count'", "'.*'")):
        judged(merged("m", then=Deduplicate("seen", by=by("k", "m"))))
    with pytest.raises(TopologyError, match=r"partitioned by \(m\)"):
        judged(merged("m", by_=("k",)))
    with pytest.raises(TopologyError, match=message):  # a function moves no row
        judged(merged("m", then=lambda context, rows: rows))


@pytest.mark.parametrize("other", [["l", "k"], ["l"], ["k"]])
def test_what_meets_is_split_by_the_same_columns_in_the_same_order(other):
    """A row's task follows from the hash of its columns in turn: of (k, l) it is another one than of (l, k)."""
    topo = Topology("t")
    sides = [topo.source("a", key=["k", "l"], partitions=4), topo.source("b", key=other, partitions=4)]
    with pytest.raises(TopologyError, match=r"partitioned by \(.*\) and \(|cannot join"):
        judged(sides[0].merge(sides[1]).process(Count("c", by=by("k", "l"))))
    topo = Topology("t")
    sides = [topo.source("a", key=["k", "l"], partitions=4), topo.source("b", key=other, partitions=4)]
    with pytest.raises(TopologyError, match=r"partitioned by \(.*\) and \(|cannot join"):
        judged(sides[0].join_table(sides[1], TableJoin("w", by=by("l", "k"), columns=by("visib"))))


def test_no_input_is_split_by_a_window_that_is_made_behind_it():
    again = source("tailnum").repartition([WINDOW], name="again")
    judged(again.process(Count("c", by=by(WINDOW))))
    with pytest.raises(
        TopologyError, match=r"keeps state by \(tailnum\), .* partitioned by \(window_start\)"
    ):
        judged(again.process(Count("d", by=by("tailnum"), window=Tumbling("at", "1 hour"))))


def merging(one, other, key="k") -> Stream:
    topo = Topology("t")
    first, second = (topo.source(name, key=key, partitions=n) for name, n in (("a", one), ("b", other)))
    return first.merge(second)


@pytest.mark.parametrize(
    "processor",
    [
        Aggregate("s", by=by("k"), n=count()),
        Count("s", by=by("k", "l")),
        per_key("k"),
        Deduplicate("s", by=by("k")),
        Deduplicate("s", by=by("k", "id")),
    ],
    ids=["aggregate", "count", "per key", "keys", "ids of keys"],
)
def test_topics_of_different_numbers_of_partitions_that_are_merged_split_a_key(processor):
    """The rows of one key lie in one task for the one, and in another one for the other."""
    judged(merging(6, 6).process(processor))
    with pytest.raises(
        TopologyError,
        match=r"^node 'counted': keeps state by key, but its input topics have different numbers of partitions "
        r"\('a' has 12, 'b' has 6\), so rows of one key reach several tasks; give the topics equal numbers, or "
        "repartition the input first$",
    ) as caught:
        judged(merging(12, 6).process(processor, name="counted"))
    assert caught.value.node == "counted"


def test_behind_a_repartition_it_does_not_matter_what_was_merged():
    merged = merging(12, 6)
    judged(merged.repartition("k", name="again").process(Count("c", by=by("k"))))
    with pytest.raises(TopologyError, match="different numbers of partitions"):  # a function moves no row
        judged(merged.process(lambda context, rows: rows).process(Count("d", by=by("k"))))


def test_one_task_has_all_rows():
    judged(source("origin", partitions=1).process(Count("c", by=by("tailnum"))))
    with pytest.raises(TopologyError):
        judged(source("origin", partitions=None).process(Count("c", by=by("tailnum"))))


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, unique=True), st.sets(st.sampled_from("abc"), min_size=1))
def test_refused_is_exactly_what_splits_a_key(key, columns):
    counted = source(key).process(Count("c", by=by(*sorted(columns))))
    if set(key) <= columns:
        judged(counted)
    else:
        with pytest.raises(TopologyError):
            judged(counted)
