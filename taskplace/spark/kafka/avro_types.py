"""Reads Avro: the Arrow columns of a schema, with types that Spark can pass to a task, and the values of data.

Logical types that are not listed in `_LOGICAL` are removed from a schema, as Avro's specification allows: such values
are read as the type below. A UUID is the text that it is written as.

Values: the writer's logical type says what is written, so a writer in milliseconds can be read in microseconds. What
has none, and the default of a field that the writer did not know, is converted by the reader's: a default is JSON, with
bytes as the code points of ISO 8859-1, and belongs to the first type of a union.

Nobody vouches for data: a datum of a few bytes takes neither the memory nor the stack of the process, nor minutes.

Errors: `InputError` with the path inside the schema, the value found, and what is expected.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import IO, Any

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.validation import named

_PLAIN: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Mapping[str, pa.DataType | None] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "decimal": None,  # of its own precision
}
MOST_DIGITS = 38
#: A decimal, as fastavro knows it here: its own reader rounds to the precision, and takes 90 s for a decimal of 1 MB.
_DECIMAL = "taskplace-decimal"
_BEGIN = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: The first value of a logical type, and the unit of what is added to it.
_TIMES: Mapping[str, tuple[Any, str]] = {
    "date": (_BEGIN.date(), "days"),
    "timestamp-millis": (_BEGIN, "milliseconds"),
    "timestamp-micros": (_BEGIN, "microseconds"),
    "local-timestamp-millis": (_BEGIN.replace(tzinfo=None), "milliseconds"),
    "local-timestamp-micros": (_BEGIN.replace(tzinfo=None), "microseconds"),
}


def read_schema(given: object, path: str) -> Any:
    """Return a schema as plain JSON values, checked, without the logical types that are not read.

    Errors: `InputError` for text that is not JSON, and for what fastavro refuses.
    """
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType, expand_schema

    if isinstance(given, str) and given.lstrip()[:1] in ("{", "[", '"'):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise InputError(path, found=given, expected=f"a schema as JSON ({error})") from None
    if not isinstance(given, Mapping | list | str):
        raise InputError(path, found=given, expected="an Avro schema: a mapping, or JSON text")
    try:
        fastavro.parse_schema(given)
    except (SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as error:
        raise InputError(
            path, found=given, expected="an Avro schema", hint=f"{type(error).__name__}: {error}"
        ) from None
    for part in _parts(expand_schema(given)):
        if isinstance(part, Mapping) and part["type"] == "array" and _takes_no_bytes(part["items"]):
            expected = "items that take bytes: otherwise a few bytes are an array of any length"
            raise InputError(path, found="an array whose items take no bytes", expected=expected)
    return _without_unknown_logical_types(given)


def reader_of(writer: str, reader: str) -> Callable[[IO[bytes]], Any]:
    """Return what reads a datum of one schema by another one; both are JSON of what `read_schema` returned."""
    import fastavro
    from fastavro import _read_py
    from fastavro.schema import expand_schema

    for kind in ("bytes", "fixed"):
        fastavro.read.LOGICAL_READERS[f"{kind}-{_DECIMAL}"] = _decimal
    parsed, wanted = (
        fastavro.parse_schema(json.loads(text, object_hook=_renamed)) for text in (writer, reader)
    )
    # fastavro's compiled reader follows a type that contains itself until the stack of the process is used up.
    itself = any(
        isinstance(part, str) and part not in (*_PLAIN, "null") for part in _parts(expand_schema(parsed))
    )
    read = _read_py.schemaless_reader if itself else fastavro.schemaless_reader
    if writer == reader:
        return lambda stream: read(stream, parsed, None)
    typed = _typed(expand_schema(wanted)) or (lambda value: value)
    return lambda stream: typed(read(stream, parsed, wanted))


def _renamed(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "logicalType": _DECIMAL} if schema.get("logicalType") == "decimal" else schema


def _decimal(data: bytes, schema: Mapping[str, Any], reader: object = None) -> Decimal:
    digits = int.from_bytes(data, "big", signed=True)
    if abs(digits) >= 10 ** schema["precision"]:
        raise ValueError("more digits than the precision")
    return Decimal(f"{digits}e-{schema.get('scale', 0)}")


def _typed(schema: Any) -> Callable[[Any], Any] | None:
    """Return what converts defaults, and values that are read as the type below a logical one; None: nothing does."""
    if isinstance(schema, list):
        inner = next((_typed(each) for each in schema if each != "null"), None)
        return inner and (lambda value: None if value is None else inner(value))
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return _typed(kind)
    logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    if logical in _TIMES:
        first, unit = _TIMES[logical]
        return lambda value: first + dt.timedelta(**{unit: value}) if isinstance(value, int) else value
    if kind in ("bytes", "fixed"):
        if logical:
            return lambda value: value if isinstance(value, Decimal) else _decimal(_bytes(value), schema)
        return _bytes
    if kind in ("array", "map"):
        of = _typed(schema["items" if kind == "array" else "values"])
        if of is None or kind == "array":
            return of and (lambda value: [of(each) for each in value])
        return lambda value: {name: of(each) for name, each in value.items()}
    if kind != "record":
        return None
    fields = [(each["name"], _typed(each["type"]), each.get("default")) for each in schema["fields"]]

    def record(value: Mapping[str, Any]) -> Mapping[str, Any]:
        row = dict(value)
        for name, convert, default in fields:
            given = row.get(name, default)
            row[name] = given if convert is None else convert(given)
        return row

    return record


def _bytes(value: Any) -> Any:
    return value.encode("iso-8859-1") if isinstance(value, str) else value


def _parts(schema: Any) -> Iterator[Any]:
    """Yield a schema and what it is made of."""
    yield schema
    inner = schema if isinstance(schema, list) else []
    if isinstance(schema, Mapping):
        inner = [schema[name] for name in ("items", "values") if name in schema]
        inner += [each["type"] for each in schema.get("fields", ())]
        inner += [schema["type"]] if not isinstance(schema["type"], str) else []
    for each in inner:
        yield from _parts(each)


def _takes_no_bytes(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return bool(schema == "null")
    fields = schema.get("fields", ())
    if schema["type"] == "record":
        return all(_takes_no_bytes(each["type"]) for each in fields)
    return schema.get("size") == 0 or _takes_no_bytes(schema["type"])


def arrow_columns(schema: Any, column: str | None, path: str) -> pa.Schema:
    """Return the columns of a schema that `read_schema` returned: a record's fields, or the column named `column`."""
    from fastavro.schema import expand_schema

    schema = expand_schema(schema)  # named types are written out where they are used
    is_record = isinstance(schema, dict) and schema.get("type") == "record"
    if is_record and column is None:
        return pa.schema(_fields(schema, path))
    if is_record or column is None:
        found, expected = ("a record", "no name") if is_record else ("no record", "a name")
        raise InputError(
            "Avro.column", found=column, expected=f"{expected} of a column, because the schema is {found}"
        )
    named(column, "Avro.column", "the name of a column")
    return pa.schema([pa.field(column, _arrow_type(schema, path))])


