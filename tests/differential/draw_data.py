"""Random sources and their rows: of every type, late, unordered, and without a time."""

from __future__ import annotations

from typing import Any

from tests.differential import limits
from tests.differential.case import TEMPORAL, Case, Row, Source, shapes, time_of
from tests.differential.drawing import CASTS, KEYS, ODD_FLOATS, SECOND, SPLITTING, VALUES, Drawing
from tests.differential.values import DAY


class DataDrawing(Drawing):
    """Draws sources and the batches of their rows."""

    def _sources(self) -> None:
        draw = self.draw
        key = {"k": draw.choice(SPLITTING)} | ({"k2": draw.choice(SPLITTING)} if self.maybe(0.3) else {})
        partitions = draw.randint(1, 5)
        alike = self.maybe(0.5)
        ways = self.wanted.ways
        # Sources that go by different columns: their merge has no event time.
        twice = self.timed and alike and ways and not self.wanted.calm and self.maybe(0.5)
        values = {"v": draw.choice([*VALUES]), "x": self._kind()}
        for i in range(draw.choice([1, 1, 2, 3])):
            columns = {**key, "i": "int64"}
            if ways and i and key["k"] in CASTS and self.maybe(0.15):
                columns["k"] = draw.choice(CASTS[key["k"]])  # equal keys do not meet before a cast
            if not alike and i:
                values = {f"v{i}": draw.choice([*VALUES]), f"x{i}": self._kind()}
            columns |= values
            if self.maybe(0.3):
                columns["gone" if alike else f"gone{i}"] = "bool"
            time = f"at{i}" if not alike and self.maybe(0.6) else "at"
            if twice:
                columns |= {"at": "timestamp", "at_too": "timestamp"}
                time = draw.choice(["at", "at_too"])
            elif self.timed or self.maybe(0.5):
                columns[time] = draw.choice(["timestamp"] * 8 + ["timestamp_ntz", "date"])
            self.sources[f"s{i}"] = Source(
                columns,
                [] if ways and self.maybe(0.1) else list(key),
                partitions if self.maybe(0.8) else draw.randint(1, 5),
                # The watermark of the other sources applies to a source without one. Then the cuts decide which rows
                # are late.
                time if self.timed and (not i or self.maybe(0.7) or self.wanted.calm) else None,
                draw.choice([0, SECOND, 5 * SECOND, 1_500_000]) if self.timed else 0,
            )
        self.shapes = shapes(Case(self.sources, [], []))

    def _batches(self, count: int) -> list[dict[str, list[Row]]]:
        draw = self.draw
        start = draw.choice([1_767_225_600 * SECOND, 1_767_225_600 * SECOND, -10 * SECOND, 0])
        late = 0.0 if self.wanted.calm else draw.choice([0, 0.2, 0.5])
        unknown = 0.0 if self.wanted.calm else draw.choice([0, 0, 0.1])
        wild = 0.0 if self.wanted.calm else draw.choice([0, 0, 0.02])
        far = limits.INSTANTS + limits.FURTHEST if self.wanted.daring else [8000 * 31_536_000 * SECOND]
        pace = draw.choice([1, 3, 3, 10]) * SECOND  # of event time, from batch to batch
        columns = [(name, *column) for name, s in self.sources.items() for column in s.columns.items()]
        pools = {(name, column): self._pool(column, kind) for name, column, kind in columns}

        def value(topic: str, column: str, kind: str, batch: int, i: int) -> Any:
            if column == "i":
                return 1000 * batch + i
            if not column.startswith("at"):
                fit, unfit = pools[topic, column]
                return draw.choice(unfit if unfit and draw.random() < 0.003 else fit)
            if draw.random() < unknown:
                return None
            time = start + batch * pace + draw.randrange(0, pace, 1 if i % 3 else 500_000)
            if draw.random() < late:
                time -= draw.randrange(0, 30 * SECOND, 250_000)
            if draw.random() < wild:
                away = [at // SECOND - time // SECOND for at in far]
                time += draw.choice([3600, -3600, 86_400, 864_000, -100 * 31_536_000, *away]) * SECOND
            time = max(limits.FURTHEST[0], min(time, limits.FURTHEST[1]))
            return time // DAY if kind == "date" else time

        def rows_of(topic: str, batch: int) -> list[Row]:
            there, number = self.sources[topic].columns, draw.choice([0, 0, 1, 3, 8, 20])
            return [{c: value(topic, c, kind, batch, i) for c, kind in there.items()} for i in range(number)]

        batches = [{name: rows_of(name, batch) for name in self.sources} for batch in range(count)]
        for name, rows in (found for batch in batches for found in batch.items() if self.wanted.calm):
            rows.sort(key=lambda row: row[time_of(self.sources[name]) or "i"])
        return batches

    def _kind(self) -> str:
        """Return the type of a column with any values."""
        return limits.kind(self.draw) if self.wanted.daring and self.maybe(0.5) else self.draw.choice([*KEYS])

    def _pool(self, column: str, kind: str) -> tuple[list[Any], list[Any]]:
        """Return the values of a column, and those that a type does not hold in which it is kept."""
        if column.startswith("v"):
            odd = kind in ("float32", "float64") and self.maybe(0.3)
            return VALUES[kind] + (ODD_FLOATS if odd else []), []
        if kind not in ("bool", "binary") and (column in self.aims or kind not in KEYS):
            return limits.pool(self.draw, kind, self.aims.get(column, set()))
        outside = limits.INSTANTS if self.wanted.daring and kind in TEMPORAL and self.maybe(0.2) else []
        return self.some(KEYS[kind], 2, 6) + [at // DAY if kind == "date" else at for at in outside], []
