"""Names, keys and counts: given ones are checked here, where they enter, and missing names are made here."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from topology.errors import TopologyError

# Names of stores and repartitions become names of topics and directories: Kafka's rule for topic names.
_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,200}")


def check_name(value: object, where: str) -> str:
    """Return a node's or topic's name: any text that is not blank.

    >>> check_name(" ", "source")
    Traceback (most recent call last):
    topology.errors.TopologyError: source: found ' ', expected a name (text that is not blank)
    """
    if not isinstance(value, str) or not value.strip():
        raise TopologyError(f"{where}: found {value!r}, expected a name (text that is not blank)")
    return value


def check_legal_name(value: object, where: str) -> str:
    """Return the name of a store or repartition, which also has to serve as topic and directory name.

    >>> check_legal_name("a/b", "store")
    Traceback (most recent call last):
    topology.errors.TopologyError: store: found 'a/b', expected 1 to 200 letters, digits, '.', '_', '-'
    """
    if not isinstance(value, str) or not _LEGAL.fullmatch(value) or value in (".", ".."):
        node = value if isinstance(value, str) else None
        raise TopologyError(
            f"{where}: found {value!r}, expected 1 to 200 letters, digits, '.', '_', '-'", node=node
        )
    return value


def check_key(value: object, where: str) -> tuple[str, ...]:
    """Return key columns as a tuple; one column may be given as plain text, None means no key.

    >>> check_key("tailnum", "key"), check_key(["origin", "hour"], "key"), check_key(None, "key")
    (('tailnum',), ('origin', 'hour'), ())
    """
    if value is None:
        return ()
    columns = [value] if isinstance(value, str) else value
    if not isinstance(columns, list | tuple) or not all(isinstance(c, str) and c.strip() for c in columns):
        raise TopologyError(f"{where}: found {value!r}, expected a list of column names")
    if len(set(columns)) != len(columns):
        raise TopologyError(f"{where}: found {value!r}, expected each column once")
    return tuple(columns)


def check_count(value: object, where: str, node: str | None = None) -> int:
    """Return a partition count: a whole number >= 1.

    >>> check_count(True, "partitions")
    Traceback (most recent call last):
    topology.errors.TopologyError: partitions: found True, expected a whole number >= 1
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TopologyError(f"{where}: found {value!r}, expected a whole number >= 1", node=node)
    return value


class AutoNames:
    """Names for nodes that were given none.

    A name says what the node descends from (the nearest node that was named) and what it does, with a number
    when that is taken. No global counter is in it, so unrelated nodes never change it, and names do not grow
    along a chain.

    >>> names = AutoNames()
    >>> first = names.make("process", ["flights"], taken={"flights"})
    >>> first, names.make("process", [first], taken={"flights", first})
    ('flights-process', 'flights-process-2')
    >>> names.make("join", [first, "weather"], taken=())
    'flights-join-weather'
    >>> names.make("repartition", [first], ("tailnum",), taken=())
    'flights-by-tailnum'
    """

    def __init__(self) -> None:
        self._stems: dict[str, str] = {}  # node -> the name that its children's names start with
        self._next: dict[str, int] = {}  # name -> the next number to try, so that a long chain stays linear

    def stem(self, node: str) -> str:
        """Return what the names of a node's children start with; its own name unless that was made here."""
        return self._stems.get(node, node)

    def alias(self, node: str, other: str) -> None:
        """Let `node` have the stem of `other`."""
        self._stems[node] = self.stem(other)

    def make(
        self, verb: str, parents: Sequence[str], key: Sequence[str] = (), *, taken: Container[str]
    ) -> str:
        """Return a name that is not taken, for a node that does `verb` to its parents."""
        stems = [self.stem(parent) for parent in parents]
        if verb == "repartition":
            verb = "by-" + "-".join(key) if key else "spread"
        elif verb in ("join", "merge") and len(stems) > 1:
            verb = f"{verb}-{stems[1]}"
        name = wanted = "-".join([*stems[:1], verb])
        while name in taken:
            number = self._next.get(wanted, 2)
            self._next[wanted] = number + 1
            name = f"{wanted}-{number}"
        if stems:
            self._stems[name] = stems[0]
        return name
