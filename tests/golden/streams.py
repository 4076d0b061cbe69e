"""The streams that golden checkpoints are made of: what they do, and what comes in.

Their rows are drawn from a seed: some are late, and entries expire.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from taskplace.spark.processors import (
    Aggregate,
    Count,
    Deduplicate,
    PerKey,
    TableJoin,
    Tumbling,
    avg,
    count,
    first,
    last,
    max_,
    min_,
    sum_,
)
from taskplace.spark.sinks import ParquetSink
from topology import Topology

TIME = pa.timestamp("us", tz="UTC")
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
#: How much event time goes by in a batch.
STEP = 10 * SECOND
DELAY, TTL, WINDOW, GRACE = 20 * SECOND, 120 * SECOND, 30 * SECOND, 10 * SECOND
#: Keys of a block come in four batches one after the other, and again when those of the others have.
BLOCK, BLOCKS = 4, 12
LATE = "late"
#: A balance above this is paid out.
LIMIT = 12

Draw = random.Random
Batch = Mapping[str, pa.Table]


class Got:
    """A target that keeps the rows of each batch, in no order."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[Any, ...]]] = {}

    def publish(self, spark: object, batch_id: int, files: Sequence[Path]) -> None:
        tables = [pq.ParquetFile(file).read() for file in files]
        self.batches[batch_id] = [tuple(row.values()) for table in tables for row in table.to_pylist()]

    def rows(self) -> list[tuple[Any, ...]]:
        return [row for batch in self.batches.values() for row in batch]


@dataclass
class Pipeline:
    """A topology, and the targets of its sinks by name; `stores` are those that are compared in the end.

    `directories`: the sinks that are directories
    """

    topology: Topology
    targets: dict[str, Got] = field(default_factory=dict)
    stores: Sequence[str] = ()
    directories: Sequence[str] = ()

    def out(self, stream: Any, name: str) -> None:
        """Send a stream to a sink."""
        self.targets[name] = Got()
        stream.sink(f"{name}-out", target=self.targets[name])


# ------------------------------------------------------------------------- every processor


def on_time(context: Any, rows: pa.Table) -> pa.Table:
    return rows.filter(pc.not_equal(rows["k"], LATE))


def add_up(key: dict, rows: list[dict], state: dict | None) -> tuple[dict | None, list[dict]]:
    """Keep a balance; what is more than the limit is paid out, and the key begins anew."""
    total = (state["s"] if state else 0) + sum(row["v"] % 10 for row in rows)
    at = max([row["at"] for row in rows] + ([state["at"]] if state else []))
    return (None if total > LIMIT else {"s": total, "at": at}), [{**key, "s": total}]


MONEY = pa.decimal128(12, 2)


def every_function() -> dict[str, Any]:
    return {
        "n": count(),
        "known": count("f"),
        "v": sum_("v", "int64"),
        "d": sum_("d", MONEY),
        "f": sum_("f"),
        "low": min_("f"),
        "high": max_("d", MONEY),
        "mean": avg("f"),
        "begin": first("v", "int64"),
        "end": last("f", "float64"),
        "seen": max_("at", "timestamp"),
    }


def processors(folder: Path, life: int = 0) -> Pipeline:
    topo = Topology("processors")
    pipeline = Pipeline(topo, stores=("totals", "sums", "rates", "seen", "balance", "recent"))
    user, group = {"k": "string"}, {"g": "int64"}
    events = topo.source("events", key="k", partitions=2, event_time="at", delay=DELAY)
    rates = topo.source("rates", key="g", partitions=2, event_time="at", delay=DELAY)
    timely = events.process(on_time, name="on-time", event_time="at")
    once = events.process(Deduplicate("seen", by={**user, "v": "int64"}, ttl=TTL, time="at"), name="once")
    pipeline.out(once, "once")
    for emit in ("changes", "final"):
        window = Tumbling("at", WINDOW, grace=GRACE, emit=emit)  # type: ignore[arg-type]
        counted = events.process(Aggregate(emit, by=user, window=window, **every_function()), name=emit)
        pipeline.out(counted, emit)
    pipeline.out(timely.process(Aggregate("totals", by=user, **every_function()), name="totals"), "totals")
    recent = Aggregate("recent", by=user, ttl=TTL, time="seen", n=count(), seen=max_("at", "timestamp"))
    pipeline.out(timely.process(recent, name="recent"), "recent")
    balance = PerKey(
        "balance",
        add_up,
        by=user,
        state={"s": "int64", "at": "timestamp"},
        output={**user, "s": "int64"},
        ttl=TTL,
        time="at",
    )
    pipeline.out(timely.process(balance, name="balance"), "balance")
    again = timely.repartition(key="g", name="by-g", partitions=2)
    sums = Aggregate("sums", by=group, n=count(), v=sum_("v", "int64"))
    pipeline.out(again.process(sums, name="sums"), "sums")
    join = TableJoin(
        "rates",
        by=group,
        columns={"rate": pa.decimal128(10, 3), "since": "timestamp"},
        order_by=["i"],
        ttl=TTL,
        time="since",
    )
    pipeline.out(again.join_table(rates, join, name="joined"), "joined")
    return pipeline


