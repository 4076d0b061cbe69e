"""Random cases: pipelines out of everything there is, data of every type, late and without order, and what dies.

All is drawn from one `random.Random`, so that a seed says it all, and hypothesis can put one of its own in its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from taskplace.spark import faults
from taskplace.spark.driver.programs import programs
from tests.differential import build
from tests.differential.case import NAN, STAMPS, Case, Node, Row, Shape, Source, shape, shapes, time_of
from topology import TopologyError

SECOND = 1_000_000
#: The values of key columns: few, so that they meet, and all that is special about a type.
KEYS: dict[str, list[Any]] = {
    "bool": [True, False, None],
    "int8": [-128, -1, 0, 1, 127, None],
    "int16": [-32768, 0, 1, 2, None],
    "int32": [-(1 << 31), -1, 0, 1, (1 << 31) - 1, None],
    "int64": [-(1 << 63), -1, 0, 1, 2, (1 << 63) - 1, None],
    "float32": [0.0, -0.0, 1.5, -2.25, NAN, float("inf"), None],
    "float64": [0.0, -0.0, 1.1, -2.25, NAN, float("-inf"), None],
    "string": [
        "",
        "a",
        "b",
        "ab",
        "\u00e4\u00f6\u00fc",
        "\u6771\u4eac",
        "\U0001f600",
        "a\x00b",
        "x" * 40,
        None,
    ],
    "binary": [b"", b"\x00", b"\xff\xfe\xfd", b"abcdefg", None],
    "date": [-1, 0, 20454, 20455, None],
    "timestamp_ntz": [-1, 0, 1_767_225_600_000_001, None],
    "timestamp": [-1, 0, 1_767_225_600_000_001, None],
    "decimal": [Decimal("0.00"), Decimal("-1.25"), Decimal("9999999999.99"), None],
}
#: The values of columns that are added up: small, and such that floats add them exactly.
VALUES: dict[str, list[Any]] = {
    "int8": [-3, 0, 1, 2, 100, None],
    "int32": [-3, 0, 1, 1000, None],
    "int64": [-3, 0, 1, 2, 50, 1000, None],
    "float32": [0.25, -0.0, 1.5, 100.0, None],
    "float64": [0.25, -0.5, 0.0, 3.0, 1024.0, None],
    "decimal": [Decimal("0.01"), Decimal("-2.50"), Decimal("100.00"), None],
}
ODD_FLOATS = [NAN, float("inf"), float("-inf")]
#: As what columns of a key may be kept.
WIDER = {
    "bool": ["int32"],
    "int8": ["int32", "int64", "float64", "string"],
    "int16": ["int64", "float32"],
    "int32": ["int64", "float64", "string"],
    "int64": ["string"],
    "float32": ["float64"],
    "date": ["timestamp"],
}
#: Decimals are no keys of a topic.
SPLITTING = [kind for kind in KEYS if kind != "decimal"]
SUMS = {
    "float32": "float64",
    "float64": "float64",
    "decimal": "sum of decimals",
    "sum of decimals": "sum of decimals",
}
WORKER = [name for name in faults.POINTS if name.startswith("attempt.")]
DRIVER = [name for name in faults.POINTS if name.startswith("batch.")]


@dataclass(frozen=True)
class Wanted:
    """What cases are to have. `calm`: rows come in the order of their times, and all have one.

    `orderless`: nothing behind a repartition depends on the order of rows.
    """

    time: bool = True
    events: bool = True
    nodes: int = 7
    batches: int = 10
    calm: bool = False
    orderless: bool = False


def case(draw: Random, wanted: Wanted = Wanted()) -> Case:
    """Return a random case; it may be one that the topology refuses."""
    return _Drawn(draw, wanted).case()


class _Drawn:
    def __init__(self, draw: Random, wanted: Wanted) -> None:
        self.draw, self.wanted = draw, wanted
        self.timed = wanted.time and draw.random() < 0.75
        self.sources: dict[str, Source] = {}
        self.nodes: list[Node] = []
        self.shapes: dict[str, Shape] = {}

    def maybe(self, probability: float) -> bool:
        return self.draw.random() < probability

    def some(self, choices: list[Any], least: int, most: int) -> list[Any]:
        return self.draw.sample(choices, min(len(choices), self.draw.randint(least, most)))

    def case(self) -> Case:
        self._sources()
        ops = [
            self._where,
            self._rename,
            self._repartition,
            self._repartition,
            self._merge,
            *[self._twins] * 2,
            self._deduplicate,
            self._deduplicate,
            *[self._aggregate] * 4,
            *[self._of_windows] * 4,
            self._join,
            self._join,
            self._join,
            self._per_key,
        ]
        wanted = self.draw.randint(1, self.wanted.nodes)
        for _ in range(4 * wanted):
            if len(self.nodes) >= wanted:
                break
            made = self.draw.choice(ops)(self._stream())
            if made is not None and self._fits(made):
                self._add(made)
        read = {name for node in self.nodes for name in node.inputs}
        sinks = [n for n in self.shapes if n not in read or (n not in self.sources and self.maybe(0.3))]
        count = self.draw.randint(2, self.wanted.batches + 2 * self.timed)
        batches = self._batches(count)
        events = {n: found for n in range(count) if (found := self._events())} if self.wanted.events else {}
        settings = {
            "executors": self.draw.choice([1, 1, 2, 3]),
            "standbys": self.draw.choice([0, 0, 1, 2]),
            "snapshot_interval": self.draw.choice([1, 2, 5]),
        }
        return Case(self.sources, self.nodes, sinks, batches, events, settings)

    def _fits(self, node: Node) -> bool:
        """Return whether there can be such a node here: no cycle, equal partitions where streams meet."""
        case = Case(self.sources, [*self.nodes, node], [])
        try:
            programs(build.topology(case, Path("unused")).build())
        except TopologyError as error:
            return not any(
                why in str(error) for why in ("a cycle", "equal partition counts", "merges topics of")
            )
        return True

    def _add(self, node: Node) -> None:
        self.nodes.append(node)
        self.shapes[node.name] = shape(node, [self.shapes[name] for name in node.inputs])
        if self.wanted.orderless and node.op == "repartition":
            self.shapes[node.name] = replace(self.shapes[node.name], ordered=False)

    def _name(self, op: str) -> str:
        return f"{op}-{len(self.nodes) + 1}"

    def _stream(self) -> str:
        return self.draw.choice([*self.sources, *(node.name for node in self.nodes), *self.shapes][-6:])

    # -- sources and data

    def _sources(self) -> None:
        draw = self.draw
        key = {"k": draw.choice(SPLITTING)} | ({"k2": draw.choice(SPLITTING)} if self.maybe(0.3) else {})
        partitions = draw.randint(1, 5)
        alike = self.maybe(0.5)
        values = {"v": draw.choice([*VALUES]), "x": draw.choice([*KEYS])}
        for i in range(draw.choice([1, 1, 2, 3])):
            columns = {**key, "i": "int64"}
            if not alike and i:
                values = {f"v{i}": draw.choice([*VALUES]), f"x{i}": draw.choice([*KEYS])}
            columns |= values
            if self.maybe(0.3):
                columns["gone" if alike else f"gone{i}"] = "bool"
            time = f"at{i}" if not alike and self.maybe(0.6) else "at"
            if self.timed or self.maybe(0.5):
                columns[time] = draw.choice(["timestamp"] * 8 + ["timestamp_ntz", "date"])
            self.sources[f"s{i}"] = Source(
                columns,
                list(key),
                partitions if self.maybe(0.8) else draw.randint(1, 5),
                # A source without one is judged by the others' watermark: what is late depends on the cuts then.
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
        pace = draw.choice([1, 3, 3, 10]) * SECOND  # of event time, from batch to batch
        pools = {
            (name, column): self._pool(column, kind)
            for name, source in self.sources.items()
            for column, kind in source.columns.items()
        }

        def value(topic: str, column: str, kind: str, batch: int, i: int) -> Any:
            if column == "i":
                return 1000 * batch + i
            if not column.startswith("at"):
                return draw.choice(pools[topic, column])
            if draw.random() < unknown:
                return None
            time = start + batch * pace + draw.randrange(0, pace, 1 if i % 3 else 500_000)
            if draw.random() < late:
                time -= draw.randrange(0, 30 * SECOND, 250_000)
            if draw.random() < wild:
                time += (
                    draw.choice([3600, -3600, 864_000, -100 * 31_536_000, 8000 * 31_536_000 - time // SECOND])
                    * SECOND
                )
            return time // (86_400 * SECOND) if kind == "date" else time

        batches = [
            {
                name: [
                    {c: value(name, c, kind, batch, i) for c, kind in source.columns.items()}
                    for i in range(draw.choice([0, 0, 1, 3, 8, 20]))
                ]
                for name, source in self.sources.items()
            }
            for batch in range(count)
        ]
        for name, rows in (found for batch in batches for found in batch.items() if self.wanted.calm):
            rows.sort(key=lambda row: row[time_of(self.sources[name]) or "i"])
        return batches

    def _pool(self, column: str, kind: str) -> list[Any]:
        if column.startswith("v"):
            odd = kind in ("float32", "float64") and self.maybe(0.3)
            return VALUES[kind] + (ODD_FLOATS if odd else [])
        return self.some(KEYS[kind], 2, 6)

    def _events(self) -> list[list[Any]]:
        draw, found = self.draw, []
        if self.maybe(0.15):
            found.append(["restart"] if self.maybe(0.7) else ["application"])
        if self.maybe(0.3):
            found.append(["follow"])
        if self.maybe(0.2):
            found.append(["kill", draw.choice(WORKER), self.maybe(0.7)])
        if self.maybe(0.15):
            found.append(["crash", draw.choice(DRIVER + WORKER)])
        return found

    # -- steps: each gives a node, or None if there is none to be had behind this stream

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
        """Return the event time that a processor of one's own may declare for its rows."""
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
        """Merge windows with others of the same columns, which lag otherwise."""
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
        """Return windows of windows, behind a repartition or at once."""
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
                return None  # a float of a decimal: Arrow rounds its last digit otherwise than Python
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
        order_by = ["i"] if "i" in table.columns else []
        if self.maybe(0.5) or not order_by:
            order_by = self.some([*table.columns], 0, 2) + (order_by if self.maybe(0.5) else [])
        if "i" not in order_by and not table.orders(on):
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
        """Return that columns of a key are kept in other types, if they are to be."""
        if not self.maybe(0.2):
            return {}
        return {
            "kept": {c: self.draw.choice(WIDER[before.columns[c]]) for c in by if before.columns[c] in WIDER}
        }

    def _by(self, before: Shape) -> list[str]:
        """Return columns to keep state by: those that the rows are split by, and maybe more."""
        more = [c for c in before.columns if c not in (before.key or ()) and c != "i"]
        return [*(before.key or ()), *self.some(more, 0, 1)]


