"""What formats make of one payload, and payloads in Avro."""

from __future__ import annotations

import io

import fastavro


def only(form, payload: bytes):
    """Return the one row of a payload without faults."""
    rows, faults = form.read([payload])
    assert faults == {}
    return rows.to_pylist()[0]


def fault(form, payload: bytes) -> str:
    """Return the reason for a faulty payload, whose row has only nulls."""
    rows, faults = form.read([payload])
    assert rows.num_rows == 1 and set(rows.to_pylist()[0].values()) == {None}
    return faults[0]


def written(schema, row) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def record(**fields):
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
