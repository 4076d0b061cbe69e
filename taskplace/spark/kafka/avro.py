"""Encodes values as Avro, by a schema that the user gives, with fastavro.

Errors: `InputError` for a schema that fastavro does not take, and for a value that does not fit the schema. The error
names fields, and no values.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from taskplace.errors import InputError

_EXPECTED = "an Avro schema: a mapping, its JSON, or the path of an .avsc file"


def schema_text(given: object, path: str) -> str:
    """Return a schema as JSON, after it was checked. `given`: a mapping, JSON, or the path of a file."""
    if isinstance(given, Path) or (isinstance(given, str) and given.endswith(".avsc")):
        try:
            given = Path(given).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InputError(path, found=str(given), expected=_EXPECTED, hint=str(error)) from None
    if isinstance(given, str) and given[:1] in ("{", "[", '"'):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise InputError(path, found=given, expected=_EXPECTED, hint=str(error)) from None
    if not isinstance(given, Mapping | str | list):
        raise InputError(path, found=given, expected=_EXPECTED)
    text = json.dumps(given)
    try:
        _parsed(text)
    except ImportError:
        raise InputError(
            path, found="no package fastavro", expected="fastavro", hint="pip install 'taskplace[kafka]'"
        ) from None
    except Exception as error:  # fastavro has several kinds
        raise InputError(path, found=given, expected=_EXPECTED, hint=str(error)) from None
    return text


def fields_of(text: str) -> Sequence[str] | None:
    """Return the names of a record's fields; None for a schema that is no record.

    >>> fields_of('{"type": "record", "name": "a", "fields": [{"name": "x", "type": "long"}]}'), fields_of('"string"')
    (['x'], None)
    """
    schema = json.loads(text)
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        return None
    return [field["name"] for field in schema["fields"]]


def encode(text: str, value: Any, *, header: bytes = b"") -> bytes:
    """Return a value's bytes behind a header. Errors: `ValueError` with the fields that do not fit, and no value."""
    import fastavro

    out, schema = io.BytesIO(), _parsed(text)
    try:
        fastavro.schemaless_writer(out, schema, value)
    except Exception as error:  # fastavro has several kinds, and most show the value
        raise ValueError(_misfits(schema, value) or type(error).__name__) from None
    return header + out.getvalue()


def _misfits(schema: Any, value: Any) -> str:
    from fastavro.validation import ValidationError, validate

    try:
        validate(value, schema)
    except ValidationError as error:
        return ", ".join(f"{found.field or 'the value'} is no {found.schema}" for found in error.errors)
    except Exception:
        return ""
    return ""


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(text))
