"""The errors of this package, and the hint with the nearest known name.

ValueError
└── TopologyError         a wrong description of a topology; it names the node
    └── TopologyNotReady  the topology has no tasks yet, because its topics are missing or do not fit
"""

from __future__ import annotations

from collections.abc import Iterable

from topology.errors import nearest_name

_LISTED = 8  # the most known names that a message lists


class TopologyError(ValueError):
    """A wrong description of a topology. The message has the place, the value found, and the values expected.

    `node`: the name of the wrong node, store or topic, or None.

    >>> error = TopologyError("source 'flights'.partitions: found 0, expected at least 1", node="flights")
    >>> error.node, str(error)
    ('flights', "source 'flights'.partitions: found 0, expected at least 1")
    """

    def __init__(self, message: str, *, node: str | None = None) -> None:
        super().__init__(message)
        self.node = node


class TopologyNotReady(TopologyError):
    """Tasks were requested of a topology whose topics are missing or do not fit. The message is the reason.

    `BuiltTopology.readiness()` returns the same reason without an error.
    """


def nearest(name: object, known: Iterable[str]) -> str:
    """Return the hint for an unknown name: the nearest known name, or else a list of known names.

    >>> nearest("wether", ["flights", "weather"])
    "did you mean 'weather'?"
    >>> nearest("x", ["flights", "weather"])
    'known: flights, weather'
    >>> nearest("x", [])
    'none is known'
    """
    names = sorted(known)
    # Python refuses to print very long integers.
    word = "" if isinstance(name, int) and name.bit_length() > 64 else str(name)
    if near := nearest_name(word, names):
        return f"did you mean {near!r}?"
    if not names:
        return "none is known"
    return "known: " + ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
