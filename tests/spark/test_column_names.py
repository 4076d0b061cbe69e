"""Columns of the user's keep their values, whatever they are called; names that cannot be kept apart are refused."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.compile.programs import programs
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
OLD = ["__0", "__1", "__0_about", "__0_sum", "__row", "__row_min", "count_all"]
NAMES = [*OLD, "0", "k0", "v0", "v0_sum", "v1_min"]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from([*NAMES, "v"]), min_size=4, max_size=4, unique=True))
def test_any_name_is_a_name(bench, tmp_path_factory, names):
    key, column, one, other = names
    folder = tmp_path_factory.mktemp("n")
    rows = pa.table({key: [2**62, 7, 2**62], column: [2**62, 5, 3], "other": [1, 2, 3]})
    sums = {one: count(), other: sum_(column, "int64"), "top": max_(column, "int64"), "text": first(column)}
    run = bench(folder / "a", Aggregate("s", by={key: "int64"}, **sums))
    assert run.run(rows).to_pylist() == [
        {key: 2**62, one: 2, other: 2**62 + 3, "top": 2**62, "text": str(2**62)},
        {key: 7, one: 1, other: 5, "top": 5, "text": "5"},
    ]
    small = rows.slice(1)
    assert [row[other] for row in run.run(small).to_pylist()] == [10, 2**62 + 6]
    run = bench(folder / "d", Deduplicate("s", by={key: "int64"}))
    assert run.run(rows).equals(rows.slice(0, 2))


def per_key(**given):
    types = {"by": {"o": "string"}, "state": {"n": "long"}, "output": {"o": "string"}, **given}
    return PerKey("s", lambda key, rows, state: (None, []), **types)


def compiled(processor, key="o"):
    topo = Topology("t")
    at = {"event_time": key, "delay": 0} if key != "o" else {}
    topo.source("in", key=key, partitions=2, **at).process(processor, name="p")
    return programs(topo.build())


def topics(*names):
    topo = Topology("t")
    for i, name in enumerate(names):
        topo.source(name, key="k", partitions=2).sink(f"o{i}", target=ParquetSink(f"o{i}"))
    return programs(topo.build())


def stored(key, value):
    return StoreSchema.of("s", {"key": key, "value": value})


KEY, HOUR = {"k": "string"}, Tumbling("at", "1 hour")
TWICE = r"^Aggregate\('s'\).* \"the column '(k|K|X_SUM|X|x_count)' twice\""
ONE_STORE = r"^stores\.s: found \"columns '(o|O)' and '(o|O)', which Spark treats as one"
TOPIC = r"^sources\.(__topic|__Partition|Flights)\.topic: found .*a name that differs by more than case"
SEEN = r"Deduplicate\('s'\): found .*another name: the store adds .* 'seen_in_batch'"
HALF, IS_HALF = "a\ud800", r"a.*ud800"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Aggregate("s", by=KEY, k=avg("v")), TWICE),
        (lambda: Aggregate("s", by=KEY, K=count()), TWICE),
        (lambda: Aggregate("s", by=KEY | {"K": "string"}, n=count()), TWICE),
        (lambda: Aggregate("s", by=KEY, x=avg("v"), X_SUM=count()), TWICE),
        (lambda: Aggregate("s", by=KEY, x=avg("v"), X=count()), TWICE),
        (lambda: Aggregate("s", by={"x_Count": "string"}, x=avg("v")), TWICE),
        (lambda: Count("s", by={"Window_Start": "timestamp"}, window=HOUR), "window_start"),
        (lambda: Count("s", by=KEY, window=Tumbling("at", "1 hour", time="Window_Start")), "twice"),
        (lambda: Count("s", by=KEY, window=Tumbling("at", "1 hour", time="K")), "twice"),
        (lambda: Count("s", by=KEY, window=Tumbling("at", "1 hour", time="COUNT")), "twice"),
        (lambda: Deduplicate("s", by={"Seen_In_Batch": "string"}), SEEN),
        (lambda: Deduplicate("s", by=KEY, time="seen_in_batch", ttl="1 day"), SEEN),
        (lambda: topics("__topic"), TOPIC),
        (lambda: topics("__Partition"), TOPIC),
        (lambda: topics("flights", "Flights"), TOPIC),
        (lambda: compiled(per_key(state={"O": "long"})), ONE_STORE),
        (lambda: compiled(Deduplicate("s", by={"o": "string", "O": "string"})), ONE_STORE),
        (lambda: compiled(Deduplicate("s", by={"O": "timestamp"}, time="o", ttl="1 day"), "O"), ONE_STORE),
        (lambda: stored({"o": "string"}, {"x": "long", "O": "long"}), ONE_STORE),
        (lambda: stored(KEY, {"o": "string", "O": "long"}), ONE_STORE),
        # half a character
        (lambda: Count("s", by={HALF: "string"}), IS_HALF),
        (lambda: Count(HALF, by=KEY), IS_HALF),
        (lambda: Count("s", by=KEY, ttl="1 hour", time=HALF), IS_HALF),
        (lambda: Tumbling("at", "1 hour", time=HALF), IS_HALF),
        (lambda: Aggregate("s", by=KEY, **{HALF: count()}), IS_HALF),
        (lambda: sum_(HALF), IS_HALF),
        (lambda: per_key(output={HALF: "int64"}), IS_HALF),
        (lambda: TableJoin("s", by={"j": "string"}, columns=KEY, order_by=[HALF]), IS_HALF),
        (lambda: ParquetSink(HALF), IS_HALF),
    ],
)
def test_names_that_cannot_be_kept_apart_are_refused_where_they_are_given(make, says):
    with pytest.raises(InputError, match=says) as error:
        make()
    str(error.value).encode()


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
    ("target", "name", "refused"),
    [
        (ParquetSink("o"), "batch_id", True),
        (ParquetSink("o"), "Batch_Id", True),
        (object(), "K", True),
        (object(), "batch_id", False),
    ],
)
def test_a_sink_s_columns_are_told_apart_by_spark(target, name, refused):
    topo = Topology("t")
    topo.source("in", key="k", partitions=2).sink("o", target=target)
    (program,) = programs(topo.build())
    rows = pa.table([pa.array(["a"])] * 2, ["k", name])
    if not refused:
        assert program.run(TaskId(0, 0), 0, {"in": rows}, {}).sinks["o"] is rows
        return
    with pytest.raises(InputError, match=rf"^sink 'o': found .*a column '{name}' beside"):
        program.run(TaskId(0, 0), 0, {"in": rows}, {})
