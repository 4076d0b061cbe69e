"""What a call was given for stores and inputs, read and judged: lists, stores described on the spot.

Errors: `TopologyError` with the place, what was found, what was expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from topology.errors import TopologyError
from topology.names import check_count, check_legal_name
from topology.node import Store


def listed(given: Any, where: str, expected: str) -> list[Any]:
    """Return what was given, as a list; text, a mapping, or what cannot be gone through is none.

    >>> listed(3, "node 'stats'.stores", "a list of stores")
    Traceback (most recent call last):
    topology.errors.TopologyError: node 'stats'.stores: found 3, expected a list of stores
    """
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise TopologyError(f"{where}: found {given!r}, expected {expected}")
    return list(given)


def inline(spec: Mapping[Any, Any], where: str) -> Store:
    """Return the store that a mapping describes: the arguments of `Topology.store`.

    >>> inline({"name": "delays", "logged": False, "ttl": 5}, "node 'stats'.stores").options
    {'ttl': 5}
    """
    if "name" not in spec:
        raise TopologyError(f"{where}: found {dict(spec)!r}, expected a store with a 'name'")
    for field in spec:
        if not isinstance(field, str):  # `on: 1` is true in YAML 1.1
            raise TopologyError(f"{where}: found the field {field!r}, expected fields that are text")
    own = ("name", "logged", "retention_ms")
    items = tuple((field, value) for field, value in spec.items() if field not in own)
    return Store(spec["name"], spec.get("logged", True), spec.get("retention_ms"), items)


def check_store(store: Store) -> None:
    """Refuse a store whose fields are not what they have to be.

    >>> check_store(Store("delays", logged="no"))
    Traceback (most recent call last):
    topology.errors.TopologyError: store 'delays'.logged: found 'no', expected true or false
    """
    check_legal_name(store.name, "store name")
    if not isinstance(store.logged, bool):
        raise TopologyError(
            f"store {store.name!r}.logged: found {store.logged!r}, expected true or false", node=store.name
        )
    if store.retention_ms is not None:
        check_count(store.retention_ms, f"store {store.name!r}.retention_ms", store.name)
