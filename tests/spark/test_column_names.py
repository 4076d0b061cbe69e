"""Columns of the user's keep their values, whatever they are called; names that cannot be kept apart are refused."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.compile import programs
from taskplace.spark.driver.batch import BatchInput
from taskplace.spark.processors import (
    Aggregate,
    Count,
    Deduplicate,
    PerKey,
    TableJoin,
    Tumbling,
    avg,
    count,
    first,
    max_,
    sum_,
)
from taskplace.spark.sinks import ParquetSink
from taskplace.spark.state.store import StoreSchema
from taskplace.spark.worker.external import PARTITION, TAG
from topology import TaskId, Topology

#: What was once used inside, and what is now.
NAMES = [
    "__0",
    "__1",
    "__0_about",
    "__0_sum",
    "__row",
    "__row_min",
    "count_all",
    "0",
    "k0",
    "v0",
    "v0_sum",
    "v1_min",
]


@pytest.mark.parametrize("key", NAMES)
@pytest.mark.parametrize("column", [*NAMES, "v"])
def test_any_name_is_a_name(bench, tmp_path, key, column):
    if key == column:
        return
    rows = pa.table({key: [2**62, 7, 2**62], column: [2**62, 5, 3], "other": [1, 2, 3]})
    aggregates = {
        "total": sum_(column, "int64"),
        "n": count(),
        "top": max_(column, "int64"),
        "one": first(column),
    }
    run = bench(tmp_path / "a", Aggregate("s", by={key: "int64"}, **aggregates))
    assert run.run(rows).to_pylist() == [
        {key: 2**62, "total": 2**62 + 3, "n": 2, "top": 2**62, "one": str(2**62)},
        {key: 7, "total": 5, "n": 1, "top": 5, "one": "5"},
    ]
    run = bench(tmp_path / "d", Deduplicate("s", by={key: "int64"}))
    assert run.run(rows).equals(rows.slice(0, 2))


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from(NAMES), min_size=4, max_size=4, unique=True))
def test_aggregates_may_be_called_so_too(bench, tmp_path_factory, names):
    key, column, one, other = names
    run = bench(
        tmp_path_factory.mktemp("n"),
        Aggregate("s", by={key: "string"}, **{one: count(), other: sum_(column, "int64")}),
    )
    rows = pa.table({key: ["a", "a", "b"], column: [1, 2, 3]})
    for times in (1, 2):
        assert run.run(rows).to_pylist() == [
            {key: "a", one: 2 * times, other: 3 * times},
            {key: "b", one: times, other: 3 * times},
        ]


@pytest.mark.parametrize(
    ("by", "aggregates", "name"),
    [
        (["k"], {"k": avg("v")}, "k"),  # it would take the key's place in what is sent on
        (["k"], {"K": count()}, "K"),
        (["k", "K"], {"n": count()}, "K"),
        (["k"], {"x": avg("v"), "X_SUM": count()}, "X_SUM"),
        (["k"], {"x": avg("v"), "X": count()}, "X"),
        (["x_Count"], {"x": avg("v")}, "x_count"),
    ],
)
def test_names_of_an_aggregate_differ_by_more_than_their_case(by, aggregates, name):
    with pytest.raises(InputError, match=rf"^Aggregate\('s'\).* \"the column '{name}' twice\""):
        Aggregate("s", by=dict.fromkeys(by, "string"), **aggregates)


def test_what_a_window_adds_is_no_other_column_s_name():
    with pytest.raises(InputError, match="window_start"):
        Count("s", by={"Window_Start": "timestamp"}, window=Tumbling("at", "1 hour"))
    for time in ("Window_Start", "K", "COUNT"):
        with pytest.raises(InputError, match="twice"):
            Count("s", by={"k": "timestamp"}, window=Tumbling("at", "1 hour", time=time))


@pytest.mark.parametrize(
    "more", [{"by": {"Seen_In_Batch": "string"}}, {"time": "seen_in_batch", "ttl": "1 day"}]
)
def test_the_column_of_a_deduplication_is_its_own(more):
    with pytest.raises(
        InputError, match=r"Deduplicate\('s'\): found .*another name: the store adds .* 'seen_in_batch'"
    ):
        Deduplicate("s", **{"by": {"k": "string"}, **more})


# -------------------------------------------------------------------------------------- topics and sinks


@pytest.mark.parametrize("names", [["__topic"], ["__Partition"], ["flights", "Flights"]])
def test_topics_have_names_that_spark_tells_apart(names):
    topo = Topology("t")
    for i, name in enumerate(names):
        topo.source(name, key="k", partitions=2).sink(f"o{i}", target=ParquetSink(f"o{i}"))
    with pytest.raises(
        InputError,
        match=rf"^sources\.{names[-1]}\.topic: found .*expected a name that differs by more than case",
    ):
        programs.programs(topo.build())


def test_a_column_that_is_called_like_the_tag_does_not_pass_for_it():
    """The rows of the one source come as they are, with a column of that name: that is no united data frame."""
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).sink("o", target=ParquetSink("o"))

    class Input(BatchInput):
        def unite(self, sources):
            return "united", sources

    batch_input = Input(SimpleNamespace(built=topo.build()), None, None)
    single, done = (
        SimpleNamespace(columns=columns, schema=None, isStreaming=False)
        for columns in (["k", TAG], [TAG, PARTITION, "in"])
    )
    assert batch_input.of_batch(single) == ("united", {"in": single})
    assert batch_input.of_batch(done) is done


@pytest.mark.parametrize(
    ("target", "columns", "found"),
    [
        (ParquetSink("o"), ["k", "batch_id"], "batch_id"),
        (ParquetSink("o"), ["k", "Batch_Id"], "Batch_Id"),
        (object(), ["k", "K"], "K"),
        (object(), ["k", "batch_id"], None),
    ],
)
def test_a_sink_s_columns_are_told_apart_by_spark(target, columns, found):
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).sink("o", target=target)
    (program,) = programs.programs(topo.build())
    rows = pa.table([pa.array(["a"])] * 2, columns)
    if found is None:
        assert program.run(TaskId(0, 0), 0, {"in": rows}, {}).sinks["o"] is rows
        return
    with pytest.raises(InputError, match=rf"^sink 'o': found .*a column '{found}' beside"):
        program.run(TaskId(0, 0), 0, {"in": rows}, {})


def counted(processor, key="o"):
    topo = Topology("t")
    at = {"event_time": key, "delay": 0} if key != "o" else {}
    topo.source("in", key=key, partitions=2, **at).process(processor, name="p")
    return topo.build()


def stored(key, value, **more):
    return StoreSchema.of("s", {"key": key, "value": value, **more})


@pytest.mark.parametrize(
    "make",
    [
        lambda: programs.programs(
            counted(
                PerKey(
                    "s",
                    lambda *_: (None, []),
                    by={"o": "string"},
                    state={"O": "long"},
                    output={"o": "string"},
                )
            )
        ),
        lambda: programs.programs(counted(Deduplicate("s", by={"o": "string", "O": "string"}))),
        lambda: programs.programs(
            counted(Deduplicate("s", by={"O": "timestamp"}, time="o", ttl="1 day"), "O")
        ),
        lambda: stored({"o": "string"}, {"x": "long", "O": "long"}),
        lambda: stored({"k": "string"}, {"o": "string", "O": "long"}),
    ],
)
def test_columns_of_a_store_that_spark_takes_for_one(make):
    with pytest.raises(
        InputError, match=r"^stores\.s: found \"columns '(o|O)' and '(o|O)', which Spark treats as one"
    ):
        make()


# -------------------------------------------------------------------------------------------- surrogates

HALF = "a\ud800"
KEY = {"k": "string"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: Count("s", by={HALF: "string"}),
        lambda: Count(HALF, by=KEY),
        lambda: Count("s", by=KEY, ttl="1 hour", time=HALF),
        lambda: Tumbling("at", "1 hour", time=HALF),
        lambda: Aggregate("s", by=KEY, **{HALF: count()}),
        lambda: sum_(HALF),
        lambda: PerKey("s", lambda key, rows, state: (None, []), by=KEY, state=KEY, output={HALF: "int64"}),
        lambda: TableJoin("s", by={"j": "string"}, columns=KEY, order_by=[HALF]),
        lambda: ParquetSink(HALF),
    ],
)
def test_a_name_with_half_a_character_is_refused_where_it_is_given(make):
    with pytest.raises(InputError, match=r"a.*ud800") as error:
        make()
    str(error.value).encode()
