"""Encodes Arrow columns as rows of bytes, the keys and values of a store, and decodes them.

One row is `[null bitmap][fixed part][variable part]`: every fixed-width column has its bytes in the fixed
part, every string or binary column has its length there (uint32) and its bytes in the variable part.
The encoding is canonical (a null is all zeros, `-0.0` is `0.0`, there is one NaN), so equal rows are equal
bytes and a row can be a key. Encoding and decoding work on whole columns, in numpy and Arrow. Only wide rows, for which
that is slower, are cut one by one to be decoded.

Non-goals: ordering (bytes do not sort like values) and nested types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import CheckpointError, InputError
from taskplace.spark.casts import cast
from taskplace.spark.checkpoint.files import LARGEST
from taskplace.spark.types import check_cast, column_of

Bytes = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.int64]
LENGTH = np.dtype("<u4")

#: The bytes that are encoded or decoded at a time: numpy needs one or two 8-byte positions for each byte.
AT_A_TIME = 1 << 20
#: If the variable part has more bytes than this on average, rows are cut one by one to be decoded.
WIDE = 128


class RowCodec:
    """Encodes and decodes the rows of one schema.

    >>> from taskplace.spark.types import arrow_schema
    >>> codec = RowCodec(arrow_schema({"id": "int32", "name": "string"}))
    >>> rows = codec.encode(pa.table({"id": pa.array([1, None], pa.int32()), "name": ["ab", ""]}))
    >>> rows[1]
    b'\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00'
    >>> codec.decode(rows).to_pylist()
    [{'id': 1, 'name': 'ab'}, {'id': None, 'name': ''}]
    """

    def __init__(self, schema: pa.Schema, path: str = "") -> None:
        """`path` names the rows in errors, such as "stores.delays.key"."""
        self.schema = schema
        self._path = path
        self._bitmap = (len(schema) + 7) // 8
        self._fields = [_Field(field, self._named(field.name)) for field in schema]
        self._starts = np.cumsum([self._bitmap, *(field.width for field in self._fields)]).tolist()
        self._fixed = int(self._starts[-1])
        self._variable = [i for i, field in enumerate(self._fields) if field.variable]

    def encode(self, table: pa.Table | pa.RecordBatch) -> list[bytes]:
        """Return one `bytes` per row of `table`; its columns are found by name and cast to the schema.

        O(bytes), in time and in memory. Errors: `InputError` for a missing column, a value that does not fit its type,
        or a row of 2 GiB.
        """
        columns = [self._cast(table, field.arrow) for field in self._fields]
        if sum(column.nbytes for column in columns) <= AT_A_TIME:
            return self._encode([_whole(column) for column in columns], table.num_rows)
        portions = _portions(columns, 0, table.num_rows)
        parts = (self._encode([_whole(c.slice(a, n)) for c in columns], n) for a, n in portions)
        return list(chain.from_iterable(parts))

    def _encode(self, columns: Sequence[pa.Array], count: int) -> list[bytes]:
        fixed = np.zeros((count, self._fixed), np.uint8)
        variable: list[pa.Array] = []
        total = np.full(count, self._fixed, np.int64)
        for i, (field, start, column) in enumerate(zip(self._fields, self._starts, columns, strict=False)):
            if column.null_count:
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                fixed[:, i // 8] |= nulls.astype(np.uint8) << np.uint8(i % 8)
            if field.variable:
                variable.append(field.content(column))
                lengths = pc.binary_length(variable[-1]).to_numpy()
                fixed[:, start : start + 4] = lengths.astype(LENGTH).view(np.uint8).reshape(count, 4)
                total += lengths
            else:
                fixed[:, start : start + field.width] = field.raw(column)
        if count and (longest := int(total.max())) > LARGEST:
            raise InputError(
                self._path or "rows", found=f"a row of {longest} bytes", expected=f"at most {LARGEST} bytes"
            )
        buffers = [None, pa.py_buffer(np.arange(count + 1) * self._fixed), pa.py_buffer(fixed)]
        rows = pa.Array.from_buffers(pa.large_binary(), count, buffers)
        if variable:
            nothing_between = pa.scalar(b"", pa.large_binary())
            rows = pc.binary_join_element_wise(rows, *variable, nothing_between)
        encoded: list[bytes] = rows.to_pylist()
        return encoded

    def canonical(self, table: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return the schema's columns of `table`, with values that are equal exactly if their encodings are.

        Rows that are grouped by these columns have one key in a store. O(rows). Errors: as `encode`.
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
        """Return the table that `rows` encode; each column is one chunk if the rows have less than 2 GiB.

        O(bytes), in time and in memory. Errors: `CheckpointError` for rows of another layout.
        """
        if not self._variable:
            return pa.table(self._decode_fixed(rows), schema=self.schema)
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        if (total := int(sizes.sum())) <= AT_A_TIME:
            return pa.table(self._decode(rows, sizes), schema=self.schema)
        ends, edges = sizes.cumsum(), [0]
        while (start := edges[-1]) < len(rows):
            enough = int(np.searchsorted(ends, ends[start] - sizes[start] + AT_A_TIME, "right"))
            edges.append(max(start + 1, enough))
        parts = [self._decode(rows[a:b], sizes[a:b]) for a, b in pairwise(edges)]
        columns = [pa.chunked_array(chunks) for chunks in zip(*parts, strict=True)]
        if total <= LARGEST:
            columns = [column.combine_chunks() for column in columns]
        return pa.table(columns, schema=self.schema)

    def _decode_fixed(self, rows: Sequence[bytes]) -> list[pa.Array]:
        data = np.frombuffer(b"".join(rows), np.uint8)
        self._check_layout(data.size == len(rows) * self._fixed)
        fixed = data.reshape(len(rows), self._fixed)
        return [
            field.array(self._raw(fixed, i), len(rows), _validity(fixed, i))
            for i, field in enumerate(self._fields)
        ]

    def _decode(self, rows: Sequence[bytes], sizes: Lengths) -> list[pa.Array]:
        count = len(rows)
        self._check_layout(not count or bool(sizes.min() >= self._fixed))
        offsets = _offsets(sizes)
        wide = bool(offsets[-1] > (self._fixed + WIDE) * count)
        if wide:
            data = np.zeros(0, np.uint8)
            heads = np.frombuffer(b"".join([row[: self._fixed] for row in rows]), np.uint8)
            fixed = heads.reshape(count, self._fixed)
            at = np.full(count, self._fixed, np.int64)
        else:
            data = np.frombuffer(b"".join(rows), np.uint8)
            fixed = data[offsets[:-1, None] + np.arange(self._fixed)]
            at = offsets[:-1] + self._fixed
        self._check_layout(bool((sizes == self._fixed + self._lengths(fixed)).all()))
        columns = []
        for i, field in enumerate(self._fields):
            raw, validity = self._raw(fixed, i), _validity(fixed, i)
            if not field.variable:
                columns.append(field.array(raw, count, validity))
                continue
            lengths = raw.view(LENGTH).reshape(count).astype(np.int64)
            content: bytes | Bytes
            ends = at + lengths
            if wide:
                values = zip(rows, at.tolist(), ends.tolist(), strict=True)
                content = b"".join([row[a:b] for row, a, b in values])
            else:
                content = data[_spread(at, lengths)]
            columns.append(field.join(content, lengths, validity))
            at = ends
        return columns

    def _raw(self, fixed: Bytes, i: int) -> Bytes:
        """Return a column's bytes in the fixed part, end to end and aligned."""
        return fixed[:, self._starts[i] : self._starts[i] + self._fields[i].width].copy()

    def _lengths(self, fixed: Bytes) -> Lengths:
        """Return the length of each row's variable part, by the lengths in its fixed part."""
        total = np.zeros(len(fixed), np.int64)
        for i in self._variable:
            total += self._raw(fixed, i).view(LENGTH).reshape(len(fixed))
        return total

    def _check_layout(self, fits: bool) -> None:
        if not fits:
            columns = ", ".join(f"{field.name} {field.type}" for field in self.schema)
            raise CheckpointError(
                f"{self._path or 'rows'}: found rows with another layout, expected ({columns}); "
                "the store was created with other columns"
            )

    def _named(self, column: str) -> str:
        return f"{self._path}.{column}" if self._path else column

    def _cast(self, table: pa.Table | pa.RecordBatch, field: pa.Field) -> pa.Array | pa.ChunkedArray:
        column = column_of(table, field.name, self._named(field.name))
        if column.type != field.type:
            check_cast(column.type, field.type, self._named(field.name))
            try:
                column = cast(column, field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InputError(
                    self._named(field.name), found=str(column.type), expected=f"{field.type} ({error})"
                ) from None
        return column


@lru_cache(
    maxsize=256
)  # a task's batch needs the same codecs as the one before, and making them takes a while
def codec_of(schema: pa.Schema, path: str = "") -> RowCodec:
    """Return the codec of a schema. `path` names the rows in errors."""
    return RowCodec(schema, path)


class _Field:
    """One column's part of a row."""

    def __init__(self, field: pa.Field, path: str) -> None:
        kind = field.type
        self.arrow = field
        self._path = path
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
        return pa.Array.from_buffers(self.arrow.type, count, [validity, pa.py_buffer(raw)])

    @staticmethod
    def content(column: pa.Array) -> pa.Array:
        """Return the bytes of each value of a string or binary column; none for null."""
        content = column.cast(pa.large_binary())
        return content.fill_null(b"") if content.null_count else content

    def join(self, data: Bytes | bytes, lengths: Lengths, validity: pa.Buffer | None) -> pa.Array:
        offsets = _offsets(lengths)
        if offsets[-1] > LARGEST:  # Arrow's offsets are int32
            raise CheckpointError(
                f"{self._path}: found values of {offsets[-1]} bytes, expected at most {LARGEST} bytes in one array"
            )
        buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        return pa.Array.from_buffers(self.arrow.type, len(lengths), buffers)


def canonical_floats(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.floating]:
    """Return the values with nulls as 0, one NaN, and 0.0 for -0.0."""
    values = column.to_numpy(zero_copy_only=False).astype(column.type.to_pandas_dtype())
    values[column.is_null().to_numpy(zero_copy_only=False)] = 0
    values[np.isnan(values)] = np.nan
    return values + values.dtype.type(0)  # -0.0 + 0.0 = 0.0


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _portions(
    columns: Sequence[pa.Array | pa.ChunkedArray], start: int, count: int
) -> Iterator[tuple[int, int]]:
    """Yield (start, count) of runs of rows with at most `AT_A_TIME` bytes; a larger row is a run by itself."""
    if count <= 1 or sum(column.slice(start, count).nbytes for column in columns) <= AT_A_TIME:
        yield start, count
        return
    half = count // 2
    yield from _portions(columns, start, half)
    yield from _portions(columns, start + half, count - half)


def _validity(fixed: Bytes, i: int) -> pa.Buffer | None:
    """Return Arrow's validity bitmap of a column; None if no row is null."""
    nulls = (fixed[:, i // 8] >> np.uint8(i % 8)) & 1
    return pa.py_buffer(np.packbits(nulls ^ 1, bitorder="little")) if nulls.any() else None


def _offsets(lengths: Lengths) -> Lengths:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _spread(starts: Lengths, lengths: Lengths) -> Lengths:
    """Return the positions starts[i], starts[i]+1, ... (lengths[i] of them) for every i, end to end."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(int(ends[-1]) if len(ends) else 0)
