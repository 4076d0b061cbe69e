"""The available aggregates, and what a store keeps of them: computed over a batch's rows, merged with the stored parts.

A value is cast to the type of its column before it is aggregated, and the result is checked against that type.

Sums are safe from overflow. Arrow's sums wrap silently: integers modulo 2^64, decimals by the bits of their type. So
decimals are summed with twice the digits. A sum that could still overflow is compared with the same sum in floats:
after an overflow, it differs by far more than the error of floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError
from taskplace.spark.casts import cast
from taskplace.spark.processors.changes import is_number
from taskplace.spark.processors.groups import Wanted, grouped
from taskplace.spark.state.rows import canonical_floats, codec_of
from taskplace.spark.types import arrow_schema, check_cast, column_of
from taskplace.validation import named

#: Digits of the accumulator for decimals, and for integers in decimal sums. Sums of 38-digit values fit.
WIDE = 76
_Merge = Callable[[pa.ChunkedArray, pa.ChunkedArray], "pa.ChunkedArray | None"]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregate: how to compute it over a batch's rows, and how to merge two partial results."""

    function: str
    column: str | None
    type: str
    merge: str

    def __post_init__(self) -> None:
        if self.column is not None:
            named(self.column, f"{self.function}.column", "the name of a column")
        kind = arrow_schema({"type": self.type}, self.function).field("type").type
        if self.function in ("sum", "mean") and not is_number(kind):
            raise InputError(f"{self.function}.type", found=str(kind), expected="a number, such as 'int64'")

    def parts(self, name: str) -> dict[str, Aggregation]:
        """Return the columns that the store keeps for this aggregate."""
        if self.function != "mean":
            return {name: self}
        return {f"{name}_sum": sum_(self.column or "", self.type), f"{name}_count": count(self.column)}


def count(column: str | None = None) -> Aggregation:
    """Count rows, or the rows where `column` is not null."""
    return Aggregation("count_all" if column is None else "count", column, "int64", "sum")


def sum_(column: str, type: str = "float64") -> Aggregation:
    """Add up `column`; null as long as there was no value.

    As integers or decimals, sums are exact. It is an error if a value has more decimal places than `type` (1.5 in an
    int64), or if a batch's sum does not fit `type`. Floats in a decimal sum are rounded one by one.

    As floats, sums are rounded after each batch. So the last digits depend on the order of the rows and on batch
    boundaries; so does an overflow of values that cancel each other. Sums of integers are exact up to 2^53.
    """
    return Aggregation("sum", column, type, "sum")


def min_(column: str, type: str = "float64") -> Aggregation:
    """Keep the least value of `column`, in the order of `type`; NaN is the greatest float, as in Spark.

    Use the column's own type. As a float64, an integer beyond 2^53 that it does not hold is an error.
    """
    return Aggregation("min", column, type, "min")


def max_(column: str, type: str = "float64") -> Aggregation:
    """Keep the greatest value of `column`, in the order of `type`; NaN is the greatest float, as in Spark.

    Use the column's own type. As a float64, an integer beyond 2^53 that it does not hold is an error.
    """
    return Aggregation("max", column, type, "max")


def first(column: str, type: str = "string") -> Aggregation:
    """Keep the first value of `column` that is not null, in the order in which the task gets its rows."""
    return Aggregation("first", column, type, "first")


def last(column: str, type: str = "string") -> Aggregation:
    """Keep the last value of `column` that is not null, in the order in which the task gets its rows."""
    return Aggregation("last", column, type, "last")


def avg(column: str, type: str = "float64") -> Aggregation:
    """Average `column`: stored as a sum (of `type`, see `sum_`) and a count, emitted as their quotient (float64)."""
    return Aggregation("mean", column, type, "")


