"""The part of docs/configuration.md about `topology`, `input` and `output`: tables of their fields, and examples.

Names, values and meanings come from `taskplace.spec.nodes`; defaults from the signatures of the classes, or from there
as well. A test runs each example through `taskplace run --check`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from taskplace.model.keys import as_yaml, keys_of
from taskplace.spark import processors
from taskplace.spark.kafka.decoding import Decoder
from taskplace.spark.kafka.formats import Avro, Json, Raw
from taskplace.spark.kafka.records import KafkaRecords
from taskplace.spark.kafka.sink import KafkaSink
from taskplace.spark.stub_processors import STATEFUL
from taskplace.spec import nodes

FORMATS = {"json": Json, "avro": Avro, "raw": Raw}
#: By processor: a node that reads the source `orders`, and for a join the source `customers`.
NODES = {
    "aggregate": """hours:
  process: orders
  processor: aggregate
  options:
    by: {customer: string}
    aggregates: {orders: count, cents: {sum: cents, type: int64}, last_id: {last: id, type: int64}}
    window: {column: at, size: 1 hour, grace: 5 minutes, emit: final, time: window_time}
""",
    "count": """orders_of:
  process: orders
  processor: count
  options: {by: {customer: string, at: timestamp}, ttl: 1 day, time: at}
""",
    "deduplicate": """once:
  process: orders
  processor: deduplicate
  options: {by: {customer: string, id: long}, ttl: 1 day, time: at}
""",
    "table-join": """with_city:
  join_table: [orders, customers]
  processor: table-join
  options: {by: {customer: string}, columns: {city: string}, how: inner, order_by: [since], deleted: gone}
""",
    "per-key": """largest:
  process: orders
  processor: per-key
  options:
    function: my_processors:largest    # def largest(key, rows, state): ...
    by: {customer: string}
    state: {cents: long, at: timestamp}
    output: {customer: string, cents: long, at: timestamp}
    ttl: 30 days
    time: at
    event_time: at
    delay: 1 hour
""",
}
OWN = """large:
  process: orders
  processor: my_processors:large       # def large(context, rows, *, least): ...
  options: {least: 100, event_time: at, delay: 0 s}
"""
SOURCE = """orders:
  key: customer
  partitions: 4
  options: {event_time: at, delay: 10 minutes}
"""
INPUTS = """orders:
  format: json
  path: in/orders
  schema: {id: long, customer: string, cents: long, at: timestamp}
  options: {maxFilesPerTrigger: 10}
  select: [id, customer, cents, at]
"""
KAFKA_INPUTS = """orders:
  kafka:
    topic: orders
    servers: localhost:9092
    key: {format: raw, column: customer, kind: string}
    value: {format: json, columns: {id: int64, cents: int64, at: timestamp}}
    include: [partition]
    most_records: 10000
"""
OUTPUTS = """totals: {path: out/totals}
"""
KAFKA_OUTPUTS = """totals:
  kafka: {topic: totals, servers: localhost:9092, key: customer, patience: 2 minutes}
"""
INTRO = """\
An application of YAML alone reads these sections ([Topology](topology.md), [Windows](windows.md), [Kafka](kafka.md));
a class may read `input` and `output` as it likes. Examples are entries of the section above. A *duration* has a unit:
`10 minutes`, `1.5 h`, `250 ms`. *Columns with types* are like `{id: long, name: string}`."""


def parts() -> Iterator[str]:
    """Yield the headings, tables and examples, in their order on the page."""
    yield INTRO
    yield from _part("### Options of a source (`topology.sources.NAME.options`)", nodes.SourceOptions)
    yield f"With its other fields:\n\n{_yaml(SOURCE)}"
    yield from _part("### Options of a store (`topology.stores.NAME.options`)", nodes.StoreOptions)
    yield from _part("### Options of all processors with a store", nodes.Stateful)
    for name, kind in nodes.PROCESSORS.items():
        heading = f"### The processor `{name}` (`topology.nodes.NAME.options`)"
        summary = f"[All rules of `{STATEFUL[name]}`](api/processors.md)"
        yield from _part(heading, kind, [getattr(processors, STATEFUL[name])], summary, nodes.Stateful)
        yield _yaml(NODES[name])
    heading = "### Fields of `window`, an option of `aggregate` and `count`"
    yield from _part(heading, nodes.Window, [processors.Tumbling])
    own = "Options: the keyword-only arguments of the function, or the arguments of the class, and:"
    yield from _part("### A processor of your own, `module:name`", nodes.OwnOptions, summary=own)
    yield _yaml(OWN)
    yield from _part("### An entry of `input`", nodes.Input)
    yield _yaml(INPUTS)
    yield from _part("### `input.NAME.kafka`", nodes.KafkaInput, [KafkaRecords, Decoder])
    yield _yaml(KAFKA_INPUTS)
    for name, kind in nodes.FORMATS.items():
        heading = f"### `input.NAME.kafka.value` and `key`, with `format: {name}`"
        yield from _part(heading, kind, [FORMATS[name]])
    yield from _part("### An entry of `output`", nodes.Output, summary="An entry has one of these fields.")
    yield _yaml(OUTPUTS)
    yield from _part("### `output.NAME.kafka`", nodes.KafkaOutput, [KafkaSink])
    yield _yaml(KAFKA_OUTPUTS)


def _part(
    heading: str,
    kind: type[Struct],
    makers: Sequence[Callable[..., Any]] = (),
    summary: str = "",
    base: type[Struct] = Struct,
) -> Iterator[str]:
    """Yield a table of fields, without those of `base`. `makers`: the classes that know the defaults."""
    yield heading
    if summary:
        yield summary
    arguments = {
        name: each.default for make in makers for name, each in inspect.signature(make).parameters.items()
    }
    lines = ["| field | value | default | meaning |", "|---|---|---|---|"]
    for key in (key for key in keys_of(kind) if key not in keys_of(base)):
        value = arguments.get(key.field)
        none = value in (None, (), "", {}) or value is inspect.Parameter.empty
        default = "required" if key.required else key.meant or ("" if none else f"`{as_yaml(value)}`")
        cells = (f"`{key.name}`", key.values, default, key.doc)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    yield "\n".join(lines)


def _yaml(text: str) -> str:
    return f"```yaml\n{text}```"
