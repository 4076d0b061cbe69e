"""One node of a subtopology, in a form that travels to executors."""

from __future__ import annotations

from dataclasses import dataclass

from topology.node import Kind


@dataclass(frozen=True)
class Operator:
    """One node: what it is, whose output it takes, and what it runs; as to time see `taskplace.spark.worker.clock`."""

    name: str
    kind: Kind
    parents: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    topic: str = ""
    key: tuple[str, ...] = ()
    partitions: int = 0
    processor: object = None
    #: Of a sink: names of columns that its target keeps for itself, in lower case.
    reserved: tuple[str, ...] = ()
    #: How far the time by which it forgets lies behind the watermark of its input, in microseconds.
    lag: int = 0
    #: The column of its output that it declares as event time; "" if it declares none.
    event_time: str = ""
