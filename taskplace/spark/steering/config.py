"""The configuration of steering."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from taskplace.model.keys import Choice, Configuration, Integer, Number, key


class LoadBy(StrEnum):
    """What makes a task heavy: its run time, its input rows, the bytes of its state, or nothing."""

    TASK_TIME = "task.time"
    ROWS = "rows"
    STATE_SIZE = "state.size"
    EVEN = "even"


class LoadKind(Choice):
    """One of the values of `LoadBy`."""

    def __init__(self) -> None:
        super().__init__(*map(str, LoadBy))

    def read(self, path: str, value: Any) -> LoadBy:
        """Return the value; `ConfigError` for any other."""
        return LoadBy(super().read(path, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringConfig(Configuration, section="steering"):
    """How a query is steered; docs/configuration.md lists the keys.

    Errors: `ConfigError`, naming the path of the key, what was found, and what was expected.

    >>> SteeringConfig.from_properties({"max.moves.per.batch": 8}).max_moves_per_batch
    8
    >>> SteeringConfig.from_properties({"max.moves.a.batch": 8})
    Traceback (most recent call last):
    taskplace.errors.ConfigError: steering.max.moves.a.batch: found an unknown key, expected \
one of 7 known keys; did you mean 'max.moves.per.batch'?
    """

    max_moves_per_batch: int = key(
        Integer(1),
        4,
        "largest number of tasks that move away from running executors between two batches",
        unit="tasks",
    )
    worth_batches: float = key(
        Number("a number of batches, 0 for always", above=False),
        100.0,
        "moves must save more time than they cost within this many batches; 0: always move",
        unit="batches",
    )
    load_by: LoadBy = key(  # noqa: RUF009  a field, as of dataclasses.field
        LoadKind(), LoadBy.TASK_TIME, "measure of a task's load"
    )
    load_every_batches: int = key(
        Integer(1), 10, "number of batches between two measurements of task load", unit="batches"
    )
    load_tolerance: float = key(
        Number("a fraction of a share, above 0"),
        0.2,
        "load takes priority over task counts if that relieves an executor by at least this fraction of a fair share",
    )
    patience_batches: int = key(
        Integer(1),
        3,
        "steering stands down after this many batches in a row in which Spark ran the same task, or a quarter of all "
        "tasks, elsewhere",
        unit="batches",
    )
    reload_bytes_per_second: float = key(
        Number("a number of bytes above 0"),
        20 * 2.0**20,
        "assumed speed of loading state, until it has been measured",
        unit="bytes/s",
    )
