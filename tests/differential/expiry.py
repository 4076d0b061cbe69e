"""When the state of a node has had its time, in the model: by definition, in plain Python."""

from __future__ import annotations

from tests.differential.case import WINDOW_START, Node, Row, Shape, key_columns, options_by
from tests.differential.values import DAY, Key, micros


def lag(node: Node, shapes: dict[str, Shape]) -> int:
    """Return the lag of the column that a node goes by; of several, if there is no telling, the largest.

    A date in the state stands for its whole day: it lies up to a day before the times of its rows.
    """
    options, times = node.options, shapes[node.inputs[-1]].times  # of a join, the table's
    if options.get("window"):
        return times[options["window"]["column"]]
    column = options.get("time")
    if node.op == "aggregate" and column in options["aggregates"]:
        column = options["aggregates"][column][1]
    if not options.get("ttl"):
        return 0
    found = times[column] if node.op in ("deduplicate", "aggregate") else max(times.values())
    return found + (DAY - 1 if kept_as(node, column, shapes) == "date" else 0)


def kept_as(node: Node, column: str | None, shapes: dict[str, Shape]) -> str:
    """Return the type of the time that a node's state goes by."""
    if column is None or (node.op != "join" and column not in options_by(node)):
        return "timestamp"
    return node.options.get("kept", {}).get(column) or shapes[node.inputs[-1]].columns[column]


def less(watermark: int | None, behind: int) -> int | None:
    """Return a watermark that lies so far behind."""
    return None if watermark is None else watermark - behind


def expired(node: Node, shapes: dict[str, Shape], key: Key, values: Row, watermark: int | None) -> bool:
    """Return whether an entry has had its time; one without a time never has."""
    window, ttl = node.options.get("window"), node.options.get("ttl")
    if watermark is None or not (window or ttl):
        return False
    entry = {**dict(zip(key_columns(node), key, strict=True)), **values}
    if window:
        return bool(entry[WINDOW_START] + window["size"] + window["grace"] <= watermark)
    column = "newest" if node.op == "per_key" else node.options["time"]
    kind = kept_as(node, column, shapes)
    time = micros(entry[column], kind)
    return time is not None and time + ttl <= watermark
