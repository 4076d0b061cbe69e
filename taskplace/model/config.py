"""The placement configuration: Kafka's keys, verbatim, with Kafka's defaults, and a few more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from taskplace import validation
from taskplace.errors import ConfigError, InputError
from taskplace.lag.ranking import Acceptable
from taskplace.model.assignors import BUILT_IN, Promises, promises
from taskplace.model.keys import Choice, Configuration, Integer, Number, Text, key

STRATEGIES = ("none", "min_traffic", "balance_subtopology")


MOST_COST = 1_000_000
"""The largest price of a read across racks or a move. The price of a whole target must fit into 64 bits."""


class Tags:
    """A list of distinct tag names. A string may have them separated by commas."""

    def __str__(self) -> str:
        return "a list of different tag names"

    def read(self, path: str, value: Any) -> tuple[str, ...]:
        """Return the names; `ConfigError` for anything else."""
        names = (
            [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        )
        texts = isinstance(names, (list, tuple)) and all(isinstance(name, str) and name for name in names)
        if not texts or len(set(names)) != len(names):
            raise ConfigError(path, found=value, expected=str(self))
        try:
            return tuple(validation.text(name, path) for name in names)
        except InputError as error:
            raise ConfigError(path, found=value, expected=error.expected) from None


_ASSIGNOR = Text(
    r"(?s).*\S.*", f"{', '.join(BUILT_IN)}, the name of an installed assignor, or 'module:attribute'"
)
_SECONDS = Number("a number of seconds above 0, or null", optional=True, written=True)
_COST = Integer(0, MOST_COST, optional=True, written=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementConfig(Configuration):
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

    num_standby_replicas: int = key(
        Integer(0, written=True),
        0,
        "number of hot standbys per stateful task, each on another instance",
        kafka=True,
    )
    max_warmup_replicas: int = key(
        Integer(1, written=True),
        2,
        "largest number of warm-ups at the same time, in the whole cluster",
        kafka=True,
    )
    acceptable_recovery_lag: int = key(
        Integer(0, written=True),
        10_000,
        "a copy is caught up if its lag is at most this many records; with 2^63 - 1 every instance is caught up, even "
        "without a copy",
        unit="records",
        kafka=True,
    )
    acceptable_recovery_seconds: float | None = key(
        _SECONDS,
        None,
        "if set, a copy is also caught up if it can apply its lag within this time, at the measured rate",
        unit="s",
    )
    probing_rebalance_interval_ms: int = key(
        Integer(1, written=True),
        600_000,
        "interval between plans while the step is not yet the target",
        kafka=True,
    )
    rack_aware_assignment_tags: tuple[str, ...] = key(
        Tags(),
        (),
        "the standbys of a task are placed on instances with other values of these tags, if possible",
        kafka=True,
    )
    rack_aware_assignment_strategy: str = key(
        Choice(*STRATEGIES),
        "none",
        "whether racks of input partitions count, and against which other costs",
        kafka=True,
    )
    # Kafka writes these two keys with an underscore. All other keys have only dots.
    rack_aware_assignment_traffic_cost: int | None = key(
        _COST,
        None,
        "cost of a cross-rack read; null: the assignor's default",
        name="rack.aware.assignment.traffic_cost",
        kafka=True,
    )
    rack_aware_assignment_non_overlap_cost: int | None = key(
        _COST,
        None,
        "cost of a move; null: the assignor's default",
        name="rack.aware.assignment.non_overlap_cost",
        kafka=True,
    )
    task_assignor_class: str = key(
        _ASSIGNOR,
        "high_availability",
        "the assignor that plans; an installed assignor is an entry point",
        second_name="task.assignor",
    )
    balance_factor: int = key(
        Integer(1, written=True), 1, "KIP-441's balance factor; only reported, see `Plan.metrics`"
    )
    state_cleanup_delay_ms: int = key(
        Integer(0, written=True),
        600_000,
        "time after which a copy without a role is removed",
        kafka=True,
    )

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
