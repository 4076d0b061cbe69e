"""The configuration of steering."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, ClassVar

from msgspec import Meta

from taskplace import validation
from taskplace.model.keys import AboveZero, Configuration, Positive, about


class LoadBy(str, Enum):
    """What makes a task heavy: its run time, its input rows, the bytes of its state, or nothing."""

    TASK_TIME = "task.time"
    ROWS = "rows"
    STATE_SIZE = "state.size"
    EVEN = "even"

    __str__ = str.__str__


class SteeringConfig(Configuration, frozen=True, kw_only=True):
    """How a query is steered; docs/configuration.md lists the keys.

    Errors: `ConfigError`, naming the path of the key, what was found, and what was expected.

    >>> SteeringConfig.from_properties({"max.moves.per.batch": 8}).max_moves_per_batch
    8
    >>> SteeringConfig.from_properties({"max.moves.a.batch": 8})
    Traceback (most recent call last):
    taskplace.errors.ConfigError: steering.max.moves.a.batch: found an unknown key, expected \
one of 7 known keys; did you mean 'max.moves.per.batch'?
    """

    SECTION: ClassVar[str] = "steering"

    max_moves_per_batch: Annotated[
        Positive, about("most tasks that leave running executors between two batches", unit="tasks")
    ] = 4
    worth_batches: Annotated[
        Annotated[float, Meta(ge=0, le=validation.MOST_NUMBER)],
        about("moves must pay off within this many batches; 0: always move", unit="batches"),
    ] = 100.0
    load_by: Annotated[LoadBy, about("measure of a task's load")] = LoadBy.TASK_TIME
    load_every_batches: Annotated[
        Positive, about("batches between two measurements of load", unit="batches")
    ] = 10
    load_tolerance: Annotated[
        AboveZero,
        about("load goes before task counts if it relieves an executor by this fraction of a fair share"),
    ] = 0.2
    patience_batches: Annotated[
        Positive,
        about(
            "stand down after this many batches in a row in which Spark ran the same task, or a quarter of "
            "all, elsewhere",
            unit="batches",
        ),
    ] = 3
    reload_bytes_per_second: Annotated[
        AboveZero, about("speed of loading state, until measured", unit="bytes/s")
    ] = 20 * 2.0**20
