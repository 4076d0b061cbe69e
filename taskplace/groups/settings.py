"""The settings of partitioners and of consumer groups: Kafka's keys, with its defaults except for adaptive turns.

Times are in milliseconds.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from taskplace.errors import ConfigError
from taskplace.model.keys import Configuration, Count, about


class PartitionerConfig(Configuration, frozen=True):
    """Kafka's keys; sizes in bytes, times in milliseconds. docs/configuration.md lists them.

    >>> PartitionerConfig.from_properties({"batch.size": 1000}).turn
    1000
    >>> PartitionerConfig.from_properties({"partitioner.ignore.key": True})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.partitioner.ignore.key: ... did you mean 'partitioner.ignore.keys'?
    """

    sticky_batch_size: Annotated[
        Count,
        about(
            "bytes that go to a partition before the next one is chosen; 0: use `batch.size`", unit="bytes"
        ),
    ] = field(name="partitioner.sticky.batch.size", default=0)
    batch_size: Annotated[Count, about("used if `partitioner.sticky.batch.size` is 0", unit="bytes")] = 16384
    ignore_keys: Annotated[bool, about("treat records with a key as records without one")] = field(
        name="partitioner.ignore.keys", default=False
    )
    adaptive: Annotated[
        bool,
        about(
            "choose partitions with shorter queues more often; KIP-794's first version says false, "
            "Kafka's default is true"
        ),
    ] = field(name="partitioner.adaptive.partitioning.enable", default=False)
    availability_timeout_ms: Annotated[
        Count,
        about(
            "with adaptive partitioning: skip a partition that was not drained for this long; 0: never skip"
        ),
    ] = field(name="partitioner.availability.timeout.ms", default=0)

    @property
    def turn(self) -> int:
        """The length of a turn in bytes; at least 1, which moves on with every record."""
        return self.sticky_batch_size or self.batch_size or 1


_MOST = 2**31 - 1
_NotNegative = Annotated[int, Meta(ge=0, le=_MOST)]
_Positive = Annotated[int, Meta(ge=1, le=_MOST)]
_Several = Annotated[int, Meta(ge=2, le=_MOST)]


def _between(path: str, value: int, least: int, most: int = _MOST) -> None:
    if not least <= value <= most:
        raise ConfigError(path, found=value, expected=f"an integer from {least} to {most}")


class CoordinatorSettings(Configuration, frozen=True, kw_only=True):
    """The settings of a coordinator.

    >>> CoordinatorSettings.from_properties({"group.max.sice": 10})
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.group.max.sice: found an unknown key, expected one of 4 known keys; \
did you mean 'group.max.size'?
    """

    group_initial_rebalance_delay_ms: Annotated[
        _NotNegative, about("how long the first rebalance of a group waits for more members")
    ] = 3000
    group_min_session_timeout_ms: Annotated[
        _Positive, about("smallest `session.timeout.ms` that a member may request")
    ] = 6000
    group_max_session_timeout_ms: Annotated[
        _Positive, about("largest `session.timeout.ms` that a member may request")
    ] = 1800000
    group_max_size: Annotated[_Positive, about("largest number of members in a group")] = _MOST

    def _agree(self, path: str) -> None:
        least = self.group_min_session_timeout_ms
        _between(f"{path}.group.max.session.timeout.ms", self.group_max_session_timeout_ms, least)


class MemberSettings(Configuration, frozen=True, kw_only=True):
    """The settings of a member.

    `max.poll.interval.ms` must be at least `session.timeout.ms`. Otherwise a rebalance could complete without a member
    that is still working.

    >>> MemberSettings(session_timeout_ms=10_000, heartbeat_interval_ms=10_000)
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.heartbeat.interval.ms: found 10000, expected an integer from 1 to 5000
    """

    session_timeout_ms: Annotated[
        _Several, about("a member without a heartbeat for this long is removed from the group")
    ] = 45000
    heartbeat_interval_ms: Annotated[
        _Positive,
        about("interval between heartbeats, and between repetitions of an unanswered request"),
    ] = 3000
    max_poll_interval_ms: Annotated[_Several, about("how long a rebalance waits for a member to rejoin")] = (
        300000
    )
    retry_backoff_ms: Annotated[
        _Positive,
        about("first wait before a member retries after a disagreement; the wait doubles with each retry"),
    ] = 100
    retry_backoff_max_ms: Annotated[
        _Positive,
        about("longest wait between retries; up to 20 % is added or subtracted at random"),
    ] = 1000
    group_instance_id: Annotated[
        str, about("name of the member that survives restarts (static membership)")
    ] = ""
    metadata_max_retries: Annotated[
        _NotNegative,
        about(
            "a member gives up after this many disagreements in a row, if they lasted at least two "
            "sessions (not a Kafka key)"
        ),
    ] = 10
    metadata_max_age_ms: Annotated[
        _NotNegative, about("interval between checks for changed topics by a runner; 0: never")
    ] = 300000

    def _agree(self, path: str) -> None:
        # At least two heartbeats per session.
        _between(f"{path}.heartbeat.interval.ms", self.heartbeat_interval_ms, 1, self.session_timeout_ms // 2)
        _between(f"{path}.max.poll.interval.ms", self.max_poll_interval_ms, self.session_timeout_ms)
        _between(f"{path}.retry.backoff.max.ms", self.retry_backoff_max_ms, self.retry_backoff_ms)
