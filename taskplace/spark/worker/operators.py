"""One node of a subtopology, in the form that is sent to executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from topology.node import Kind

if TYPE_CHECKING:
    import pyarrow as pa


class RowCheck(Protocol):
    """Refuses rows that a target could not take after the commit. It is sent to executors, so it can be pickled.

    Errors: `InputError`, with a path that begins with `sinks.<sink>`.
    """

    def check_columns(self, sink: str, schema: pa.Schema) -> None:
        """Refuse columns. Called before the first batch, where they are known."""
        ...

    def check_rows(self, sink: str, rows: pa.Table) -> None:
        """Refuse rows. Called in their task, before the batch is committed, under the sink's schema."""
        ...


@dataclass(frozen=True)
class Operator:
    """One node: its kind, its parents and its processor. For its times see `taskplace.spark.worker.clock`."""

    name: str
    kind: Kind
    parents: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    topic: str = ""
    key: tuple[str, ...] = ()
    partitions: int = 0
    processor: object = None
    #: Of a sink: column names that its target reserves, in lower case.
    reserved: tuple[str, ...] = ()
    #: Of a sink: refuses rows that its target could not take.
    row_check: RowCheck | None = None
    #: How far the node's time column is behind the watermark of its input, in microseconds.
    lag: int = 0
    #: The output column that the node declares as event time; "" if it declares none.
    event_time: str = ""
