"""The runtime options of a placed stream: the options of `Placed`, and the section `runtime` of a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypedDict

from msgspec import Meta

from taskplace import validation
from taskplace.durations import Duration, milliseconds
from taskplace.errors import ConfigError
from taskplace.model.keys import AboveZero, Configuration, Count, Positive, about, keys_of, read

COMPRESSIONS = ("lz4", "zstd")
MOST_BYTES = 2**31 - 1
"""The input of a task is sent as one Java array, which can have at most 2^31 - 1 bytes."""


def _duration(value: Any, path: str) -> Duration:
    """Return a duration; one without a unit gets "ms"."""
    whole = milliseconds(value, path)
    return value if isinstance(value, str) else f"{whole} ms"


def _compression(value: Any, path: str) -> str | None:
    if value is None or value == "none":
        return None
    if value not in COMPRESSIONS:
        hint = validation.nearest(value, COMPRESSIONS)
        raise ConfigError(path, found=value, expected=f"one of {', '.join(COMPRESSIONS)}, none", hint=hint)
    return str(value)


DurationAboveZero = Annotated[
    Duration, Meta(extra={"read": _duration, "words": "a duration, such as '10 minutes'"})
]
_Share = Annotated[float, Meta(gt=0, le=1, extra={"words": "a number above 0, at most 1"})]
_Compression = Annotated[str, Meta(extra={"read": _compression, "words": "one of lz4, zstd, none"})]
_HostTags = Annotated[
    Mapping[str, Mapping[str, str]],
    Meta(extra={"words": "the tags of each host, such as {'host-1': {'zone': 'a'}}"}),
]
_TaskWeights = Annotated[
    Mapping[str, AboveZero], Meta(extra={"words": "the weights of tasks, such as {'1_3': 2.5}"})
]


class PlacedOptions(Configuration, frozen=True, kw_only=True):
    """The runtime options of a placed stream.

    Each field is a keyword of `Placed`, and a key of the section `runtime` (with dots instead of underscores).

    Errors: `ConfigError` with the name, the value found, and the values expected.

    >>> PlacedOptions.of({"snapshot_interval": 5}) == PlacedOptions.from_properties({"snapshot.interval": 5})
    True
    """

    SECTION: ClassVar[str] = "runtime"

    snapshot_interval: Annotated[
        Positive,
        about(
            "number of batches that change a task between two of its snapshots",
            second_name="snapshot.interval.batches",
            unit="batches",
        ),
    ] = 10
    snapshot_bytes: Annotated[
        Positive,
        about("a snapshot is also due after this many bytes of changelog", unit="bytes"),
    ] = 64 * 2**20
    follower_share: Annotated[
        _Share,
        about("fraction of the executors' slots that standbys and warm-ups may use while a batch runs"),
    ] = 0.1
    compression: Annotated[
        _Compression | None,
        about("compression of changelogs and snapshots", second_name="changelog.compression"),
    ] = "lz4"
    bytes_per_task: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_BYTES)],
        about(
            "largest input of one task in one batch; of what a task reads from Kafka itself, the rest "
            "goes to a file",
            second_name="bytes.per.task.max",
            unit="bytes",
        ),
    ] = 128 * 2**20
    locality_wait_ms: Annotated[
        Count,
        about("how long Spark waits for a slot on the planned executor before it uses another one"),
    ] = 30000
    tags: Annotated[
        _HostTags | None,
        about("tags for `rack.aware.assignment.tags`; the tag `host` is set automatically"),
    ] = None
    weights: Annotated[
        _TaskWeights | None,
        about("load of a task or a subtopology relative to others; the default of a task is 1"),
    ] = None
    max_task_idle_ms: Annotated[
        Annotated[int, Meta(ge=-1, le=validation.MOST)],
        about(
            "how long related Kafka topics wait for records of those that have none, before they are read "
            "on; 0: they wait only for records that are there; -1: topics and partitions are not read in "
            "the order of their records' times",
            unit="ms",
        ),
    ] = 0
    idle_closing: Annotated[
        DurationAboveZero | None,
        about(
            "after this time without rows from any source, event time advances with the clock, so that "
            "windows close; the output then depends on the clock, and later rows may be late"
        ),
    ] = None

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> PlacedOptions:
        """Return the options given as keywords of a call. Errors name the keyword."""
        by_field = {key.field: key for key in keys_of(cls)}
        values: dict[str, Any] = {}
        for name, value in keywords.items():
            if name not in by_field:
                raise TypeError(
                    f"unknown option {name!r}; {validation.nearest(name, by_field) or sorted(by_field)}"
                )
            key = by_field[name]
            values[name] = value if value is key.default else read(key.type, value, name)
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
