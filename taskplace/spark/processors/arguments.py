"""Refuses arguments that a processor does not have, with the nearest one that it has.

**Idea.** Python says "unexpected keyword argument 'on'", and other libraries call the same argument by another name:
pandas and Spark join `on` columns, Kafka Streams groups by a `key`. So the constructors of processors name the argument
that was meant. The same words help in YAML (`taskplace.spark.registry`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import ParamSpec

from taskplace.errors import InputError
from taskplace.validation import nearest

P = ParamSpec("P")
#: What other libraries call an argument: the name here.
SYNONYMS: Mapping[str, str] = {
    "on": "by",
    "key": "by",
    "keys": "by",
    "group_by": "by",
    "retention": "ttl",
    "timestamp": "time",
    "event_time": "time",
    "aggs": "aggregates",
    "func": "function",
    "fn": "function",
}


def nearest_argument(name: object, known: Collection[str]) -> str:
    """Return a hint with the argument that was meant: by another library's word for it, or by its spelling.

    >>> nearest_argument("on", ["by", "store"]), nearest_argument("colums", ["by", "columns"])
    ("did you mean 'by'?", "did you mean 'columns'?")
    """
    meant = SYNONYMS.get(str(name))
    return f"did you mean {meant!r}?" if meant in known else nearest(name, known)


def known_arguments(init: Callable[P, None]) -> Callable[P, None]:
    """Decorate a constructor: it refuses unknown arguments with the nearest known one. Errors: `InputError`."""
    parameters = list(inspect.signature(init).parameters.values())[1:]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    required = {p.name for p in parameters if p.name in names and p.default is p.empty}
    others = any(p.kind == p.VAR_KEYWORD for p in parameters)  # aggregates, which may have any names

    @wraps(init)
    def checked(*args: P.args, **given: P.kwargs) -> None:
        kind, store = type(args[0]).__name__, (*args, given.get("store"))[1]
        path = f"{kind}({store!r})" if isinstance(store, str) else kind
        for name in given:
            meant = SYNONYMS.get(name)
            if name not in names and (not others or (meant in required and meant not in given)):
                raise InputError(
                    f"{path}.{name}",
                    found="an unknown argument",
                    expected=f"one of {', '.join(names)}",
                    hint=nearest_argument(name, names),
                )
        init(*args, **given)

    return checked
