"""Options of nodes that nobody reads: a slip that would change nothing without a word.

**Idea.** A node of a topology keeps any further keyword argument. What taskplace reads of a processor's node is
`event_time` and `delay`; everything else belongs into the processor's own call. In YAML a node's options are those of
its processor, and stay on the node: they are known by the processor that was made of them.

Non-goal: processors that are objects of one's own; they may read options of their node themselves.
"""

from __future__ import annotations

import difflib
import inspect
from typing import Any

from taskplace.errors import ConfigError, InputError
from taskplace.spark.processors import Aggregate, Count, Deduplicate, PerKey, TableJoin
from topology import Node

READ = ("event_time", "delay")
#: By processor, the options that it is made of in YAML.
_COMMON = ("store", "by", "ttl", "time")
_MADE_OF: dict[type, tuple[str, ...]] = {
    Aggregate: (*_COMMON, "window", "aggregates"),
    Count: (*_COMMON, "window"),
    Deduplicate: _COMMON,
    TableJoin: (*_COMMON, "columns", "how", "order_by", "deleted"),
    PerKey: (*_COMMON, "function", "state", "output"),
}


def check_options(node: Node) -> None:
    """Refuse options of a processor's node that change nothing.

    Errors: `ConfigError` for a name that means nothing there, with the nearest one; `InputError` for time to live that
    was given to the node and not to its processor.
    """
    processor: Any = node.processor
    path = f"nodes.{node.name}"
    if type(processor) in _MADE_OF:
        known = (*READ, *_MADE_OF[type(processor)])
    elif inspect.isfunction(processor):  # a factory may have made it of options with any names
        known = (
            *READ,
            *(name for name in node.options if not difflib.get_close_matches(name, READ, cutoff=0.75)),
        )
    else:
        return
    for name in node.options:
        if name not in known:
            raise ConfigError.unknown_key(path, name, known)
    forgets = any("retention_ms" in layout for layout in getattr(processor, "layouts", dict)().values())
    for name in ("ttl", "window"):
        if name in node.options and node.options[name] is not None and not forgets:
            raise InputError(
                f"{path}.{name}",
                found=node.options[name],
                expected=f"it as an argument of {type(processor).__name__}(...): the node does not read it",
            )
