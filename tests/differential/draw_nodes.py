"""Random nodes. Each step returns a node, or None if it cannot follow a stream."""

from __future__ import annotations

from typing import Any

from tests.differential import limits
from tests.differential.case import STAMPS, Case, Node, Shape
from tests.differential.draw_data import DataDrawing
from tests.differential.drawing import SECOND, SPLITTING, SUMS, TIMES, VALUES, WIDER
from tests.differential.routing import has_cycle, predicted
from tests.differential.values import digits


class NodeDrawing(DataDrawing):
    """Draws the steps of a pipeline."""

    def _where(self, name: str) -> Node | None:
        columns = self.shapes[name].columns
        numbers = [c for c, kind in columns.items() if kind in ("int8", "int16", "int32", "int64")]
        if not numbers:
            return None
        options = {"column": self.draw.choice(numbers), "less": self.draw.choice([1, 2, 100])}
        return Node(self._name("where"), "where", [name], {**options, **self._declared(name), **self._form()})

    def _rename(self, name: str) -> Node | None:
        column = self._column_of(name, [*self.shapes[name].columns])
        new = f"{column[0]}_{len(self.nodes)}"
        if column == "i" or column.startswith("at") or new in self.shapes[name].columns:
            return None
        declared = self._declared(name)
        if declared.get("event_time") == column:
            declared["event_time"] = new
        options = {"names": {column: new}, **declared, **self._form()}
        return Node(self._name("rename"), "rename", [name], options)

    def _column_of(self, name: str, columns: list[str]) -> str:
        """Return a column for a function to change: where all is allowed, often one that rows are split by."""
        key = [c for c in self.shapes[name].key or () if c in columns]
        return self.draw.choice(key if key and self.daring and self.maybe(0.5) else columns)

    def _form(self) -> dict[str, Any]:
        """Return whether a processor of one's own is a bare function."""
        return {"function": True} if self.wanted.ways and self.maybe(0.4) else {}

    def _declared(self, name: str) -> dict[str, Any]:
        """Return the event time that a custom processor may declare for its rows."""
        times = [*self.shapes[name].times] or self._again(name)
        if not times or self.maybe(0.2):
            return {}
        delay = self.draw.choice([0, 0, SECOND])
        return {"event_time": self.draw.choice(times), "delay": delay}

    def _again(self, name: str) -> list[str]:
        """Return the columns to declare as event time of a stream that has lost it."""
        columns = self.shapes[name].columns
        return [c for c, kind in columns.items() if self.timed and kind == "timestamp" and c.startswith("at")]

    def _repartition(self, name: str) -> Node | None:
        columns = [c for c, kind in self.shapes[name].columns.items() if kind in SPLITTING]
        if not columns:
            return None
        key = [] if self.maybe(0.05) else self._new_key(columns)
        return self._by_key(name, key)

    def _by_key(self, name: str, key: list[str]) -> Node:
        options = {"key": key, "partitions": self.draw.randint(1, 5)}
        return Node(self._name("by"), "repartition", [name], options)

    def _new_key(self, columns: list[str]) -> list[str]:
        """Return columns to split rows by: those of another topic more often than others."""
        known = [list(s.key) for s in self.shapes.values() if s.key and {*s.key} <= {*columns}]
        again = self.wanted.ways and known and self.maybe(0.3)
        return self.draw.choice(known) if again else self.some(columns, 1, 2)

    def _fits(self, node: Node) -> bool:
        """Return whether there can be such a node here: no cycle, and nothing to refuse unless that is wanted."""
        case = Case(self.sources, [*self.nodes, node], [])
        return not has_cycle(case) and (self.daring or not predicted(case, one_partition=False))

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
        window |= {"size": self.draw.choice([SECOND, 5 * SECOND])}
        window |= {"emit": self.draw.choice(["changes", "final"])}
        twin = Node(self._name("twin"), "aggregate", one.inputs, {**one.options, "window": window})
        self._add(twin)
        return Node(self._name("merge"), "merge", [one.name, twin.name])

    def _deduplicate(self, name: str) -> Node | None:
        before = self.shapes[name]
        if before.key is None and not self.daring:
            return None
        by = self._by(before, free=before.key is None)
        if not by or not before.orders(by):
            return None
        options: dict[str, Any] = {"by": by, **self._kept(by, before), **self._declares(before)}
        if before.times and self.maybe(0.6):
            time = self.draw.choice([*before.times])
            if time not in by and self.maybe(0.3):
                by.append(time)
                if before.key is not None and time not in before.key and before.columns[time] in TIMES:
                    options["kept"] = {**options.get("kept", {}), time: TIMES[before.columns[time]]}
            options |= {"ttl": self._ttl(), "time": time}
        return Node(self._name("once"), "deduplicate", [name], options)

    def _aggregate(self, name: str, windowed: bool = False) -> Node | None:
        before, draw = self.shapes[name], self.draw
        if before.key is None and not self.daring:
            return None
        by = self._by(before)
        if not by:
            return None
        options: dict[str, Any] = {"by": by, **self._kept(by, before), **self._declares(before)}
        if before.times and (windowed or self.maybe(0.7)):
            options["window"] = self._window(before)
            if {"window_start", "window_time"} & set(by):
                return None
        ordered = before.orders(by)
        aggregates = {}
        for n in range(draw.randint(1, 4)):
            made = self._aggregated(before, ordered)
            if made is not None:
                small = made[0] == "count" or (made[0] == "sum" and made[1][0] == "v")
                aggregates[f"{'v' if small else 'm'}{len(self.nodes)}{n}"] = made
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
            columns = self.shapes[name].columns
            keys = [c for c, kind in columns.items() if kind in SPLITTING and not c.startswith("window")]
            if not keys:
                return None
            by = self._by_key(name, self.some(keys, 1, 1))
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
            columns = before.columns
            numbers = [c for c, k in columns.items() if c.startswith("v") and (k in VALUES or k in SUMS)]
            any_of = {c for c, k in columns.items() if k == "string" or digits(k) or k in limits.INTEGERS}
            exact = [c for c in columns if c[0] in "xm" and c in any_of]
            if function == "sum" and exact and self.wanted.daring and self.maybe(0.4):
                column = draw.choice(exact)
                wanted = self._aim(column, before.columns[column])
                if wanted is not None and (digits(wanted) or wanted in limits.INTEGERS):
                    return ["sum", column, wanted]
            if not numbers:
                return None
            column = draw.choice(numbers)
            kind = SUMS.get(before.columns[column], "int64")
            if function == "avg" and kind == "decimal(38, 2)":
                return None  # Arrow and Python round the last digit of a float from a decimal differently
            return [function, column, kind if function == "sum" else "float64"]
        if function in ("first", "last") and not ordered:
            return None
        return [function, column, (column not in before.times and self._aim(column, kind)) or kind]

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
        if not stream.key and not self.daring:
            return None
        key = stream.key or ()
        found = []
        for other, table in self.shapes.items():
            shared = [c for c in stream.columns if table.columns.get(c) == stream.columns[c]]
            new = [c for c in table.columns if c not in stream.columns]
            meets = table.key == stream.key or self.daring
            if meets and set(key) <= set(shared) and shared and new and other != name:
                found.append((other, shared, new))
        if not found:
            return None
        other, shared, new = draw.choice(found)
        on = [*key, *self.some([c for c in shared if c not in key and c not in ("i", "at")], 0, 1)]
        if not on:
            return None
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
            **self._kept([c for c in on if c[0] not in "xm" or c not in order_by], table),
            **self._declares(stream, table),
        }
        free = [c for c in options["columns"] if c not in [*order_by, *table.times]]
        aimed = {c: self._aim(c, table.columns[c]) for c in free}
        if any(aimed.values()):
            options["kept"] = {**options.get("kept", {}), **{c: kind for c, kind in aimed.items() if kind}}
        marks = [c for c, kind in table.columns.items() if kind == "bool"]
        if marks and self.maybe(0.5):
            options["deleted"] = draw.choice(marks)
        if self.maybe(0.3):
            stored = {c: TIMES[table.columns[c]] for c in options["columns"] if table.columns[c] in TIMES}
            options["kept"] = {**options.get("kept", {}), **stored}
        times = [c for c in table.times if c in on or c in options["columns"]]
        if times and self.maybe(0.7):
            options |= {"ttl": self._ttl(), "time": draw.choice(times)}
        return Node(self._name("join"), "join", [name, other], options)

    def _per_key(self, name: str) -> Node | None:
        before = self.shapes[name]
        if (before.key is None and not self.daring) or {"n", "newest"} & set(before.columns):
            return None
        split = before.key or ()
        times = [c for c, kind in before.columns.items() if kind == "timestamp" and c not in split]
        timed = [c for c in before.times if c in times]
        column = self.draw.choice([None, *timed, *times]) if times else None
        by = self._by(before)
        if not by:
            return None
        options = {"by": by, **self._kept(by, before), "column": column}
        options["limit"] = self.draw.choice([2, 5, 100])
        if column is not None and before.times and self.maybe(0.6):
            options["ttl"] = self._ttl()
            if self.maybe(0.7):
                options |= self._newest()
        elif column is not None and self._again(name) and not before.times and self.maybe(0.6):
            options |= self._newest()
        return Node(self._name("each"), "per_key", [name], options)

    def _newest(self) -> dict[str, Any]:
        return {"event_time": "newest", "delay": self.draw.choice([0, 5 * SECOND, 30 * SECOND])}

    def _declares(self, *inputs: Shape) -> dict[str, Any]:
        """Return that rows count which are replaced later, if some are."""
        changes = any(before.changes for before in inputs)
        return {"over_changes": True} if changes and not (self.daring and self.maybe(0.2)) else {}

    def _ttl(self) -> int:
        return self.draw.choice([SECOND, 5 * SECOND, 20 * SECOND])

    def _kept(self, by: list[str], before: Shape) -> dict[str, Any]:
        """Return the option to keep key columns in other types, or nothing."""
        if not self.maybe(0.2):
            return {}
        # Of a column that a function has cast nobody can say whether its values were apart.
        cast = {c for node in self.nodes for c in node.options.get("kinds", ())}
        daring = self.daring and self.maybe(0.3)
        kinds = {c: WIDER[before.columns[c]] for c in by if before.columns[c] in WIDER and c not in cast}
        for c in by:
            # A column that rows are split by may not lose what tells its values apart.
            free = before.key is not None and c not in before.key
            if before.columns[c] in STAMPS and (daring or free):
                kinds[c] = ["date"]
            elif free and c not in before.times and (aim := self._aim(c, before.columns[c])):
                kinds[c] = [aim]
        return {"kept": {c: self.draw.choice(found) for c, found in kinds.items()}}

    def _by(self, before: Shape, free: bool | None = None) -> list[str]:
        """Return columns to keep state by: those that the rows are split by, and maybe more; `free`: any."""
        if free is None:
            free = self.daring and (before.key is None or self.maybe(0.3))
        more = [c for c in before.columns if c not in (before.key or ()) and c != "i"]
        return self.some(more, 1, 2) if free else [*(before.key or ()), *self.some(more, 0, 1)]
