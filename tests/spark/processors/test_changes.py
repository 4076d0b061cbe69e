"""How the columns of changes develop: over merges, joins and state that expires."""

from __future__ import annotations

import pyarrow as pa
import pytest

from taskplace.spark.processors import Aggregate, Count, Deduplicate, Facts, TableJoin, Tumbling, count, max_
from taskplace.spark.processors.changes import Changes, Column, merged

KEY = {"k": "string"}
INT64, STRING = pa.int64(), pa.string()


def changes(course, kind=INT64) -> Changes:
    return Changes("c", {"x": Column(course, kind)}, ("k",))


def sent(processor, *inputs: Changes | None) -> Changes | None:
    """Return the changes that a processor emits, given those of its inputs."""
    return processor.infer(tuple(Facts(changes=each) for each in inputs)).changes


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("rising", "rising", "rising"),
        ("fixed", "rising", "rising"),
        ("rising", "fixed", "rising"),
        ("fixed", "falling", "falling"),
        ("rising", "falling", None),
        ("settled", "rising", None),
    ],
)
def test_a_merge_knows_what_holds_for_all_its_inputs(one, other, together):
    found = merged([changes(one), None, changes(other)])
    assert found == Changes("c", {"x": Column(together, INT64)} if together else {})
    assert merged([changes(one), changes(other, STRING)]) == Changes("c")


def test_a_merge_of_rows_that_are_final_is_final_and_no_key_of_a_merge_has_one_last_row():
    assert merged([None, None]) is None
    assert merged([None, changes("rising")]) == Changes("c", changes("rising").columns)


def test_of_a_key_that_begins_anew_only_the_key_is_known():
    """A count begins at 1 again after the `ttl`: its greatest value is not its last one."""
    forgets = Aggregate("f", by=KEY, ttl="1 hour", time="seen", n=count(), seen=max_("at", "timestamp"))
    assert sent(forgets, None) == Changes("", {"k": Column("fixed", STRING)})
    keeps = {"k": Column("fixed", STRING), "count": Column("rising", INT64)}
    assert sent(Count("c", by=KEY), None) == Changes("", keeps, ("k",))


def test_a_window_adds_its_start_and_its_time_to_the_key():
    window = Tumbling("at", "1 hour", time="ends")
    found = sent(Count("c", by=KEY, window=window), None)
    assert found.key == ("k", "window_start")
    assert {name for name, column in found.columns.items() if column.course == "fixed"} == {
        "k",
        "window_start",
        "ends",
    }


def test_an_inner_join_may_drop_the_last_row_of_a_key():
    rising = changes("rising")
    left, inner = (TableJoin("j", by=KEY, columns={"w": "int64"}, how=how) for how in ("left", "inner"))
    assert sent(left, rising, None) == rising
    assert sent(inner, rising, None) == Changes("c", rising.columns)
    assert sent(left, None, Changes("c", {"k": Column("fixed", STRING)})) is None


def test_what_passes_a_de_duplication_is_final():
    assert sent(Deduplicate("d", by=KEY, over_changes=True), changes("rising")) is None


@pytest.mark.parametrize(
    ("course", "harmless"),
    [
        ("fixed", {"first", "last", "max", "min"}),
        ("settled", {"first", "last", "max", "min"}),
        ("rising", {"last", "max"}),
        ("falling", {"last", "min"}),
    ],
)
@pytest.mark.parametrize("by", [["k"], ["k", "l"], ["l"], []])
@pytest.mark.parametrize("keyed", [True, False])
def test_an_aggregate_is_harmless_where_all_rows_say_what_the_last_ones_say(course, harmless, by, keyed):
    """The first row, and the last one, only if the key of the state has one row of the changes in the end."""
    found = Changes("c", {"x": Column(course, INT64)}, ("k",) if keyed else ())
    if not (keyed and "k" in by):
        harmless = harmless - {"first", "last"}
    every = {"first", "last", "max", "min", "sum", "count", "avg"}
    assert {name for name in every if found.harmless(name, "x", INT64, by)} == harmless


@pytest.mark.parametrize(
    ("kind", "keeps_order"),
    [(pa.float64(), True), (pa.decimal128(20, 0), True), (STRING, False), (pa.date32(), False)],
)
def test_an_aggregate_of_another_type_is_harmless_if_the_order_stays(kind, keeps_order):
    assert changes("rising").harmless("max", "x", kind, ["k"]) is keeps_order
    assert not changes("rising").harmless("max", "y", kind, ["k"])
    assert not changes("rising").harmless("max", None, kind, ["k"])
    assert changes("rising", STRING).harmless("max", "x", STRING, ["k"])


def test_the_columns_that_move_are_all_but_the_fixed_ones():
    found = Changes("c", {"k": Column("fixed", STRING), "x": Column("settled", INT64)})
    assert found.moving(["x", "k", "y"]) == ["x", "y"]
