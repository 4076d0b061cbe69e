"""The placement configuration: Kafka's keys, verbatim, with Kafka's defaults, and a few more."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from taskplace import validation
from taskplace.errors import ConfigError
from taskplace.lag.ranking import Acceptable
from taskplace.model.assignors import BUILT_IN, Promises, promises
from taskplace.model.keys import AboveZero, Configuration, Count, Positive, about

Strategy = Literal["none", "min_traffic", "balance_subtopology"]
MOST_COST = 1_000_000
"""The largest price of a read across racks or a move. The price of a whole target must fit into 64 bits."""


def _tags(value: Any, path: str) -> tuple[str, ...]:
    names = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    texts = isinstance(names, list | tuple) and all(isinstance(name, str) and name for name in names)
    if not texts or len(set(names)) != len(names):
        raise ConfigError(path, found=value, expected=_TAGS)
    if any(map(validation.has_surrogates, names)):
        raise ConfigError(path, found=value, expected=validation.NO_SURROGATES)
    return tuple(names)


_TAGS = "a list of different tag names"
_Tags = Annotated[tuple[str, ...], Meta(extra={"read": _tags, "words": _TAGS})]
_Cost = Annotated[int, Meta(ge=0, le=MOST_COST)]
_Assignor = Annotated[
    str,
    Meta(
        pattern=r"\S",
        extra={"words": f"{', '.join(BUILT_IN)}, the name of an installed assignor, or 'module:attribute'"},
    ),
]


class PlacementConfig(Configuration, frozen=True, kw_only=True):
    """The settings of the placement.

    Each key is an attribute, with underscores for dots. Values may be numbers, or strings as in a properties file.
    `probing.rebalance.interval.ms` may be shorter than Kafka's minimum of a minute, because planning stops no consumer
    group here. docs/configuration.md lists the keys.

    Errors: `ConfigError` with the path of the key, the value found, and the values expected.

    Source: KIP-441, KIP-708, KIP-925, KIP-924.

    >>> PlacementConfig.from_properties({"num.standby.replicas": 1}).num_standby_replicas
    1
    >>> PlacementConfig.from_properties({"max.warmup.replicas": 0})
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.max.warmup.replicas: found 0, expected an integer of at least 1
    >>> PlacementConfig.known_keys()[:2]
    ('acceptable.recovery.lag', 'acceptable.recovery.seconds')
    """

    WRITTEN: ClassVar[bool] = True

    num_standby_replicas: Annotated[
        Count,
        about("hot standbys per stateful task", kafka=True),
    ] = 0
    max_warmup_replicas: Annotated[
        Positive,
        about("most warm-ups at a time, in the cluster", kafka=True),
    ] = 2
    acceptable_recovery_lag: Annotated[
        Count,
        about(
            "a copy is caught up with at most this lag; 2^63 - 1: every instance is, even without one",
            unit="records",
            kafka=True,
        ),
    ] = 10000
    acceptable_recovery_seconds: Annotated[
        AboveZero | None,
        about(
            "also caught up: a copy that can apply its lag within this time, as measured",
            unit="s",
        ),
    ] = None
    probing_rebalance_interval_ms: Annotated[
        Positive,
        about("interval of plans until the step is the target", kafka=True),
    ] = 600000
    rack_aware_assignment_tags: Annotated[
        _Tags,
        about(
            "standbys go to instances with other values of these tags, if possible",
            kafka=True,
        ),
    ] = ()
    rack_aware_assignment_strategy: Annotated[
        Strategy,
        about("whether input racks count, and against what", kafka=True),
    ] = "none"
    # Kafka writes these two keys with an underscore. All other keys have only dots.
    rack_aware_assignment_traffic_cost: Annotated[
        _Cost | None,
        about("cost of a cross-rack read; null: the assignor's default", kafka=True),
    ] = field(name="rack.aware.assignment.traffic_cost", default=None)
    rack_aware_assignment_non_overlap_cost: Annotated[
        _Cost | None, about("cost of a move; null: the assignor's default", kafka=True)
    ] = field(name="rack.aware.assignment.non_overlap_cost", default=None)
    task_assignor_class: Annotated[
        _Assignor,
        about("the assignor that plans; installed: an entry point", second_name="task.assignor"),
    ] = "high_availability"
    balance_factor: Annotated[Positive, about("only reported, in `Plan.metrics`")] = 1
    state_cleanup_delay_ms: Annotated[
        Count, about("a copy without a role is removed after this long", kafka=True)
    ] = 600000

    @property
    def acceptable(self) -> Acceptable:
        """The acceptable lag on an instance: `acceptable.recovery.lag` and `acceptable.recovery.seconds`."""
        return Acceptable(self.acceptable_recovery_lag, self.acceptable_recovery_seconds)

    @property
    def unbounded(self) -> bool:
        """Whether every instance counts as caught up: `acceptable.recovery.lag` is 2^63 - 1.

        Then there are no warm-ups, for any `acceptable.recovery.seconds`. Kafka Streams treats `Long.MAX_VALUE` like
        this.

        >>> PlacementConfig(acceptable_recovery_lag=2**63 - 1).unbounded
        True
        """
        return self.acceptable.unbounded

    @property
    def promises(self) -> Promises:
        """The promises of the configured assignor."""
        return promises(self.task_assignor_class)

    def _agree(self, path: str) -> None:
        built_in = self.task_assignor_class in BUILT_IN
        racks = self.rack_aware_assignment_strategy != "none"
        if built_in and racks and not self.promises.weighs_racks:
            raise ConfigError(
                f"{path}.rack.aware.assignment.strategy",
                found=self.rack_aware_assignment_strategy,
                expected=f"none: the assignor {self.task_assignor_class!r} does not use the racks of the input",
                hint="set task.assignor.class to high_availability",
            )
