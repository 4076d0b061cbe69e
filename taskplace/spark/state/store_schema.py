"""The schema of a store, made of the options that a topology gives it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.spark.state import expiry
from taskplace.spark.state.rows import RowCodec, codec_of
from taskplace.spark.types import arrow_schema, column_of
from taskplace.validation import NO_SURROGATES, has_surrogates


@dataclass(frozen=True, slots=True)
class StoreSchema:
    """The schema of a store: its name, the columns of its key and of its value, and whether it has a changelog.

    With a `ttl` (microseconds; 0: none), an entry expires `ttl` after the time in its column `time`. A store that was
    removed and came back has another `incarnation`, so that it does not read its old records.

    `meaning` says how the values were computed, as sorted (what, how), such as ("total", "sum"). State with one meaning
    is wrong under another, even if the columns are the same. The driver compares meanings; the store does not.
    """

    name: str
    key: pa.Schema
    value: pa.Schema
    logged: bool = True
    time: str = ""
    ttl: int = 0
    incarnation: int = 0
    meaning: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, name: str, options: Mapping[str, object], *, logged: bool = True) -> StoreSchema:
        """Return the schema of a topology's store from its options.

        Options: `key` and `value`, name -> type; for expiry, `retention_ms` and `time`; optionally `meaning`,
        text -> text. Errors: `InputError` naming the store if an option is missing, if a type is unknown or not flat,
        or if two columns differ only by case: the store could not be read as a data frame.

        >>> columns = {"key": {"k": "string"}, "value": {"total": "int64"}}
        >>> StoreSchema.of("s", columns | {"meaning": {"total": "sum"}}).meaning
        (('total', 'sum'),)
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
        _check_names(name, [*schemas["key"].names, *schemas["value"].names])
        meaning = _meaning(options.get("meaning"), f"stores.{name}.meaning")
        time, ttl = options.get("time"), options.get("retention_ms")
        if (time is None) != (ttl is None):
            raise InputError(
                f"stores.{name}",
                found=f"time {time!r}, retention_ms {ttl!r}",
                expected="both or neither: an entry expires retention_ms after its time",
            )
        if time is None:
            return cls(name, schemas["key"], schemas["value"], logged, meaning=meaning)
        columns = {field.name: field.type for part in schemas.values() for field in part}
        kind = columns.get(str(time), pa.null())
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise InputError(
                f"stores.{name}.time",
                found=f"{time!r}, {columns.get(str(time), 'no column of the store')}",
                expected=f"a timestamp or date column among {', '.join(sorted(columns))}",
            )
        micros = 1000 * milliseconds(ttl, f"stores.{name}.retention_ms")
        return cls(name, schemas["key"], schemas["value"], logged, str(time), micros, meaning=meaning)

    @property
    def database(self) -> str:
        """The store's name in copies and changelogs; "~" is not legal in a store's own name."""
        return f"{self.name}~{self.incarnation}" if self.incarnation else self.name

    @property
    def databases(self) -> tuple[str, ...]:
        """The store's name in copies, and that of its expiry index if it has a `ttl`."""
        return (self.database, expiry.index_of(self.database)) if self.ttl else (self.database,)

    def times(self, keys: pa.Table, values: pa.Table) -> pa.ChunkedArray:
        """Return the column `time` of entries as the store keeps it, whatever type the rows have.

        So an entry expires by the same time before and after it is written: a date by its day, for example, and not by
        the timestamp that it was made of. Errors: `InputError` for a column that is no time, or a value that does not
        fit the store's type.
        """
        part, rows = (self.key, keys) if self.time in self.key.names else (self.value, values)
        path = f"stores.{self.name}"
        expiry.check_time(column_of(rows, self.time, f"{path}.{self.time}").type, f"{path}.{self.time}")
        return codec_of(pa.schema([part.field(self.time)]), path).canonical(rows)[self.time]

    def expired(self, keys: pa.Table, values: pa.Table, watermark: int | None) -> expiry.Mask:
        """Return which entries have expired at a watermark (microseconds; None: none yet), by `times`."""
        if not self.ttl:
            return np.zeros(keys.num_rows, np.bool_)
        return self.expired_at(self.times(keys, values), watermark)

    def expired_at(self, times: pa.ChunkedArray, watermark: int | None) -> expiry.Mask:
        """Return which entries with these `times` have expired at a watermark, in a store with a time to live."""
        return expiry.expired(times, self.ttl, watermark, f"stores.{self.name}.{self.time}")


def _check_names(store: str, names: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise InputError(
                f"stores.{store}",
                found=f"columns {other!r} and {name!r}, which Spark treats as one name",
                expected="column names that differ by more than case",
                hint="rename one of them",
            )


def _meaning(raw: object, path: str) -> tuple[tuple[str, str], ...]:
    if raw is None:
        return ()
    if not isinstance(raw, Mapping) or not all(
        isinstance(text, str) for pair in raw.items() for text in pair
    ):
        raise InputError(
            path, found=raw, expected="a mapping of strings to strings, such as {'total': 'sum'}"
        )
    for said in (said for pair in raw.items() for said in pair if has_surrogates(said)):
        raise InputError(path, found=said, expected=NO_SURROGATES)
    return tuple(sorted(raw.items()))
