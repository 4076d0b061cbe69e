"""Columns of a processor from which Arrow cannot select rows, and keys in any layout of a string or binary."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from taskplace.errors import InputError
from taskplace.spark.casts import canonical_rows
from taskplace.spark.processors import Count, Deduplicate
from taskplace.spark.sinks import ParquetSink
from topology import Topology

TEXTS = pa.array(["a", "b", None, "b", "longer than twelve bytes"])
VIEWS = TEXTS.cast(pa.string_view())
RUNS = pc.run_end_encode(TEXTS)
OF_VIEWS = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None, 4], pa.int8()), VIEWS)
LISTS = pa.array([["a"], None, [], ["b", None], ["c"]], pa.list_(pa.string()))
PAIRS = pa.array([["a", "b"], None, ["c", "d"], ["e", None], ["f", "g"]], pa.list_(pa.string(), 2))
MAPS = pa.array([[("a", "x")], None, [], [("b", None)], [("c", "y")]], pa.map_(pa.string(), pa.string()))
UNION = pa.UnionArray.from_sparse(pa.array([0] * 5, pa.int8()), [VIEWS])


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (VIEWS, pa.string()),
        (TEXTS.cast(pa.binary()).cast(pa.binary_view()), pa.binary()),
        (LISTS.cast(pa.list_(pa.string_view())), pa.list_(pa.string())),
        (LISTS.cast(pa.large_list(pa.string_view())), pa.list_(pa.string())),
        (PAIRS.cast(pa.list_(pa.string_view(), 2)), pa.list_(pa.string())),
        (MAPS.cast(pa.map_(pa.string_view(), pa.string_view())), MAPS.type),
        (pa.StructArray.from_arrays([VIEWS], ["x"]), pa.struct([("x", pa.string())])),
        (TEXTS.cast(pa.large_string()), pa.string()),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
@pytest.mark.parametrize("cut", [slice(None), slice(1, 4), slice(0, 0)])
def test_a_column_is_replaced_by_one_with_the_same_values(given, kind, cut):
    rows = pa.table({"n": range(len(given)), "x": given})[cut].replace_schema_metadata({"by": "test"})
    made = canonical_rows(rows, "f")
    assert made.schema.field("x").type == kind
    assert made["x"].to_pylist() == rows["x"].to_pylist()
    assert made.schema.metadata == rows.schema.metadata
    order = pa.array(range(rows.num_rows - 1, -1, -1), pa.int64())
    assert made.take(order)["x"].to_pylist() == rows["x"].to_pylist()[::-1]
    made.validate(full=True)


@pytest.mark.parametrize("column", [TEXTS, LISTS, MAPS, pa.nulls(5)])
def test_other_columns_stay_as_they_are(column):
    rows = pa.table({"x": column})
    assert canonical_rows(rows, "f") is rows


@pytest.mark.parametrize("column", [UNION, pa.StructArray.from_arrays([UNION], ["x"]), RUNS, OF_VIEWS])
def test_what_cannot_be_replaced_is_named(column):
    message = (
        rf"^node 'f', column 'x': found .{re.escape(str(column.type))} .*, expected a type from which Arrow"
    )
    with pytest.raises(InputError, match=message + ".*; cast the column in the processor"):
        canonical_rows(pa.table({"x": column}), "f")


@pytest.mark.parametrize(
    "form",
    [
        lambda texts: texts.cast(pa.string_view()),
        lambda texts: texts.cast(pa.binary_view()),
        lambda texts: texts.cast(pa.large_string()),
        lambda texts: texts.dictionary_encode(),
        lambda texts: texts.cast(pa.large_binary()).dictionary_encode(),
        lambda texts: texts.cast(pa.binary(1)),
    ],
    ids=["string_view", "binary_view", "large_string", "dictionary", "binaries", "fixed_binary"],
)
def test_strings_in_any_layout_pass_a_deduplication_and_are_a_key(world, form):
    topo = Topology("t")
    letters = topo.source("in", key="n", partitions=2).process(
        lambda _, rows: rows.append_column("x", form(pa.array(["abcdefgh"[n % 8] for n in rows["n"].to_pylist()]))),
        name="letters",
    )  # fmt: skip
    once = letters.process(Deduplicate("seen", by={"n": "int64"}), name="once")
    once.sink("kept", target=ParquetSink(world.folder / "kept"))
    by_letter = letters.repartition("x", name="by_x", partitions=3)
    counted = by_letter.process(Count("c", by={"x": "string"}), name="c")
    counted.sink("counts", target=ParquetSink(world.folder / "counts"))
    placed = world.open(topo)
    world.batch(placed, 0, **{"in": pa.table({"n": pa.array([*range(24), *range(24)], pa.int64())})})
    assert world.sent("counts")[0] == [(letter, 6) for letter in "abcdefgh"]
    kept = {n: x if isinstance(x, str) else x.decode() for n, x in world.sent("kept")[0]}
    assert kept == {n: "abcdefgh"[n % 8] for n in range(24)}
    assert placed.store("c").get({"x": "h"}) == {"count": 6}
