"""Says in words how a store differs from the one that a checkpoint has: one clause for each difference.

>>> from taskplace.spark.messages import StoreLayout
>>> was = StoreLayout((("k", "string"),), (("n", "int64"),))
>>> now = StoreLayout((("k", "string"),), (("n", "double"), ("m", "int64")))
>>> columns_changed(was, now)
"the value column 'n' was int64 and is double; the value column 'm' is new"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from taskplace.spark.messages import StoreLayout, TypedColumns

_COLUMN_OF = "column of "


def columns_changed(was: StoreLayout, now: StoreLayout) -> str:
    """Return what has changed in the columns of a store, and in its time column; "" if nothing has."""
    said = [*_changed("key", was.key, now.key), *_changed("value", was.value, now.value)]
    if was.time != now.time:
        said.append(f"entries expired {_by(was.time)} and expire {_by(now.time)}")
    return "; ".join(said)


def meanings_changed(was: Mapping[str, Any], now: Mapping[str, Any], changed: Iterable[str]) -> str:
    """Return what has changed in the meaning of a store's values, for the entries `changed`.

    >>> meanings_changed({"n": "sum"}, {"n": "max", "column of n": "cents"}, ["column of n", "n"])
    "the column of 'n' was not declared and is 'cents'; 'n' was sum and is max"
    """
    return "; ".join(
        f"{_entry(name)} was {_value(name, was.get(name))} and is {_value(name, now.get(name))}"
        for name in sorted(changed)
    )


def meaning_in_words(meaning: Mapping[str, Any]) -> str:
    """Return the words for what a store's values mean.

    >>> meaning_in_words({"n": "sum", "column of n": "cents"}), meaning_in_words({})
    ("the meaning the column of 'n': 'cents', 'n': sum", 'no declared meaning')
    """
    listed = ", ".join(f"{_entry(name)}: {_value(name, how)}" for name, how in sorted(meaning.items()))
    return f"the meaning {listed}" if meaning else "no declared meaning"


def _changed(part: str, was: TypedColumns, now: TypedColumns) -> Iterator[str]:
    old, new = dict(was), dict(now)
    for name, kind in old.items():
        if name not in new:
            yield f"the {part} column {name!r} ({kind}) is missing"
        elif new[name] != kind:
            yield f"the {part} column {name!r} was {kind} and is {new[name]}"
    yield from (f"the {part} column {name!r} is new" for name in new if name not in old)
    if set(old) == set(new) and list(old) != list(new):
        yield f"the {part} columns were in the order {', '.join(old)} and are in the order {', '.join(new)}"


def _by(time: str | None) -> str:
    return "never" if time is None else f"by {time!r}"


def _entry(name: str) -> str:
    return f"the column of {name.removeprefix(_COLUMN_OF)!r}" if name.startswith(_COLUMN_OF) else repr(name)


def _value(name: str, how: object) -> str:
    if how is None:
        return "not declared"
    return repr(how) if name.startswith(_COLUMN_OF) else str(how)
