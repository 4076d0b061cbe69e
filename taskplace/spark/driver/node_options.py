"""Options of nodes that nobody reads: a slip that would change nothing without a word.

**Idea.** A node of a topology keeps any further keyword argument. What taskplace reads of a processor's node is
`event_time` and `delay`; everything else belongs into the processor's own call. In a document a node's options are
those of its processor, which was made of them, so that all of them were read.
"""

from __future__ import annotations

from taskplace.errors import ConfigError, InputError
from topology import Node

READ = ("event_time", "delay")


def check_options(node: Node) -> None:
    """Refuse options of a processor's node that change nothing.

    Errors: `ConfigError` for a name that comes near to one that is read; `InputError` for any other.

    >>> check_options(Node("once", "processor", option_items=(("ttl", "1 hour"),), processor=print))
    Traceback (most recent call last):
    taskplace.errors.InputError: nodes.once.ttl: found '1 hour', expected no such option: a node reads event_time and \
delay; give others to the processor itself
    """
    for name, value in () if node.made_of_options else node.options.items():
        if name in READ:
            continue
        path = f"nodes.{node.name}"
        error = ConfigError.unknown_key(path, name, READ)
        if "did you mean" in str(error):
            raise error
        raise InputError(
            f"{path}.{name}",
            found=value,
            expected="no such option: a node reads event_time and delay; give others to the processor itself",
        )
