"""Traits: what the runtime knows about a processor from its class.

**Idea.** Some checks depend on how a processor treats keys: whether the rows of one key have to reach one task,
whether the key columns are still in its output, whether it may share its store. Each built-in processor states all of
this in one place, the class attribute `traits`. The runtime reads it with `traits_of`, and names no class.

Properties:
- a field has no default: a class that states its traits states each of them, else it cannot be imported;
- a class without traits (a function, a processor of your own) has `UNKNOWN`: nothing is checked, nothing is assumed;
- a subclass inherits only `passes_keys_on` and `owns_its_store`. It may keep its state by other columns, or rename the
  columns that it emits, so it states the other traits itself, by `traits` of its own.

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

from dataclasses import dataclass, replace


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
    a part of one key's state. False where a key is an id that belongs to one key of the input anyway."""
    keeps_key_columns: bool
    """The output has the key columns of its first input, under the same names."""
    passes_keys_on: bool
    """The output has these columns unchanged: with the types and the values that they came with."""
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


def traits_of(processor: object) -> Traits:
    """Return the traits of a processor's class; `UNKNOWN` for a class that does not state any."""
    kind = type(processor)
    found = getattr(kind, "traits", None)
    if not isinstance(found, Traits):
        return UNKNOWN
    if "traits" in vars(kind):
        return found
    return replace(found, keeps_state_by_key=False, by_has_split_key=False, keeps_key_columns=False)
