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


class Groups:
    """The groups of rows with equal keys, in order of first appearance. Columns have numbers, so names cannot clash.

    - `keys`: the columns to group by, canonical (`RowCodec.canonical`)
    - `add` adds an aggregate and returns its number; `of` returns the result for a number. The first `of` computes all
      aggregates at once

    >>> groups = Groups([pa.chunked_array([["a", "b", "a"]])])
    >>> total = groups.add("sum", pa.chunked_array([[1, 2, 3]]))
    >>> [column.to_pylist() for column in groups.keys], groups.of(total).to_pylist()
    ([['a', 'b']], [4, 2])
    """

    def __init__(self, keys: Sequence[pa.ChunkedArray]) -> None:
        self._columns = {f"k{i}": column for i, column in enumerate(keys)}
        self._by = list(self._columns)
        self._specs: list[tuple[str | list[str], str]] = []
        self._places: list[str] = []
        self._finish: list[tuple[str, pa.ChunkedArray | None]] = []
        self._found: pa.Table | None = None

    def add(self, function: str, values: pa.ChunkedArray | None = None) -> int:
        """Add an aggregate and return its number.

        `function`: "count_all", without a column; or "count", "sum", "min", "max", "first", "last" of a column's values
        that are not null.
        """
        number = len(self._places)
        self._finish.append((function, values))
        if values is None:
            self._places.append(function)
            if ([], function) not in self._specs:
                self._specs.append(([], function))
            return number
        if function in ("first", "last"):  # the first or last row number with a value
            known = values.is_valid().to_numpy()
            values = pa.chunked_array([pa.array(np.arange(len(values)), mask=~known)])
            function = "min" if function == "first" else "max"
        elif function in ("min", "max"):
            values = ranks(values)
        self._columns[f"v{number}"] = values
        self._specs.append((f"v{number}", function))
        self._places.append(f"v{number}_{function}")
        return number

    @property
    def keys(self) -> list[pa.ChunkedArray]:
        """The key of each group, as columns."""
        columns = self._run()
        return [columns[name] for name in self._by]

    def of(self, number: int) -> pa.ChunkedArray:
        """Return an aggregate of each group; null where a group has no value. Arrow chooses the type of a sum."""
        result = self._run()[self._places[number]]
        function, values = self._finish[number]
        if values is None or function in ("count", "sum"):
            return result
        return values.take(result) if function in ("first", "last") else unranked(result, values.type)

    def _run(self) -> pa.Table:
        if self._found is None:
            table = pa.table(self._columns)
            row = pa.array(np.arange(table.num_rows))
            found = table.append_column("row", row).group_by(self._by, use_threads=False)
            found = found.aggregate([*self._specs, ("row", "min")])
            first = found["row_min"].to_numpy()
            # Arrow numbers new keys whose hashes are alike later than those behind them.
            self._found = found if (first[1:] > first[:-1]).all() else found.take(np.argsort(first))
        return self._found


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
        here, there = _known(mine), _known(theirs)
        less = _true(pc.less(mine, theirs)) | (~here & there)
        more = _true(pc.greater(mine, theirs)) | (here & ~there)
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


def _known(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(column.is_valid().to_numpy(), np.bool_)


def _true(mask: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(mask, False).to_numpy(), np.bool_)
