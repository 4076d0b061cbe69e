"""The available aggregates: the function, its column and type, and how two partial results are merged."""

from __future__ import annotations

from dataclasses import dataclass

from taskplace.spark.types import arrow_schema
from taskplace.validation import named


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
        arrow_schema({"type": self.type}, self.function)

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
