"""Checks names, keys, counts and lists, and creates automatic names."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from topology.errors import TopologyError, shown

# Names of stores and repartitions become names of topics and directories, so they follow Kafka's rule for topics.
_LONGEST = 200
_LEGAL = re.compile(rf"[A-Za-z0-9._-]{{1,{_LONGEST}}}")
# Line ends, non-characters, and characters that XML forbids. They would add lines to `describe()`, and break SVG
# files.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


def check_name(value: object, where: str) -> str:
    """Return a node's or topic's name: any text that is not blank and has no control characters.

    >>> check_name(" ", "source")
    Traceback (most recent call last):
    topology.errors.TopologyError: source: found ' ', expected a name (a string that is not blank)
    >>> check_name("a\\nb", "source")
    Traceback (most recent call last):
    topology.errors.TopologyError: source: found 'a\\nb', expected a name without control characters, '\\n' in it
    """
    if not isinstance(value, str) or not value.strip():
        raise TopologyError(f"{where}: found {shown(value)}, expected a name (a string that is not blank)")
    return _seen(value, where, "a name")


def _seen(text: str, where: str, what: str) -> str:
    control = _UNSEEN.search(text)
    if control is not None:
        raise TopologyError(
            f"{where}: found {shown(text)}, expected {what} without control characters, {control[0]!r} in it"
        )
    return text


#: The most bytes of a file's name.
MOST_BYTES = 255


def check_sink_name(name: str) -> None:
    """Refuse the name of a sink that is too long for a directory: its rows are kept under its escaped name.

    >>> check_sink_name("\u00fc" * 43)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    topology.errors.TopologyError: node '...': found a sink's name of 258 bytes, expected at most 255: its rows are \
kept in a directory of this name, where each byte of a letter other than A-Z, a-z, 0-9, '_', '.', '-', '~' takes three
    """
    size = len(quote(name, safe=""))
    if size > MOST_BYTES:
        raise TopologyError(
            f"node {name!r}: found a sink's name of {size} bytes, expected at most {MOST_BYTES}: its rows are kept in "
            "a directory of this name, where each byte of a letter other than A-Z, a-z, 0-9, '_', '.', '-', '~' takes "
            "three",
            node=name,
        )


def check_legal_name(value: object, where: str) -> str:
    """Return the name of a store or repartition. It must also be valid as a topic name and a directory name.

    >>> check_legal_name("a/b", "store")
    Traceback (most recent call last):
    topology.errors.TopologyError: store: found 'a/b', expected 1 to 200 letters, digits, '.', '_', '-'
    """
    if not isinstance(value, str) or not is_legal_name(value):
        node = value if isinstance(value, str) else None
        raise TopologyError(
            f"{where}: found {shown(value)}, expected 1 to 200 letters, digits, '.', '_', '-'", node=node
        )
    return value


def is_legal_name(text: str) -> bool:
    """Return whether `check_legal_name` accepts a name."""
    return _LEGAL.fullmatch(text) is not None and text not in (".", "..")


def check_key(value: object, where: str) -> tuple[str, ...]:
    """Return key columns as a tuple, from a list or tuple. One column may be given as text; None means no key.

    The order of the columns matters, so sets and views are refused. Generators are refused, because they can be read
    only once.

    >>> check_key("tailnum", "key"), check_key(["origin", "hour"], "key"), check_key(None, "key")
    (('tailnum',), ('origin', 'hour'), ())
    """
    if value is None:
        return ()
    columns = [value] if isinstance(value, str) else value
    if not isinstance(columns, list | tuple) or not all(isinstance(c, str) and c.strip() for c in columns):
        raise TopologyError(f"{where}: found {shown(value)}, expected a list of column names")
    for column in columns:
        _seen(column, where, "column names")
    if len(set(columns)) != len(columns):
        raise TopologyError(f"{where}: found {shown(value)}, expected each column once")
    return tuple(columns)


#: The most partitions of a topic, and the most tasks of a topology. Each is an object, and a line of a plan.
MOST_PARTITIONS = 1_000_000


def check_number(value: object, where: str, node: str | None = None, most: int | None = None) -> int:
    """Return a whole number from 1 to `most`.

    >>> check_number(True, "retention_ms")
    Traceback (most recent call last):
    topology.errors.TopologyError: retention_ms: found true, expected a whole number >= 1
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TopologyError(f"{where}: found {shown(value)}, expected a whole number >= 1", node=node)
    if most is not None and value > most:
        # Python refuses to print very long integers.
        number = value if value.bit_length() <= 64 else f"a number of {value.bit_length()} bits"
        raise TopologyError(f"{where}: found {number}, expected at most {most}", node=node)
    return value


