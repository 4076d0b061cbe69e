"""Measures how far a long piece of work has come: its rate, and the time that is left.

`Event` is the base of all events (`taskplace.record.events`); work is the one that the engine itself makes.

**Idea.** Whoever does the work says how much of it is done; `Work` adds the time and shows both, as `WorkProgress`.
The rate is that of the last `WINDOW_SECONDS`, so that a pause, or a slow begin, does not spoil the estimate for ever.

Properties: a call costs a microsecond, and at most one in `LEAST_SECONDS` is shown. Not thread-safe: one thread works.

Non-goals: how it is shown (`taskplace.record`), and how long work must take to be worth a line.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone
from types import TracebackType

import msgspec


def now() -> datetime:
    """Return the time in UTC, in whole milliseconds."""
    at = datetime.now(timezone.utc)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Something that happened. Its JSON is the line of a run: `event` says what it is.

    - `time`: when it happened, in UTC: `2026-11-23T12:00:00.123000Z`
    """

    time: datetime = msgspec.field(default_factory=now)

    @property
    def at(self) -> float:
        """The time in seconds since 1970."""
        return self.time.timestamp()


class WorkProgress(Event, frozen=True, tag="work"):
    """How far long work has come, such as Spark's start or a restore: a line every 5 s at most, and at its end.

    - `name`: the work, unique among those that run
    - `done`: how much is done, in `unit`
    - `total`: how much there is; null: unknown
    - `unit`: what is counted, such as "records"; "bytes" are shown as kB, MB or GB; empty: nothing
    - `seconds`: since the work began
    - `rate`: units per second, lately; null: unknown
    - `eta`: the seconds that are left; null: unknown
    - `detail`: what is being done just now, a few words
    - `ended`: whether the work is complete, or was given up

    >>> WorkProgress("verifying", 250, 1000, "bytes", seconds=2.0, rate=125.0, eta=6.0).fraction
    0.25
    """

    name: str
    done: float = 0
    total: float | None = None
    unit: str = ""
    seconds: float = 0.0
    rate: float | None = None
    eta: float | None = msgspec.field(default=None, name="eta_seconds")
    detail: str = ""
    ended: bool = False

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1; None if the total is unknown."""
        if self.total is None:
            return None
        return min(1.0, self.done / self.total) if self.total > 0 else 1.0


#: Gets the progress of work, such as `Reporter.progress`. An error of it ends the work.
Show = Callable[[WorkProgress], object]

#: The seconds of the past that a rate is made of.
WINDOW_SECONDS = 30.0
#: The least time between two events of one work, its first and its last one aside.
LEAST_SECONDS = 0.1


class Work:
    """One piece of work. As a context manager it is shown at its begin and at its end, also after an error.

    - `total`, `unit`: as in `WorkProgress`
    - `since`: when the work began, by the `clock`; None: now

    >>> shown = []
    >>> with Work("verifying", "bytes", 1000, show=shown.append, clock=iter([0, 0, 2, 4]).__next__) as work:
    ...     work.add(250)
    >>> [(event.done, event.rate, event.eta, event.ended) for event in shown]
    [(0, None, None, False), (250, 125.0, 6.0, False), (250, 62.5, None, True)]
    """

    def __init__(
        self,
        name: str,
        unit: str = "",
        total: float | None = None,
        *,
        show: Show,
        since: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.done: float = 0
        self._name, self._unit, self._total = name, unit, total
        self._show, self._clock = show, clock
        self._began = clock() if since is None else since
        self._samples: deque[tuple[float, float]] = deque([(self._began, 0)])
        self._shown = float("-inf")

    def __enter__(self) -> Work:
        self.to(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def add(self, amount: float) -> None:
        """Note that so much more is done."""
        self.to(self.done + amount)

    def to(
        self, done: float, total: float | None = None, *, detail: str = "", eta: float | None = None
    ) -> None:
        """Note how much is done altogether, and a new `total` if there is one.

        `eta`: the seconds that are left, for work whose own rate is not known yet.
        """
        self.done = done
        self._total = self._total if total is None else total
        now = self._clock()
        if now - self._shown < LEAST_SECONDS:
            return
        self._shown = now
        rate = self._rate(now)
        if rate and self._total is not None:
            eta = max(0.0, self._total - done) / rate
        self._show(self._event(now, rate=rate, eta=eta, detail=detail))

    def end(self) -> None:
        """Show the last event: the rate is that of the whole work."""
        now = self._clock()
        seconds = now - self._began
        rate = self.done / seconds if self.done > 0 and seconds > 0 else None
        self._show(self._event(now, rate=rate, ended=True))

    def _rate(self, now: float) -> float | None:
        samples = self._samples
        while len(samples) > 1 and now - samples[1][0] >= WINDOW_SECONDS:
            samples.popleft()
        (start, before) = samples[0]
        samples.append((now, self.done))
        return (self.done - before) / (now - start) if self.done > before and now > start else None

    def _event(
        self,
        now: float,
        *,
        rate: float | None,
        eta: float | None = None,
        detail: str = "",
        ended: bool = False,
    ) -> WorkProgress:
        return WorkProgress(
            self._name,
            self.done,
            self._total,
            self._unit,
            seconds=now - self._began,
            rate=rate,
            eta=eta,
            detail=detail,
            ended=ended,
        )