class Parts:
    """The columns that a store keeps for its aggregates: one for each part (`Aggregation.parts`).

    - `path`: the processor, for errors
    - `by`: the key's columns, with their types
    - `parts`: the parts, by the names of their columns
    - `key`, `types`: the columns of both, as a store has them

    Errors: `InputError` with the part's path, for a value that does not fit its type.

    >>> from taskplace.spark.processors.parts import sum_
    >>> parts = Parts("Aggregate('s')", {"k": "string"}, {"total": sum_("n", "int64")})
    >>> rows, stored = pa.table({"k": ["a", "b", "a"], "n": [1, 1, 2]}), pa.table({"total": [5, None]})
    >>> parts.merged(stored, np.array([True, False]), parts.of_rows(rows, rows)).to_pylist()
    [{'k': 'a', 'total': 8}, {'k': 'b', 'total': 1}]
    """

    def __init__(self, path: str, by: Mapping[str, object], parts: Mapping[str, Aggregation]) -> None:
        self._path, self._parts, self.key = path, parts, arrow_schema(by)
        self.types = arrow_schema({name: part.type for name, part in parts.items()})

    def of_rows(self, keyed: pa.Table, rows: pa.Table) -> pa.Table:
        """Return the key and the parts of each key in a batch's rows.

        `keyed` has the key columns and `rows` the aggregated columns, of the same rows in the same order.
        """
        wanted = {name: (part.function, part.column) for name, part in self._parts.items()}
        return self._grouped(keyed, rows, wanted)

    def merged(self, stored: pa.Table, present: npt.NDArray[np.bool_], batch: pa.Table) -> pa.Table:
        """Return `batch`, a row for each key, with the stored parts of the same keys merged into it.

        `stored` has the stored parts of each row of `batch`, and nulls where `present` says that there are none.
        O(keys). Parts are merged row by row where that gives what grouping gives, and grouped otherwise.
        """
        merged = {name: _merged(part.merge, stored[name], batch[name]) for name, part in self._parts.items()}
        if all(column is not None for column in merged.values()):
            return pa.table({**{name: batch[name] for name in self.key.names}, **merged})
        return self._merged_by_key(stored, present, batch)

    def _merged_by_key(self, stored: pa.Table, present: npt.NDArray[np.bool_], batch: pa.Table) -> pa.Table:
        """Return what `merged` returns, by grouping the stored and the new rows."""
        keys = {name: batch[name] for name in self.key.names}
        there = pa.table({**keys, **{name: stored[name] for name in self._parts}})
        # Stored parts come first: `first` and `last` depend on the order. So the groups of stored keys come first.
        both = pa.concat_tables([there.filter(pa.array(present)), batch])
        merges = {name: (part.merge, name) for name, part in self._parts.items()}
        rows = np.argsort(np.concatenate([np.flatnonzero(present), np.flatnonzero(~present)]))
        return self._grouped(both, both, merges).take(pa.array(rows))

    def _grouped(
        self, keyed: pa.Table, rows: pa.Table, wanted: Mapping[str, tuple[str, str | None]]
    ) -> pa.Table:
        """Group by the key and aggregate. The result has the store's column names and types.

        `keyed` has the key columns and `rows` the aggregated columns, of the same rows in the same order.
        """
        given: dict[tuple[str, bool], Wanted] = {}  # True: the float version of a sum that may overflow
        for name, (function, column) in wanted.items():
            values = None if column is None else self._values(name, function, column, rows)
            given[name, False] = (function, values)
            if values is not None and function == "sum" and may_wrap(values):
                given[name, True] = (function, values.cast(pa.float64(), safe=False))
        codec = codec_of(self.key, f"{self._path}.by")
        of_groups, found = grouped(codec.canonical(keyed).columns, list(given.values()))
        results = dict(zip(given, found, strict=True))
        columns = dict(zip(self.key.names, of_groups, strict=True))
        for name, (function, column) in wanted.items():
            columns[name] = self._fitted(
                name, function, column, results[name, False], results.get((name, True))
            )
        return pa.table(columns)

    def _values(self, name: str, function: str, column: str, rows: pa.Table) -> pa.ChunkedArray:
        """Return the values to aggregate: in the stored type, or for sums in a type that is wide enough.

        Values are cast before they are compared or added, so the result is the same as for single rows. Errors:
        `InputError` for a value that does not fit, such as 2^53 + 1 in a float64.
        """
        path, kind = f"{self._path}.{name}", self.types.field(name).type
        values = column_of(rows, column, path)
        if function == "count":
            return values
        check_cast(values.type, kind, path, column)
        try:
            if function == "sum":
                return addable(values, kind)
            if values.type != kind:
                values = cast(values, kind)
            if pa.types.is_floating(kind):
                nulls = values.is_null().to_numpy(zero_copy_only=False)
                values = pa.chunked_array([pa.array(canonical_floats(values), kind, mask=nulls)])
            return values
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as refused:
            rounds = pa.types.is_integer(values.type) and pa.types.is_floating(kind)
            hint = (
                "keep it as 'int64', or cast the column to a float before, which may round it"
                if rounds
                else ""
            )
            expected = f"{kind} ({refused})"
            raise InputError(path, found=f"{column!r}, {values.type}", expected=expected, hint=hint) from None

    def _fitted(
        self,
        name: str,
        function: str,
        column: str | None,
        result: pa.ChunkedArray,
        about: pa.ChunkedArray | None,
    ) -> pa.ChunkedArray:
        """Cast an aggregate to its type. Floats take the nearest value. Errors: `InputError` for one that does not fit.

        `about`: the same sums in floats, for sums that may have overflowed.
        """
        error, kind = "", self.types.field(name).type
        if about is None or not has_wrapped(result, about):
            try:
                # A cast to the same type checks nothing, but a decimal sum may have more digits than its type allows.
                if result.type != kind or has_digits(result):
                    if pa.types.is_floating(kind) and not pa.types.is_decimal(result.type):
                        return result.cast(kind, safe=False)
                    return cast(result, kind)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as refused:
                error = f" ({refused})"
        found, expected = f"{column!r}, {result.type}", f"{kind}{error}"
        if function == "sum" and is_exact(kind) and is_exact(result.type):
            about = pc.abs(result.cast(pa.float64(), safe=False) if about is None else about)
            found = f"a sum of about {pc.max(about).as_py():.4g}"
            expected = f"{room_of(kind)}; use the type 'float64' or a larger unit{error}"
        raise InputError(f"{self._path}.{name}", found=found, expected=expected)


