"""Random nodes. Each step returns a node, or None if it cannot follow a stream."""

from __future__ import annotations

from typing import Any

from tests.differential.case import STAMPS, Node, Shape
from tests.differential.draw_data import DataDrawing
from tests.differential.drawing import SECOND, SPLITTING, SUMS, VALUES, WIDER


class NodeDrawing(DataDrawing):
    """Draws the steps of a pipeline."""

    def _where(self, name: str) -> Node | None:
        columns = self.shapes[name].columns
        numbers = [c for c, kind in columns.items() if kind in ("int8", "int16", "int32", "int64")]
        if not numbers:
            return None
        options = {
            "column": self.draw.choice(numbers),
            "less": self.draw.choice([1, 2, 100]),
            **self._declared(name),
        }
        return Node(self._name("where"), "where", [name], options)

    def _rename(self, name: str) -> Node | None:
        column = self.draw.choice([*self.shapes[name].columns])
        new = f"{column[0]}_{len(self.nodes)}"
        if column == "i" or column.startswith("at") or new in self.shapes[name].columns:
            return None
        declared = self._declared(name)
        if declared.get("event_time") == column:
            declared["event_time"] = new
        return Node(self._name("rename"), "rename", [name], {"names": {column: new}, **declared})

    def _declared(self, name: str) -> dict[str, Any]:
        """Return the event time that a custom processor may declare for its rows."""
        times = self.shapes[name].times
        if not times or self.maybe(0.2):
            return {}
        delay = self.draw.choice([0, 0, SECOND])
        return {"event_time": self.draw.choice([*times]), "delay": delay}

    def _repartition(self, name: str) -> Node | None:
        columns = [c for c, kind in self.shapes[name].columns.items() if kind in SPLITTING]
        if not columns:
            return None
        key = [] if self.maybe(0.05) else self.some(columns, 1, 2)
        return Node(
            self._name("by"), "repartition", [name], {"key": key, "partitions": self.draw.randint(1, 5)}
        )

    def _merge(self, _: str) -> Node | None:
        alike: dict[str, list[str]] = {}
        for name, before in self.shapes.items():
            alike.setdefault(repr(before.columns), []).append(name)
        found = [names for names in alike.values() if len(names) > 1]
        if not found:
            return None
        return Node(self._name("merge"), "merge", self.some(self.draw.choice(found), 2, 3))

    def _twins(self, _: str) -> Node | None:
        """Merge windows with other windows that have the same columns and other lags."""
        found = [node for node in self.nodes if node.options.get("window")]
        if not found:
            return None
        one = self.draw.choice(found)
        window = {**one.options["window"], "grace": self.draw.choice([0, 3 * SECOND, 9 * SECOND])}
        window |= {
            "size": self.draw.choice([SECOND, 5 * SECOND]),
            "emit": self.draw.choice(["changes", "final"]),
        }
        twin = Node(self._name("twin"), "aggregate", one.inputs, {**one.options, "window": window})
        self._add(twin)
        return Node(self._name("merge"), "merge", [one.name, twin.name])

    def _deduplicate(self, name: str) -> Node | None:
        before = self.shapes[name]
        if before.key is None:
            return None
        by = self._by(before)
        if not before.orders(by):
            return None
        options: dict[str, Any] = {"by": by, **self._kept(by, before)}
        if before.times and self.maybe(0.6):
            options |= {"ttl": self._ttl(), "time": self.draw.choice([*before.times])}
        return Node(self._name("once"), "deduplicate", [name], options)

    def _aggregate(self, name: str, windowed: bool = False) -> Node | None:
        before, draw = self.shapes[name], self.draw
        if before.key is None:
            return None
        by = self._by(before)
        options: dict[str, Any] = {"by": by, **self._kept(by, before)}
        if before.times and (windowed or self.maybe(0.7)):
            options["window"] = self._window(before)
            if {"window_start", "window_time"} & set(by):
                return None
        ordered = before.orders(by)
        aggregates = {}
        for n in range(draw.randint(1, 4)):
            made = self._aggregated(before, ordered)
            if made is not None:
                aggregates[f"{'v' if made[0] in ('count', 'sum') else 'm'}{len(self.nodes)}{n}"] = made
        if not aggregates:
            return None
        options["aggregates"] = aggregates
        if before.times and "window" not in options and self.maybe(0.4):
            seen = draw.choice([*before.times])
            if seen not in by and before.columns[seen] in STAMPS:
                aggregates[f"t{len(self.nodes)}"] = ["max", seen, before.columns[seen]]
                options |= {"ttl": self._ttl(), "time": f"t{len(self.nodes)}"}
            elif seen in by:
                options |= {"ttl": self._ttl(), "time": seen}
        return Node(self._name("sums"), "aggregate", [name], options)

    def _of_windows(self, _: str) -> Node | None:
        """Return windows of windows, with or without a repartition between."""
        found = [name for name, shape in self.shapes.items() if shape.key and "window_start" in shape.times]
        if not found:
            return None
        name = self.draw.choice(found)
        if self.maybe(0.7):
            keys = [
                c
                for c, kind in self.shapes[name].columns.items()
                if kind in SPLITTING and not c.startswith("window")
            ]
            if not keys:
                return None
            key = self.some(keys, 1, 1)
            by = Node(
                self._name("by"), "repartition", [name], {"key": key, "partitions": self.draw.randint(1, 5)}
            )
            self._add(by)
            name = by.name
        return self._aggregate(name, windowed=True)

    def _aggregated(self, before: Shape, ordered: bool) -> list[Any] | None:
        draw = self.draw
        function = draw.choice(["count", "count", "sum", "sum", "min", "max", "first", "last", "avg"])
        column = draw.choice([*before.columns])
        kind = before.columns[column]
        if function == "count":
            return ["count", draw.choice([None, column]), "int64"]
        if function in ("sum", "avg"):
            numbers = [
                c for c, k in before.columns.items() if c.startswith("v") and (k in VALUES or k in SUMS)
            ]
            if not numbers:
                return None
            column = draw.choice(numbers)
            kind = SUMS.get(before.columns[column], "int64")
            if function == "avg" and kind == "sum of decimals":
                return None  # Arrow and Python round the last digit of a float from a decimal differently
            return [function, column, kind if function == "sum" else "float64"]
        if function in ("first", "last") and not ordered:
            return None
        return [function, column, kind]

    def _window(self, before: Shape) -> dict[str, Any]:
        return {
            "column": self.draw.choice([*before.times]),
            "size": self.draw.choice([SECOND, 5 * SECOND, 10 * SECOND, 7_500_000]),
            "grace": self.draw.choice([0, 0, 2 * SECOND]),
            "emit": self.draw.choice(["changes", "final", "final"]),
            "time": self.draw.choice([None, "window_time", "window_time"]),
        }

    def _join(self, name: str) -> Node | None:
        stream, draw = self.shapes[name], self.draw
        if not stream.key:
            return None
        found = []
        for other, table in self.shapes.items():
            shared = [c for c in stream.columns if table.columns.get(c) == stream.columns[c]]
            new = [c for c in table.columns if c not in stream.columns]
            if table.key == stream.key and set(stream.key) <= set(shared) and new and other != name:
                found.append((other, shared, new))
        if not found:
            return None
        other, shared, new = draw.choice(found)
        on = [
            *stream.key,
            *self.some([c for c in shared if c not in stream.key and c not in ("i", "at")], 0, 1),
        ]
        table = self.shapes[other]
        numbered = "i" in table.columns and table.numbered
        order_by = ["i"] if numbered else []
        if self.maybe(0.5) or not order_by:
            order_by = self.some([*table.columns], 0, 2) + (order_by if self.maybe(0.5) else [])
        if not (numbered and "i" in order_by) and not table.orders(on):
            return None
        order_by = list(dict.fromkeys(order_by))
        options: dict[str, Any] = {
            "on": on,
            "columns": self.some(new, 1, 3),
            "how": draw.choice(["left", "inner"]),
            "order_by": order_by,
            **self._kept(on, table),
        }
        marks = [c for c, kind in table.columns.items() if kind == "bool"]
        if marks and self.maybe(0.5):
            options["deleted"] = draw.choice(marks)
        times = [c for c in table.times if c in on or c in options["columns"]]
        if times and self.maybe(0.7):
            options |= {"ttl": self._ttl(), "time": draw.choice(times)}
        return Node(self._name("join"), "join", [name, other], options)

    def _per_key(self, name: str) -> Node | None:
        before = self.shapes[name]
        if before.key is None or {"n", "newest"} & set(before.columns):
            return None
        times = [c for c, kind in before.columns.items() if kind == "timestamp" and c not in before.key]
        timed = [c for c in before.times if c in times]
        column = self.draw.choice([None, *timed, *times]) if times else None
        by = self._by(before)
        options = {
            "by": by,
            **self._kept(by, before),
            "limit": self.draw.choice([2, 5, 100]),
            "column": column,
        }
        if column is not None and before.times and self.maybe(0.6):
            options["ttl"] = self._ttl()
            if self.maybe(0.7):
                options |= {"event_time": "newest", "delay": self.draw.choice([0, 5 * SECOND, 30 * SECOND])}
        return Node(self._name("each"), "per_key", [name], options)

    def _ttl(self) -> int:
        return self.draw.choice([SECOND, 5 * SECOND, 20 * SECOND])

    def _kept(self, by: list[str], before: Shape) -> dict[str, Any]:
        """Return the option to keep key columns in other types, or nothing."""
        if not self.maybe(0.2):
            return {}
        return {
            "kept": {c: self.draw.choice(WIDER[before.columns[c]]) for c in by if before.columns[c] in WIDER}
        }

    def _by(self, before: Shape) -> list[str]:
        """Return columns to keep state by: those that the rows are split by, and maybe more."""
        more = [c for c in before.columns if c not in (before.key or ()) and c != "i"]
        return [*(before.key or ()), *self.some(more, 0, 1)]
