"""The settings of groups and partitioners: keys and defaults of Kafka (but for adaptive turns). Units: ms and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from taskplace.errors import ConfigError
from taskplace.model.keys import Boolean, Configuration, Integer, Text, key

_MOST = 2**31 - 1


@dataclass(frozen=True)
class PartitionerConfig(Configuration):
    """Kafka's keys; sizes in bytes, times in milliseconds. docs/configuration.md lists them.

    >>> PartitionerConfig.from_properties({"batch.size": 1000}).turn
    1000
    >>> PartitionerConfig.from_properties({"partitioner.ignore.key": True})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.partitioner.ignore.key: ... did you mean 'partitioner.ignore.keys'?
    """

    sticky_batch_size: int = key(
        Integer(0),
        0,
        "bytes that go to a partition before the next one is chosen; 0: use `batch.size`",
        name="partitioner.sticky.batch.size",
        unit="bytes",
    )
    batch_size: int = key(Integer(0), 16_384, "used if `partitioner.sticky.batch.size` is 0", unit="bytes")
    ignore_keys: bool = key(
        Boolean(), False, "treat records with a key as records without one", name="partitioner.ignore.keys"
    )
    adaptive: bool = key(
        Boolean(),
        False,
        "choose partitions with shorter queues more often; KIP-794's first version says false, Kafka's default is true",
        name="partitioner.adaptive.partitioning.enable",
    )
    availability_timeout_ms: int = key(
        Integer(0),
        0,
        "with adaptive partitioning: skip a partition that was not drained for this long; 0: never skip",
        name="partitioner.availability.timeout.ms",
    )

    @property
    def turn(self) -> int:
        """The length of a turn in bytes; at least 1, which moves on with every record."""
        return self.sticky_batch_size or self.batch_size or 1


def _number(least: int) -> Integer:
    return Integer(least, _MOST)


def _between(path: str, value: int, least: int, most: int = _MOST) -> None:
    if not least <= value <= most:
        raise ConfigError(path, found=value, expected=f"an integer from {least} to {most}")


@dataclass(frozen=True, kw_only=True)
class CoordinatorSettings(Configuration):
    """The settings of a coordinator.

    >>> CoordinatorSettings.from_properties({"group.max.sice": 10})
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.group.max.sice: found an unknown key, expected one of 4 known keys; \
did you mean 'group.max.size'?
    """

    group_initial_rebalance_delay_ms: int = key(
        _number(0), 3_000, "how long the first rebalance of a group waits for more members"
    )
    group_min_session_timeout_ms: int = key(
        _number(1), 6_000, "smallest `session.timeout.ms` that a member may request"
    )
    group_max_session_timeout_ms: int = key(
        _number(1), 1_800_000, "largest `session.timeout.ms` that a member may request"
    )
    group_max_size: int = key(_number(1), _MOST, "largest number of members in a group")

    def _agree(self, path: str) -> None:
        least = self.group_min_session_timeout_ms
        _between(f"{path}.group.max.session.timeout.ms", self.group_max_session_timeout_ms, least)


@dataclass(frozen=True, kw_only=True)
class MemberSettings(Configuration):
    """The settings of a member.

    `max.poll.interval.ms` must be at least `session.timeout.ms`. Otherwise a rebalance could complete without a member
    that is still working.

    >>> MemberSettings(session_timeout_ms=10_000, heartbeat_interval_ms=10_000)
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.heartbeat.interval.ms: found 10000, expected an integer from 1 to 5000
    """

    session_timeout_ms: int = key(
        _number(2), 45_000, "a member without a heartbeat for this long is removed from the group"
    )
    heartbeat_interval_ms: int = key(
        _number(1), 3_000, "interval between heartbeats, and between repetitions of an unanswered request"
    )
    max_poll_interval_ms: int = key(_number(2), 300_000, "how long a rebalance waits for a member to rejoin")
    retry_backoff_ms: int = key(
        _number(1),
        100,
        "first wait before a member retries after a disagreement; the wait doubles with each retry",
    )
    retry_backoff_max_ms: int = key(
        _number(1), 1_000, "longest wait between retries; up to 20 % is added or subtracted at random"
    )
    group_instance_id: str = key(
        Text(r"(?s).*", "a string, empty for none"),
        "",
        "name of the member that survives restarts (static membership)",
    )
    metadata_max_retries: int = key(
        _number(0),
        10,
        "a member gives up after this many disagreements in a row, if they lasted at least two sessions (not a Kafka "
        "key)",
    )
    metadata_max_age_ms: int = key(
        _number(0), 300_000, "interval between checks for changed topics by a runner; 0: never"
    )

    def _agree(self, path: str) -> None:
        # At least two heartbeats per session.
        _between(f"{path}.heartbeat.interval.ms", self.heartbeat_interval_ms, 1, self.session_timeout_ms // 2)
        _between(f"{path}.max.poll.interval.ms", self.max_poll_interval_ms, self.session_timeout_ms)
        _between(f"{path}.retry.backoff.max.ms", self.retry_backoff_max_ms, self.retry_backoff_ms)