EVENTS = pa.schema(
    [
        ("k", pa.string()),
        ("g", pa.int64()),
        ("v", pa.int64()),
        ("f", pa.float64()),
        ("d", MONEY),
        ("at", TIME),
    ]
)
RATES = pa.schema(
    [("g", pa.int64()), ("rate", pa.decimal128(10, 3)), ("since", TIME), ("i", pa.int64()), ("at", TIME)]
)


def processors_rows(number: int, draw: Draw, left: int) -> Batch:
    """Return a batch; of the last two, the first lets an hour go by, and in the other every window closes."""
    base = START + number * STEP
    if left < 2:
        later = base + 3600 * SECOND
        return {
            "events": _table(EVENTS, [("zz", 7, 1, None, None, later)][: 1 - (not left)]),
            "rates": _table(RATES, [(8, None, later, 0, later)][: 1 - (not left)]),
        }
    events = []
    for i in range(draw.randrange(3, 7)):
        key = draw.choice(["p0", "p1", "p2", f"a{number // BLOCK % BLOCKS}", LATE])
        late_by = 400 * SECOND if key == LATE else draw.randrange(15_000) * SECOND / 1000
        f = draw.choice([None, draw.randrange(-40, 40) / 4])
        money = Decimal(draw.randrange(-999, 999)) / 100
        events.append((key, draw.randrange(5), draw.choice([0, 100 * number + i]), f, money, base - late_by))
    rates = [(number % 6, Decimal(draw.randrange(1, 9999)) / 1000, base, i, base) for i in range(2)]
    return {"events": _table(EVENTS, events), "rates": _table(RATES, rates)}


def _table(schema: pa.Schema, rows: Sequence[tuple]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


# ------------------------------------------------------------------------- keys of all types


#: Values of a key, by its column; each is one key and stays the same however it is written.
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "s": (pa.string(), [None, "", "a", "ä€😀", "a\x00b", "x" * 300]),
    "i32": (pa.int32(), [None, 0, -1, 2**31 - 1, -(2**31)]),
    "i64": (pa.int64(), [None, 0, 7, 2**63 - 1, -(2**63)]),
    "date": (pa.date32(), [None, date(1970, 1, 1), date(2026, 2, 28), date(1582, 10, 15), date(9999, 12, 31)]),
    "at": (TIME, [None, START, START - 60 * 365 * 86400 * SECOND, START + timedelta(microseconds=1)]),
    "f64": (pa.float64(), [None, 0.0, -0.0, nan, inf, -inf, 5e-324, -1.5]),
    "bin": (pa.binary(), [None, b"", b"\x00\xff", b"abcd"]),
    "flag": (pa.bool_(), [None, True, False]),
    "dec": (pa.decimal128(18, 4), [None, Decimal("0.0000"), Decimal("-12345678901234.5678"), Decimal("1.0000")]),
}  # fmt: skip
#: Those that rows are partitioned by.
HASHED = [name for name in VALUES if name != "dec"]
#: Those that are kept as values, too: of these, what is sent is what is stored.
KEPT = [name for name in HASHED if name != "f64"]
KEYS = pa.schema([("k", pa.string()), *((name, kind) for name, (kind, _) in VALUES.items())])


