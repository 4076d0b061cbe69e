"""Random cases that plain Spark can compute too."""

from __future__ import annotations

from typing import Any

from tests.differential.case import Case, Node, Row, Source, shapes
from tests.differential.draw_nodes import NodeDrawing
from tests.differential.drawing import KEYS, SECOND, SPLITTING, VALUES, Wanted


class SparkDrawing(NodeDrawing):
    """Draws cases that plain Spark can compute too: see `generate.spark_case`."""

    def case(self) -> Case:
        draw = self.draw
        kinds = [kind for kind in SPLITTING if kind != "timestamp"]
        columns = {"k": draw.choice(kinds), "g": draw.choice(kinds), "i": "int64", "at": "timestamp"}
        columns |= {"v": draw.choice([*VALUES])}
        columns |= {"x": draw.choice([k for k in KEYS if not k.startswith("float")])}
        form = draw.choice(["final", "final", "final", "once", "changes", "running"])
        delay = draw.choice([0, SECOND, 5 * SECOND])
        number = 1 if form in ("once", "running") else draw.choice([1, 1, 2, 3])
        for i in range(number):
            later = delay if draw.random() < 0.5 else draw.choice([0, SECOND, 5 * SECOND])
            if form == "once":
                later = max(later, SECOND)
            at = None if form == "running" else "at"
            # After a repartition, rows of a single task are in the order of the file, as in Spark.
            partitions = draw.choice([1, 1, 3]) if form != "once" else 1
            self.sources[f"s{i}"] = Source(columns, ["k"], partitions, at, later if at else 0)
        self.shapes = shapes(Case(self.sources, [], []))
        name = "s0"
        if number > 1:
            name = self._then(Node("union", "merge", [*self.sources]))
        # No filter: Spark pushes it below the watermark, so filtered rows do not advance the time.
        if form == "once":
            by = self.some(["k", "g", "x"], 1, 2)
            name = self._split(name, by[:1])
            options = {"by": by, "ttl": self.sources["s0"].delay, "time": "at"}
            name = self._then(Node("once", "deduplicate", [name], options))
        if form != "once" or self.maybe(0.5):
            name = self._windows(name, form)
        self.wanted = Wanted(calm=form == "once", ways=False, daring=False)
        batches = self._in_milliseconds(self._batches(draw.randint(3, 8)))
        return Case(self.sources, self.nodes, [name], batches)

    def _then(self, node: Node) -> str:
        self._add(node)
        return node.name

    def _split(self, name: str, key: list[str]) -> str:
        options = {"key": key, "partitions": self.draw.randint(1, 4)}
        return self._then(Node(f"by-{len(self.nodes)}", "repartition", [name], options))

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
                # Spark's shuffles decide which row is the first, unless all rows are in one file.
                made = self._aggregated(before, ordered=in_order and not level)
                if made is not None and made[1] != "window_time":
                    aggregates[f"{'v' if made[0] in ('count', 'sum') else 'm'}{level}{n}"] = made
            averages = {n for n, a in aggregates.items() if a[0] == "avg"}
            of_decimals = {n for n in averages if "dec" in before.columns[aggregates[n][1]]}
            aggregates = {n: a for n, a in aggregates.items() if n not in of_decimals}
            aggregates = aggregates or {f"v{level}9": ["count", None, "int64"]}
            options: dict[str, Any] = {"by": by, "aggregates": aggregates}
            if form != "running":
                emit = "changes" if form == "changes" else "final"
                size = draw.choice([SECOND, 5 * SECOND, 10 * SECOND, 7_500_000])
                window = {"column": column, "size": size, "grace": 0, "emit": emit, "time": "window_time"}
                options["window"] = window
                column = "window_time"
            name = self._then(Node(f"windows-{level}", "aggregate", [name], options))
        return name

    @staticmethod
    def _in_milliseconds(batches: list[dict[str, list[Row]]]) -> list[dict[str, list[Row]]]:
        """Return the rows with whole milliseconds after 1970."""
        timed = [row for b in batches for rows in b.values() for row in rows if row["at"] is not None]
        first = min((row["at"] for row in timed), default=0)
        moved = 0 if first > 100 * SECOND else 1_767_225_600 * SECOND - first // SECOND * SECOND
        for row in timed:
            row["at"] = (row["at"] + moved) // 1000 * 1000
        return batches
