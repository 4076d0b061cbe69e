"""The formats of Kafka's keys and values: each decodes bytes to typed Arrow columns.

**Idea.** A format declares its columns, and decodes a list of payloads to a table with these columns. A payload that
does not fit is a *fault*: its row has only nulls, and the reason stands beside the table. What becomes of it is not the
format's decision (`taskplace.spark.kafka.decoding`).

| format | payload | library |
|---|---|---|
| `Json` | one JSON object | msgspec |
| `Avro` | one Avro datum, plain or with the id of its writer's schema in front | fastavro |
| `Raw` | bytes, UTF-8 text, or a number as Kafka's serializers write it | Python's `struct` |

Properties:
- types are those that Spark can pass to a task. Decoding is strict: a text is no number, and 1.5 is no integer;
- a field that is missing or null is a null, unless it is declared as required;
- a reason names columns and types, and never shows a value;
- a format is plain data, so it can be sent to executors.

Errors: `InputError` for a wrong declaration, with its path, and for a schema registry that does not answer. Payloads
raise nothing.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception
from types import MappingProxyType
from typing import Annotated, Any, Protocol

import msgspec
import pyarrow as pa
from typing_extensions import NotRequired, TypedDict

from taskplace.errors import InputError
from taskplace.spark.kafka.avro import (
    SchemaRegistry,
    Undecodable,
    arrow_columns,
    number_of,
    read_schema,
    reader_of,
)
from taskplace.spark.processors.base import columns_of
from taskplace.spark.types import arrow_schema
from taskplace.spark.values import table_of
from taskplace.validation import named, one_of

#: By place in the list of payloads, why a payload could not be decoded.
Faults = Mapping[int, str]

T = pa.types


class Format(Protocol):
    """What a decoder needs of a format. `columns`: those that it decodes to."""

    @property
    def columns(self) -> pa.Schema:
        """The columns that it decodes to."""
        ...

    def read(self, payloads: Sequence[bytes]) -> tuple[pa.Table, Faults]:
        """Return one row for each payload, and the faults. O(bytes)."""
        ...


@dataclass(frozen=True, init=False)
class Json:
    """JSON objects, as columns with declared types. Fields that are not declared are ignored.

    - `columns`: the fields with their types. Behind the name of a type, `NOT NULL` makes a field required: an object in
      which it is missing or null is a fault. So does an Arrow field that is not nullable, also inside of a struct

    Times are texts of RFC 3339 and are rounded to microseconds; a column with a zone needs one in the text, a column
    without a zone refuses one. Binaries are base64. Decimals are numbers, or texts of numbers as casts of columns take
    them (`taskplace.spark.casts`): `"1.50"`, and not `"1_000"`. The keys of maps are texts.

    >>> flights = Json({"id": "int64", "tags": "array<string>"})
    >>> rows, faults = flights.read([b'{"id": 1, "tags": ["a"]}', b'{"id": "1"}'])
    >>> rows.to_pylist()
    [{'id': 1, 'tags': ['a']}, {'id': None, 'tags': None}]
    >>> faults
    {1: 'JSON: Expected `int | null`, got `str` - at `$.id`'}
    """

    columns: pa.Schema
    declared: pa.Schema

    def __init__(self, columns: Mapping[str, object] | pa.Schema) -> None:
        types, required = columns, set[str]()
        if isinstance(columns, Mapping):
            written = {name: kind for name, kind in columns.items() if isinstance(kind, str)}
            required = {name for name, kind in written.items() if _NOT_NULL.search(kind)}
            types = {**columns, **{name: _NOT_NULL.sub("", written[name]) for name in required}}
        columns_of(types, "Json.columns")
        given = arrow_schema(types, "Json.columns")
        declared = [field.with_nullable(field.nullable and field.name not in required) for field in given]
        _json_struct(declared, "Json.columns")
        # The row of a bad record has only nulls.
        nullable = pa.schema([(field.name, _nullable(field.type)) for field in declared])
        vars(self).update(columns=nullable, declared=pa.schema(declared))

    def read(self, payloads: Sequence[bytes]) -> tuple[pa.Table, Faults]:
        """Return the rows of JSON objects."""
        return _rows(payloads, _json_decoder(self.declared), self.columns, "JSON")


@dataclass(frozen=True, init=False)
class Avro:
    """Avro data, as the columns of the given record schema.

    - `schema`: the schema by which data is read: a mapping, JSON text, or the path of an .avsc file
    - `column`: the name of the column, if the schema is no record
    - `writers`: the schemas of the writers by id, if each payload begins with a zero byte and the four-byte id of its
      writer's schema, as a schema registry's serializers write it. Data of a writer is resolved to `schema`
    - `registry`: the schema registry that is asked for any other id: its URL, or properties of Confluent's client
      (`taskplace.spark.kafka.avro`). An id that it does not have is a fault. `InputError` if it does not
      answer, because that says nothing about a payload

    Logical types: dates, timestamps in milliseconds or microseconds (with and without a zone), decimals, UUIDs as text.
    Others are read as the type below them. A union is a type and null.

    >>> schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    >>> rows, faults = Avro(schema).read([bytes([2]), b""])
    >>> rows.to_pylist(), faults
    ([{'id': 1}, {'id': None}], {1: 'Avro: not a datum of the schema (EOFError)'})
    """

    columns: pa.Schema
    schema: str
    column: str | None
    writers: Mapping[int, str]
    registry: SchemaRegistry | None

    def __init__(
        self,
        schema: Mapping[str, Any] | str | list[Any],
        *,
        column: str | None = None,
        writers: Mapping[int, Any] = MappingProxyType({}),
        registry: str | Mapping[str, Any] | None = None,
    ) -> None:
        if not all(type(number) is int for number in writers):
            raise InputError(
                "Avro.writers", found=writers, expected="schemas by their ids, which are integers"
            )
        read = read_schema(schema, "Avro.schema")
        vars(self).update(
            columns=arrow_columns(read, column, "Avro.schema"),
            schema=json.dumps(read),
            column=column,
            writers={n: json.dumps(read_schema(of, f"Avro.writers.{n}")) for n, of in writers.items()},
            registry=None if registry is None else SchemaRegistry("Avro.registry", registry),
        )

    def read(self, payloads: Sequence[bytes]) -> tuple[pa.Table, Faults]:
        """Return the rows of Avro data."""
        framed = self.writers or self.registry is not None
        decode = self._framed() if framed else self._plain(self.schema)
        return _rows(payloads, decode, self.columns, "Avro")

    def _framed(self) -> Callable[[bytes], Mapping[str, Any]]:
        known: dict[int, Callable[[bytes], Mapping[str, Any]] | Undecodable] = {}

        def decode(payload: bytes) -> Mapping[str, Any]:
            if (number := number_of(payload)) is None:
                raise Undecodable("no zero byte and schema id in front")
            if number not in known:
                try:
                    known[number] = self._plain(self._of_writer(number))
                except Undecodable as fault:
                    known[number] = Undecodable(f"written with schema {number}, {fault}")
            if isinstance(found := known[number], Undecodable):
                raise found
            return found(payload[5:])

        return decode

    def _of_writer(self, number: int) -> str:
        """Return the schema with an id. Errors: `Undecodable`, which says nothing about the next id."""
        if number in self.writers:
            return self.writers[number]
        if self.registry is None:
            raise Undecodable(f"known are {sorted(self.writers)}")
        text = self.registry.schema(number)
        try:
            return json.dumps(read_schema(text, f"schema {number}"))
        except InputError as error:
            raise Undecodable(f"in which {error.found} is not read") from None

    def _plain(self, writer: str) -> Callable[[bytes], Mapping[str, Any]]:
        decode, column = reader_of(writer, self.schema), self.column
        return decode if column is None else lambda payload: {column: decode(payload)}


#: The types of `Raw` whose values have a fixed size, by name: as Kafka's serializers write them.
_NUMBERS = {
    name: Struct(f">{code}")
    for name, code in {"int16": "h", "int32": "i", "int64": "q", "float32": "f", "float64": "d"}.items()
}
_RAW = ("binary", "string", *_NUMBERS)


@dataclass(frozen=True, init=False)
class Raw:
    """The bytes themselves, as one column.

    - `column`: its name
    - `kind`: "binary" (any bytes), "string" (UTF-8), or "int16", "int32", "int64", "float32", "float64": big-endian,
      as Kafka's own serializers write numbers

    >>> rows, faults = Raw("id", "int32").read([b"\\x00\\x00\\x00\\x07", b"7"])
    >>> rows["id"].to_pylist(), faults
    ([7, None], {1: 'int32: 1 bytes, expected 4'})
    """

    column: str
    kind: str

    def __init__(self, column: str, kind: str = "binary") -> None:
        named(column, "Raw.column", "the name of a column")
        vars(self).update(column=column, kind=one_of(kind, "Raw.kind", _RAW))

    @property
    def columns(self) -> pa.Schema:
        """The one column."""
        return arrow_schema({self.column: self.kind})

    def read(self, payloads: Sequence[bytes]) -> tuple[pa.Table, Faults]:
        """Return the payloads as a column of the type."""
        values: list[Any] = list(payloads)
        faults: dict[int, str] = {}
        number = _NUMBERS.get(self.kind)
        for at, payload in enumerate(payloads) if self.kind != "binary" else ():
            try:
                values[at] = number.unpack(payload)[0] if number else payload.decode()
            except UnicodeDecodeError as error:
                faults[at], values[at] = f"string: not UTF-8 (byte {error.start})", None
            except StructError:
                size = number.size if number else 0
                faults[at], values[at] = f"{self.kind}: {len(payload)} bytes, expected {size}", None
        return pa.table([values], self.columns), faults


# ------------------------------------------------------------------------------------------- rows


def _rows(
    payloads: Iterable[bytes], decode: Callable[[bytes], Mapping[str, Any]], columns: pa.Schema, what: str
) -> tuple[pa.Table, dict[int, str]]:
    """Return the rows that `decode` makes of payloads. A row whose values do not fit the columns is a fault as well."""
    rows: list[Mapping[str, Any]] = []
    faults: dict[int, str] = {}
    for at, payload in enumerate(payloads):
        try:
            rows.append(decode(payload))
        except (MemoryError, InputError):  # says nothing about the payload
            raise
        except Exception as error:  # whatever the bytes lead to; its message may show them
            why = f"not a datum of the schema ({type(error).__name__})"
            faults[at] = f"{what}: {error if isinstance(error, Undecodable) else why}"
            rows.append({})
    try:
        return table_of(rows, columns, what), faults
    except Exception:
        for at, row in enumerate(rows):
            try:
                table_of([row], columns, what)
            except MemoryError:
                raise
            except Exception as error:
                where = error.path if isinstance(error, InputError) else type(error).__name__
                faults[at] = f"{what}: a value that does not fit its type at {where}"
                rows[at] = {}
        return table_of(rows, columns, what), faults


# ------------------------------------------------------------------------------------------- JSON


_NOT_NULL = re.compile(r"\s+NOT\s+NULL\s*$", re.IGNORECASE)


@lru_cache(maxsize=64)
def _json_decoder(columns: pa.Schema) -> Callable[[bytes], Mapping[str, Any]]:
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
        _json_struct(columns, "Json.columns"), dec_hook=_json_decimal, float_hook=str
    )

    def decode(payload: bytes) -> Mapping[str, Any]:
        try:
            row: Mapping[str, Any] = decoder.decode(payload)
        except msgspec.DecodeError as error:  # names fields and types, and no values
            raise Undecodable(str(error)) from None
        return row

    return decode


#: The letters of numbers. Of texts of these alone, Python takes those that casts of columns take.
_NUMBER_LETTERS = frozenset("0123456789+-.eE")


class _Decimal(decimal.Decimal):
    """A decimal that msgspec does not make itself: it would take any text that Python takes, such as `1_000`."""


def _json_decimal(_: type, value: Any) -> _Decimal:
    """Return a decimal of an integer, or of the text of another number or of a string."""
    if type(value) is int or (type(value) is str and _NUMBER_LETTERS.issuperset(value)):
        try:
            return _Decimal(value)
        except decimal.InvalidOperation:
            pass
    raise ValueError(f"Expected a decimal or the text of one, got `{type(value).__name__}`")


def _json_struct(fields: Iterable[pa.Field], path: str) -> Any:
    members = {}
    for field in fields:
        kind = _json_value(field.type, f"{path}.{field.name}")
        members[field.name] = NotRequired[kind | None] if field.nullable else kind
    return TypedDict("Row", members)  # type: ignore[operator]


def _json_value(kind: pa.DataType, path: str) -> Any:
    """Return the type as which msgspec decodes a column's values. Errors: `InputError` for types without one."""
    if T.is_signed_integer(kind):
        most = 2 ** (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-most, le=most - 1)]
    if T.is_timestamp(kind):
        return Annotated[dt.datetime, msgspec.Meta(tz=kind.tz is not None)]
    if T.is_list(kind):
        return list[_json_value(kind.value_type, f"{path}.element") | None]  # type: ignore[misc]
    if T.is_struct(kind):
        return _json_struct(kind.fields, path)
    if T.is_map(kind) and T.is_string(kind.key_type):
        return dict[str, _json_value(kind.item_type, f"{path}.value") | None]  # type: ignore[misc]
    for is_kind, python_type in _JSON_PLAIN:
        if is_kind(kind):
            return python_type
    expected = "a boolean, signed integer, float, decimal, string, binary, date, timestamp, list, struct, or a map by "
    raise InputError(path, found=str(kind), expected=f"{expected}strings")


def _nullable(kind: pa.DataType) -> pa.DataType:
    """Return a type all of whose parts may be null."""
    if T.is_list(kind):
        return pa.list_(_nullable(kind.value_type))
    if T.is_struct(kind):
        return pa.struct([(field.name, _nullable(field.type)) for field in kind.fields])
    if T.is_map(kind):
        return pa.map_(kind.key_type, _nullable(kind.item_type))
    return kind


_JSON_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (T.is_boolean, bool),
    (T.is_float32, int | float),  # an integer is not rounded: a float holds it, or it is a fault
    (T.is_float64, int | float),
    (T.is_decimal128, _Decimal),
    (T.is_string, str),
    (T.is_binary, bytes),
    (T.is_date32, dt.date),
)
