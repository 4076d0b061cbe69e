"""The values from which random cases are drawn, and the case under construction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

from tests.differential import limits
from tests.differential.case import NAN, Node, Shape, Source, shape

SECOND = 1_000_000
#: The values of key columns: few, so that keys repeat, with all special values of a type.
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
    "decimal(12, 2)": [Decimal("0.00"), Decimal("-1.25"), Decimal("9999999999.99"), None],
}
#: The values of columns that are summed: small, so that floats add them exactly.
VALUES: dict[str, list[Any]] = {
    "int8": [-3, 0, 1, 2, 100, None],
    "int32": [-3, 0, 1, 1000, None],
    "int64": [-3, 0, 1, 2, 50, 1000, None],
    "float32": [0.25, -0.0, 1.5, 100.0, None],
    "float64": [0.25, -0.5, 0.0, 3.0, 1024.0, None],
    "decimal(12, 2)": [Decimal("0.01"), Decimal("-2.50"), Decimal("100.00"), None],
}
ODD_FLOATS = [NAN, float("inf"), float("-inf")]
#: type of a key column -> the types in which state may keep it
WIDER = {
    "bool": ["int32"],
    "int8": ["int32", "int64", "float64", "string"],
    "int16": ["int64", "float32"],
    "int32": ["int64", "float64", "string"],
    "int64": ["string"],
    "float32": ["float64"],
    "date": ["timestamp"],
}
#: type of a time that a table has -> the other type in which a join may keep it
TIMES = {"timestamp": "date", "timestamp_ntz": "date", "date": "timestamp"}
#: As what functions cast columns; to the last ones only if rows may meet that were apart.
CASTS = {
    "bool": ["int32"],
    "int8": ["int32", "int64", "string", "bool"],
    "int16": ["int32", "int64", "bool"],
    "int32": ["int64", "string", "bool"],
    "int64": ["string", "bool"],
    "float32": ["float64"],
    "date": ["timestamp"],
    "timestamp": ["date"],
    "timestamp_ntz": ["date"],
}
#: Decimals are no keys of a topic.
SPLITTING = [kind for kind in KEYS if kind != "decimal(12, 2)"]
SUMS = dict.fromkeys(("float32", "float64"), "float64")
SUMS |= dict.fromkeys(("decimal(12, 2)", "decimal(38, 2)"), "decimal(38, 2)")


@dataclass(frozen=True)
class Wanted:
    """What cases are to have. `calm`: rows come in the order of their times, and all have one.

    `orderless`: nothing behind a repartition depends on the order of rows. `ways`: there are also topics without a key,
    casts, bare functions and shared stores; `daring`: and cases that may be refused.
    """

    time: bool = True
    events: bool = True
    nodes: int = 7
    batches: int = 10
    calm: bool = False
    orderless: bool = False
    ways: bool = True
    daring: bool = True


class Drawing:
    """A case under construction: its sources and nodes, and the shapes of their streams."""

    def __init__(self, draw: Random, wanted: Wanted) -> None:
        self.draw, self.wanted = draw, wanted
        self.timed = wanted.time and draw.random() < 0.75
        self.daring = wanted.daring and draw.random() < 0.4
        self.sources: dict[str, Source] = {}
        self.nodes: list[Node] = []
        self.shapes: dict[str, Shape] = {}
        #: By column, the other types in which it is kept.
        self.aims: dict[str, set[str]] = {}

    def maybe(self, probability: float) -> bool:
        return self.draw.random() < probability

    def some(self, choices: list[Any], least: int, most: int) -> list[Any]:
        return self.draw.sample(choices, min(len(choices), self.draw.randint(least, most)))

    def _aim(self, column: str, kind: str) -> str | None:
        """Return another type in which a column may be kept; None for its own."""
        if not self.wanted.daring or column[0] not in "xm" or self.maybe(0.6):
            return None
        found = limits.target(self.draw, kind)
        if found is not None:
            self.aims.setdefault(column, set()).add(found)
        return found

    def _add(self, node: Node) -> None:
        self.nodes.append(node)
        self.shapes[node.name] = shape(node, [self.shapes[name] for name in node.inputs])
        if self.wanted.orderless and node.op == "repartition":
            self.shapes[node.name] = replace(self.shapes[node.name], ordered=False)

    def _name(self, op: str) -> str:
        return f"{op}-{len(self.nodes) + 1}"

    def _stream(self) -> str:
        return self.draw.choice([*self.sources, *(node.name for node in self.nodes), *self.shapes][-6:])
