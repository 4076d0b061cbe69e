"""Refuses node options that are never read: a mistake that would silently change nothing.

**Idea.** A node of a topology stores any further keyword argument as an option. Taskplace reads only these:

| node | options |
|---|---|
| processor | `event_time`, `delay`; all others belong into the processor's own call |
| processor of a YAML document | all: the processor was created from them |
| sink | `schema` |
| merge, repartition | none |
"""

from __future__ import annotations

from taskplace.errors import ConfigError, InputError
from taskplace.validation import nearest
from topology import Node

#: The options by which a source, or a processor's node, names the event time of its rows.
EVENT_TIME_OPTIONS = ("event_time", "delay")

#: By kind of node, the options that are read. Sources are checked elsewhere.
_READ_OF = {"sink": ("schema",), "merge": (), "repartition": ()}


def check_options(node: Node) -> None:
    """Refuse options of a node that are never read.

    Errors: `ConfigError` for a name similar to an option that is read; `InputError` for any other.

    >>> check_options(Node("once", "processor", option_items=(("ttl", "1 hour"),), processor=print))
    Traceback (most recent call last):
    taskplace.errors.InputError: nodes.once.ttl: found '1 hour', expected only the options event_time and delay; pass \
other options to the processor itself
    """
    read = _READ_OF.get(node.kind, EVENT_TIME_OPTIONS)
    for name, value in () if node.made_of_options else node.options.items():
        if name in read:
            continue
        path = f"nodes.{node.name}"
        if node.kind in _READ_OF:
            expected = (
                f"only the option {' and '.join(read)}" if read else f"no option: a {node.kind} has none"
            )
            raise InputError(f"{path}.{name}", found=value, expected=expected, hint=nearest(name, read))
        error = ConfigError.unknown_key(path, name, EVENT_TIME_OPTIONS)
        if "did you mean" in str(error):
            raise error
        raise InputError(
            f"{path}.{name}",
            found=value,
            expected="only the options event_time and delay",
            hint="pass other options to the processor itself",
        )
