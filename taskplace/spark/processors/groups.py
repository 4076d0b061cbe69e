"""Groups rows by a key, and orders values as Spark does: NaN is the greatest float, and 0.0 equals -0.0.

Arrow ignores NaN in a minimum or maximum, and sorts it beside the nulls. So this module replaces floats by integers
with the right order, and types that Arrow cannot compare by types that it can.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.spark.state.rows import canonical_floats

_INTEGERS = {2: np.int16, 4: np.int32, 8: np.int64}


#: An aggregate: "count_all", without a column; or of values that are not null: "count", "sum", "min", "max", "first",
#: "last".
Wanted = tuple[str, pa.ChunkedArray | None]


def grouped(
    keys: Sequence[pa.ChunkedArray], wanted: Sequence[Wanted]
) -> tuple[list[pa.ChunkedArray], list[pa.ChunkedArray]]:
    """Return the keys of the groups of rows with equal keys, in order of first appearance, and their aggregates.

    `keys`: the columns to group by, canonical (`RowCodec.canonical`). An aggregate is null where a group has no value;
    Arrow chooses the type of a sum. Columns have numbers, so names cannot clash. O(rows).

    >>> keys, (total,) = grouped([pa.chunked_array([["a", "b", "a"]])], [("sum", pa.chunked_array([[1, 2, 3]]))])
    >>> keys[0].to_pylist(), total.to_pylist()
    (['a', 'b'], [4, 2])
    """
    by = {f"k{i}": column for i, column in enumerate(keys)}
    columns, places = {**by, "row": pa.array(np.arange(len(keys[0])))}, []
    specs: dict[str, tuple[str | list[str], str]] = {"row_min": ("row", "min")}
    for number, (function, values) in enumerate(wanted):
        if values is None:
            place = function
            specs[place] = ([], function)
        else:
            if function in ("first", "last"):  # the first or last row number with a value
                known = values.is_valid().to_numpy()
                values = pa.chunked_array([pa.array(np.arange(len(values)), mask=~known)])
                function = "min" if function == "first" else "max"
            elif function in ("min", "max"):
                values = ranks(values)
            columns[f"v{number}"] = values
            place = f"v{number}_{function}"
            specs[place] = (f"v{number}", function)
        places.append(place)
    found = pa.table(columns).group_by(list(by), use_threads=False).aggregate(list(specs.values()))
    first = found["row_min"].to_numpy()
    if not (first[1:] > first[:-1]).all():  # Arrow numbers new keys whose hashes are alike later than others
        found = found.take(np.argsort(first))
    results = [_finished(found[place], *each) for place, each in zip(places, wanted, strict=True)]
    return [found[name] for name in by], results


def _finished(result: pa.ChunkedArray, function: str, values: pa.ChunkedArray | None) -> pa.ChunkedArray:
    if values is None or function in ("count", "sum"):
        return result
    return values.take(result) if function in ("first", "last") else unranked(result, values.type)


# ------------------------------------------------------------------------------------------- order


def ranks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values that Arrow orders as Spark orders the values of `column`; nulls stay nulls. O(rows).


    >>> pc.rank(ranks(pa.chunked_array([[1.5, float("nan"), float("inf"), -0.0, 0.0]])), tiebreaker="dense").to_pylist()
    [2, 4, 3, 1, 1]
    """
    kind = column.type
    if pa.types.is_floating(kind):
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        raw = canonical_floats(column)
        return pa.chunked_array([pa.array(_mirrored(raw.view(_INTEGERS[raw.itemsize])), mask=nulls)])
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_duration(kind):
        return column.cast(pa.int64())
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column


def unranked(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the original values, of type `kind`, for the result of `ranks`.


    >>> unranked(ranks(pa.chunked_array([[-1.5, None]])), pa.float64()).to_pylist()
    [-1.5, None]
    """
    if not pa.types.is_floating(kind):
        return column.cast(kind)
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    raw = pc.fill_null(column, 0).to_numpy()
    values = _mirrored(raw).view(kind.to_pandas_dtype())
    return pa.chunked_array([pa.array(values, kind, mask=nulls)])


def _mirrored(raw: npt.NDArray[np.signedinteger]) -> npt.NDArray[np.signedinteger]:
    """Reverse the order of negative numbers: by their bits, a greater one would sort lower."""
    return np.ascontiguousarray(np.where(raw < 0, raw ^ np.iinfo(raw.dtype).max, raw))


def not_before(rows: pa.Table, stored: pa.Table) -> npt.NDArray[np.bool_]:
    """Return per row whether it equals or follows the row of `stored`, compared by all columns in turn. O(rows).

    Both tables have the same columns, as `ranks` returns them. Nulls come first.
    """
    undecided = np.ones(rows.num_rows, np.bool_)
    after = np.ones(rows.num_rows, np.bool_)
    for mine, theirs in zip(rows.columns, stored.columns, strict=True):
        # A comparison with a null is null: a null is less than a value.
        less = pc.coalesce(pc.less(mine, theirs), pc.and_(mine.is_null(), theirs.is_valid())).to_numpy()
        more = pc.coalesce(pc.greater(mine, theirs), pc.and_(mine.is_valid(), theirs.is_null())).to_numpy()
        after[undecided & less] = False
        undecided &= ~(less | more)
    return after


def in_order(rows: pa.Table) -> pa.Array:
    """Return the row numbers of `rows` in ascending order by all columns in turn. Nulls come first; the sort is stable.

    `rows` has columns as `ranks` returns them. O(rows x log rows).
    """
    columns: dict[str, pa.ChunkedArray] = {}
    for i, column in enumerate(rows.columns):
        columns[f"{i} known"] = column.is_valid().cast(pa.int8())
        columns[f"{i}"] = column
    return pc.sort_indices(pa.table(columns), sort_keys=[(name, "ascending") for name in columns])
