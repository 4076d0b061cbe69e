"""The fields of the entries of a written topology, and the parameters of calls: declared once, for all that names them.

The calls that describe a topology accept any option, because the runtime may know more options. So a misspelt parameter
(`partition=8`) would silently become an option, and the parameter would keep its default. Therefore an option whose
name is close to that of a parameter is refused. In the written form (`topology.document`), options are separate, and
the processor checks their names.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from topology.errors import TopologyError


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


#: By call, the names of its parameters, which are no options.
PARAMETERS = {
    call: ("name", *(field for field in fields if field != "options"))
    for call, fields in {
        "source": SOURCE,
        "store": STORE,
        **{verb: each.fields for verb, each in VERBS.items()},
    }.items()
}
_CUTOFF = 0.8  # one letter too many or too few in a word of five


def check_options(
    options: Iterable[str], parameters: tuple[str, ...], where: str, node: object = None
) -> None:
    """Refuse an option that is nearly a parameter.

    >>> check_options({"event_time": "at", "delay": "5 minutes"}, PARAMETERS["source"], "source 'flights'")
    >>> check_options({"partition": 8}, PARAMETERS["source"], "source 'flights'")
    Traceback (most recent call last):
    topology.errors.TopologyError: source 'flights'.partition: found an unknown option; did you mean 'partitions'?
    """
    for option in options:
        for parameter in difflib.get_close_matches(option, parameters, n=1, cutoff=_CUTOFF):
            if parameter == option:  # possible only in a mapping, not as a keyword argument
                continue
            raise TopologyError(
                f"{where}.{option}: found an unknown option; did you mean {parameter!r}?",
                node=node if isinstance(node, str) else None,
            )
