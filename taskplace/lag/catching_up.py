"""Estimates when a copy has caught up: the only such estimate, for statuses, metrics and explanations.

**Idea.** What counts is how fast a copy's lag shrinks: records that it reads, less those that the stream adds. If that
is not known yet, the rate at which its instance restores is used. The followers of an instance take turns, so those
beside the copy have to be read as well.
"""

from __future__ import annotations


def to_go(lag: int, acceptable: int) -> int:
    """Return how many records a copy has yet to read until it counts as caught up.

    >>> to_go(12_000, 10_000), to_go(9_000, 10_000)
    (2000, 0)
    """
    return max(0, lag - acceptable)


def seconds_left(
    records: int, *, pace: float | None = None, rate: float | None = None, ahead: int = 0
) -> float | None:
    """Return the seconds until a copy has read `records` more, from `to_go`; None if neither speed is known.

    - `pace`: the records per second by which its lag has shrunk; None: not known
    - `rate`: the records per second that its instance restores, for all its followers together; None: not measured
    - `ahead`: the records that the other followers of the instance lack

    >>> seconds_left(2_000, rate=100.0, ahead=500), seconds_left(2_000, pace=50.0, rate=100.0), seconds_left(2_000)
    (25.0, 40.0, None)
    >>> seconds_left(0)
    0.0
    """
    if records <= 0:
        return 0.0
    if pace:
        return records / pace
    return (records + ahead) / rate if rate else None
