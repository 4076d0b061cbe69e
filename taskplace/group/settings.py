"""The settings of a coordinator and of a member: Kafka's keys and defaults; times in milliseconds.

    group.initial.rebalance.delay.ms   3000      how long the first rebalance of a group waits for more members
    group.min.session.timeout.ms       6000      what a member may ask for, at least
    group.max.session.timeout.ms       1800000   and at most
    group.max.size                     2**31 - 1 members

    session.timeout.ms                 45000     a member that is silent for so long has expired
    heartbeat.interval.ms              3000      how often a member says that it is there, and repeats a request
    max.poll.interval.ms               300000    how long a rebalance waits for a member to join again
    retry.backoff.ms                   100       before trying again after a disagreement, doubled each time
    retry.backoff.max.ms               1000      and at most; with up to 20% of chance added or taken away
    group.instance.id                  none      a name that survives restarts (static membership)
    metadata.max.retries               10        disagreements in a row after which a member gives up, once they
                                                 have lasted for two sessions (not Kafka's)
    metadata.max.age.ms                300000    how often a runner looks whether the topics have changed; 0: never

`max.poll.interval.ms` has to be at least `session.timeout.ms`: a rebalance that goes on without a member must
not do so while that member may still be at work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from taskplace.errors import ConfigError

_MOST = 2**31 - 1
S = TypeVar("S", bound="_Settings")


@dataclass(frozen=True)
class _Settings:
    @classmethod
    def from_properties(cls: type[S], properties: Mapping[str, Any], path: str = "config") -> S:
        """Return the settings that `properties` describe; missing keys take their defaults."""
        if not isinstance(properties, Mapping):
            raise ConfigError(path, found=properties, expected="a mapping of keys to values")
        known = {field.name.replace("_", "."): field.name for field in fields(cls)}
        for key in properties:
            if key not in known:
                raise ConfigError.unknown_key(path, key, known)
        return cls(**{known[key]: value for key, value in properties.items()})

    def _check(self, name: str, least: int, most: int = _MOST) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            expected = f"an integer from {least} to {most}"
            raise ConfigError(name.replace("_", "."), found=value, expected=expected)


@dataclass(frozen=True)
class CoordinatorSettings(_Settings):
    """What a coordinator allows.

    >>> CoordinatorSettings.from_properties({"group.max.sice": 10})
    Traceback (most recent call last):
    taskplace.errors.ConfigError: config.group.max.sice: found an unknown key, expected one of 4 known keys; \
did you mean 'group.max.size'?
    """

    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = _MOST

    def __post_init__(self) -> None:
        self._check("group_initial_rebalance_delay_ms", 0)
        self._check("group_min_session_timeout_ms", 1)
        self._check("group_max_session_timeout_ms", self.group_min_session_timeout_ms)
        self._check("group_max_size", 1)


@dataclass(frozen=True)
class MemberSettings(_Settings):
    """How a member behaves.

    >>> MemberSettings(session_timeout_ms=10_000, heartbeat_interval_ms=10_000)
    Traceback (most recent call last):
    taskplace.errors.ConfigError: heartbeat.interval.ms: found 10000, expected an integer from 1 to 5000
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    group_instance_id: str = ""
    metadata_max_retries: int = 10
    metadata_max_age_ms: int = 300_000

    def __post_init__(self) -> None:
        self._check("session_timeout_ms", 2)
        # Two chances at least to be heard within a session.
        self._check("heartbeat_interval_ms", 1, self.session_timeout_ms // 2)
        self._check("max_poll_interval_ms", self.session_timeout_ms)
        self._check("retry_backoff_ms", 1)
        self._check("retry_backoff_max_ms", self.retry_backoff_ms)
        self._check("metadata_max_retries", 0)
        self._check("metadata_max_age_ms", 0)
        if not isinstance(self.group_instance_id, str):
            raise ConfigError(
                "group.instance.id", found=self.group_instance_id, expected="a text, empty for none"
            )
