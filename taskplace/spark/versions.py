"""What differs between the versions of PySpark that placed state and steering run on: 3.5, and 4.0 to 4.3.

**Idea.** All code is written for the newest version. Where an older one has other arguments, or lacks something, the
difference is bridged here. The names of its Java classes are in `session_conf`, which works without PySpark.

| from | what is different there |
|---|---|
| 4.1 and older | no `SupportsTriggerAvailableNow`: the end of an `availableNow` run is fixed at its start; conversions of Arrow types have other arguments; a job's Python error is a `Py4JJavaError` |
| 4.0 and older | no `repartitionById` |
| 3.5 | no data sources in Python, so no ticks (`DATA_SOURCES`); no `state-metadata` source |

Non-goals: which private methods of Spark are there (`bridge`'s probe).
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import PythonException
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know it by
from pyspark.sql.pandas import types as conversions

from taskplace.spark.session_conf import release_of
from taskplace.spark.worker.hashing import partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType


#: The installed version: (4, 3).
RELEASE = release_of(pyspark.__version__)
#: Whether data sources can be written in Python: the source of ticks.
DATA_SOURCES = RELEASE >= (4, 0)
#: Whether the `state-metadata` source lists a query's stateful operators.
STATE_METADATA = RELEASE >= (4, 0)
#: Whether such a source is told where a batch begins, and may have new offsets during an `availableNow` run.
PLANNED_SOURCES = RELEASE >= (4, 2)

try:
    from pyspark.sql.datasource import DataSource as DataSource
    from pyspark.sql.datasource import DataSourceStreamReader as DataSourceStreamReader
    from pyspark.sql.datasource import InputPartition as InputPartition
except ImportError:
    DataSource = DataSourceStreamReader = InputPartition = object
try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Has no effect in this version."""


_UTC: dict[str, Any] = {"timezone": "UTC"} if RELEASE >= (4, 2) else {}


def to_arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type. Timestamps are microseconds in UTC. Errors: those of PySpark."""
    return conversions.to_arrow_type(kind, **_UTC)


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a Spark schema, as `to_arrow_type` does."""
    return conversions.to_arrow_schema(schema, **_UTC)


def from_arrow_type(kind: pa.DataType) -> DataType:
    """Return the Spark type of an Arrow type. A timestamp without a zone is TIMESTAMP_NTZ."""
    return conversions.from_arrow_type(kind, prefer_timestamp_ntz=True)


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of an Arrow schema, as `from_arrow_type` does."""
    return conversions.from_arrow_schema(schema, prefer_timestamp_ntz=True)


def python_error(error: BaseException) -> BaseException:
    """Return the `PythonException` of a job's task. Before 4.2 it is the cause of a `Py4JJavaError`.

    Any other error is returned as it is.
    """
    cause = error.java_exception.getCause() if isinstance(error, Py4JJavaError) else None
    if cause is None or not cause.getClass().getName().endswith(".PythonException"):
        return error
    return PythonException(cause.getMessage(), "")


def repartition_by_id(df: DataFrame, positions: Sequence[int], column: str) -> DataFrame:
    """Shuffle the rows with number `p` in `column` to partition `positions[p]`.

    Before 4.1 Spark hashes every expression. So a number is replaced by an integer whose hash falls into the partition.
    """
    count = len(positions)
    by_id = hasattr(df, "repartitionById")
    expression = F.expr(f"`{column}`")
    if not by_id or list(positions) != list(range(count)):
        wanted = positions if by_id else [preimages(count)[position] for position in positions]
        expression = F.expr(f"element_at(array({','.join(map(str, wanted))}), `{column}` + 1)")
    return df.repartitionById(count, expression) if by_id else df.repartition(count, expression)


@cache
def preimages(count: int) -> tuple[int, ...]:
    """Return for each of `count` partitions an integer that Spark's hash partitioning puts there. O(n log n).

    >>> partition_of([pa.array(preimages(4), pa.int32())], 4).tolist()
    [0, 1, 2, 3]
    """
    found: dict[int, int] = {}
    begin, step = 0, 20 * count
    while len(found) < count:
        numbers = np.arange(begin, begin + step, dtype=np.int32)
        for number, partition in zip(
            numbers.tolist(), partition_of([pa.array(numbers)], count).tolist(), strict=True
        ):
            found.setdefault(partition, number)
        begin += step
    return tuple(found[partition] for partition in range(count))
