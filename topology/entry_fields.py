"""The fields of the entries of a written topology: declared once, for all that reads or names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Verb(NamedTuple):
    """How many inputs a verb names, and which fields a node with this verb may have beside it."""

    fewest: int
    most: int | None
    fields: tuple[str, ...]


_STEP = ("processor", "options", "stores")

VERBS: Mapping[str, Verb] = {
    "process": Verb(1, None, _STEP),
    "join_table": Verb(2, 2, _STEP),
    "join_stream": Verb(2, 2, _STEP),
    "merge": Verb(2, None, ("options",)),
    "repartition": Verb(1, 1, ("key", "partitions", "options")),
    "sink": Verb(1, 1, ("target", "schema", "options")),
}
#: The fields of a node beside its verb, of whatever verb.
NODE = tuple(dict.fromkeys(field for verb in VERBS.values() for field in verb.fields))
SOURCE = ("topic", "key", "partitions", "schema", "options")
STORE = ("logged", "retention_ms", "options")
#: The sections that have entries, with all fields of these. The entries of a list have a `name`.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "sources": SOURCE,
    "stores": STORE,
    "nodes": ("name", *VERBS, *NODE),
}
TOPOLOGY = ("name", *SECTIONS)
#: The fields whose values are mappings, or lists of them.
NESTED = ("options", "schema", "key", "stores")


def beside_options(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that are no options: an entry's other fields, and its name.

    >>> beside_options(STORE)
    ('name', 'logged', 'retention_ms')
    """
    return ("name", *(field for field in fields if field != "options"))
