"""Decodes Kafka's records to rows, and keeps apart the records that cannot be decoded.

**Idea.** A `Decoder` has a format for values, perhaps one for keys, and the names under which rows get the other
columns of a record: its partition, offset, timestamp, headers. It turns a table of records, with the columns that
Spark's Kafka source gives them, into a table of rows. A record that does not fit its format either stops the batch, or
its row is a *dead letter*, which has the reason and the record as it was.

Properties:
- rows and dead letters keep the order of the records;
- a record with a null value is a *tombstone*. Its row has the columns of its key, nulls for those of its value, and
  true in the column `tombstone`, which `TableJoin(deleted=...)` takes for a removal. A decoder without that column
  takes a tombstone for a bad record, because nothing in its row would tell it from a row of nulls;
- a record with a null key has nulls in the columns of its key, unless the key is needed: because a field of it is
  declared as required, or because tasks keep state by the key of a topic that they read themselves;
- a time or headers that cannot be read are a bad record if `include` has them, and nulls in a dead letter;
- an error names topic, partition and offset, and never shows a key or a value. A dead letter has both.

Errors: `InputError` for a wrong declaration, for records without a needed column, and for a bad record if
`bad_records` is "stop".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError
from taskplace.spark.kafka.formats import Faults, Format
from taskplace.spark.worker.external import DEAD_LETTER, LETTER_FIELDS
from taskplace.validation import named, one_of

Bools = npt.NDArray[np.bool_]
#: The columns of a record, as Spark's Kafka source names them. Headers are there with `includeHeaders`.
RECORD = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
#: The first and the last microsecond of Python's calendar. Timestamps of Spark end there as well.
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
_UNREADABLE = {
    "timestamp": "a time outside of the years 1 to 9999, such as nanoseconds or microseconds in place of milliseconds",
    "headers": "a name that is not UTF-8",
}
#: Those without which no record can be decoded: errors name a record by them.
NEEDED = ("key", "value", "topic", "partition", "offset")
#: The columns of a dead letter: the reason, and the record as it was.
DEAD_LETTERS = pa.schema(
    [(name, pa.string()) if name == "reason" else RECORD.field(name) for name in LETTER_FIELDS]
)


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """Decodes records.

    - `value`, `key`: formats; without one for keys, rows have no columns of the key
    - `include`: the columns of a record that rows get as well, as a list, or as new names by old ones; see `RECORD`
    - `tombstone`: the name of the boolean column that is true for a record with a null value
    - `bad_records`: "stop" ends the batch with an error; "dead_letters" keeps such records apart

    >>> from taskplace.spark.kafka.formats import Json, Raw
    >>> decoder = Decoder(value=Json({"name": "string"}), key=Raw("id", "string"), include=["partition"],
    ...                   tombstone="deleted", bad_records="dead_letters")
    >>> records = pa.table({"key": [b"1", b"2", b"3"], "value": [b'{"name": "a"}', None, b"?"], "topic": ["t"] * 3,
    ...                     "partition": [0, 0, 0], "offset": [5, 6, 7]})
    >>> frame = decoder.frame(records)
    >>> for row in frame.drop_columns("dead_letter").to_pylist(): print(row)
    {'id': '1', 'name': 'a', 'partition': 0, 'deleted': False}
    {'id': '2', 'name': None, 'partition': 0, 'deleted': True}
    {'id': None, 'name': None, 'partition': 0, 'deleted': False}
    >>> frame["dead_letter"][2].as_py()["reason"]
    'value: JSON: JSON is malformed: invalid character (byte 0)'
    """

    value: Format
    key: Format | None = None
    include: Mapping[str, str] | Sequence[str] = ()
    tombstone: str | None = None
    bad_records: Literal["stop", "dead_letters"] = "stop"
    #: The columns of a row: those of the key, of the value, of the record, and the mark of tombstones.
    columns: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        one_of(self.bad_records, "Decoder.bad_records", ("stop", "dead_letters"))
        fields = [
            *(self.key.columns if self.key is not None else ()),
            *self.value.columns,
            *(pa.field(name, RECORD.field(of).type) for of, name in self._included().items()),
        ]
        if self.tombstone is not None:
            named(self.tombstone, "Decoder.tombstone", "the name of a column")
            fields.append(pa.field(self.tombstone, pa.bool_()))
        taken = {DEAD_LETTER} if self.bad_records == "dead_letters" else set()
        for each in fields:
            if each.name.lower() in taken:
                expected = "each name once, because Spark ignores the case of names"
                raise InputError("Decoder", found=f"two columns {each.name!r}", expected=expected)
            taken.add(each.name.lower())
        object.__setattr__(self, "columns", pa.schema(fields))

    @property
    def frame_columns(self) -> pa.Schema:
        """The columns of `frame`: those of a row and, if dead letters are kept, the struct `DEAD_LETTER`."""
        if self.bad_records == "stop":
            return self.columns
        return self.columns.append(pa.field(DEAD_LETTER, pa.struct(list(DEAD_LETTERS))))

    def frame(self, records: pa.Table, *, needs_key: bool = False) -> pa.Table:
        """Return one row for each record, as `frame_columns`. O(bytes).

        The row of a bad record has only the columns of `include`, and the dead letter. All others have a null there.
        """
        self.check(records.column_names)
        records = records.combine_chunks()
        faults: dict[int, str] = {}

        def add(bad: Bools, why: str) -> None:
            for at in np.flatnonzero(bad).tolist():
                faults.setdefault(at, why)

        if not all(each.nullable for each in getattr(self.key, "declared", ())):
            add(records["key"].is_null(), "key: null, but a field of it is required")
        elif needs_key:
            add(records["key"].is_null(), "key: null, but state is kept by it: the record belongs to no task")
        columns: list[pa.ChunkedArray | pa.Array] = []
        for name, of in (("key", self.key), ("value", self.value)):
            if of is not None:
                table, found = _part(records[name], of)
                columns += table.columns
                for at, why in found.items():
                    faults.setdefault(at, f"{name}: {why}")
        included = []
        for name in self._included():
            column, unreadable = _readable(name, records)
            included.append(column)
            add(unreadable, f"{name}: {_UNREADABLE.get(name)}")
        absent = records["value"].is_null()
        if self.tombstone is None:
            add(absent, "value: null (a tombstone), and the decoder has no column that marks it")
        good = np.ones(records.num_rows, np.bool_)
        if faults:
            if self.bad_records == "stop":
                raise _bad(records, faults)
            good[list(faults)] = False
            columns = [_only(column, good) for column in columns]
        columns += included
        if self.tombstone is not None:
            columns.append(pc.and_(absent, pa.array(good)))
        if self.bad_records == "dead_letters":
            columns.append(_letters(records, faults))
        return pa.table(columns, schema=self.frame_columns)

    def check(self, columns: Sequence[str], path: str = "records") -> None:
        """Refuse records that lack a column. Errors: `InputError` with the column that is missing."""
        for name in dict.fromkeys([*NEEDED, *self._included()]):
            if name not in columns:
                hint = 'set the option "includeHeaders" of Spark\'s Kafka source' if name == "headers" else ""
                raise InputError(path, found=list(columns), expected=f"Kafka's column {name!r}", hint=hint)

    def _included(self) -> Mapping[str, str]:
        """Return the names in rows of the record's columns, by their own names."""
        given = self.include
        if isinstance(given, str):
            raise InputError("Decoder.include", found=given, expected="a list, or new names by old ones")
        names = dict(given) if isinstance(given, Mapping) else {name: name for name in given}
        for of, name in names.items():
            one_of(of, f"Decoder.include.{of}", RECORD.names)
            named(name, f"Decoder.include.{of}", "the name of a column")
        return names


