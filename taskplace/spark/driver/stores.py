"""The layouts of a subtopology's stores: what the topology says of each, else what the processors declare."""

from __future__ import annotations

from taskplace.spark.processors.base import layouts
from taskplace.spark.state.store import StoreSchema
from topology import Subtopology


def stores_of(sub: Subtopology) -> dict[str, StoreSchema]:
    """Return the schemas of a subtopology's stores. Errors: `InputError` for one that nobody gave a layout."""
    declared = {name: layout for node in sub.nodes for name, layout in layouts(node.processor).items()}
    return {
        store.name: StoreSchema.of(
            store.name,
            {
                "retention_ms": store.retention_ms,
                **(store.options if store.options.get("key") else declared.get(store.name, {})),
            },
            logged=store.logged,
        )
        for store in sub.stores
    }
