"""What has to come out of the streams, by the definition of their operators, in plain Python, without taskplace.

Each function takes the rows of all batches and returns, in no order, the rows that each sink got in all batches
together, and the rows of stores in the end.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tests.golden.streams import DELAY, GRACE, HASHED, KEPT, LATE, LIMIT, START, STREAMS, TTL, WINDOW

Row = dict[str, Any]
#: Of each batch, the rows of each source.
Batches = Sequence[Mapping[str, Sequence[Row]]]
Rows = dict[str, list[tuple[Any, ...]]]


class Time:
    """The watermark of a batch, and that of the batch before: both have to say the same of every row and entry."""

    def __init__(self) -> None:
        self._newest: dict[str, datetime] = {}
        self._before: datetime | None = None
        self._now: datetime | None = None

    def gone(self, at: datetime, after: timedelta) -> bool:
        """Return whether something of this time has expired; both watermarks agree on that."""
        found = {w is not None and at + after <= w for w in (self._before, self._now)}
        assert len(found) == 1, f"{at} is at the edge: {self._before}, {self._now}"
        return found.pop()

    def closed(self, start: datetime) -> bool:
        """Return whether a window is closed when this batch has run."""
        return self._now is not None and start + WINDOW + GRACE <= self._now

    def go_on(self, batch: Mapping[str, Sequence[Row]]) -> None:
        """End a batch."""
        for topic, rows in batch.items():
            times = [row["at"] for row in rows] + ([self._newest[topic]] if topic in self._newest else [])
            self._newest |= {topic: max(times)} if times else {}
        self._before = self._now
        if len(self._newest) == len(batch):
            self._now = min(self._newest.values()) - DELAY


class Aggregated:
    """Every function that there is, over some rows."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def values(self) -> tuple[Any, ...]:
        def of(column: str) -> list[Any]:
            return [row[column] for row in self.rows if row[column] is not None]

        def if_any(function: Callable[[list[Any]], Any], column: str) -> Any:
            return function(of(column)) if of(column) else None

        return (
            len(self.rows),
            len(of("f")),
            if_any(sum, "v"),
            if_any(sum, "d"),
            if_any(math.fsum, "f"),
            if_any(min, "f"),
            if_any(max, "d"),
            if_any(lambda known: math.fsum(known) / len(known), "f"),
            if_any(lambda known: known[0], "v"),
            if_any(lambda known: known[-1], "f"),
            max(of("at")),
        )


def processors(batches: Batches) -> tuple[Rows, Rows]:
    """Return what every processor sends and keeps."""
    sent: Rows = defaultdict(list)
    time = Time()
    seen: dict[tuple[str, int], tuple[int, datetime]] = {}
    windows: dict[tuple[str, datetime], Aggregated] = defaultdict(Aggregated)
    totals: dict[str, Aggregated] = defaultdict(Aggregated)
    recent: dict[str, tuple[int, datetime]] = {}
    balance: dict[str, tuple[int, datetime]] = {}
    sums: dict[int, tuple[int, int]] = {}
    rates: dict[int, tuple[Any, datetime]] = {}
    closed: set[tuple[str, datetime]] = set()
    for number, batch in enumerate(batches):
        events = batch["events"]
        for row in events:
            key = row["k"], row["v"]
            known = key in seen and not time.gone(seen[key][1], TTL)
            if not known and not time.gone(row["at"], TTL):
                seen[key] = number, row["at"]
                sent["once"].append(tuple(row.values()))
        touched = {}
        for row in events:
            window = row["k"], START + (row["at"] - START) // WINDOW * WINDOW
            if not time.gone(window[1], WINDOW + GRACE):
                assert window not in closed
                windows[window].rows.append(row)
                touched[window] = windows[window]
        sent["changes"] += [(*window, *found.values()) for window, found in touched.items()]
        timely = [row for row in events if row["k"] != LATE]
        by_user, by_group = _grouped(timely, "k"), _grouped(timely, "g")
        for k, rows in by_user.items():
            totals[k].rows += rows
            sent["totals"].append((k, *totals[k].values()))
            newest = max(row["at"] for row in rows)
            n, at = recent[k] if k in recent and not time.gone(recent[k][1], TTL) else (0, newest)
            recent[k] = n + len(rows), max(at, newest)
            sent["recent"].append((k, *recent[k]))
            s, at = balance.pop(k, (0, newest))
            if time.gone(at, TTL):
                s, at = 0, newest
            s += sum(row["v"] % 10 for row in rows)
            sent["balance"].append((k, s))
            if s <= LIMIT:
                balance[k] = s, max(at, newest)
        for g, rows in by_group.items():
            n, v = sums.get(g, (0, 0))
            sums[g] = n + len(rows), v + sum(row["v"] for row in rows)
            sent["sums"].append((g, *sums[g]))
        rates |= {row["g"]: (row["rate"], row["since"]) for row in batch["rates"]}
        for row in timely:
            rate = rates.get(row["g"])
            found = rate if rate is not None and not time.gone(rate[1], TTL) else (None, None)
            sent["joined"].append((*row.values(), *found))
        for window in [window for window in windows if time.closed(window[1])]:
            sent["final"].append((*window, *windows.pop(window).values()))
            closed.add(window)
        time.go_on(batch)
    return sent, {
        "totals": [(k, *_kept(found)) for k, found in totals.items()],
        "sums": [(g, *found) for g, found in sums.items()],
        "rates": [(g, *found) for g, found in rates.items() if not time.gone(found[1], TTL)],
        "seen": [(*key, *found) for key, found in seen.items() if not time.gone(found[1], TTL)],
        "balance": [(k, *found) for k, found in balance.items() if not time.gone(found[1], TTL)],
        "recent": [(k, *found) for k, found in recent.items() if not time.gone(found[1], TTL)],
    }


