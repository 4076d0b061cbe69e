"""Refuses values that cannot be a processor: a class instead of an instance, and plain values.

Any other object is kept unchanged, because only the runtime knows processors. A string may be the name of one.

Errors: `TopologyError` with the node, what was found, and the remedy.
"""

from __future__ import annotations

from topology.errors import TopologyError, shown

_PLAIN = (bool, int, float, complex, bytes, bytearray, list, dict, set, frozenset)


def check_processor(processor: object, where: str, node: object = None) -> None:
    """Refuse a class and a plain value.

    >>> check_processor(print, "node 'stats'")
    >>> check_processor(dict, "node 'stats'")
    Traceback (most recent call last):
    topology.errors.TopologyError: node 'stats'.processor: found the class dict, expected an object of it: dict(...)
    """
    if isinstance(processor, type):
        name = processor.__name__
        given, expected = f"the class {name}", f"an object of it: {name}(...)"
    elif isinstance(processor, _PLAIN):
        given = shown(processor)
        expected = "an object with process(context, *inputs), or a function of the same arguments"
    else:
        return
    named = node if isinstance(node, str) else None
    raise TopologyError(f"{where}.processor: found {given}, expected {expected}", node=named)