def _without_unknown_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_unknown_logical_types(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: _without_unknown_logical_types(value)
        if name in ("type", "items", "values", "fields")
        else value
        for name, value in schema.items()
        if not name.startswith("__") and (name != "logicalType" or value in _LOGICAL)
    }


def _fields(record: Mapping[str, Any], path: str) -> Iterator[pa.Field]:
    for field in record["fields"]:
        yield pa.field(field["name"], _arrow_type(field["type"], f"{path}.{field['name']}"))


def _arrow_type(schema: Any, path: str) -> pa.DataType:
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise InputError(
                path, found=f"a union of {len(schema)} types", expected="one type, or one type and null"
            )
        return _arrow_type(others[0], path)
    if isinstance(schema, dict):
        if (logical := schema.get("logicalType")) is not None:
            return _logical_type(logical, schema, path)
        kind = schema["type"]
        if kind == "record":
            return pa.struct(list(_fields(schema, path)))
        if kind == "array":
            return pa.list_(_arrow_type(schema["items"], f"{path}.items"))
        if kind == "map":
            return pa.map_(pa.string(), _arrow_type(schema["values"], f"{path}.values"))
        return _arrow_type(kind, path)
    if schema not in _PLAIN:
        raise InputError(
            path,
            found=schema,
            expected="a type with values, and no record that contains itself",
        )
    return _PLAIN[schema]


def _logical_type(logical: str, schema: Mapping[str, Any], path: str) -> pa.DataType:
    kind = _LOGICAL[logical]
    if kind is not None:
        return kind
    precision, scale = schema["precision"], schema.get("scale", 0)
    if precision > MOST_DIGITS:
        raise InputError(path, found=f"a decimal of {precision} digits", expected=f"at most {MOST_DIGITS}")
    return pa.decimal128(precision, scale)