def _kept(found: Aggregated) -> tuple[Any, ...]:
    """Return aggregates as the store keeps them: an average is a sum and a count."""
    n, known, v, d, f, low, high, _, *rest = found.values()
    return (n, known, v, d, f, low, high, f, known, *rest)


def keys(batches: Batches) -> tuple[Rows, Rows]:
    """Return the counts by keys of every type."""
    sent, stored = {}, {}
    for name in HASHED:
        sent[name], stored[name] = _counted(batches, lambda row, name=name: (row[name],))
    sent["two"], stored["two"] = _counted(batches, lambda row: (row["s"], row["i64"]))
    sent["dec"] = []
    latest: dict[Any, list[Any]] = {}
    for batch in batches:
        touched = {}
        for row in batch["in"]:
            found = latest.setdefault((row["k"], row["dec"]), [0, *[None] * len(KEPT)])
            touched[row["k"], row["dec"]] = found
            found[0] += 1
            found[1:] = [
                old if row[name] is None else row[name] for old, name in zip(found[1:], KEPT, strict=True)
            ]
        sent["dec"] += [(*key, *found) for key, found in touched.items()]
    stored["dec"] = [(*key, *found) for key, found in latest.items()]
    return sent, stored


def stores(batches: Batches) -> tuple[Rows, Rows]:
    """Return the counts of words: in one store of all lives, in the other of the last one, beginning anew."""
    sent, stored = {}, {}
    sent["n"], stored["n"] = _counted(batches, _word)
    one, two, _ = STREAMS["stores"].lives
    sent["m"], stored["m"] = _counted(batches[one + two :], _word)
    sent["m"] += _counted(batches[:one], _word)[0]
    return sent, stored


def unpublished(batches: Batches) -> tuple[Rows, Rows]:
    """Return the counts of words, and how many of those are even, and odd."""
    sent: Rows = {"lengths": []}
    sent["words"], words = _counted(batches, _word)
    odd: dict[tuple[Any, ...], int] = {}
    counts: dict[tuple[Any, ...], int] = {}
    for batch in batches:
        found, _ = _counted([batch], _word, counts)
        sent["lengths"] += _counted([{"in": [{"k": n & 1} for _, n in found]}], _word, odd)[0]
    return sent, {"n": words, "lengths": [(*key, n) for key, n in odd.items()]}


def _word(row: Row) -> tuple[Any, ...]:
    return (row["k"],)


def _counted(
    batches: Batches, key: Callable[[Row], tuple[Any, ...]], counts: dict[tuple[Any, ...], int] | None = None
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    counts = {} if counts is None else counts
    sent = []
    for batch in batches:
        touched = {}
        for row in batch["in"]:
            at = tuple(_canonical(value) for value in key(row))
            counts[at] = counts.get(at, 0) + 1
            touched[at] = True
        sent += [(*at, counts[at]) for at in touched]
    return sent, [(*at, n) for at, n in counts.items()]


def _canonical(value: Any) -> Any:
    """Return the one value that stands for all that are one key: there is one zero, and one NaN."""
    if not isinstance(value, float):
        return value
    return math.nan if math.isnan(value) else value + 0.0


def _grouped(rows: Iterable[Row], column: str) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[column], []).append(row)
    return found


ANSWERS: dict[str, Callable[[Batches], tuple[Rows, Rows]]] = {
    "processors": processors,
    "keys": keys,
    "stores": stores,
    "unpublished": unpublished,
}
