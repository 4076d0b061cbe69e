"""Rows as bytes: how Arrow columns become keys and values of a store, and come back.

One row is `[null bitmap][fixed part][variable part]`: every fixed-width column has its bytes in the fixed
part, every string or binary column has its length there (uint32) and its bytes in the variable part.
The encoding is canonical (a null is all zeros, `-0.0` is `0.0`, there is one NaN), so equal rows are equal
bytes and a row can be a key. Encoding and decoding run on whole columns in numpy; there is no loop over rows.

Non-goals: ordering (bytes do not sort like values) and nested types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from taskplace.errors import CheckpointError, InputError

Bytes = npt.NDArray[np.uint8]
LENGTH = np.dtype("<u4")

#: Names a store's schema may use beside Arrow's own aliases.
ALIASES = {
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
}


def arrow_schema(columns: pa.Schema | Mapping[str, object], path: str = "store") -> pa.Schema:
    """Return the Arrow schema that `columns` (name -> type or type name) describes.

    >>> arrow_schema({"tailnum": "string", "at": "timestamp"}).types
    [DataType(string), TimestampType(timestamp[us, tz=UTC])]
    """
    if isinstance(columns, pa.Schema):
        return columns
    fields = []
    for name, kind in columns.items():
        if not isinstance(kind, pa.DataType):
            try:
                kind = ALIASES.get(str(kind)) or pa.type_for_alias(str(kind))
            except ValueError:
                raise InputError(
                    f"{path}.{name}", found=kind, expected="an Arrow type or its name, such as 'int64'"
                ) from None
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


class RowCodec:
    """Encodes and decodes the rows of one schema.

    >>> codec = RowCodec(arrow_schema({"id": "int32", "name": "string"}))
    >>> rows = codec.encode(pa.table({"id": pa.array([1, None], pa.int32()), "name": ["ab", ""]}))
    >>> rows[1]
    b'\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00'
    >>> codec.decode(rows).to_pylist()
    [{'id': 1, 'name': 'ab'}, {'id': None, 'name': ''}]
    """

    def __init__(self, schema: pa.Schema, path: str = "") -> None:
        """`path` says in errors whose rows these are, such as "stores.delays.key"."""
        self.schema = schema
        self._path = path
        self._bitmap = (len(schema) + 7) // 8
        self._fields = [_Field(field, self._named(field.name)) for field in schema]
        self._starts = np.cumsum([self._bitmap, *(field.width for field in self._fields)]).tolist()
        self._fixed = int(self._starts[-1])
        self._variable = [i for i, field in enumerate(self._fields) if field.variable]

    def encode(self, table: pa.Table | pa.RecordBatch) -> list[bytes]:
        """Return one `bytes` per row of `table`, whose columns are taken by name and cast to the schema.

        O(bytes). Errors: `InputError` for a missing column or a value that does not fit its type.
        """
        count = table.num_rows
        fixed = np.zeros((count, self._fixed), np.uint8)
        variable: list[tuple[Bytes, npt.NDArray[np.int64]]] = []
        for i, (field, start) in enumerate(zip(self._fields, self._starts, strict=False)):
            column = self._cast(table, field.arrow)
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            if column.null_count:
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                fixed[:, i // 8] |= nulls.astype(np.uint8) << np.uint8(i % 8)
            if field.variable:
                data, lengths = field.split(column)
                fixed[:, start : start + 4] = lengths.astype(LENGTH).view(np.uint8).reshape(count, 4)
                variable.append((data, lengths))
            else:
                fixed[:, start : start + field.width] = field.raw(column)
        if not variable:
            return _slices(fixed.tobytes(), np.arange(count + 1) * self._fixed)
        lengths = sum((lengths for _, lengths in variable), np.full(count, self._fixed, np.int64))
        offsets = _offsets(lengths)
        out = np.zeros(int(offsets[-1]), np.uint8)
        out[offsets[:-1, None] + np.arange(self._fixed)] = fixed
        at = offsets[:-1] + self._fixed
        for data, lengths in variable:
            out[_spread(at, lengths)] = data
            at = at + lengths
        return _slices(out.tobytes(), offsets)

    def canonical(self, table: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return the schema's columns of `table`, with equal values for what is encoded to equal bytes.

        Grouping by them forms the groups that are one key in a store. O(rows). Errors: as `encode`.
        """
        columns = []
        for field in self.schema:
            column = self._cast(table, field)
            if pa.types.is_floating(field.type):
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                column = pa.array(canonical_floats(column), field.type, mask=nulls)
            columns.append(column)
        return pa.table(columns, schema=self.schema)

    def decode(self, rows: Sequence[bytes]) -> pa.Table:
        """Return the table that `rows` encode. O(bytes). Errors: `CheckpointError` for rows of another layout."""
        count = len(rows)
        data = np.frombuffer(b"".join(rows), np.uint8)
        if self._variable:
            offsets = _offsets(np.fromiter(map(len, rows), np.int64, count))
            sizes = np.diff(offsets)
            self._check_layout(not count or bool(sizes.min() >= self._fixed))
            fixed = data[offsets[:-1, None] + np.arange(self._fixed)]
            at = offsets[:-1] + self._fixed
            self._check_layout(bool((sizes == self._fixed + self._lengths(fixed)).all()))
        else:
            self._check_layout(data.size == count * self._fixed)
            fixed = data.reshape(count, self._fixed)
        columns = []
        for i, (field, start) in enumerate(zip(self._fields, self._starts, strict=False)):
            nulls = (fixed[:, i // 8] >> np.uint8(i % 8)) & 1
            validity = (
                None if not nulls.any() else pa.py_buffer(np.packbits(nulls ^ 1, bitorder="little").tobytes())
            )
            raw = np.ascontiguousarray(fixed[:, start : start + field.width])
            if field.variable:
                lengths = raw.view(LENGTH).reshape(count).astype(np.int64)
                columns.append(field.join(data[_spread(at, lengths)], lengths, validity))
                at = at + lengths
            else:
                columns.append(field.array(raw, count, validity))
        return pa.table(columns, schema=self.schema)

    def _lengths(self, fixed: Bytes) -> npt.NDArray[np.int64]:
        """Return how many bytes each row says its variable part has."""
        total = np.zeros(len(fixed), np.int64)
        for i in self._variable:
            raw = np.ascontiguousarray(fixed[:, self._starts[i] : self._starts[i] + LENGTH.itemsize])
            total += raw.view(LENGTH).reshape(len(fixed))
        return total

    def _check_layout(self, fits: bool) -> None:
        if not fits:
            columns = ", ".join(f"{field.name} {field.type}" for field in self.schema)
            raise CheckpointError(
                f"{self._path or 'rows'}: found rows of another layout, expected ({columns}); "
                "the store was made with other columns"
            )

    def _named(self, column: str) -> str:
        return f"{self._path}.{column}" if self._path else column

    def _cast(self, table: pa.Table | pa.RecordBatch, field: pa.Field) -> pa.Array | pa.ChunkedArray:
        index = table.schema.get_field_index(field.name)
        if index < 0:
            raise InputError(
                self._named(field.name), found=table.schema.names, expected="a column of that name"
            )
        column = table.column(index)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InputError(
                    self._named(field.name), found=str(column.type), expected=f"{field.type} ({error})"
                ) from None
        return column


class _Field:
    """One column's part of a row."""

    def __init__(self, field: pa.Field, path: str) -> None:
        kind = field.type
        self.arrow = field
        self.variable = pa.types.is_string(kind) or pa.types.is_binary(kind)
        if self.variable:
            self.width = LENGTH.itemsize
        elif pa.types.is_boolean(kind):
            self.width = 1
        elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
            self.width = kind.bit_width // 8
        else:
            raise InputError(
                path,
                found=str(kind),
                expected="a flat type: number, boolean, date, time, decimal, string or binary",
            )

    def raw(self, column: pa.Array) -> Bytes:
        """Return the column's bytes, shape (rows, width), nulls as zeros."""
        kind = self.arrow.type
        if pa.types.is_boolean(kind):
            return column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint8).reshape(-1, 1)
        if pa.types.is_floating(kind):
            return np.ascontiguousarray(canonical_floats(column)).view(np.uint8).reshape(-1, self.width)
        data = np.frombuffer(column.buffers()[1], np.uint8) if len(column) else np.zeros(0, np.uint8)
        start = column.offset * self.width
        raw = data[start : start + len(column) * self.width].reshape(-1, self.width)
        if column.null_count:
            raw = raw.copy()
            raw[column.is_null().to_numpy(zero_copy_only=False)] = 0
        return raw

    def array(self, raw: Bytes, count: int, validity: pa.Buffer | None) -> pa.Array:
        if pa.types.is_boolean(self.arrow.type):
            raw = np.packbits(raw.reshape(count), bitorder="little")
        return pa.Array.from_buffers(self.arrow.type, count, [validity, pa.py_buffer(raw.tobytes())])

    @staticmethod
    def split(column: pa.Array) -> tuple[Bytes, npt.NDArray[np.int64]]:
        """Return a string or binary column's bytes, end to end without those of nulls, and each value's length."""
        if column.null_count:
            column = column.fill_null("" if pa.types.is_string(column.type) else b"")
        if not len(column):
            return np.zeros(0, np.uint8), np.zeros(0, np.int64)
        offsets = np.frombuffer(column.buffers()[1], np.int32)[
            column.offset : column.offset + len(column) + 1
        ]
        buffer = column.buffers()[2]
        data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
        return data[offsets[0] : offsets[-1]], np.diff(offsets).astype(np.int64)

    def join(self, data: Bytes, lengths: npt.NDArray[np.int64], validity: pa.Buffer | None) -> pa.Array:
        offsets = _offsets(lengths).astype(np.int32)
        buffers = [validity, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data.tobytes())]
        return pa.Array.from_buffers(self.arrow.type, len(lengths), buffers)


def canonical_floats(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.floating]:
    """Return the values, nulls as 0; what compares equal, and every NaN, is one value."""
    values = column.to_numpy(zero_copy_only=False).astype(column.type.to_pandas_dtype())
    values[column.is_null().to_numpy(zero_copy_only=False)] = 0
    values[np.isnan(values)] = np.nan
    return values + values.dtype.type(0)  # -0.0 + 0.0 = 0.0


def _offsets(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _spread(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the positions starts[i], starts[i]+1, ... (lengths[i] of them) for every i, end to end."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(int(ends[-1]) if len(ends) else 0)


def _slices(data: bytes, offsets: npt.NDArray[np.int64]) -> list[bytes]:
    at = offsets.tolist()
    return [data[a:b] for a, b in pairwise(at)]
