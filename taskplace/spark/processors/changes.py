"""Streams of changes: rows that replace earlier rows of their key.

**Idea.** A running count emits a row whenever it changes, so only the last row of a key is final. The batches decide
how many rows come before it. A node that adds such rows up, or counts them, gives another result for other batches. So
each node says whether its output is changes, and how the columns develop from a key's first row to its last. A node
that aggregates accepts only what gives the same result from all rows as from the final ones.

| column | from a key's first row to its last | of |
|---|---|---|
| fixed | the same | the key, and the start and the time of a window |
| settled | null, then one value | `first` |
| rising | never less | `count`, `max` |
| falling | never more | `min` |

Harmless are, where the columns of the state's key are fixed:
- `max` of a fixed, settled or rising column, `min` of a fixed, settled or falling one, in a type of the same order;
- `last` of any column, if the state's key has the whole key of the changes, so that it has one final row;
- `first` of a fixed or settled column, under the same condition.

Everything else needs `over_changes=True`, by which a node takes each change for a row of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import pyarrow as pa

from taskplace.errors import InputError

Course = Literal["fixed", "settled", "rising", "falling"]


class Column(NamedTuple):
    """How a column develops, and its type."""

    course: Course
    type: pa.DataType


@dataclass(frozen=True)
class Changes:
    """A stream of changes.

    - `origin`: the node that emits them; "" in the answer of a processor that emits them itself
    - `columns`: the columns whose course is known
    - `key`: the columns of which each combination has one final row; empty if they are not known

    >>> count = Changes("count", {"k": Column("fixed", pa.string()), "n": Column("rising", pa.int64())}, ("k",))
    >>> count.harmless("max", "n", pa.int64(), by=["k"]), count.harmless("sum", "n", pa.int64(), by=["k"])
    (True, False)
    """

    origin: str = ""
    columns: Mapping[str, Column] = field(default_factory=dict)
    key: tuple[str, ...] = ()

    def moving(self, columns: Iterable[str]) -> list[str]:
        """Return those of `columns` that may change from row to row of a key."""
        return [name for name in columns if name not in self.columns or self.columns[name].course != "fixed"]

    def harmless(self, function: str, column: str | None, kind: pa.DataType, by: Sequence[str]) -> bool:
        """Return whether an aggregate of type `kind` has the same result over all rows as over the final ones.

        `by`: the columns of its state's key, which have to be fixed.
        """
        one_row = bool(self.key) and set(self.key) <= set(by)
        if function == "last":
            return one_row
        source = self.columns.get(column or "")
        if source is None or not (source.type == kind or (is_number(source.type) and is_number(kind))):
            return False  # a cast might change the order
        courses = {
            "first": ("fixed", "settled") if one_row else (),
            "max": ("fixed", "settled", "rising"),
            "min": ("fixed", "settled", "falling"),
        }
        return source.course in courses.get(function, ())

    def refused(self, path: str, what: str) -> InputError:
        """Return the error for a node that would count intermediate rows."""
        return InputError(
            path,
            found=f"{what} {self.origin!r}, which emits a key again whenever it changes",
            expected="final rows; otherwise the result depends on how the rows were cut into batches",
            hint=f'give {self.origin!r} windows with emit="final", or take each change as a row: over_changes=True',
        )


def merged(inputs: Sequence[Changes | None]) -> Changes | None:
    """Return the changes of a merge of several streams; None if none of them has any.

    A row of a stream without changes stands for itself, so all its columns are fixed.
    """
    some = [changes for changes in inputs if changes is not None]
    if len(some) < 2:
        return Changes(some[0].origin, some[0].columns) if some else None
    columns = {}
    for name in some[0].columns:
        sides = [changes.columns.get(name) for changes in some]
        known = [column for column in sides if column is not None]
        courses = {column.course for column in known} - {"fixed"} or {"fixed"}
        if len(known) == len(sides) and len(courses) == 1 and len({column.type for column in known}) == 1:
            columns[name] = Column(courses.pop(), known[0].type)
    return Changes(some[0].origin, columns)


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type is a number: its values have an order, and a sum."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
