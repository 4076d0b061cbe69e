"""A pipeline with every kind of expiry by event time, and its expected results, computed row by row in Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from tests.support.placed_harness import Pipeline, check_batches

Click = tuple[int, str, datetime]

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
DELAY, SEEN, WINDOW, GRACE, USERS = (timedelta(minutes=m) for m in (10, 60, 30, 5, 45))
#: sink -> the columns that are compared
SINKS = {
    "once": ("id", "user", "at"),
    "windows": ("user", "window_start", "count"),
    "users": ("user", "n", "newest"),
}


def click(id: int) -> Click:
    """Return the only row of an id. A batch has 12 minutes; ids from 500 on are up to two hours late."""
    batch, i = divmod(id, 1000)
    minutes = -(i * 37 % 120) if i >= 500 else i * 13 % 12
    # Ten of forty users are active at a time, so the state of the others expires.
    at = START + timedelta(minutes=12 * batch + minutes, seconds=i % 60)
    return id, f"u{(batch // 5 * 10 + i % 10) % 40}", at


class Clicks(Pipeline):
    """De-duplicates clicks for an hour, then counts them per user: in windows that close, and with a time to live.

    All rows of an id are equal, so their order does not matter.
    """

    def topology(self):
        from taskplace.spark.processors import Aggregate, Count, Deduplicate, Tumbling, count, max_
        from taskplace.spark.sinks import ParquetSink
        from topology import Topology

        topo = Topology("clicks")
        clicks = topo.source("clicks", key=["id"], partitions=self.partitions, event_time="at", delay=DELAY)
        once = clicks.process(Deduplicate("seen", by={"id": "long"}, ttl=SEEN, time="at"), name="once")
        once.sink("once-out", target=ParquetSink(self.folder / "once"))
        by_user = once.repartition(key=["user"], name="by-user", partitions=self.partitions)
        window = Tumbling("at", WINDOW, grace=GRACE, emit="final")
        windows = by_user.process(Count("windows", by={"user": "string"}, window=window), name="window")
        windows.sink("windows-out", target=ParquetSink(self.folder / "windows"))
        newest = {"n": count(), "newest": max_("at", "timestamp")}
        users = Aggregate("users", by={"user": "string"}, ttl=USERS, time="newest", **newest)
        by_user.process(users, name="user").sink("users-out", target=ParquetSink(self.folder / "users"))
        return topo

    def data(self, batch: int, rows: int = 600) -> list[Click]:
        """Return the rows of a batch: most are new, some are late, and some repeat rows of the last twelve batches."""
        draw = random.Random(f"clicks {batch}")
        ids = []
        for i in range(rows):
            kind = draw.random()
            late = batch * 1000 + 500 + i % 500
            again = max(0, batch - draw.randrange(12)) * 1000 + draw.randrange(60)
            ids.append(batch * 1000 + i % 500 if kind < 0.7 else late if kind < 0.8 else again)
        return [click(id) for id in ids]

    def frame(self, rows):
        return self.spark.createDataFrame(rows, "id long, user string, at timestamp").coalesce(2)

    def remember(self, batches: Sequence[Sequence[Click]]) -> Truth:
        """Compute the expected results of all batches."""
        self.known = Truth()
        for rows in batches:
            self.known.take(rows)
        return self.known

    def truth(self, store: str) -> list[tuple]:
        return self.known.store(store)


class Truth:
    """The expected state and output, from the definitions of the operators. `sent`: sink -> batch -> rows."""

    def __init__(self) -> None:
        self.newest: datetime | None = None
        self.before: datetime | None = None  # the newest time before the last batch
        self.seen: dict[int, tuple[datetime, int]] = {}
        self.windows: Counter[tuple[str, datetime]] = Counter()
        self.users: dict[str, tuple[int, datetime]] = {}
        self.sent: dict[str, list[list[tuple]]] = {sink: [] for sink in SINKS}

    def take(self, rows: Sequence[Click]) -> None:
        late, watermark = (newest and newest - DELAY for newest in (self.before, self.newest))
        self.before = self.newest
        number = len(self.sent["once"])
        known = [] if self.newest is None else [self.newest]
        self.newest = max([*known, *(at for *_, at in rows)], default=None)

        def gone(at: datetime, ttl: timedelta, watermark: datetime | None = late) -> bool:
            return watermark is not None and at + ttl <= watermark

        once = [row for row in dict.fromkeys(rows) if row[0] not in self.seen and not gone(row[2], SEEN)]
        self.seen |= {id: (at, number) for id, _, at in once}
        self.seen = {id: kept for id, kept in self.seen.items() if not gone(kept[0], SEEN, watermark)}

        starts = [(user, at - (at - EPOCH) % WINDOW) for _, user, at in once]
        self.windows.update((user, start) for user, start in starts if not gone(start, WINDOW + GRACE))
        ended = [window for window in self.windows if gone(window[1], WINDOW + GRACE, watermark)]
        closed = sorted((*window, self.windows[window]) for window in ended)
        for user, start, _ in closed:
            del self.windows[user, start]

        touched: dict[str, tuple[int, datetime]] = {}
        for _, user, at in once:
            n, newest = touched.get(user) or self.users.get(user) or (0, at)
            touched[user] = n + 1, max(newest, at)
        self.users |= {user: known for user, known in touched.items() if not gone(known[1], USERS)}
        self.users = {u: known for u, known in self.users.items() if not gone(known[1], USERS, watermark)}

        self.sent["once"].append(sorted(once))
        self.sent["windows"].append(closed)
        self.sent["users"].append(sorted((user, *known) for user, known in touched.items()))

    def store(self, name: str) -> list[tuple]:
        """Return the rows that can be read from a store before the next batch."""
        if name == "seen":
            return sorted((id, first, at) for id, (at, first) in self.seen.items())
        if name == "windows":
            return sorted((*key, n) for key, n in self.windows.items())
        return sorted((user, *known) for user, known in self.users.items())

    def check_sinks(self, folder: Path) -> None:
        """Check that each batch directory has exactly the rows of its batch, and that there are no others."""
        for sink, columns in SINKS.items():
            check_batches(folder / sink, columns, self.sent[sink])
