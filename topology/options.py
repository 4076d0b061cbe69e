"""Refuses options that look like misspelt parameters. All other options are kept for the runtime.

**Idea.** The calls that describe a topology accept any option, because the runtime may know more options. So a misspelt
parameter (`partition=8`) would silently become an option, and the parameter would keep its default. Therefore an option
whose name is close to that of a parameter is refused. In the written form (`topology.document`), options are separate,
and the processor checks their names.

Errors: `TopologyError` with the nearest name.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from topology.entry_fields import SOURCE, STORE, VERBS, beside_options
from topology.errors import TopologyError

#: By call, the names of its parameters, which are no options.
PARAMETERS = {
    call: beside_options(fields)
    for call, fields in {
        "source": SOURCE, "store": STORE, **{verb: each.fields for verb, each in VERBS.items()}
    }.items()
}
_CUTOFF = 0.8  # one letter too many or too few in a word of five


def check_options(
    options: Iterable[str], parameters: tuple[str, ...], where: str, node: object = None
) -> None:
    """Refuse an option that is nearly a parameter.

    >>> check_options({"event_time": "at", "delay": "5 minutes"}, SOURCE, "source 'flights'")
    >>> check_options({"partition": 8}, SOURCE, "source 'flights'")
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
