"""Random cases: pipelines of all kinds of nodes, data of every type, late and unordered rows, and faults.

Everything is drawn from one `random.Random`. So a seed determines the case, and hypothesis can supply its own.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from taskplace.spark import faults
from taskplace.spark.driver.programs import programs
from tests.differential import build
from tests.differential.case import Case, Node
from tests.differential.draw_nodes import NodeDrawing
from tests.differential.draw_spark import SparkDrawing
from tests.differential.drawing import Wanted
from topology import TopologyError

WORKER = [name for name in faults.POINTS if name.startswith("attempt.")]
ANYTHING = Wanted()
DRIVER = [name for name in faults.POINTS if name.startswith("batch.")]


def case(draw: Random, wanted: Wanted = ANYTHING) -> Case:
    """Return a random case; it may be one that the topology refuses."""
    return _Drawn(draw, wanted).case()


def spark_case(draw: Random) -> Case:
    """Return a case that plain Spark can compute too (`plain_spark.py`): a chain with one sink.

    Times are whole milliseconds after 1970, and there is no grace. With a de-duplication, no row is late, because Spark
    drops some late rows that taskplace keeps.
    """
    return SparkDrawing(draw, Wanted(events=False, batches=8)).case()


class _Drawn(NodeDrawing):
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
                why in str(error)
                for why in ("a cycle", "equal partition counts", "different numbers of partitions")
            )
        return True

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
