"""One node of a subtopology, in the form that is sent to executors."""

from __future__ import annotations

from dataclasses import dataclass

from topology.node import Kind


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
    #: How far the node's time column is behind the watermark of its input, in microseconds.
    lag: int = 0
    #: The output column that the node declares as event time; "" if it declares none.
    event_time: str = ""
