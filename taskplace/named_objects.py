"""Imports the objects that files and keys name as "module:attribute"."""

from __future__ import annotations

import importlib
from typing import Any


class UnknownName(AttributeError):
    """The module was imported, but it, or an object in it, lacks the attribute.

    - `module`: the module's name
    - `known`: what a correct name could be, as "module:attribute", for a hint
    """

    def __init__(self, name: str, module: str, known: tuple[str, ...]) -> None:
        super().__init__(f"{name!r} is not in module {module!r}")
        self.module, self.known = module, known


def load(name: str) -> Any:
    """Import and return "module:attribute"; the attribute may have dots ("module:Class.method").

    Errors: `ValueError` for another form; `UnknownName`; and whatever the import of the module raises.

    >>> load("json:JSONDecoder.decode").__qualname__
    'JSONDecoder.decode'
    >>> load("json:dumpps")
    Traceback (most recent call last):
    taskplace.model.callables.UnknownName: 'json:dumpps' is not in module 'json'
    """
    module, colon, attributes = name.partition(":")
    if not (module and colon and attributes):
        raise ValueError(f"found {name!r}, expected the form 'module:attribute'")
    found, above = importlib.import_module(module), f"{module}:"
    for attribute in attributes.split("."):
        try:
            inner = getattr(found, attribute)
        except AttributeError:
            known = tuple(f"{above}{known}" for known in dir(found) if not known.startswith("_"))
            raise UnknownName(name, module, known) from None
        found, above = inner, f"{above}{attribute}."
    return found
