"""The runtime options of a placed stream: the options of `Placed`, and the section `runtime` of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

from taskplace import validation
from taskplace.durations import Duration, milliseconds
from taskplace.errors import ConfigError, InputError
from taskplace.model.keys import Configuration, Integer, key

_entries = partial(validation.entries, optional=True, error=ConfigError)

COMPRESSIONS = ("lz4", "zstd")
MOST_BYTES = 2**31 - 1
"""The input of a task is sent as one Java array, which can have at most 2^31 - 1 bytes."""


class Share:
    """A fraction above 0 and at most 1."""

    def __str__(self) -> str:
        return "a number above 0, at most 1"

    def read(self, path: str, value: Any) -> float:
        """Return the share; `ConfigError` for anything else."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise ConfigError(path, found=value, expected=str(self))
        return float(value)


class Compression:
    """A compression, or none."""

    def __str__(self) -> str:
        return "one of lz4, zstd, none"

    def read(self, path: str, value: Any) -> str | None:
        """Return the compression; None for "none". Errors: `ConfigError`."""
        if value is None or (isinstance(value, str) and value == "none"):
            return None
        if not isinstance(value, str) or value not in COMPRESSIONS:
            hint = validation.nearest(value, COMPRESSIONS)
            raise ConfigError(path, found=value, expected=str(self), hint=hint)
        return value


class DurationAboveZero:
    """A duration with its unit."""

    def __str__(self) -> str:
        return "a duration, such as '10 minutes'"

    def read(self, path: str, value: Any) -> Duration:
        """Return the duration. One without a unit gets "ms". Errors: `ConfigError`."""
        try:
            whole = milliseconds(value, path)
        except InputError as error:
            raise ConfigError(path, found=error.found, expected=error.expected, hint=error.hint) from None
        return value if isinstance(value, str) else f"{whole} ms"


class HostTags:
    """The tags of executors, by host."""

    def __str__(self) -> str:
        return "the tags of each host, such as {'host-1': {'zone': 'a'}}"

    def read(self, path: str, value: Any) -> Mapping[str, Mapping[str, str]]:
        """Return the tags; `ConfigError` for anything else."""
        for host, tags in _entries(value, path, str(self)):
            for name, tag in _entries(tags, f"{path}.{host}", "tags, such as {'zone': 'a'}"):
                if not isinstance(name, str) or not isinstance(tag, str):
                    raise ConfigError(
                        f"{path}.{host}.{name}", found=tag, expected="strings as name and value"
                    )
        return value or {}


class TaskWeights:
    """The weights of tasks, by task ("1_3") or subtopology ("1")."""

    def __str__(self) -> str:
        return "the weights of tasks, such as {'1_3': 2.5}"

    def read(self, path: str, value: Any) -> Mapping[str, float]:
        """Return the weights. Unknown tasks are refused later. Errors: `ConfigError`."""
        _entries(value, path, str(self))
        return value or {}


@dataclass(frozen=True, kw_only=True)
class PlacedOptions(Configuration, section="runtime"):
    """The runtime options of a placed stream.

    Each field is a keyword of `Placed`, and a key of the section `runtime` (with dots instead of underscores).

    Errors: `ConfigError` with the name, the value found, and the values expected.

    >>> PlacedOptions.of({"snapshot_interval": 5}) == PlacedOptions.from_properties({"snapshot.interval": 5})
    True
    """

    snapshot_interval: int = key(
        Integer(1),
        10,
        "number of batches that change a task between two of its snapshots",
        second_name="snapshot.interval.batches",
        unit="batches",
    )
    snapshot_bytes: int = key(
        Integer(1), 64 * 2**20, "a snapshot is also due after this many bytes of changelog", unit="bytes"
    )
    follower_share: float = key(
        Share(), 0.1, "fraction of the executors' slots that standbys and warm-ups may use while a batch runs"
    )
    compression: str | None = key(
        Compression(), "lz4", "compression of changelogs and snapshots", second_name="changelog.compression"
    )
    bytes_per_task: int = key(
        Integer(1, MOST_BYTES),
        128 * 2**20,
        "largest input of one task in one batch; of what a task reads from Kafka itself, the rest goes to a file",
        second_name="bytes.per.task.max",
        unit="bytes",
    )
    locality_wait_ms: int = key(
        Integer(0),
        30_000,
        "how long Spark waits for a slot on the planned executor before it uses another one",
    )
    tags: Mapping[str, Mapping[str, str]] | None = key(
        HostTags(),
        None,
        "tags for `rack.aware.assignment.tags`; the tag `host` is set automatically",
    )
    weights: Mapping[str, float] | None = key(
        TaskWeights(), None, "load of a task or a subtopology relative to others; the default of a task is 1"
    )
    max_task_idle_ms: int = key(
        Integer(-1),
        0,
        "how long related Kafka topics wait for records of those that have none, before they are read on; 0: they wait "
        "only for records that are there; -1: topics and partitions are not read in the order of their records' times",
        unit="ms",
    )
    idle_closing: Duration | None = key(  # noqa: RUF009  a field, as of dataclasses.field
        DurationAboveZero(),
        None,
        "after this time without rows from any source, event time advances with the clock, so that windows close; the "
        "output then depends on the clock, and later rows may be late",
    )

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> PlacedOptions:
        """Return the options given as keywords of a call. Errors name the keyword."""
        by_field = {declared.field: declared for declared in cls.declared_keys()}
        values: dict[str, Any] = {}
        for name, value in keywords.items():
            if name not in by_field:
                raise TypeError(
                    f"unknown option {name!r}; {validation.nearest(name, by_field) or sorted(by_field)}"
                )
            default = by_field[name].default
            values[name] = value if value is default else by_field[name].type.read(name, value)
        return cls(**values)


class PlacedKeywords(TypedDict, total=False):
    """The fields of `PlacedOptions`, as the keywords of a call: for type checkers and editors."""

    snapshot_interval: int
    snapshot_bytes: int
    follower_share: float
    compression: str | None
    bytes_per_task: int
    locality_wait_ms: int
    tags: Mapping[str, Mapping[str, str]] | None
    weights: Mapping[str, float] | None
    max_task_idle_ms: int
    idle_closing: Duration | None