def check_count(value: object, where: str, node: str | None = None) -> int:
    """Return a partition count: a whole number from 1 to `MOST_PARTITIONS`.

    >>> check_count(10_000_000_000, "partitions")
    Traceback (most recent call last):
    topology.errors.TopologyError: partitions: found 10000000000, expected at most 1000000
    """
    return check_number(value, where, node, MOST_PARTITIONS)


def listed(given: Any, where: str, expected: str) -> list[Any]:
    """Return the argument as a list. Refuses strings, mappings, and values that are not iterable.

    >>> listed(3, "node 'stats'.stores", "a list of stores")
    Traceback (most recent call last):
    topology.errors.TopologyError: node 'stats'.stores: found 3, expected a list of stores
    """
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise TopologyError(f"{where}: found {shown(given)}, expected {expected}")
    return list(given)


def legal(text: str) -> str:
    """Return a similar text that `check_legal_name` accepts: without accents, and with "_" for other illegal
    characters.

    A changed or shortened text ends in a hash of the original, so different texts give different results. The result
    leaves room for a number at its end.

    >>> legal("flights-by-tailnum"), legal("flüge-by-origin airport")
    ('flights-by-tailnum', 'fluge-by-origin_airport-2a44f188')
    >>> legal("x" * 300)[-10:], len(legal("x" * 300))
    ('x-0d4e2ca9', 180)
    """
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", plain)
    room = _LONGEST - 20
    if plain == text and len(plain) <= room:
        return plain
    return f"{plain[: room - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


class AutoNames:
    """Creates names for nodes without one.

    A name consists of the nearest ancestor with a given name and the node's verb, with a number if that name is taken.
    There is no global counter, so unrelated nodes do not change a name, unless one of them has the same name. Names do
    not grow along a chain.

    `make` chooses a name, and `take` reserves it. So a call that is refused in between changes nothing.

    >>> names = AutoNames()
    >>> first = names.take(names.make("process", ["flights"], taken={"flights"}), "flights")
    >>> first, names.make("process", [first], taken={"flights", first})
    ('flights-process', 'flights-process-2')
    >>> names.make("join", [first, "weather"], taken=())
    'flights-join-weather'
    >>> names.make("repartition", [first], ("tailnum",), taken=())
    'flights-by-tailnum'
    """

    def __init__(self) -> None:
        self.stems: dict[str, str] = {}  # node -> the start of its children's names
        self._next: dict[str, int] = {}  # name -> the next number to try, so that a long chain stays linear

    def stem(self, node: str) -> str:
        """Return the start of the names of a node's children: the node's own name, unless it is automatic."""
        return self.stems.get(node, node)

    def take(self, name: str, *parent: str) -> str:
        """Reserve and return a name. With `parent`, the node's children get the stem of the children of `parent`."""
        self.stems.update((name, self.stem(each)) for each in parent)
        return name

    def make(
        self, verb: str, parents: Sequence[str], key: Sequence[str] = (), *, taken: Container[str]
    ) -> str:
        """Return a free name for a node that applies `verb` to its parents."""
        stems = [self.stem(parent) for parent in parents]
        repartition = verb == "repartition"
        if repartition:
            verb = "by-" + "-".join(key) if key else "spread"
        elif verb in ("join", "merge") and len(stems) > 1:
            verb = f"{verb}-{stems[1]}"
        wanted = "-".join([*stems[:1], verb])
        if repartition:  # it becomes the name of a topic
            wanted = legal(wanted)
        name, number = wanted, self._next.get(wanted, 2)
        while name in taken or (repartition and f"{name}-source" in taken):
            name = f"{wanted}-{number}"
            self._next[wanted] = number  # where the next search starts; not taken yet
            number += 1
        return name
