"""Batches for both tasks of the first subtopology."""

from __future__ import annotations

import pyarrow.parquet as pq

from taskplace.spark.checkpoint.files import read_sealed

#: Both tasks get rows: N1, N2, N3 and the null belong to partition 0, N4, N7 and N8 to partition 1.
BATCHES = [
    [("N1", 5), ("N7", 7), ("N3", -1), ("N1", 2), (None, 0), ("N4", 3)],
    [("N7", 9), ("N4", 1), ("N1", 1)],
    [],
    [("N1", 30), ("N3", -1), ("N8", 5)],
]
PLANES = [("N1", 100), ("N7", 200)]


def sink_rows(runtime, reports, sink):
    """Return the staged rows of a batch. Checks their seals first."""
    rows = []
    for staged in {report.sinks[sink] for report in reports if sink in report.sinks}:
        read_sealed(runtime.checkpoint / staged.file, staged.size, staged.checksum)
        rows += pq.read_table(runtime.checkpoint / staged.file, use_threads=False).to_pylist()
        assert staged.rows == pq.read_metadata(runtime.checkpoint / staged.file).num_rows
    return sorted(rows, key=repr)
