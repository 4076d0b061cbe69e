"""The placement configuration: Kafka's keys, verbatim, with Kafka's defaults."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from taskplace.errors import ConfigError, InputError
from taskplace.model import reading

ALIASES = {"task.assignor": "task.assignor.class"}
"""Second names of keys; a configuration is written with the first."""

BUILT_IN = ("high_availability", "sticky")
"""The values of `task.assignor.class` that are assignors of taskplace itself."""

STRATEGIES = ("none", "min_traffic", "balance_subtopology")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig:
    """How tasks are placed; one attribute per key, with the dots as underscores.

    Keys
        num.standby.replicas            hot standbys per stateful task, each on another instance (0)
        max.warmup.replicas             warm-ups at a time, in the whole cluster (2)
        acceptable.recovery.lag         a copy within this many records is caught up (10000); 2^63 - 1: every
                                        instance is, also without a copy, so nothing warms up
        acceptable.recovery.seconds     if set: within this time, at the measured rate (none)
        probing.rebalance.interval.ms   how often to plan again while the step is not the target (600000)
        rack.aware.assignment.tags      standbys go to other values of these instance tags, if possible ([])
        rack.aware.assignment.strategy  none, min_traffic or balance_subtopology (none)
        rack.aware.assignment.traffic_cost, rack.aware.assignment.non_overlap_cost
                                        what a cross-rack read, and a move, weigh (none: the assignor's own)
        task.assignor.class, task.assignor
                                        high_availability, sticky, an entry point, or "module:attribute"
        balance.factor                  KIP-441's figure; reported against, see `Plan.metrics` (1)
        state.cleanup.delay.ms          how long a copy without a role is kept (600000)

    Values may be numbers or the strings of a properties file. `probing.rebalance.interval.ms` may be
    shorter than the minute that Kafka demands: planning needs no group to stop here.

    Errors: `ConfigError`, naming the path of the key, what was found, and what was expected.

    Source: KIP-441, KIP-708, KIP-925, KIP-924.

    >>> PlacementConfig.from_properties({"num.standby.replicas": 1}).num_standby_replicas
    1
    >>> PlacementConfig.from_properties({"max.warmup.replicas": 0})
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.max.warmup.replicas: found 0, expected an integer of at least 1
    """

    num_standby_replicas: int = 0
    max_warmup_replicas: int = 2
    acceptable_recovery_lag: int = 10_000
    acceptable_recovery_seconds: float | None = None
    probing_rebalance_interval_ms: int = 600_000
    rack_aware_assignment_tags: tuple[str, ...] = ()
    rack_aware_assignment_strategy: str = "none"
    rack_aware_assignment_traffic_cost: int | None = None
    rack_aware_assignment_non_overlap_cost: int | None = None
    task_assignor_class: str = "high_availability"
    balance_factor: int = 1
    state_cleanup_delay_ms: int = 600_000

    def __post_init__(self) -> None:
        for key, (name, read) in _KEYS.items():
            object.__setattr__(self, name, read(f"config.{key}", getattr(self, name)))
        self._agree("config")

    @property
    def unbounded(self) -> bool:
        """Whether every instance counts as caught up: `acceptable.recovery.lag` is the largest there is, 2^63 - 1.

        Warm-ups are then off, whatever `acceptable.recovery.seconds` says (Kafka Streams reads `Long.MAX_VALUE` so).

        >>> PlacementConfig(acceptable_recovery_lag=2**63 - 1).unbounded
        True
        """
        return self.acceptable_recovery_lag == reading.MOST

    def _agree(self, path: str) -> None:
        """Refuse values that are right by themselves, but not together."""
        if self.task_assignor_class == "sticky" and self.rack_aware_assignment_strategy != "none":
            raise ConfigError(
                f"{path}.rack.aware.assignment.strategy",
                found=self.rack_aware_assignment_strategy,
                expected="none: the assignor 'sticky' does not look at the racks of the input",
                hint="task.assignor.class high_availability does",
            )

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        """Return all keys, sorted.

        >>> PlacementConfig.known_keys()[:2]
        ('acceptable.recovery.lag', 'acceptable.recovery.seconds')
        """
        return tuple(sorted(_KEYS))

    @classmethod
    def from_properties(cls, mapping: Mapping[str, Any], path: str = "config") -> PlacementConfig:
        """Return the configuration that `mapping` describes; keys that are missing take their defaults.

        `path` is where the mapping came from; errors name it.

        >>> PlacementConfig.from_properties({"num.standby.replica": 1}, path="placement")
        Traceback (most recent call last):
        taskplace.errors.ConfigError: placement.num.standby.replica: found an unknown key, expected \
one of 12 known keys; did you mean 'num.standby.replicas'?
        """
        if not isinstance(mapping, Mapping):
            raise ConfigError(path, found=mapping, expected="a mapping of keys to values")
        values: dict[str, Any] = {}
        for key, value in mapping.items():
            name, read = _KEYS.get(ALIASES.get(key, key), (None, None))
            if name is None or read is None:
                raise ConfigError.unknown_key(path, key, _KEYS)
            if name in values:
                raise ConfigError(f"{path}.{key}", found="a key given twice", expected="one of its two names")
            values[name] = read(f"{path}.{key}", value)
        try:
            return cls(**values)
        except ConfigError as error:  # values are right one by one: it is about several of them
            inner = error.path.removeprefix("config.")
            raise ConfigError(
                f"{path}.{inner}", found=error.found, expected=error.expected, hint=error.hint
            ) from None

    def to_properties(self) -> dict[str, Any]:
        """Return every key with its value, ready for JSON; `from_properties` reads it back.

        >>> config = PlacementConfig(num_standby_replicas=2)
        >>> PlacementConfig.from_properties(config.to_properties()) == config
        True
        """
        out: dict[str, Any] = {}
        for key in sorted(_KEYS):
            value = getattr(self, _KEYS[key][0])
            out[key] = list(value) if isinstance(value, tuple) else value
        return out


Reader = Callable[[str, Any], Any]
"""Takes the path of a key and its value; returns what the value means, or raises `ConfigError`."""


def integer_key(least: int, most: int = reading.MOST, *, optional: bool = False) -> Reader:
    """Return the reader of an integer, which may be written as text, as in a properties file."""

    def read(path: str, value: Any) -> int | None:
        number = value
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                number = int(value)
        try:
            return reading.integer(number, path, least, most, optional=optional)
        except InputError as error:
            raise ConfigError(path, found=value, expected=error.expected) from None

    return read


def choice_key(*known: str) -> Reader:
    """Return the reader of one of some words."""

    def read(path: str, value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            hint = reading.nearest(value, known)
            raise ConfigError(path, found=value, expected="one of " + ", ".join(known), hint=hint)
        return value

    return read


def _seconds(path: str, value: Any) -> float | None:
    if value is None:
        return None
    expected = "a number of seconds above 0, or null"
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (0 < number < math.inf):
        raise ConfigError(path, found=value, expected=expected)
    return number


def _tags(path: str, value: Any) -> tuple[str, ...]:
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    expected = "a list of different tag names"
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) and part for part in parts):
        raise ConfigError(path, found=value, expected=expected)
    if len(set(parts)) != len(parts):
        raise ConfigError(path, found=value, expected=expected)
    try:
        return tuple(reading.text(part, path) for part in parts)
    except InputError as error:
        raise ConfigError(path, found=value, expected=error.expected) from None


def _assignor(path: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        expected = "high_availability, sticky, the name of an installed assignor, or 'module:attribute'"
        raise ConfigError(path, found=value, expected=expected)
    return value


MOST_COST = 1_000_000
"""The dearest a cross-rack read or a move may be: prices of whole targets have to fit into an integer of 64 bits."""

_READERS: dict[str, Reader] = {
    "num_standby_replicas": integer_key(0),
    "max_warmup_replicas": integer_key(1),
    "acceptable_recovery_lag": integer_key(0),
    "acceptable_recovery_seconds": _seconds,
    "probing_rebalance_interval_ms": integer_key(1),
    "rack_aware_assignment_tags": _tags,
    "rack_aware_assignment_strategy": choice_key(*STRATEGIES),
    "rack_aware_assignment_traffic_cost": integer_key(0, MOST_COST, optional=True),
    "rack_aware_assignment_non_overlap_cost": integer_key(0, MOST_COST, optional=True),
    "task_assignor_class": _assignor,
    "balance_factor": integer_key(1),
    "state_cleanup_delay_ms": integer_key(0),
}

# Kafka writes the last two rack keys with an underscore; all others are dots throughout.
_SPELLED = {
    "rack_aware_assignment_traffic_cost": "rack.aware.assignment.traffic_cost",
    "rack_aware_assignment_non_overlap_cost": "rack.aware.assignment.non_overlap_cost",
}

_KEYS: dict[str, tuple[str, Reader]] = {
    _SPELLED.get(f.name, f.name.replace("_", ".")): (f.name, _READERS[f.name])
    for f in fields(PlacementConfig)
}
