"""Collects the rows that a task reads of a topic: in memory up to a limit, and in a file beyond it.

Spark writes the offsets of a batch before the batch runs, so a task cannot ask for fewer rows. Rows above a limit go to
a file of Arrow, which is mapped into memory: the system reads what is used, and drops it again when memory is short.
"""

from __future__ import annotations

import logging
import mmap
import tempfile
from pathlib import Path
from typing import IO

import pyarrow as pa

from taskplace.logs import RepeatedWarnings

log = logging.getLogger(__name__)
#: By what is read, and the folder. A worker process reads many batches.
_REPEATED = RepeatedWarnings()


class CollectedRows:
    """Rows of one schema.

    - `columns`: the schema; `most`: the bytes of rows in memory; `folder`: where a file is made, if one is needed
    - `what`: what is read, for the log

    >>> rows = CollectedRows(pa.schema([("n", pa.int64())]), most=100, folder=Path("."), what="topic 'numbers'")
    >>> for first in (0, 10, 20):
    ...     rows.add(pa.table({"n": range(first, first + 10)}))
    >>> rows.table()["n"].to_pylist() == list(range(30)), rows.in_file
    (True, 160)
    """

    def __init__(self, columns: pa.Schema, *, most: int, folder: Path, what: str) -> None:
        self._columns, self._most, self._folder, self._what = columns, most, folder, what
        self._kept: list[pa.Table] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        #: The bytes of the rows that are in the file.
        self.in_file = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows behind the others. O(bytes)."""
        if self._writer is None and self._bytes + rows.nbytes <= self._most:
            self._bytes += rows.nbytes
            self._kept.append(rows)
            return
        if self._writer is None:
            self._writer = self._opened()
        self._writer.write_table(rows)
        self.in_file += rows.nbytes

    def table(self) -> pa.Table:
        """Return all rows. Nothing can be added then."""
        if self._writer is None or self._file is None:
            return pa.concat_tables([self._columns.empty_table(), *self._kept])
        self._writer.close()
        self._file.flush()
        size = (
            f"{self._bytes + self.in_file} bytes of rows in one batch, of which {self.in_file} are in a file"
        )
        _REPEATED.warn(
            log,
            "%s: %s in %s; a task keeps at most runtime.bytes.per.task = %d in memory. Make batches smaller with "
            "most_records, or use more partitions",
            self._what, size, self._folder, self._most, key=(self._what, self._folder),
        )  # fmt: skip
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._file.close()  # the mapping keeps the file
        return pa.concat_tables([*self._kept, pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()])

    def _opened(self) -> pa.RecordBatchStreamWriter:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  closed when it is mapped
        return pa.ipc.new_stream(self._file, self._columns)
