"""The configuration of steering: its keys, their defaults, and strict reading."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from taskplace.errors import ConfigError
from topology.errors import nearest

WORKS = "steering works with classic PySpark 4.0 to 4.3, not with Spark Connect"


class LoadBy(StrEnum):
    """What makes a task heavy: its run time, its input rows, the bytes of its state, or nothing."""

    TASK_TIME = "task.time"
    ROWS = "rows"
    STATE_SIZE = "state.size"
    EVEN = "even"


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringConfig:
    """The configuration of steering; one attribute per key, with underscores for the dots.

    Keys
        max.moves.per.batch         tasks that may leave a running executor between two batches that ran (4)
        worth.batches               moves must pay their reloads back within so many batches; 0: always move (100)
        load.by                     what makes a task heavy: task.time, rows, state.size, or even (task.time)
        load.every.batches          the load of tasks is measured every so many batches (10)
        load.tolerance              counts give way to load if an executor is relieved by this part of a share (0.2)
        patience.batches            steering stands down after so many batches in a row in which Spark overruled
                                    the same task, or a quarter of all tasks (3)
        reload.bytes.per.second     assumed speed of reloading state, until it is measured (20 MiB)

    Errors: `ConfigError`, naming the path of the key, what was found, and what was expected.

    >>> SteeringConfig.from_properties({"max.moves.per.batch": 8}).max_moves_per_batch
    8
    >>> SteeringConfig.from_properties({"max.moves.a.batch": 8})
    Traceback (most recent call last):
    taskplace.errors.ConfigError: steering.max.moves.a.batch: found an unknown key, expected \
one of 7 known keys; did you mean 'max.moves.per.batch'?
    """

    max_moves_per_batch: int = 4
    worth_batches: float = 100.0
    load_by: LoadBy = LoadBy.TASK_TIME
    load_every_batches: int = 10
    load_tolerance: float = 0.2
    patience_batches: int = 3
    reload_bytes_per_second: float = 20 * 2.0**20

    def __post_init__(self) -> None:
        for key, (name, read) in _KEYS.items():
            object.__setattr__(self, name, read(f"steering.{key}", getattr(self, name)))

    @classmethod
    def from_properties(cls, mapping: Mapping[str, Any], path: str = "steering") -> SteeringConfig:
        """Return the configuration that `mapping` describes; `path` is where the mapping came from, for errors."""
        if not isinstance(mapping, Mapping):
            raise ConfigError(path, found=mapping, expected="a mapping of keys to values")
        values: dict[str, Any] = {}
        for key, value in mapping.items():
            if key not in _KEYS:
                raise ConfigError.unknown_key(path, key, _KEYS)
            name, read = _KEYS[key]
            values[name] = read(f"{path}.{key}", value)
        return cls(**values)


_Reader = Callable[[str, Any], Any]


def _integer(path: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(path, found=value, expected="an integer of at least 1")
    return value


def _number(expected: str, *, above: bool) -> _Reader:
    def read(path: str, value: Any) -> float:
        number = math.nan
        if isinstance(value, int | float) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):  # an integer that no float can hold
                number = float(value)
        if not math.isfinite(number) or number < 0 or (above and number == 0):
            raise ConfigError(path, found=_short(value), expected=expected)
        return number

    return read


def _short(value: Any) -> Any:
    """Return what an error shows of a value. Python refuses to print very long integers."""
    if isinstance(value, int) and value.bit_length() > 1024:
        return f"an integer of {value.bit_length()} bits"
    return value


def _load_by(path: str, value: Any) -> LoadBy:
    known = [str(kind) for kind in LoadBy]
    if value not in known:
        raise ConfigError(
            path, found=value, expected="one of " + ", ".join(known), hint=nearest(value, known)
        )
    return LoadBy(value)


_READERS: Mapping[str, _Reader] = {
    "max_moves_per_batch": _integer,
    "worth_batches": _number("a number of batches, 0 for always", above=False),
    "load_by": _load_by,
    "load_every_batches": _integer,
    "load_tolerance": _number("a part of a share, above 0", above=True),
    "patience_batches": _integer,
    "reload_bytes_per_second": _number("a number of bytes above 0", above=True),
}
_KEYS: Mapping[str, tuple[str, _Reader]] = {
    f.name.replace("_", "."): (f.name, _READERS[f.name]) for f in fields(SteeringConfig)
}
