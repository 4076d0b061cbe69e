"""Random cases: pipelines of all kinds of nodes, data of every type, late and unordered rows, and faults.

Everything is drawn from one `random.Random`. So a seed determines the case, and hypothesis can supply its own.
"""

from __future__ import annotations

from random import Random
from typing import Any

from taskplace.spark import faults
from tests.differential.case import Case, store_of
from tests.differential.draw_spark import SparkDrawing
from tests.differential.draw_ways import WayDrawing
from tests.differential.drawing import Wanted
from tests.differential.routing import predicted

WORKER = [name for name in faults.POINTS if name.startswith("attempt.")]
ANYTHING = Wanted()
DRIVER = [name for name in faults.POINTS if name.startswith("batch.")]


def case(draw: Random, wanted: Wanted = ANYTHING) -> Case:
    """Return a random case; `routing.predicted` says whether it may be refused."""
    return _Drawn(draw, wanted).case()


def spark_case(draw: Random) -> Case:
    """Return a case that plain Spark can compute too (`plain_spark.py`): a chain with one sink.

    Times are whole milliseconds after 1970, and there is no grace. With a de-duplication, no row is late, because Spark
    drops some late rows that taskplace keeps.
    """
    return SparkDrawing(draw, Wanted(events=False, batches=8, ways=False, daring=False)).case()


class _Drawn(WayDrawing):
    def case(self) -> Case:
        self._sources()
        ops = [self._where, self._rename, self._merge, self._per_key]
        ops += [self._repartition, self._twins, self._deduplicate] * 2 + [self._join] * 3
        ops += [self._aggregate, self._of_windows] * 4
        if len({source.event_time for source in self.sources.values()} - {None}) > 1:
            ops += [self._merge] * 6  # which may lose event time
        if self.wanted.ways:
            ops += [self._cast, self._cast, self._lookup]
        if self.wanted.ways and not self.wanted.calm:  # what comes of shared stores depends on the cuts
            ops += [self._share, self._share]
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
        if self.wanted.daring and count > 3 and self.maybe(0.08):
            first = self.draw.randrange(1, count - 1)
            events.setdefault(first, []).append(["backup"])
            events.setdefault(self.draw.randrange(first + 1, count), []).append(["restore", self.maybe(0.5)])
        settings: dict[str, Any] = {
            "executors": self.draw.choice([1, 1, 2, 3]),
            "standbys": self.draw.choice([0, 0, 1, 2]),
            "snapshot_interval": self.draw.choice([1, 2, 5]),
        }
        case = Case(self.sources, self.nodes, sinks, batches, events, settings)
        stores = sorted({store_of(node) for node in self.nodes} - {""})
        if self.wanted.daring and not predicted(case):
            if stores and self.maybe(0.15):
                settings["unlogged"] = self.some(stores, 1, 3)
            if self.maybe(0.15):
                settings["most_records"] = self.draw.choice([1, 2, 4, 10])
        return case

    def _events(self) -> list[list[Any]]:
        draw, found = self.draw, []
        if self.maybe(0.15):
            found.append(["restart"] if self.maybe(0.7) else ["application"])
        if self.maybe(0.3):
            found.append(["follow"])
        if self.maybe(0.25):
            found.append([draw.choice(["join", "drain", "drain", "leave"])])
        if self.maybe(0.2):
            found.append(["kill", draw.choice(WORKER), self.maybe(0.7)])
        if self.maybe(0.15):
            found.append(["crash", draw.choice(DRIVER + WORKER)])
        return found
