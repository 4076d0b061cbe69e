"""How a golden checkpoint is kept: its directories as one small archive, its rows and answers as JSON that can be read.

    manifest-8/keys.tar.xz     checkpoint/..., and what its sinks had got, if they are directories
    manifest-8/keys.json       what goes on from there, and what has to come of it

The archive has names in order, no times, no owners.
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

HERE = Path(__file__).parent

#: A table: the names and types of its columns, and its rows as JSON.
Table = Mapping[str, Any]
#: By sink, the rows that it got, in no order.
Sent = dict[str, list[list[Any]]]


@dataclass(frozen=True)
class Golden:
    """A checkpoint of an earlier time, and what it was given and has to give.

    - `manifest`: the version of its manifests; `last`: its last committed batch; `query`: the id of Spark's query
    - `batches`: from batch `first` on, the rows of each source, by topic
    - `sent`: what its sinks get in these batches, all together; a directory has what it had got before, too
    - `stores`: the rows of stores, in the end
    """

    stream: str
    manifest: str
    last: int
    query: str
    first: int
    batches: Sequence[Mapping[str, Table]]
    sent: Sent
    stores: Sent

    def write(self, made: Path, folder: Path) -> None:
        """Write it into a folder, with the directories in `made` that are not the executors' own."""
        folder.mkdir(parents=True, exist_ok=True)
        kept = [path for path in made.iterdir() if path.name != "state"]
        (folder / f"{self.stream}.tar.xz").write_bytes(archive(kept))
        (folder / f"{self.stream}.json").write_text(json.dumps(asdict(self)) + "\n")

    @classmethod
    def read(cls, file: Path) -> Golden:
        """Return what `write` wrote, without the directories."""
        return cls(**json.loads(file.read_text()))


def archive(directories: Iterable[Path]) -> bytes:
    """Return the files of directories, under the directories' names."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for directory in sorted(directories):
            for path in [directory, *sorted(directory.rglob("*"))]:
                info = tarfile.TarInfo(str(path.relative_to(directory.parent)))
                info.mode = path.stat().st_mode & 0o777
                if path.is_dir():
                    info.type = tarfile.DIRTYPE
                    tar.addfile(info)
                else:
                    data = path.read_bytes()
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return lzma.compress(found.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def unpack(file: Path, folder: Path) -> None:
    """Put back the directories of an archive."""
    with tarfile.open(file) as tar:
        tar.extractall(folder, filter="data")


# ------------------------------------------------------------------------- values


def plain(value: Any) -> Any:
    """Return a value as JSON; of one type, no two that differ come out the same."""
    match value:
        case float():
            return repr(value)
        case bytes():
            return value.hex()
        case Decimal():
            return str(value)
        case date():
            return value.isoformat()
    return value


def rows(found: Iterable[Iterable[Any]]) -> list[list[Any]]:
    """Return rows as JSON, in an order of their own."""
    return sorted(([plain(value) for value in row] for row in found), key=json.dumps)


def to_json(table: pa.Table) -> Table:
    """Return a table as JSON."""
    columns = {field.name: str(field.type) for field in table.schema}
    return {"columns": columns, "rows": [[plain(v) for v in row.values()] for row in table.to_pylist()]}


def from_json(table: Table) -> pa.Table:
    """Return the table that `to_json` was given."""
    columns = {}
    for i, (name, kind) in enumerate(table["columns"].items()):
        type, read = _type(kind)
        values = [None if row[i] is None else read(row[i]) for row in table["rows"]]
        columns[name] = pa.array(values, type)
    return pa.table(columns)


def _type(name: str) -> tuple[pa.DataType, Any]:
    if name.startswith("timestamp"):
        return pa.timestamp("us", tz="UTC"), datetime.fromisoformat
    if name.startswith("decimal"):
        precision, scale = map(int, name.partition("(")[2].rstrip(")").split(","))
        return pa.decimal128(precision, scale), Decimal
    if name.startswith("date"):
        return pa.date32(), date.fromisoformat
    return pa.type_for_alias(name), {"binary": bytes.fromhex, "double": float}.get(name, lambda value: value)
