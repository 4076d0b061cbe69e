"""Turns dead letters back into Kafka records: each as it was, and the reason as a header.

**Idea.** Whoever mends a bad record wants its bytes, and a program that sends it again wants nothing else. So key,
value and headers are those of the record. What is known of it beside that is in further headers:

    taskplace.errors.reason       why it could not be decoded
    taskplace.errors.topic        where it was: topic, partition and offset, as text
    taskplace.errors.partition
    taskplace.errors.offset
    taskplace.errors.timestamp    its time, in milliseconds since 1970

Properties:
- A null key, a null value and a header with a null value stay what they are.
- A dead letter has the time of sending. By its own time, retention could remove it at once.
- The headers of a record that was a dead letter before are kept, and come first.

Errors: `InputError` for rows that are no dead letters, and for a record that is larger than `max_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.kafka.decoding import DEAD_LETTERS
from taskplace.spark.kafka.record_format import Part, Record, RecordFormat

PREFIX = "taskplace.errors."
_ABOUT = ("reason", "topic", "partition", "offset", "timestamp")
_VALUE = Part(columns=("value",), single=True, format="raw")
_BEGIN, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)


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
            raise InputError(
                f"sinks.{sink}.target.dead_letters",
                found=schema.names,
                expected=f"the columns of dead letters, {DEAD_LETTERS.names}",
                hint="put the processor DeadLetters directly before the sink",
            )

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
