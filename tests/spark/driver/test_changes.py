"""Aggregates over rows that later rows replace: refused, unless they are declared or the result is the same."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from taskplace.errors import ConfigError, InputError
from taskplace.spark.compile.infer import infer
from taskplace.spark.processors import (
    Aggregate,
    Count,
    Deduplicate,
    Facts,
    PerKey,
    TableJoin,
    Tumbling,
    avg,
    count,
    first,
    last,
    max_,
    min_,
    sum_,
)
from taskplace.spark.registry import Registry
from taskplace.spark.yaml_application import YamlApplication
from taskplace.spec.application import Settings
from topology import Stream, Topology, TopologyError

KEY = {"k": "string"}


def source(name: str = "in") -> Stream:
    return Topology("t").source(name, key="k", partitions=2, event_time="at")


def judge(stream: Stream) -> None:
    infer(stream.topology.build())


def total(**options: Any) -> Aggregate:
    return Aggregate("total", by=KEY, **{"total": sum_("count", "int64"), **options})


def windows(emit: str) -> Count:
    return Count("c", by=KEY, window=Tumbling("at", "1 hour", emit=emit))  # type: ignore[arg-type]


@pytest.mark.parametrize("emits", [Count("c", by=KEY), windows("changes")], ids=["a count", "windows"])
@pytest.mark.parametrize(
    "between",
    [
        lambda stream: stream,
        lambda stream: stream.repartition(key="k", name="again", partitions=3),
        lambda stream: stream.process(lambda context, rows: rows),
        lambda stream: stream.merge(stream.process(lambda context, rows: rows)),
    ],
    ids=["directly", "a repartition", "a function", "a merge"],
)
def test_what_counts_intermediate_rows_is_refused_with_the_remedy(emits, between):
    stream = between(source().process(emits, name="emits"))
    with pytest.raises(
        InputError,
        match=r"^node 'total', Aggregate\('total'\)\.total: found \"a sum of 'count' over rows of 'emits', which "
        r"emits a key again.*give 'emits' windows with emit=\"final\", or take each change as a row: over_changes=True",
    ):
        judge(stream.process(total(), name="total"))


@pytest.mark.parametrize(
    "processor",
    [Count("x", by=KEY), Deduplicate("x", by=KEY), total(total=avg("count")), total(total=count("k"))],
)
def test_counts_averages_and_de_duplication_are_refused(processor):
    with pytest.raises(InputError, match="over_changes=True"):
        judge(source().process(Count("c", by=KEY), name="c").process(processor))


def test_final_windows_sources_and_a_declaration_are_accepted():
    judge(source().process(total(total=sum_("v"))))
    judge(source().process(windows("final")).process(total()))
    counted = source().process(Count("c", by=KEY))
    judge(counted.process(total(over_changes=True)))
    once = counted.process(Deduplicate("d", by=KEY, over_changes=True))
    judge(once.process(Count("e", by=KEY)))


def test_an_aggregate_over_changes_emits_changes_again():
    largest = total(total=max_("count", "int64"))
    stream = source().process(Count("c", by=KEY), name="c").process(largest, name="largest")
    with pytest.raises(InputError, match="rows of 'largest'"):
        judge(stream.process(Aggregate("again", by=KEY, n=sum_("total"))))


def test_a_subclass_is_judged_and_of_its_own_output_nothing_is_known():
    class Mine(Count):
        def process(self, context, rows):
            return super().process(context, rows)

    with pytest.raises(InputError, match="node 'mine'"):
        judge(source().process(Count("c", by=KEY)).process(Mine("m", by=KEY), name="mine"))
    with pytest.raises(InputError, match="a max of 'count' over rows of 'mine'"):
        judge(source().process(Mine("m", by=KEY), name="mine").process(total(total=max_("count", "int64"))))


def test_a_state_by_a_column_that_changes_is_refused():
    counted = (
        source().process(Count("c", by=KEY), name="c").repartition(key="count", name="again", partitions=2)
    )
    by_count = {"count": "int64"}
    with pytest.raises(InputError, match=r"Aggregate\('x'\)\.by\.count: .*a key column 'count' that may"):
        judge(counted.process(Aggregate("x", by=by_count, top=max_("k", "string"))))
    latest = source().process(Aggregate("a", by=KEY, seen=max_("at", "timestamp")), name="a")
    windowed = Aggregate("x", by=KEY, window=Tumbling("seen", "1 hour"), top=max_("seen", "timestamp"))
    with pytest.raises(InputError, match=r"Aggregate\('x'\)\.window\.column: .*a time 'seen' that may"):
        judge(latest.process(windowed))
    table = source("stream").topology.source("other", key="k", partitions=2, event_time="at")
    changing = table.process(Aggregate("y", by=KEY, count=count(), at=last("at", "timestamp")), name="y")
    stream = table.topology.source("third", key="k", partitions=2, event_time="at")
    judge(stream.join_table(changing, TableJoin("j", by=KEY, columns=by_count), name="right"))
    wrong = TableJoin("w", by={**KEY, **by_count}, columns={"at": "timestamp"})
    with pytest.raises(InputError, match=r"TableJoin\('w'\)\.by\.count"):
        judge(stream.join_table(changing, wrong, name="wrong"))


def test_a_user_s_function_per_key_takes_what_it_gets():
    each = PerKey("p", lambda key, rows, state: (state, rows), by=KEY, state={"x": "int64"}, output=KEY)
    judge(source().process(Count("c", by=KEY)).process(each))


def test_an_order_that_the_type_does_not_keep_is_refused():
    """As texts, 10 is less than 9."""
    counted = source().process(Count("c", by=KEY), name="c")
    with pytest.raises(InputError, match="a max of 'count'"):
        judge(counted.process(total(total=max_("count", "string"))))


@pytest.mark.parametrize("name", ["aggregate", "count", "deduplicate", "table-join"])
def test_the_option_is_one_of_yaml_too(name):
    options: dict[str, Any] = {"store": "s", "by": KEY}
    options |= {"aggregates": {"n": "count"}} if name == "aggregate" else {}
    options |= {"columns": {"w": "int64"}} if name == "table-join" else {}
    assert Registry()[name](**options, over_changes=True)._over_changes
    assert not Registry()[name](**options)._over_changes
    with pytest.raises(TopologyError, match=r"^over_changes: found 'yes', expected"):
        Registry()[name](**options, over_changes="yes")


def test_an_application_in_yaml_is_judged_before_anything_starts(tmp_path):
    totals = {"by": KEY, "aggregates": {"total": {"sum": "count", "type": "int64"}}}
    document = {
        "application": {"id": "t"},
        "topology": {
            "sources": {"in": {"key": "k", "partitions": 4}},
            "nodes": {
                "n": {"process": "in", "processor": "count", "options": {"by": KEY}},
                "total": {"process": "n", "processor": "aggregate", "options": totals},
                "out": {"sink": "total"},
            },
        },
        "input": {"in": {"format": "parquet", "path": "in", "schema": "k string"}},
        "output": {"out": {"path": str(tmp_path)}},
    }
    with pytest.raises(ConfigError, match=r"^topology\.nodes\.total\.options\.aggregates\.total: found"):
        YamlApplication(Settings.from_mapping(document))
    totals["over_changes"] = True
    YamlApplication(Settings.from_mapping(document))


# ------------------------------------------------------------------------- what is accepted is right

ROWS = [("a", 3), ("b", None), ("a", None), ("c", 4), ("b", 9), ("a", 5), ("c", 1), ("a", 1), ("b", 2)]
MADE = {
    "n": count(),
    "known": count("v"),
    "top": max_("v", "int64"),
    "low": min_("v", "int64"),
    "begin": first("v", "int64"),
    "end": last("v", "int64"),
    "all": sum_("v", "int64"),
}
COLUMNS = {**dict.fromkeys(MADE, "int64"), "k": "string"}
BOTH = {"g": "string", "k": "string"}
FUNCTIONS = {"count": count, "sum": sum_, "min": min_, "max": max_, "first": first, "last": last}


def table(rows: list[tuple[str, int | None]]) -> pa.Table:
    keys, values = zip(*rows, strict=True)
    groups = ["x" if key < "c" else "y" for key in keys]
    return pa.table({"g": groups, "k": list(keys), "v": pa.array(values, pa.int64())})


def results(bench: Any, folder: Path, aggregates: dict[str, Any], by: dict[str, str], cuts: list[int]) -> Any:
    """Return what aggregates over changes keep in the end, for rows that are cut at these places."""
    emits = bench(folder / "emits", Aggregate("e", by=BOTH, **MADE))
    takes = bench(folder / "takes", Aggregate("t", by=by, over_changes=True, **aggregates))
    for begin, end in pairwise([0, *cuts, len(ROWS)]):
        takes.run(emits.run(table(ROWS[begin:end])))
    return takes.stored("t")


@pytest.mark.parametrize("by", [{"g": "string"}, BOTH], ids=["coarser", "as fine"])
def test_what_is_accepted_does_not_depend_on_the_cutting(bench, tmp_path, by):
    changes = Aggregate("e", by=BOTH, **MADE).infer((Facts(changes=None),)).changes
    aggregates = {
        f"{function} {column}": how(column) if function == "count" else how(column, kind)
        for (function, how), (column, kind) in product(FUNCTIONS.items(), COLUMNS.items())
        if (function, column) != ("sum", "k")
    }
    cuts = ([], [1], [2, 4, 7], list(range(1, len(ROWS))))
    found = [results(bench, tmp_path / str(place), aggregates, by, cut) for place, cut in enumerate(cuts)]
    moved = {name for name in aggregates if len({repr([row[name] for row in rows]) for rows in found}) > 1}
    accepted = set()
    for name, aggregate in aggregates.items():
        with suppress(InputError):
            Aggregate("t", by=by, found=aggregate).infer((Facts(changes=changes),))
            accepted.add(name)
    assert not accepted & moved
    assert {"max n", "max top", "min low", "max k", "min k", "max begin", "min begin"} <= accepted
    assert ("last all" in accepted) is ("k" in by)
    assert {f"sum {c}" for c in ("n", "all")} | {f"count {c}" for c in COLUMNS} <= moved
