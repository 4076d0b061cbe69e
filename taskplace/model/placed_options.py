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
    if value is None or (isinstance(value, str) and value == "none"):
        return None
    if not isinstance(value, str) or value not in COMPRESSIONS:
        hint = validation.nearest(value, COMPRESSIONS)
        raise ConfigError(path, found=value, expected=f"one of {', '.join(COMPRESSIONS)}, none", hint=hint)
    return value


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
            "batches that change a task between its snapshots",
            second_name="snapshot.interval.batches",
            unit="batches",
        ),
    ] = 10
    snapshot_bytes: Annotated[
        Positive,
        about("also a snapshot after this much changelog", unit="bytes"),
    ] = 64 * 2**20
    follower_share: Annotated[
        _Share,
        about("share of slots that standbys and warm-ups may use while a batch runs"),
    ] = 0.1
    compression: Annotated[
        _Compression | None,
        about("of changelogs and snapshots", second_name="changelog.compression"),
    ] = "lz4"
    bytes_per_task: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_BYTES)],
        about(
            "largest input of a task in a batch; from Kafka, the rest goes to a file",
            second_name="bytes.per.task.max",
            unit="bytes",
        ),
    ] = 128 * 2**20
    locality_wait_ms: Annotated[
        Count,
        about("how long Spark waits for the planned executor before it uses another"),
    ] = 30000
    tags: Annotated[
        _HostTags | None,
        about("for `rack.aware.assignment.tags`; `host` is set automatically"),
    ] = None
    weights: Annotated[
        _TaskWeights | None,
        about("load of a task or subtopology; default: 1"),
    ] = None
    max_task_idle_ms: Annotated[
        Annotated[int, Meta(ge=-1, le=validation.MOST)],
        about(
            "how long [related topics](kafka.md#catching-up) wait for records; 0: for those that are there; "
            "-1: no order of time",
            unit="ms",
        ),
    ] = 0
    idle_closing: Annotated[
        DurationAboveZero | None,
        about(
            "after this time without rows from any source, event time follows the clock: windows close, and "
            "later rows may be late"
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