def _part(column: pa.ChunkedArray, of: Format) -> tuple[pa.Table, Faults]:
    """Return the rows of all keys, or of all values, with nulls for those that are null; and the faults."""
    present = np.flatnonzero(column.is_valid())
    table, faults = of.read(column.drop_null().to_pylist())
    if len(present) < len(column):
        places = np.full(len(column), -1)
        places[present] = np.arange(len(present))
        table = table.take(pa.array(places, mask=places < 0))
    return table, {int(present[place]): why for place, why in faults.items()}


def _readable(name: str, records: pa.Table) -> tuple[pa.ChunkedArray, Bools]:
    """Return a column of the records, with nulls for what no row can have, or a reader of the topic could not read; and
    where these are.
    """
    column = records[name].cast(RECORD.field(name).type)
    bad = np.zeros(len(column), np.bool_)
    if name == "timestamp":
        times = column.cast(pa.int64())
        outside = pc.or_(pc.less(times, _FIRST), pc.greater(times, _LAST))
        is_known = "timestampType" in records.column_names
        without = pc.greater_equal(records["timestampType"], 0) if is_known else pa.scalar(False)
        bad |= pc.coalesce(outside, without, False).to_numpy()
    elif name == "headers":
        bad[pc.list_parent_indices(column).filter(pc.is_null(pc.list_flatten(column))).to_numpy()] = True
    return (_only(column, ~bad) if bad.any() else column), bad


def _only(column: pa.ChunkedArray | pa.Array, valid: Bools) -> pa.ChunkedArray:
    """Return a column with nulls where `valid` is false: a bad record's row has nothing of it."""
    return column.take(pa.array(np.arange(len(valid)), mask=~valid))


def _letters(records: pa.Table, faults: Mapping[int, str]) -> pa.Array:
    """Return the dead letter of each record: null for a good one."""
    rows = sorted(faults)
    bad = records.take(pa.array(rows, pa.int64()))
    columns: list[pa.ChunkedArray | pa.Array] = [pa.array([faults[at] for at in rows], pa.string())]
    for each in list(DEAD_LETTERS)[1:]:
        known = each.name in bad.column_names
        columns.append(_readable(each.name, bad)[0] if known else pa.nulls(len(rows), each.type))
    letters = pa.table(columns, schema=DEAD_LETTERS).to_struct_array().combine_chunks()
    place = {at: place for place, at in enumerate(rows)}
    return letters.take(pa.array([place.get(at) for at in range(records.num_rows)], pa.int64()))


def _bad(records: pa.Table, faults: Mapping[int, str]) -> InputError:
    at, count = min(faults), len(faults)
    topic, partition, offset = (records[name][at].as_py() for name in ("topic", "partition", "offset"))
    found = f"a record that cannot be decoded, {faults[at]}{f' ({count} such records)' if count > 1 else ''}"
    expected = (
        "a record in the formats of the decoder; or bad_records='dead_letters', to keep such records apart"
    )
    return InputError(
        f"topic {topic!r}, partition {partition}, offset {offset}", found=found, expected=expected
    )
