"""Traits: what the runtime knows about how a processor treats keys and stores.

**Idea.** Some checks depend on how a processor treats keys: whether the rows of one key have to reach one task,
whether the key columns are still in its output, whether it may share its store. Each built-in processor states all of
this in one place, the class attribute `traits`. The runtime reads it with `traits_of`, and names no class.

Properties:
- a field has no default: a class that states its traits states each of them, else it cannot be imported;
- a class without traits, and a function, have `UNKNOWN`. Nothing is known of their output, so state behind them is
  checked in the task (`taskplace.spark.worker.partition_checks`). Their own stores are checked like those of a built-in
  processor, unless they state traits;
- a subclass without traits of its own inherits what its base class needs, and no promise about the output: it may
  emit other columns;
- a function declares with `passes_keys_on` that its output has the columns that rows are split by.

>>> class Visits:
...     traits = Traits(
...         keeps_state_by_key=True,
...         by_has_split_key=True,
...         keeps_key_columns=True,
...         passes_keys_on=False,
...         owns_its_store=True,
...     )
>>> traits_of(Visits()).keeps_state_by_key, traits_of(lambda context, rows: rows).keeps_state_by_key
(True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from taskplace.errors import InputError

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How a class of processors treats keys and stores. All fields are required.

    A processor with `keeps_state_by_key`, `by_has_split_key` or `owns_its_store` has an attribute `store`: the name of
    its store, which `layouts()` describes.
    """

    keeps_state_by_key: bool
    """The rows of one key have to reach one task. Topics that are merged or joined before it have to be split alike."""
    by_has_split_key: bool
    """The key of its store has to contain the columns that its input is split by. If it did not, each task would have
    a part of one key's state. False where a key is an id that belongs to one key of the input anyway: then nothing is
    compared, and the author answers for it."""
    keeps_key_columns: bool
    """The output has the key columns of its first input, under the same names. With `by_has_split_key`, they have the
    values of the state's key; the types may be those of the store."""
    passes_keys_on: bool
    """The output has these columns unchanged: with the types and the values that they came with. The attribute
    `keys_renamed` (old name -> new name) may give some of them other names."""
    owns_its_store: bool
    """Two nodes may share its store only if both name the store in `stores`."""


#: Of a class that does not state its traits.
UNKNOWN = Traits(
    keeps_state_by_key=False,
    by_has_split_key=False,
    keeps_key_columns=False,
    passes_keys_on=False,
    owns_its_store=False,
)


#: Of a function that is declared with `passes_keys_on`.
PASSES = replace(UNKNOWN, keeps_key_columns=True, passes_keys_on=True)


def traits_of(processor: object) -> Traits:
    """Return the traits of a processor's class, or those that a function declares; `UNKNOWN` without any."""
    kind = type(processor)
    given = getattr(kind, "traits", None)
    if isinstance(given, Traits):
        return (
            given if "traits" in vars(kind) else replace(given, keeps_key_columns=False, passes_keys_on=False)
        )
    declared = None if hasattr(processor, "process") else getattr(processor, "traits", None)
    return declared if isinstance(declared, Traits) else UNKNOWN


def states_traits(processor: object) -> bool:
    """Return whether a processor's class, or a class that it is derived from, states traits."""
    return isinstance(getattr(type(processor), "traits", None), Traits)


def renamed_keys(processor: object) -> Mapping[str, str]:
    """Return the new names of key columns in a processor's output, by old name. Errors: `InputError`."""
    names = getattr(processor, "keys_renamed", None) if traits_of(processor).passes_keys_on else None
    if names is None:
        return {}
    if not isinstance(names, Mapping) or not all(isinstance(n, str) for pair in names.items() for n in pair):
        raise InputError(
            f"{getattr(processor, '__name__', type(processor).__name__)}.keys_renamed",
            found=names,
            expected="new names of columns by old names, such as {'tailnum': 'plane'}",
        )
    if len(set(names.values())) < len(names):
        raise InputError(
            f"{getattr(processor, '__name__', type(processor).__name__)}.keys_renamed",
            found=dict(names),
            expected="a different new name for each column",
        )
    return names


def passes_keys_on(**renamed: str) -> Callable[[Function], Function]:
    """Declare that a function's output has the columns that its first input is split by, with the same values.

    `renamed`: the new names of such columns, by old name. State behind the function is then checked at the start, by
    these names, and no longer in the task.

    >>> @passes_keys_on(tailnum="plane")
    ... def renamed(context, rows):
    ...     return rows.rename_columns({"tailnum": "plane"})
    >>> traits_of(renamed).passes_keys_on, renamed_keys(renamed)
    (True, {'tailnum': 'plane'})
    """

    def declare(function: Function) -> Function:
        function.traits, function.keys_renamed = PASSES, renamed  # type: ignore[attr-defined]
        renamed_keys(function)
        return function

    return declare
