"""A processor's view of one store: Arrow tables in and out, over a task's copy.

Writes of a batch are kept in memory, last value per key, and reach the copy and the changelog in one piece
when the batch's attempt is sealed. Reads see them at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.rows import RowCodec, arrow_schema

SCAN_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class StoreSchema:
    """What a store holds: its name, the columns of its key and of its value, and whether it has a changelog."""

    name: str
    key: pa.Schema
    value: pa.Schema
    logged: bool = True

    @classmethod
    def of(cls, name: str, options: Mapping[str, object], *, logged: bool = True) -> StoreSchema:
        """Return the schema that a topology's store was declared with: `key` and `value`, name -> type.

        Errors: `InputError` naming the store when either is missing, or a type is unknown or not a flat one.
        """
        schemas = {}
        for part in ("key", "value"):
            columns = options.get(part)
            if not isinstance(columns, Mapping | pa.Schema) or not len(columns):
                raise InputError(
                    f"stores.{name}.{part}", found=columns, expected="columns, such as {'id': 'int64'}"
                )
            schemas[part] = arrow_schema(columns, f"stores.{name}.{part}")
            RowCodec(schemas[part], f"stores.{name}.{part}")
        shared = set(schemas["key"].names) & set(schemas["value"].names)
        if shared:
            raise InputError(
                f"stores.{name}", found=sorted(shared), expected="no column in both key and value"
            )
        return cls(name, schemas["key"], schemas["value"], logged)


class Store:
    """One store of one task during one batch.

    >>> store.put_many(table)                              # doctest: +SKIP
    >>> values, found = store.get_many(table)              # doctest: +SKIP
    """

    def __init__(self, schema: StoreSchema, copy: Copy) -> None:
        self.schema = schema
        self._copy = copy
        self._keys = RowCodec(schema.key, f"stores.{schema.name}.key")
        self._values = RowCodec(schema.value, f"stores.{schema.name}.value")
        self._absent: bytes | None = None
        #: This batch's writes: encoded key -> encoded value, None for a deletion.
        self.writes: dict[bytes, bytes | None] = {}

    def get_many(self, keys: pa.Table) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """Return the values of `keys` (a table with the key columns), and which of them there are.

        Shapes: as many rows as `keys`, in its order; the rows of absent keys hold nulls.
        O(rows x log size). A key may appear several times.
        """
        encoded = self._keys.encode(keys)
        raw = self._get(encoded)
        found = np.fromiter((value is not None for value in raw), np.bool_, len(raw))
        if found.all():
            return self._values.decode([value for value in raw if value is not None]), found
        absent = self._null_row()
        return self._values.decode([absent if value is None else value for value in raw]), found

    def contains_many(self, keys: pa.Table) -> npt.NDArray[np.bool_]:
        """Return for each of `keys` whether the store has it."""
        raw = self._get(self._keys.encode(keys))
        return np.fromiter((value is not None for value in raw), np.bool_, len(raw))

    def put_many(self, rows: pa.Table) -> None:
        """Set the value of each key; `rows` has the key and the value columns. The last row of a key wins. O(rows)."""
        self.writes.update(zip(self._keys.encode(rows), self._values.encode(rows), strict=True))

    def delete_many(self, keys: pa.Table) -> None:
        """Remove `keys`; one that is not there is fine. O(rows)."""
        self.writes.update(dict.fromkeys(self._keys.encode(keys)))

    def scan(self) -> Iterator[pa.Table]:
        """Yield the whole store, this batch's writes included, in tables of key and value columns. No order."""
        pending = {key: value for key, value in self.writes.items() if value is not None}
        yield from self._tables(list(pending.items()))
        chunk: list[tuple[bytes, bytes]] = []
        for key, value in self._copy.scan(self.schema.name):
            if key not in self.writes:
                chunk.append((key, value))
            if len(chunk) == SCAN_ROWS:
                yield from self._tables(chunk)
                chunk = []
        yield from self._tables(chunk)

    def _get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not self.writes:
            return self._copy.get_many(self.schema.name, keys)
        missing = [key for key in keys if key not in self.writes]
        stored = dict(zip(missing, self._copy.get_many(self.schema.name, missing), strict=True))
        return [self.writes[key] if key in self.writes else stored[key] for key in keys]

    def _null_row(self) -> bytes:
        if self._absent is None:
            nulls = {field.name: pa.nulls(1, field.type) for field in self.schema.value}
            self._absent = self._values.encode(pa.table(nulls))[0]
        return self._absent

    def _tables(self, entries: list[tuple[bytes, bytes]]) -> Iterator[pa.Table]:
        if entries:
            keys = self._keys.decode([key for key, _ in entries])
            values = self._values.decode([value for _, value in entries])
            yield pa.table(
                [*keys.columns, *values.columns], schema=pa.schema([*self.schema.key, *self.schema.value])
            )