def spark_case(draw: Random) -> Case:
    """Return a case that a query of plain Spark says as well (`plain_spark.py`): a chain with one sink.

    Whole milliseconds after 1970, no grace; with a de-duplication no row is late: Spark drops some that are kept here.
    """
    return _ForSpark(draw, Wanted(events=False, batches=8)).spark_case()


class _ForSpark(_Drawn):
    def spark_case(self) -> Case:
        draw = self.draw
        kinds = [kind for kind in SPLITTING if kind != "timestamp"]
        columns = {"k": draw.choice(kinds), "g": draw.choice(kinds), "i": "int64", "at": "timestamp"}
        columns |= {
            "v": draw.choice([*VALUES]),
            "x": draw.choice([k for k in KEYS if not k.startswith("float")]),
        }
        form = draw.choice(["final", "final", "final", "once", "changes", "running"])
        delay = draw.choice([0, SECOND, 5 * SECOND])
        number = 1 if form in ("once", "running") else draw.choice([1, 1, 2, 3])
        for i in range(number):
            later = delay if draw.random() < 0.5 else draw.choice([0, SECOND, 5 * SECOND])
            if form == "once":
                later = max(later, SECOND)
            at = None if form == "running" else "at"
            # Behind a repartition rows of one task are in the order of the file, as they are in Spark.
            partitions = draw.choice([1, 1, 3]) if form != "once" else 1
            self.sources[f"s{i}"] = Source(columns, ["k"], partitions, at, later if at else 0)
        self.shapes = shapes(Case(self.sources, [], []))
        name = "s0"
        if number > 1:
            name = self._then(Node("union", "merge", [*self.sources]))
        # No filter: Spark pushes it below the watermark, and then the rows that it takes out do not move time.
        if form == "once":
            by = self.some(["k", "g", "x"], 1, 2)
            name = self._split(name, by[:1])
            name = self._then(
                Node("once", "deduplicate", [name], {"by": by, "ttl": self.sources["s0"].delay, "time": "at"})
            )
        if form != "once" or self.maybe(0.5):
            name = self._windows(name, form)
        self.wanted = Wanted(calm=form == "once")
        return Case(
            self.sources, self.nodes, [name], self._in_milliseconds(self._batches(draw.randint(3, 8)))
        )

    def _then(self, node: Node) -> str:
        self._add(node)
        return node.name

    def _split(self, name: str, key: list[str]) -> str:
        node = Node(
            f"by-{len(self.nodes)}",
            "repartition",
            [name],
            {"key": key, "partitions": self.draw.randint(1, 4)},
        )
        return self._then(node)

    def _windows(self, name: str, form: str) -> str:
        draw, column = self.draw, "at"
        in_order = len(self.sources) == 1 and self.sources["s0"].partitions == 1
        for level in range(1 if form in ("changes", "running") else draw.choice([1, 1, 2, 3])):
            keys = [c for c in ("k", "g") if c in self.shapes[name].columns]
            by = self.some(keys, 1, 2)
            if level or self.maybe(0.5) or name != "s0" or by[0] != "k":
                name = self._split(name, by[:1])
            before = self.shapes[name]
            aggregates = {}
            for n in range(draw.randint(1, 3)):
                # Which row is the first is up to Spark's shuffles, but for those of one file.
                made = self._aggregated(before, ordered=in_order and not level)
                if made is not None and made[1] != "window_time":
                    aggregates[f"{'v' if made[0] in ('count', 'sum') else 'm'}{level}{n}"] = made
            aggregates = {
                name: a
                for name, a in aggregates.items()
                if a[0] != "avg" or before.columns[a[1]] not in ("decimal", "sum of decimals")
            } or {f"v{level}9": ["count", None, "int64"]}
            options: dict[str, Any] = {"by": by, "aggregates": aggregates}
            if form != "running":
                emit = "changes" if form == "changes" else "final"
                size = draw.choice([SECOND, 5 * SECOND, 10 * SECOND, 7_500_000])
                options["window"] = {
                    "column": column,
                    "size": size,
                    "grace": 0,
                    "emit": emit,
                    "time": "window_time",
                }
                column = "window_time"
            name = self._then(Node(f"windows-{level}", "aggregate", [name], options))
        return name

    @staticmethod
    def _in_milliseconds(batches: list[dict[str, list[Row]]]) -> list[dict[str, list[Row]]]:
        """Return the rows with whole milliseconds after 1970."""
        first = min(
            (r["at"] for b in batches for rows in b.values() for r in rows if r["at"] is not None), default=0
        )
        moved = 0 if first > 100 * SECOND else 1_767_225_600 * SECOND - first // SECOND * SECOND
        for rows in (rows for batch in batches for rows in batch.values()):
            for row in rows:
                if row["at"] is not None:
                    row["at"] = (row["at"] + moved) // 1000 * 1000
        return batches
