"""What both applications are started with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

HEARTBEATS = 3  # in a session, on both sides
SLOTS = 2  # of an executor; an instance of Kafka Streams has as many stream threads
MOST_WARMUPS = 2
GRACE = "1 hour"  # as in Instance.java: no order is late


@dataclass(frozen=True, slots=True)
class Setup:
    """One application.

    - `session_ms`: after so long without a heartbeat, an instance is lost
    - `acceptable_lag`, `probing_ms`: `acceptable.recovery.lag` and `probing.rebalance.interval.ms`
    - `folder`: for its state, checkpoint and logs
    - `driver_port`, `blocks_port`: of taskplace's driver, if executors reach it through relays
    """

    servers: str
    orders: str
    users: str
    totals: str
    partitions: int
    standbys: int
    window_ms: int
    session_ms: int
    acceptable_lag: int
    probing_ms: int
    folder: str
    driver_port: int | None = None
    blocks_port: int | None = None

    @property
    def heartbeat_ms(self) -> int:
        """The interval of heartbeats."""
        return self.session_ms // HEARTBEATS

    def text(self) -> str:
        """Return it as JSON, for a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Setup:
        """Return what `text` has returned."""
        return cls(**json.loads(text))
