"""Replaces columns from which Arrow cannot select rows, in the rows that a processor returns.

Nodes select rows: a repartition takes those of each partition, a `Deduplicate` the first of each key. Arrow cannot do
that for views and run-end encoded columns, alone or inside other types. So they get the type of their values here:

| a processor returns | the nodes behind it get |
|---|---|
| string_view, binary_view | string, binary |
| run-end encoded | the type of the values |
| lists, maps, structs and dictionaries of views | the same, of string and binary |

Errors: `InputError` with node, column, type and remedy, for any other type with this limit, such as a union of views.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError

T = pa.types


def selectable(rows: pa.Table, node: str) -> pa.Table:
    """Return rows with the same values, in columns from which rows can be selected. O(bytes of replaced columns)."""
    for place, field in enumerate(rows.schema):
        kind = replaced(field.type)
        if kind.equals(field.type) and not (T.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)):
            continue
        try:
            if not kind.equals(field.type):
                chunks = [_converted(chunk, kind) for chunk in rows.column(place).chunks]
                rows = rows.set_column(place, field.with_type(kind), pa.chunked_array(chunks, kind))
            rows.column(place).slice(0, 0).take(pa.array([], pa.int64()))
        except pa.ArrowException as error:
            raise InputError(
                f"node {node!r}, column {field.name!r}",
                found=f"{field.type} ({error})",
                expected="a type from which Arrow can select rows",
                hint="cast the column in the processor, for example to string or binary",
            ) from None
    return rows


def replaced(kind: pa.DataType) -> pa.DataType:
    """Return the type that replaces a type; the type itself if it can stay.

    >>> replaced(pa.string_view()), replaced(pa.run_end_encoded(pa.int32(), pa.int64())), replaced(pa.large_string())
    (DataType(string), DataType(int64), DataType(large_string))
    >>> replaced(pa.list_(pa.binary_view()))
    ListType(list<item: binary>)
    """
    if T.is_string_view(kind) or T.is_binary_view(kind):
        return pa.string() if T.is_string_view(kind) else pa.binary()
    if T.is_run_end_encoded(kind):
        return replaced(kind.value_type)
    if T.is_dictionary(kind):
        return pa.dictionary(kind.index_type, replaced(kind.value_type), kind.ordered)
    if T.is_map(kind):
        return pa.map_(replaced(kind.key_type), replaced(kind.item_type), kind.keys_sorted)
    if T.is_struct(kind):
        return pa.struct([field.with_type(replaced(field.type)) for field in kind])
    if T.is_list(kind) or T.is_large_list(kind) or T.is_fixed_size_list(kind):
        inner = kind.value_field.with_type(replaced(kind.value_type))
        if T.is_fixed_size_list(kind):
            return pa.list_(inner, kind.list_size)
        return pa.large_list(inner) if T.is_large_list(kind) else pa.list_(inner)
    return kind


def _converted(array: pa.Array, to: pa.DataType) -> pa.Array:
    if T.is_run_end_encoded(array.type):
        values = _converted(array.values, to)  # before they are repeated: Arrow cannot repeat a view
        whole = pa.RunEndEncodedArray.from_arrays(array.run_ends, values)
        return pc.run_end_decode(whole.slice(array.offset, len(array)))
    return array.cast(to)
