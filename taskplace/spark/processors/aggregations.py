"""The aggregates there are: of which column, in which type, and how two of them are merged."""

from __future__ import annotations

from dataclasses import dataclass

from taskplace.errors import InputError
from taskplace.spark.state.rows import arrow_schema


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregate: how to compute it over a batch's rows, and how to merge two of them."""

    function: str
    column: str | None
    type: str
    merge: str

    def __post_init__(self) -> None:
        if self.column is not None and (not isinstance(self.column, str) or not self.column):
            raise InputError(f"{self.function}.column", found=self.column, expected="the name of a column")
        arrow_schema({"type": self.type}, self.function)

    def parts(self, name: str) -> dict[str, Aggregation]:
        """Return the columns kept in the store for it."""
        if self.function != "mean":
            return {name: self}
        return {f"{name}_sum": sum_(self.column or "", self.type), f"{name}_count": count(self.column)}


def count(column: str | None = None) -> Aggregation:
    """Count rows, or the rows where `column` is not null."""
    return Aggregation("count_all" if column is None else "count", column, "int64", "sum")


def sum_(column: str, type: str = "float64") -> Aggregation:
    """Add up `column`; null as long as no value was seen.

    Kept as integers or decimals, sums are exact: a value with more digits behind the point than `type` has (1.5 in an
    int64) is an error, and so is a sum that `type` cannot hold after a batch. Floats that are kept as decimals are
    rounded one by one. Kept as floats they are rounded, batch by batch: the last digits depend on the order of the rows
    and on where batches are cut, and so does whether values that cancel each other overflow. Sums of integers are exact
    there up to 2^53.
    """
    return Aggregation("sum", column, type, "sum")


def min_(column: str, type: str = "float64") -> Aggregation:
    """Keep the least value of `column`, as values of `type` are ordered; NaN is the greatest float, as in Spark."""
    return Aggregation("min", column, type, "min")


def max_(column: str, type: str = "float64") -> Aggregation:
    """Keep the greatest value of `column`, as values of `type` are ordered; NaN is the greatest float, as in Spark."""
    return Aggregation("max", column, type, "max")


def first(column: str, type: str = "string") -> Aggregation:
    """Keep the first value of `column` that is not null, in the order in which rows come to the task."""
    return Aggregation("first", column, type, "first")


def last(column: str, type: str = "string") -> Aggregation:
    """Keep the last value of `column` that is not null, in the order in which rows come to the task."""
    return Aggregation("last", column, type, "last")


def avg(column: str, type: str = "float64") -> Aggregation:
    """Average `column`: kept as a sum (of `type`, see `sum_`) and a count, sent on as their quotient (float64)."""
    return Aggregation("mean", column, type, "")
