"""Reads Avro schemas: the Arrow columns of a record, with types that Spark can pass to a task.

Logical types that are not listed in `_LOGICAL` are removed from a schema, as Avro's specification allows: such values
are read as the type below. A UUID is the text that it is written as.

Errors: `InputError` with the path inside the schema, the value found, and what is expected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

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


def read_schema(given: object, path: str) -> Any:
    """Return a schema as plain JSON values, checked, without the logical types that are not read.

    Errors: `InputError` for text that is not JSON, and for what fastavro refuses.
    """
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

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
    return _without_unknown_logical_types(given)


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
