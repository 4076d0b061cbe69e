"""State: what grows for ever, event time, snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from taskplace.doctor.facts import Facts, StoreFacts
from taskplace.doctor.findings import Found, Severity, remove, rule, set_key
from taskplace.durations import milliseconds
from taskplace.wording import lasting

_INTERVAL, _BYTES = "runtime.snapshot.interval", "runtime.snapshot.bytes"
#: The fewest batches between two snapshots of a task, without a word.
FEW_BATCHES = 3
SMALL_BYTES = 1 << 20
#: What a file needs first where no source has an event time.
_SOURCE = (
    "in topology.sources.NAME.options: {event_time: at, delay: 10 minutes}, with the rows' own column for at"
)


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

    Options of the command line can be pasted as they are. Where the store does not keep the event time yet, it takes
    more than a `ttl`, which changes what the node sends. That is shown as lines for the file.
    """
    column = _event_time(facts)
    at, first = column or "at", "" if column else f"{_SOURCE}; "
    if not store.path.endswith(".options"):
        return f'"retention_ms": 604_800_000, "time": "{column or "COLUMN"}"  # in the layout of the store'
    if column and (time := _kept_time(facts, store, column)):
        return f"{set_key(f'{store.path}.ttl', '7 days')} {set_key(f'{store.path}.time', time)}"
    node = store.path.removesuffix(".options")
    latest = f"last_at: {{max: {at}, type: timestamp}}"
    match store.processor:
        case "deduplicate":
            return f"# {first}in {store.path}: {{ttl: 7 days, time: {at}}}"
        case "aggregate":
            return f"# {first}in {store.path}: {{aggregates: {{{latest}}}, ttl: 7 days, time: last_at}}"
        case "count":
            options = f"aggregates: {{count: count, {latest}}}, ttl: 7 days, time: last_at"
            return f"# {first}in {node}: {{processor: aggregate, options: {{{options}}}}}"
    return (
        f"# {first}in {store.path}: {{state: {{last_at: timestamp}}, ttl: 7 days, time: last_at}}; the function keeps "
        f"the newest {at} of a key in last_at"
    )


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


def _event_time(facts: Facts) -> str:
    """Return the column with the event time of the first source that declares one; "" without any."""
    nodes = () if facts.topology is None else facts.topology.nodes
    return next((f"{column}" for node in nodes if (column := node.options.get("event_time"))), "")


RULES = (
    state_without_end,
    event_time_unused,
    no_delay,
    last_windows_wait,
    snapshots_beyond_ttl,
    snapshots_frequent,
)
