"""State: what grows for ever, event time, snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from taskplace.doctor.facts import Facts, StoreFacts
from taskplace.doctor.findings import Found, Severity, in_one_line, remove, rule, set_key, write
from taskplace.durations import milliseconds
from taskplace.wording import lasting
from topology import Node

_INTERVAL, _BYTES = "runtime.snapshot.interval", "runtime.snapshot.bytes"
#: The fewest batches between two snapshots of a task, without a word.
FEW_BATCHES = 3
SMALL_BYTES = 1 << 20
#: By kind of a node, its class in code.
_CLASSES = {
    "deduplicate": "Deduplicate",
    "aggregate": "Aggregate",
    "count": "Count",
    "per-key": "PerKey",
}


@rule(
    "state-without-end",
    Severity.WARNING,
    "state that grows for ever: stores without `ttl` and windows",
    needs=("stores",),
)
def state_without_end(facts: Facts) -> Iterator[Found]:
    """Find stores that keep each key. A table is as large as what it is made of, so it is not meant."""
    for store in _endless(facts):
        ids = store.processor == "deduplicate"
        kept = "the id of each row" if ids else "an entry for each key"
        yield Found(
            f"{store.path}.ttl" if store.path.endswith(".options") else store.path,
            f"store {store.name!r} has no ttl" + ("" if store.processor else ", and no retention"),
            f"It keeps {kept} for ever. So state, snapshots and restores grow with the age of the stream. A `ttl` "
            "needs `time`, a column with the event time" + ("." if ids else " that the store keeps."),
            _ending(facts, store),
            None if ids and facts.goes_on else Severity.ADVICE,
        )


@rule("event-time-unused", Severity.ADVICE, "an `event_time` that nothing uses", needs=("topology", "stores"))
def event_time_unused(facts: Facts) -> Iterator[Found]:
    """Find sources with an event time in a topology in which nothing expires, nor should: see state-without-end."""
    if facts.topology is None or any(store.retention_ms is not None for store in facts.stores or ()):
        return
    if any(_endless(facts)):
        return
    for node in facts.topology.nodes:
        if node.kind == "source" and not node.internal and node.options.get("event_time") is not None:
            path = f"topology.sources.{node.name}.options.event_time"
            yield Found(
                path,
                f"{node.options['event_time']!r}, and no window or ttl",
                "The watermark only closes windows and ends entries. No store has either, so it does nothing.",
                remove(path),
            )


@rule(
    "no-delay",
    Severity.ADVICE,
    "an event time without `delay`: each row that is not the newest is late",
    needs=("topology", "stores"),
)
def no_delay(facts: Facts) -> Iterator[Found]:
    """Find sources that give late rows no time."""
    if facts.topology is None or all(store.retention_ms is None for store in facts.stores or ()):
        return
    for node in facts.topology.nodes:
        given = node.options if node.kind == "source" and not node.internal else {}
        if given.get("event_time") is not None and given.get("delay") is None:
            path = f"topology.sources.{node.name}.options.delay"
            yield Found(
                path,
                "nothing, which is 0",
                "The watermark is the newest event time of the batches before. Rows behind it are late where a window "
                "has closed or an entry has expired.",
                set_key(path, "10 minutes"),
            )


@rule(
    "last-windows-wait",
    Severity.ADVICE,
    "windows that are sent when they close, in a stream that may fall silent",
    needs=("stores",),
)
def last_windows_wait(facts: Facts) -> Iterator[Found]:
    """Find final windows without `idle.closing`."""
    waiting = [store.name for store in facts.stores or () if store.sends_final]
    if waiting and facts.goes_on and facts.settings.runtime.idle_closing is None:
        yield Found(
            "runtime.idle.closing",
            f"nothing, and windows of {', '.join(waiting)} that are sent when they close",
            "Windows close when newer rows come. If the sources fall silent, the last windows wait for them. With the "
            "key they close by the clock; the output then depends on it.",
            set_key("runtime.idle.closing", "10 minutes"),
        )


@rule(
    "snapshots-beyond-ttl",
    Severity.ADVICE,
    "snapshots that are further apart than entries live",
    needs=("stores",),
)
def snapshots_beyond_ttl(facts: Facts) -> Iterator[Found]:
    """Compare the time between two snapshots with the shortest retention."""
    trigger = facts.settings.spark.trigger_interval
    lives = [s.retention_ms for s in facts.stores or () if s.retention_ms is not None]
    if trigger is None or not lives:
        return
    between = milliseconds(trigger, "spark.trigger.interval")
    apart = between * facts.settings.runtime.snapshot_interval
    if apart > min(lives) and facts.settings.runtime.snapshot_interval > 1:
        yield Found(
            _INTERVAL,
            f"{facts.settings.runtime.snapshot_interval} batches, {lasting(apart / 1000)}, and entries that live "
            f"{lasting(min(lives) / 1000)}",
            "A new copy replays the changes since the last snapshot. Most of them are of entries that have expired "
            "since.",
            set_key(_INTERVAL, max(1, min(lives) // between)),
        )


@rule("snapshots-frequent", Severity.ADVICE, "snapshots after hardly any change")
def snapshots_frequent(facts: Facts) -> Iterator[Found]:
    """Find settings with which nearly each batch writes the whole state of its tasks."""
    options = facts.settings.runtime
    if options.snapshot_interval < FEW_BATCHES:
        path, what, remedy = _INTERVAL, f"{options.snapshot_interval} batches", set_key(_INTERVAL, 10)
    elif options.snapshot_bytes < SMALL_BYTES:
        path, what = _BYTES, f"{options.snapshot_bytes:,} bytes"
        remedy = set_key(_BYTES, 64 << 20)
    else:
        return
    yield Found(
        path,
        what,
        "A snapshot writes the whole state of a task. So executors write all state again and again, instead of what "
        "has changed.",
        remedy,
    )


def _endless(facts: Facts) -> Iterator[StoreFacts]:
    """Yield the stores that keep each key for ever, and should not."""
    for store in facts.stores or ():
        if store.retention_ms is None and store.processor != "table-join":
            yield store


def _ending(facts: Facts, store: StoreFacts) -> str:
    """Return the remedy for a store that keeps each key for ever.

    It takes a `ttl`, a column with the event time, and that the sources say which of their columns it is. If all of it
    is known, the remedy can be pasted.
    """
    if not store.path.endswith(".options"):
        column = next(iter(_event_times(facts)), "COLUMN")
        made = _CLASSES.get(store.processor)
        if made:
            return f'# give {made}(\'{store.name}\', ...) the arguments ttl="7 days", time="{column}"'
        return f'# in the layout of the store: "retention_ms": 604_800_000, "time": "{column}"'
    name = store.path.removeprefix("topology.nodes.").removesuffix(".options")
    sources = _sources(facts, name)
    columns = {source.name: _column(facts, source) for source in sources}
    shaping = _shaping(facts, name)
    windowed = bool(shaping) and all("window" in node.options for node in shaping)
    column = "window_start" if windowed else next(filter(None, columns.values()), "COLUMN")
    changes = [
        (f"topology.sources.{source.name}.options", key, value)
        for source in sources
        if source.options.get("event_time") is None
        for key, value in (("event_time", columns[source.name] or "COLUMN"), ("delay", "10 minutes"))
    ]
    changes += _with_time(facts, store, column)
    if store.processor == "per-key":
        return f"{_lines(changes)}; the function keeps the newest {column} of a key in last_at"
    if not all(columns.values()) or not columns:
        return f"{_lines(changes)}, with a column that has the time for COLUMN"
    if shaping and not windowed:
        return f"{_lines(changes)}, with the column {column} in the rows that reach {name}"
    options = " ".join(set_key(f"{path}.{key}", in_one_line(value)) for path, key, value in changes)
    return options if _kept_time(facts, store, column) else f"{options}  # then {name} also sends last_at"


def _lines(changes: Iterable[tuple[str, str, Any]]) -> str:
    """Return changes as lines for the file, those of the same mapping together."""
    by_path: dict[str, dict[str, Any]] = {}
    for path, key, value in changes:
        by_path.setdefault(path, {})[key] = value
    return "# " + "; ".join(write(path, keys).removeprefix("# ") for path, keys in by_path.items())


def _with_time(facts: Facts, store: StoreFacts, column: str) -> list[tuple[str, str, Any]]:
    """Return what ends the entries of a store, in whose input the event time is `column`: path, key, value."""
    options, node = store.path, store.path.removesuffix(".options")
    kept = _kept_time(facts, store, column)
    ends = [(options, "ttl", "7 days"), (options, "time", kept or "last_at")]
    latest = {"max": column, "type": "timestamp"}
    if kept:
        return ends
    if store.processor == "aggregate":
        return [(f"{options}.aggregates", "last_at", latest), *ends]
    if store.processor == "count":
        aggregates = {"count": "count", "last_at": latest}
        return [(node, "processor", "aggregate"), (options, "aggregates", aggregates), *ends]
    return [(f"{options}.state", "last_at", "timestamp"), *ends]


def _shaping(facts: Facts, name: str) -> list[Node]:
    """Return the nodes before a node whose rows have other columns than their source."""
    passing = {store.path for store in facts.stores or () if store.processor in ("deduplicate", "table-join")}
    return [
        node
        for node in _before(facts, name)
        if node.name != name
        and node.kind not in ("source", "merge", "repartition")
        and f"topology.nodes.{node.name}.options" not in passing
    ]


def _sources(facts: Facts, name: str) -> list[Node]:
    """Return the external sources whose rows reach a node, in the order of the topology."""
    return [node for node in _before(facts, name) if node.kind == "source" and not node.internal]


def _before(facts: Facts, name: str) -> list[Node]:
    """Return a node and those before it, in the order of the topology; a table has no event time that a node needs."""
    nodes = {} if facts.topology is None else {node.name: node for node in facts.topology.nodes}
    repartitions = {node.topic: node for node in nodes.values() if node.kind == "repartition"}
    reached, waiting = set(), [name]
    while waiting:
        node = nodes.get(waiting.pop())
        if node is None or node.name in reached:
            continue
        reached.add(node.name)
        waiting += node.parents[:1] if node.join == "table" else node.parents
        if node.kind == "source" and node.internal and node.topic in repartitions:
            waiting.append(repartitions[node.topic].name)
    return [node for node in nodes.values() if node.name in reached]


def _column(facts: Facts, source: Node) -> str:
    """Return the column with the event time of a source: the one that it declares, or one that it could; "" if none."""
    declared = source.options.get("event_time")
    return facts.times.get(source.topic or "", "") if declared is None else f"{declared}"


def _kept_time(facts: Facts, store: StoreFacts, column: str) -> str:
    """Return the option `time` of a store that has the event time already; "" if it has not."""
    if store.processor == "deduplicate":
        return column
    nodes = () if facts.topology is None else facts.topology.nodes
    options = next(
        (node.options for node in nodes if store.path == f"topology.nodes.{node.name}.options"), {}
    )
    given, aggregates = options.get("by"), options.get("aggregates")
    if isinstance(given, Mapping) and column in given and store.processor in ("aggregate", "count"):
        return column
    latest = {"max": column, "type": "timestamp"}
    return next((name for name, spec in aggregates.items() if spec == latest), "") if aggregates else ""


def _event_times(facts: Facts) -> Iterator[str]:
    """Yield the columns with the event time of the sources that declare one."""
    for node in () if facts.topology is None else facts.topology.nodes:
        if column := node.options.get("event_time"):
            yield f"{column}"


RULES = (
    state_without_end,
    event_time_unused,
    no_delay,
    last_windows_wait,
    snapshots_beyond_ttl,
    snapshots_frequent,
)
