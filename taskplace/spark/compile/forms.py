"""Checks what the nodes of a topology were given: processors that can be called, and options that are read.

An option that is never read is a mistake that would silently change nothing. Read are only these:

| node | options |
|---|---|
| source | `event_time`, `delay`, and those of `taskplace.spark.compile.partition_columns` |
| processor | `event_time`, `delay`; all others belong into the processor's own call |
| processor of a YAML document | all: the processor was created from them |
| sink | `schema` |
| merge, repartition | none |

Errors: `InputError` with the node, what was found, and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.model.callables import check_function, unfit
from taskplace.model.keys import read_struct
from taskplace.spec.nodes import OwnOptions, SourceOptions
from taskplace.validation import nearest
from taskplace.wording import count
from topology import BuiltTopology, Node

_FORM = "an object with process(context, *inputs), or a function of the same arguments"
#: The options by which a source, or a processor's node, names the event time of its rows.
EVENT_TIME_OPTIONS = OwnOptions.__struct_fields__
#: By kind of node, the options that are read, where they are not those of the event time.
_READ_OF = {"sink": ("schema",), "merge": (), "repartition": ()}


class Source(NamedTuple):
    """An external source: its key, its options, and the reader with which tasks read its topic (`reads`)."""

    key: tuple[str, ...]
    options: SourceOptions
    reader: Any


@dataclass(frozen=True, slots=True)
class EventTime:
    """The event time of a source: its column, and how late rows may arrive, in microseconds."""

    column: str
    delay: int


def external_sources(built: BuiltTopology) -> dict[str, Source]:
    """Return the external sources, by topic. Errors: `InputError` for unknown options and values of the wrong kind."""
    found = {}
    for node in built.nodes:
        if node.kind == "source" and not node.internal and node.topic:
            options = {name: value for name, value in node.options.items() if name != "reads"}
            read = read_struct(SourceOptions, options, f"sources.{node.topic}")
            found[node.topic] = Source(node.key, read, node.options.get("reads"))
    return found


def event_times(built: BuiltTopology) -> dict[str, EventTime]:
    """Return the event time of each source that declares one. Errors: as `external_sources`."""
    times = {}
    for topic, (_, options, _) in external_sources(built).items():
        if options.event_time is not None:
            late = milliseconds(options.delay or 0, f"sources.{topic}.delay", zero=True)
            times[topic] = EventTime(options.event_time, 1000 * late)
        elif options.delay is not None:
            expected = "the time column that the delay applies to"
            raise InputError(f"sources.{topic}.event_time", found=None, expected=expected)
    return times


def check_form(node: Node) -> None:
    """Refuse a node whose processor cannot process its inputs, or which has options that are never read.

    >>> check_form(Node("seen", "processor", ("a", "b"), processor=lambda context, rows: rows))
    Traceback (most recent call last):
    taskplace.errors.InputError: nodes.seen.processor: found 'a function with the parameters (context, rows)', \
expected parameters for the context and 2 inputs: a, b
    >>> check_form(Node("once", "processor", ("a",), option_items=(("ttl", "1 hour"),), processor=print))
    Traceback (most recent call last):
    taskplace.errors.InputError: nodes.once.ttl: found '1 hour', expected only the options event_time and delay; pass \
other options to the processor itself
    """
    if node.kind in ("processor", "join"):
        _check_processor(node)
    if node.kind != "source" and not node.made_of_options:
        _check_options(node)


def _check_options(node: Node) -> None:
    read = _READ_OF.get(node.kind, EVENT_TIME_OPTIONS)
    for name, value in node.options.items():
        if name not in read:
            known = f"only the options {' and '.join(read)}" if read else f"no option: a {node.kind} has none"
            hint = "" if node.kind in _READ_OF else "pass other options to the processor itself"
            path = f"nodes.{node.name}.{name}"
            raise InputError(path, found=value, expected=known, hint=nearest(name, read) or hint)


def _check_processor(node: Node) -> None:
    path, processor = f"nodes.{node.name}.processor", node.processor
    if processor is None:
        raise InputError(path, found="no processor", expected=_FORM)
    if isinstance(processor, type):
        name = processor.__name__
        raise InputError(path, found=f"the class {name}", expected=f"an instance of the class: {name}(...)")
    run: Callable[..., Any] | None = getattr(processor, "process", None) or processor
    if not callable(run):
        raise InputError(path, found=processor, expected=_FORM)
    what = "a function" if run is processor else f"{type(processor).__name__}.process"
    inputs = f"{count(len(node.parents), 'input')}: {', '.join(node.parents)}"
    _check_called(path, what, run, ["context", *node.parents], f"the context and {inputs}")
    check_function(run, path, arguments=["context", *node.parents])  # a generator or an async function
    if callable(infer := getattr(processor, "infer", None)):
        what = f"{type(processor).__name__}.infer"
        _check_called(path, what, infer, ["inputs"], "one argument, the tuple of the inputs' facts")


def _check_called(path: str, what: str, function: object, arguments: list[str], expected: str) -> None:
    if (parameters := unfit(function, arguments)) is not None:
        found = f"{what} with the parameters {parameters}"
        raise InputError(path, found=found, expected=f"parameters for {expected}")
