"""Imports the objects that files name as "module:attribute", and checks functions before anything is started.

**Idea.** A function with the wrong parameters is found by its first call. That may be in the middle of a batch, or
after a commit. Its signature is known at once, so it is bound to the arguments that it will get.

Non-goals: the types of parameters, and what the function returns. A callable without a readable signature, such as a
builtin, is accepted.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

from taskplace.errors import InputError

_LATER = (
    (inspect.iscoroutinefunction, "an async function"),
    (inspect.isasyncgenfunction, "an async generator"),
    (inspect.isgeneratorfunction, "a generator function"),
)


def check_function(
    function: object,
    path: str,
    *,
    arguments: Sequence[str],
    error: type[InputError] = InputError,
) -> None:
    """Refuse an object that cannot be called with these positional arguments.

    Generators and async functions are refused as well, because a call does not run their body.
    Errors: `InputError`, or the given subclass.

    >>> check_function(lambda df: None, "ForeachBatch.function", arguments=["df", "batch_id"])
    Traceback (most recent call last):
    taskplace.errors.InputError: ForeachBatch.function: found 'a function of (df)', expected a function of \
(df, batch_id)
    """
    expected = f"a function of ({', '.join(arguments)})"
    if not callable(function):
        raise error(path, found=function, expected=expected)
    runs = _runs(function)
    later = next((what for test, what in _LATER if test(runs)), None)
    if later is not None:
        hint = "a call does not run its body"
        raise error(path, found=later, expected=f"{expected} without async and yield", hint=hint)
    found = unfit(function, arguments)
    if found is not None:
        what = "a class" if isinstance(function, type) else "a function"
        raise error(path, found=f"{what} of {found}", expected=expected)


def unfit(function: object, arguments: Sequence[str]) -> str | None:
    """Return a function's parameters if it cannot be called with these arguments; None if it can, or may.

    >>> unfit(lambda df, *, mode: None, ["df", "batch_id"]), unfit(print, ["df"])
    ('(df, *, mode)', None)
    """
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # what is written in C may not say
        return None
    try:
        signature.bind(*arguments)
    except TypeError:
        bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        return str(signature.replace(parameters=bare, return_annotation=signature.empty))
    return None


def _runs(function: object) -> object:
    """Return what a call runs: of an object with `__call__`, that method; of a partial, its function."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return getattr(function, "__call__", function)  # noqa: B004 - it is callable; the method is wanted


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
