"""Separates rows from dead letters inside a topology, and turns dead letters back into Kafka records.

A source whose records were decoded with `bad_records="dead_letters"` (`taskplace.spark.kafka.source.decoded`) has one
row for each record, and the column `dead_letter`, which is null for a good one:

    flights = topo.source("flights", key="tailnum", partitions=12, partition_column="partition")
    good = flights.process(GoodRecords(), name="good")
    flights.process(DeadLetters(), name="bad").sink("dead-letters", target=...)

Both processors keep no state. The rows of the sink are the count of bad records, exactly once. The driver counts them
as well, by source (`Stats.bad_records`), whether or not a processor takes them.

Whoever mends a bad record wants its bytes, and a program that sends it again wants nothing else. So in a Kafka topic
(`DeadLetterFormat`), key, value and headers are those of the record, also where they are null; headers of a record that
was a dead letter before come first. What is known of it beside that is in further headers, as text:
`taskplace.errors.` with `reason`, `topic`, `partition`, `offset` and `timestamp` (milliseconds since 1970). It has the
time of sending: by its own time, retention could remove it at once.

Errors: `InputError` for rows that are no dead letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError
from taskplace.spark.kafka.decoding import DEAD_LETTERS
from taskplace.spark.kafka.record_format import Part, Record, RecordFormat
from taskplace.spark.processors.base import Context
from taskplace.spark.processors.facts import Facts
from taskplace.spark.worker.external import DEAD_LETTER

PREFIX = "taskplace.errors."
_ABOUT = ("reason", "topic", "partition", "offset", "timestamp")
_VALUE = Part(columns=("value",), single=True, format="raw")
_BEGIN, _MILLISECOND = datetime(1970, 1, 1, tzinfo=timezone.utc), timedelta(milliseconds=1)


class GoodRecords:
    """Passes on the rows of records that were decoded, without the column of dead letters.

    >>> letter = pa.array([None, {"reason": "value: JSON"}], pa.struct(list(DEAD_LETTERS)))
    >>> GoodRecords().process(None, pa.table({"id": [1, None], "dead_letter": letter})).to_pylist()
    [{'id': 1}]
    """

    def infer(self, inputs: tuple[Facts, ...]) -> Facts:
        """Return the input's columns without that of dead letters."""
        (rows,) = inputs
        _check_known(rows)
        others = None
        if rows.columns is not None:
            others = {name: kind for name, kind in rows.columns.items() if name != DEAD_LETTER}
        return Facts(columns=others, times=rows.times, routes=rows.routes)

    def process(self, context: Context, rows: pa.Table) -> pa.Table:
        """Return the rows without a dead letter."""
        if _lacks_columns(rows):
            return rows
        letters = _letters(rows)
        good = rows.filter(pc.is_null(letters)) if letters.null_count < len(letters) else rows
        return good.drop_columns(DEAD_LETTER)


class DeadLetters:
    """Passes on the dead letters: the reason, and the record as it was.

    >>> letter = pa.array([None, {"reason": "value: JSON", "offset": 7}], pa.struct(list(DEAD_LETTERS)))
    >>> out = DeadLetters().process(None, pa.table({"id": [1, None], "dead_letter": letter}))
    >>> out.select(["reason", "offset"]).to_pylist()
    [{'reason': 'value: JSON', 'offset': 7}]
    """

    def infer(self, inputs: tuple[Facts, ...]) -> Facts:
        """Return the columns of a dead letter."""
        _check_known(inputs[0])
        return Facts(columns=DEAD_LETTERS)

    def process(self, context: Context, rows: pa.Table) -> pa.Table:
        """Return the dead letters."""
        if _lacks_columns(rows):
            return DEAD_LETTERS.empty_table()
        letters = _letters(rows).combine_chunks().drop_null()
        return pa.table(letters.flatten(), names=letters.type.names)


def _lacks_columns(rows: pa.Table) -> bool:
    """Return whether a table has no rows, and therefore maybe no columns."""
    return not rows.num_rows and DEAD_LETTER not in rows.column_names


def _letters(rows: pa.Table) -> pa.ChunkedArray:
    if DEAD_LETTER not in rows.column_names:
        expected = f"the column {DEAD_LETTER!r} of a source with bad_records='dead_letters'"
        raise InputError("dead letters", found=rows.column_names, expected=expected)
    _check(rows[DEAD_LETTER].type)
    return rows[DEAD_LETTER]


def _check_known(rows: Facts) -> None:
    rows.require(DEAD_LETTER)
    if rows.columns is not None:
        _check(rows.columns[DEAD_LETTER])


def _check(kind: pa.DataType) -> None:
    if not pa.types.is_null(kind) and (not pa.types.is_struct(kind) or kind.names != DEAD_LETTERS.names):
        raise InputError(DEAD_LETTER, found=str(kind), expected=f"a struct of {DEAD_LETTERS.names}")


@dataclass(frozen=True, kw_only=True)
class DeadLetterFormat(RecordFormat):
    """The form of dead letters: the rows that `taskplace.spark.kafka.dead_letters.DeadLetters` passes on.

    >>> letter = {"reason": "value: JSON", "key": None, "value": b"{", "topic": "t", "partition": 0, "offset": 7}
    >>> rows = pa.Table.from_pylist([letter], DEAD_LETTERS)
    >>> (record,) = DeadLetterFormat().records("bad", rows)
    >>> record.key, record.value, record.headers[0]
    (None, b'{', ('taskplace.errors.reason', b'value: JSON'))
    """

    key: Part | None = None
    value: Part = _VALUE

    def check_columns(self, sink: str, schema: pa.Schema) -> None:
        """Refuse columns that are not those of dead letters."""
        if set(schema.names) != set(DEAD_LETTERS.names):
            path = f"sinks.{sink}.target.dead_letters"
            raise InputError(path, found=schema.names, expected=f"the columns {DEAD_LETTERS.names}")

    def _chunk(self, sink: str, rows: pa.Table) -> Iterator[Record]:
        self.check_columns(sink, rows.schema)
        for row in rows.to_pylist():
            headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
            headers += [(PREFIX + name, _text(row[name])) for name in _ABOUT if row[name] is not None]
            yield Record(row["key"], row["value"], headers, 0)


def _text(value: Any) -> bytes:
    if isinstance(value, datetime):
        value = (value - _BEGIN) // _MILLISECOND
    return str(value).encode(errors="backslashreplace")
