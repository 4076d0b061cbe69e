"""Reads and checks arguments: lists, inline stores, and the stores that processors declare.

Errors: `TopologyError` with the place, the value found, and the values expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from topology.entry_fields import STORE, check_options
from topology.errors import TopologyError, shown
from topology.names import check_legal_name, check_number
from topology.node import Store


def listed(given: Any, where: str, expected: str) -> list[Any]:
    """Return the argument as a list. Refuses strings, mappings, and values that are not iterable.

    >>> listed(3, "node 'stats'.stores", "a list of stores")
    Traceback (most recent call last):
    topology.errors.TopologyError: node 'stats'.stores: found 3, expected a list of stores
    """
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise TopologyError(f"{where}: found {shown(given)}, expected {expected}")
    return list(given)


def inline(spec: Mapping[Any, Any], where: str) -> Store:
    """Return the store that a mapping describes: the arguments of `Topology.store`.

    >>> inline({"name": "delays", "logged": False, "ttl": 5}, "node 'stats'.stores").options
    {'ttl': 5}
    """
    if "name" not in spec:
        raise TopologyError(f"{where}: found {shown(spec)}, expected a store with a 'name'")
    for field in spec:
        if not isinstance(field, str):  # `on: 1` is true in YAML 1.1
            raise TopologyError(f"{where}: found the field {field!r}, expected strings as field names")
    check_options(spec, STORE, f"{where}, store {spec['name']!r}")
    items = tuple((field, value) for field, value in spec.items() if field not in STORE)
    return Store(spec["name"], spec.get("logged", True), spec.get("retention_ms"), items)


def check_store(store: Store) -> None:
    """Refuse a store with fields of a wrong type or value.

    >>> check_store(Store("delays", logged="no"))
    Traceback (most recent call last):
    topology.errors.TopologyError: store 'delays'.logged: found 'no', expected true or false
    """
    check_legal_name(store.name, "store name")
    if not isinstance(store.logged, bool):
        raise TopologyError(
            f"store {store.name!r}.logged: found {shown(store.logged)}, expected true or false",
            node=store.name,
        )
    if store.retention_ms is not None:
        check_number(store.retention_ms, f"store {store.name!r}.retention_ms", store.name)


def laid_out(processor: Any, where: str) -> dict[str, tuple[Store, Mapping[str, Any]]]:
    """Return the stores that a processor declares by `layouts()`, by name, each with the declared fields.

    >>> class Counts:
    ...     def layouts(self):
    ...         return {"counts": {"ttl": 5}}
    >>> laid_out(Counts(), "node 'stats'")["counts"][0].options
    {'ttl': 5}
    """
    # A class has the method too, but only its instances have stores.
    declare = None if isinstance(processor, type) else getattr(processor, "layouts", None)
    if not callable(declare):
        return {}
    given = declare()
    if not isinstance(given, Mapping):
        raise TopologyError(
            f"{where}, layouts(): found {shown(given)}, expected a mapping of stores to their layouts"
        )
    stores = {}
    for name, layout in given.items():
        if not isinstance(layout, Mapping):
            raise TopologyError(
                f"{where}, layouts(): found {shown(layout)} for store {name!r}, expected a mapping"
            )
        store = inline({**layout, "name": name}, f"{where}, layouts()")
        try:
            check_store(store)
        except TopologyError as error:
            raise TopologyError(f"{where}, layouts(): {error}") from error
        stores[name] = (store, layout)
    return stores


def unlike(one: Store, other: Store, fields: Iterable[str]) -> str | None:
    """Return a text with the first difference of two declarations of a store; None if they agree.

    >>> unlike(Store("delays"), Store("delays", retention_ms=5), ["logged", "retention_ms"])
    'without retention_ms elsewhere, here with 5'
    """
    here, there = (
        {
            "logged": store.logged,
            **store.options,
            **({"retention_ms": kept} if (kept := store.retention_ms) else {}),
        }
        for store in (other, one)
    )
    for field in fields:
        if field in here and field in there and here[field] != there[field]:
            return f"with {field} {there[field]!r} elsewhere, here with {here[field]!r}"
        if field in here and field not in there:
            return f"without {field} elsewhere, here with {here[field]!r}"
        if field in there and field not in here:
            return f"with {field} {there[field]!r} elsewhere, here without"
    return None