def _adds(stored: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return the sums; None if one does not fit, for which `Parts` has the error."""
    try:
        sums = pc.add_checked(stored, new)
    except pa.ArrowInvalid:
        return None
    if pa.types.is_floating(sums.type):
        sums = pc.add(sums, 0.0)  # -0.0 becomes 0.0
    return pc.coalesce(sums, stored, new)


def _either(first: pa.ChunkedArray, new: pa.ChunkedArray, stored: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the new values where `first` is true, else the stored ones; where one is missing, the other."""
    return pc.coalesce(pc.if_else(first, new, stored), stored, new)


#: Types whose order is Arrow's own, unlike that of floats, which may be NaN.
_HAVE_ORDER = (pa.types.is_integer, pa.types.is_temporal)
#: By the function that merges two parts: the types whose rows it merges one by one, and how; null is no value.
_BY_ROW: Mapping[str, tuple[Sequence[Callable[[pa.DataType], bool]], _Merge]] = {
    "sum": ((pa.types.is_integer, pa.types.is_float64), _adds),
    "min": (_HAVE_ORDER, lambda stored, new: _either(pc.less(new, stored), new, stored)),
    "max": (_HAVE_ORDER, lambda stored, new: _either(pc.greater(new, stored), new, stored)),
    "first": ((lambda kind: True,), pc.coalesce),
    "last": ((lambda kind: True,), lambda stored, new: pc.coalesce(new, stored)),
}


def _merged(function: str, stored: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return two columns of parts merged row by row; None if that is not what grouping would give."""
    suits, merge = _BY_ROW[function]
    return merge(stored, new) if stored.type == new.type and any(is_(new.type) for is_ in suits) else None


# ------------------------------------------------------------------------------------------- sums


def addable(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Cast a column to the accumulator type for a sum that is stored as `kind`.

    If `kind` is exact, each value must fit it, not only the sum: 0.5 + 0.5 is refused for an integer. Errors: Arrow's,
    for a value that does not fit.
    """
    if not is_number(column.type):
        column = cast(column, kind)  # for example, text
    if pa.types.is_floating(column.type) and is_exact(kind):
        column = cast(column, kind)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    if pa.types.is_decimal(column.type):
        scale = column.type.scale
        if is_exact(kind):
            scale = min(scale, kind.scale if pa.types.is_decimal(kind) else 0)
        column = cast(column, pa.decimal256(WIDE, scale))
    elif pa.types.is_integer(column.type) and pa.types.is_decimal(kind):
        column = column.cast(pa.decimal256(WIDE, 0))
    return (
        column.cast(pa.float64(), safe=False) if pa.types.is_floating(kind) and may_wrap(column) else column
    )


def wraps_by(kind: pa.DataType) -> float:
    """Return the error of a sum that has wrapped once; 0 for types whose sums do not wrap."""
    if pa.types.is_integer(kind):
        return 2.0**64
    return 2.0**256 / 10.0**kind.scale if pa.types.is_decimal(kind) else 0.0


def may_wrap(column: pa.ChunkedArray) -> bool:
    """Return whether the sum of these values could overflow its accumulator type."""
    room = wraps_by(column.type)
    if not room or not len(column):
        return False
    ends = pc.min_max(column).as_py()
    return max(abs(float(ends["min"] or 0)), abs(float(ends["max"] or 0))) * len(column) >= room / 4


def has_wrapped(sums: pa.ChunkedArray, about: pa.ChunkedArray) -> bool:
    """Return whether a sum has overflowed: it differs much from the same sum in floats (`about`)."""
    differ = pc.abs(pc.subtract(sums.cast(pa.float64(), safe=False), about))
    return (pc.max(differ).as_py() or 0) > wraps_by(sums.type) / 4


def is_exact(kind: pa.DataType) -> bool:
    """Return whether a type is exact: an integer or a decimal."""
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def has_digits(column: pa.ChunkedArray) -> bool:
    """Return whether all values have at most the digits of their decimal type. Arrow can hold more in memory."""
    if not pa.types.is_decimal(column.type):
        return True
    nines = Decimal((0, (9,) * column.type.precision, -column.type.scale))
    ends = pc.min_max(column).as_py()
    return all(end is None or end.copy_abs() <= nines for end in ends.values())


def room_of(kind: pa.DataType) -> str:
    """Return the range of an integer or decimal type, in words."""
    if pa.types.is_decimal(kind):
        return f"at most {kind.precision} digits, {kind.scale} of them behind the point, to fit a {kind}"
    signed = pa.types.is_signed_integer(kind)
    return f"at most 2^{kind.bit_width - signed} - 1, to fit {'an' if signed else 'a'} {kind}"
