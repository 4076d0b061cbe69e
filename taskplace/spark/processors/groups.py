"""Groups rows by a key and aggregates columns. Columns have numbers instead of names, so names cannot clash."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from taskplace.spark.processors.groups import ranks, unranked


class Groups:
    """The groups of rows with equal keys, in order of first appearance.

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