def keys(folder: Path, life: int = 0) -> Pipeline:
    topo = Topology("keys")
    pipeline = Pipeline(topo, stores=(*VALUES, "two"))
    source = topo.source("in", key="k", partitions=2)
    for name in HASHED:
        again = source.repartition(key=name, name=f"by-{name}", partitions=2)
        pipeline.out(again.process(Count(name, by={name: VALUES[name][0]}), name=name), name)
    both = source.repartition(key=["s", "i64"], name="by-two", partitions=3)
    pipeline.out(both.process(Count("two", by={"s": "string", "i64": "long"}), name="two"), "two")
    latest = Aggregate(
        "dec",
        by={"k": "string", "dec": VALUES["dec"][0]},
        n=count(),
        **{name: last(name, VALUES[name][0]) for name in KEPT},  # type: ignore[arg-type]
    )
    pipeline.out(source.process(latest, name="dec"), "dec")
    return pipeline


def keys_rows(number: int, draw: Draw, left: int) -> Batch:
    rows = [
        (draw.choice("ab"), *(draw.choice(values) for _, values in VALUES.values()))
        for _ in range(draw.randrange(4, 9))
    ]
    return {"in": _table(KEYS, rows)}


# ------------------------------------------------------------------------- stores that go and come back


WORDS = pa.schema([("k", pa.string())])


def stores(folder: Path, life: int = 0) -> Pipeline:
    topo = Topology("stores")
    source = topo.source("in", key="k", partitions=2)
    there = ("n",) if life == 1 else ("n", "m")
    pipeline = Pipeline(topo, stores=there)
    for name in there:
        pipeline.out(source.process(Count(name, by={"k": "string"}), name=name), name)
    return pipeline


def words_rows(number: int, draw: Draw, left: int) -> Batch:
    return {"in": _table(WORDS, [(draw.choice("abcdef"),) for _ in range(draw.randrange(1, 6))])}


# ------------------------------------------------------------------------- committed, not published


def unpublished(folder: Path, life: int = 0) -> Pipeline:
    topo = Topology("unpublished")
    pipeline = Pipeline(topo, stores=("n", "lengths"), directories=("words",))
    counted = topo.source("in", key="k", partitions=2).process(Count("n", by={"k": "string"}), name="n")
    counted.sink("words-out", target=ParquetSink(folder / "words"))
    again = counted.process(with_length, name="length").repartition(
        key="length", name="by-length", partitions=2
    )
    pipeline.out(
        again.process(Count("lengths", by={"length": "int64"}, over_changes=True), name="lengths"), "lengths"
    )
    return pipeline


def with_length(context: Any, rows: pa.Table) -> pa.Table:
    return rows.append_column("length", pc.bit_wise_and(rows["count"], 1))


@dataclass(frozen=True)
class Stream:
    """How a checkpoint is made: so many batches in each of the lives of its topology, then `more` of them."""

    pipeline: Callable[..., Pipeline]
    rows: Callable[[int, Draw, int], Batch]
    lives: tuple[int, ...]
    more: int
    options: Mapping[str, Any] = field(default_factory=dict)
    executors: int = 1

    @property
    def batches(self) -> int:
        return sum(self.lives)

    def draw(self, seed: int) -> list[Batch]:
        """Return all batches, those after the checkpoint too."""
        draw, total = random.Random(seed), self.batches + self.more
        return [self.rows(number, draw, total - 1 - number) for number in range(total)]


STREAMS: dict[str, Stream] = {
    "processors": Stream(
        processors,
        processors_rows,
        (54,),
        10,
        {
            "config": {"num.standby.replicas": 1, "acceptable.recovery.lag": 0, "state.cleanup.delay.ms": 0},
            "snapshot_interval": 4,
        },
        executors=3,
    ),
    "keys": Stream(keys, keys_rows, (5,), 3, {"snapshot_interval": 2, "compression": None}),
    "stores": Stream(stores, words_rows, (3, 2, 3), 3, {"snapshot_interval": 2, "compression": "zstd"}),
    "unpublished": Stream(unpublished, words_rows, (3,), 3),
}
