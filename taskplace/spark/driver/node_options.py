"""Options of nodes that nobody reads: a slip that would change nothing without a word.

**Idea.** A node of a topology keeps any further keyword argument. What taskplace reads of a processor's node is
`event_time` and `delay`; everything else belongs into the processor's own call. In a document a node's options are
those of its processor, which was made of them, so that all of them were read. Of a sink it reads `schema`, of a merge
and of a repartition nothing.
"""

from __future__ import annotations

from taskplace.errors import ConfigError, InputError
from taskplace.validation import nearest
from topology import Node

READ = ("event_time", "delay")


#: What is read of other nodes, by their kind; sources have a check of their own.
_READ_OF = {"sink": ("schema",), "merge": (), "repartition": ()}


def check_options(node: Node) -> None:
    """Refuse options of a node that change nothing.

    Errors: `ConfigError` for a name that comes near to one that is read; `InputError` for any other.

    >>> check_options(Node("once", "processor", option_items=(("ttl", "1 hour"),), processor=print))
    Traceback (most recent call last):
    taskplace.errors.InputError: nodes.once.ttl: found '1 hour', expected only the options event_time and delay; pass \
other options to the processor itself
    """
    read = _READ_OF.get(node.kind, READ)
    for name, value in () if node.made_of_options else node.options.items():
        if name in read:
            continue
        path = f"nodes.{node.name}"
        if node.kind in _READ_OF:
            expected = (
                f"only the option {' and '.join(read)}" if read else f"no option: a {node.kind} has none"
            )
            raise InputError(f"{path}.{name}", found=value, expected=expected, hint=nearest(name, read))
        error = ConfigError.unknown_key(path, name, READ)
        if "did you mean" in str(error):
            raise error
        raise InputError(
            f"{path}.{name}",
            found=value,
            expected="only the options event_time and delay",
            hint="pass other options to the processor itself",
        )
