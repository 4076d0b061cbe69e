"""A stream of orders and prices with every kind of state, and its expected results, computed in plain Python."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from taskplace.spark.processors import Aggregate, Count, Deduplicate, PerKey, TableJoin, Tumbling, count, sum_
from taskplace.spark.sinks import ParquetSink
from topology import Topology

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
DELAY, TTL, WINDOW, GRACE = 5 * SECOND, 20 * SECOND, 10 * SECOND, 5 * SECOND

#: A row with a value below this is a price of its group. Other rows are orders.
PRICES = 50

#: A balance above this is paid out, and the key starts again from zero.
LIMIT = 400

#: A user, a group, a value, a time, and the row's number.
Row = tuple[str, int, int, datetime, int]
TYPES = {
    "k": pa.string(),
    "g": pa.int64(),
    "v": pa.int64(),
    "at": pa.timestamp("us", tz="UTC"),
    "i": pa.int64(),
}
COLUMNS = pa.schema(TYPES)


def rows_of(batch: int, draw: random.Random) -> list[Row]:
    """Return the rows of a batch. Each batch is three seconds later, and some rows are up to half a minute late."""
    number = draw.choice([0, 0, 1, 3, 8, 20])
    late = [draw.randrange(-25, 3) if draw.random() < 0.4 else draw.randrange(3) for _ in range(number)]
    times = [START + (3 * batch + seconds) * SECOND for seconds in late]
    users = [(draw.choice("abcdefgh"), draw.randrange(5), draw.randrange(100)) for _ in times]
    return [(*user, at, 1000 * batch + i) for i, (user, at) in enumerate(zip(users, times, strict=True))]


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in rows], schema=COLUMNS)


def prices(context, rows):
    return rows.filter(pc.less(rows["v"], PRICES)).rename_columns(["k", "g", "price", "at", "i"])


def orders(context, rows):
    return rows.filter(pc.greater_equal(rows["v"], PRICES))


def balance(key, rows, state):
    """Sum the values of a key. A sum above the limit is paid out."""
    total = (state["s"] if state else 0) + sum(row["v"] for row in rows)
    at = max([row["at"] for row in rows] + ([state["at"]] if state else []))
    return (None if total > LIMIT else {"s": total, "at": at}), [{**key, "s": total}]


def topology(folder: Path) -> Topology:
    """Return a topology with every kind of state: in the first subtopology, and in two more after repartitions."""
    user, group = {"k": "string"}, {"g": "int64"}
    topo = Topology("lives")
    source = topo.source("in", key="k", partitions=3, event_time="at", delay=DELAY)
    window = Tumbling("at", WINDOW, grace=GRACE, emit="final")
    once = source.process(Deduplicate("seen", by={**user, **group}, ttl=TTL, time="at"), name="once")
    sums = Aggregate("sums", by=group, n=count(), v=sum_("v", "int64"))
    kept = {"state": {"s": "int64", "at": "timestamp"}, "output": {**user, "s": "int64"}}
    paid = PerKey("paid", balance, by=user, **kept, ttl=TTL, time="at")
    sides = [
        source.process(side, name=name).repartition(key="g", name=f"{name}-by-g", partitions=2)
        for name, side in (("orders", orders), ("prices", prices))
    ]
    join = TableJoin("prices", by=group, columns={"price": "int64"}, order_by=["i"])
    for name, stream in {
        "users": source.process(Count("users", by=user), name="users"),
        "windows": source.process(Count("windows", by=user, window=window), name="windows"),
        "paid": source.process(paid, name="paid"),
        "sums": once.repartition(key="g", name="by-g", partitions=2).process(sums, name="sums"),
        "joined": sides[0].join_table(sides[1], join, name="joined"),
    }.items():
        stream.sink(f"{name}-out", target=ParquetSink(folder / name))
    return topo


def window_of(at: datetime) -> datetime:
    return START + (at - START) // WINDOW * WINDOW


@dataclass
class Truth:
    """The expected output and state, from the definitions of the operators. `sent`: sink -> batch -> rows."""

    batches: int = 0
    newest: datetime | None = None
    before: datetime | None = None
    users: Counter[str] = field(default_factory=Counter)
    seen: dict[tuple[str, int], tuple[int, datetime]] = field(default_factory=dict)
    sums: dict[int, tuple[int, int]] = field(default_factory=dict)
    paid: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    prices: dict[int, int] = field(default_factory=dict)
    windows: Counter[tuple[str, datetime]] = field(default_factory=Counter)
    sent: dict[str, dict[int, list[tuple]]] = field(default_factory=lambda: defaultdict(dict))

    def gone(self, at: datetime, ttl: timedelta = TTL) -> bool:
        """Return whether this time has expired by the last batch's watermark, so that its row is late and ignored."""
        return self.before is not None and at + ttl <= self.before - DELAY

    def closes(self, start: datetime) -> bool:
        """Return whether a window closes at the end of this batch."""
        return self.newest is not None and start + WINDOW + GRACE <= self.newest - DELAY

    def take(self, rows: list[Row]) -> None:
        self.windows.update(
            (k, start) for k, _, _, at, _ in rows if not self.gone(start := window_of(at), WINDOW + GRACE)
        )
        closed = {w: n for w, n in self.windows.items() if self.closes(w[1])}
        self.windows -= Counter(closed)
        self.users.update(row[0] for row in rows)
        sums = {g: self.sums[g] for g in self._summed(rows)}
        paid = self._paid(rows)
        self.prices |= {g: v for _, g, v, _, _ in rows if v < PRICES}
        for sink, found in {
            "users": [(k, self.users[k]) for k in {row[0] for row in rows}],
            "windows": [(k, start, n) for (k, start), n in closed.items()],
            "paid": paid,
            "sums": [(g, *sums[g]) for g in sums],
            "joined": [(*row, self.prices.get(row[1])) for row in rows if row[2] >= PRICES],
        }.items():
            if found:
                self.sent[sink][self.batches] = sorted(found, key=repr)
        self.before = self.newest
        self.newest = max([row[3] for row in rows] + ([self.newest] if self.newest else []), default=None)
        self.batches += 1

    def _summed(self, rows: list[Row]) -> Iterator[int]:
        """Keep the first row of each user in each group, sum them, and yield the groups."""
        for k, g, v, at, _ in rows:
            before = self.seen.get((k, g))
            if self.gone(at) or (before is not None and not self.gone(before[1])):
                continue
            self.seen[k, g] = self.batches, at
            n, total = self.sums.get(g, (0, 0))
            self.sums[g] = n + 1, total + v
            yield g

    def _paid(self, rows: list[Row]) -> list[tuple[str, int]]:
        found = []
        for user in dict.fromkeys(row[0] for row in rows):
            before = [self.paid[user]] if user in self.paid and not self.gone(self.paid[user][1]) else []
            total = sum(row[2] for row in rows if row[0] == user) + sum(s for s, _ in before)
            at = max([row[3] for row in rows if row[0] == user] + [at for _, at in before])
            found.append((user, total))
            self.paid.pop(user, None)
            if total <= LIMIT and not self.gone(at):
                self.paid[user] = total, at
        return found

    def store(self, name: str) -> list[tuple]:
        """Return the sorted rows that can be read from a store before the next batch."""
        found = {
            "users": self.users.items(),
            "seen": [(*key, *kept) for key, kept in self.seen.items() if not self.gone(kept[1])],
            "sums": [(g, *kept) for g, kept in self.sums.items()],
            "paid": [(k, *kept) for k, kept in self.paid.items() if not self.gone(kept[1])],
            "prices": self.prices.items(),
            "windows": [(*w, n) for w, n in self.windows.items() if not self.gone(w[1], WINDOW + GRACE)],
        }
        return sorted(found[name])
