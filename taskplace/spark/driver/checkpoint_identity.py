"""What a checkpoint is bound to: the hash, Spark's query, the key types of topics, and other properties that stay.

Every manifest has the identity, and a driver has to match it. Errors: `CheckpointError` with both values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from taskplace.errors import CheckpointError
from taskplace.spark.worker.hashing import UNTYPED
from topology.errors import shown


def check_identity(root: Path, own: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Refuse a driver whose identity, `own`, differs from the one that the checkpoint has, `kept`."""
    for name, wanted in own.items():
        if wanted is not None and kept.get(name) is not None and kept[name] != wanted:
            raise CheckpointError(
                f"{root}: the checkpoint was created with {name} = {kept[name]!r}, found {shown(wanted)}; "
                "use the original value, or start a new checkpoint"
            )


def check_bound(root: Path, identity: Mapping[str, Any], name: str, value: Any) -> None:
    """Refuse another value for a property that the checkpoint is bound to."""
    bound = identity.get(name)
    if bound is not None and bound != value:
        raise CheckpointError(
            f"{root}: the checkpoint belongs to {name} {bound!r}, found {shown(value)}; Spark's checkpoint and "
            "this one belong together: keep both, or start a new checkpoint for both"
        )


def with_splits(
    root: Path, identity: Mapping[str, Any], topics: Iterable[str], by_column: Collection[str]
) -> list[str]:
    """Return the topics that the checkpoint has split by a partition column, with those of `topics` in `by_column`.

    A topic of the identity's `keys` that is not among the identity's `by_column` was split by Spark's hash.

    >>> with_splits(Path("/checkpoint"), {"keys": {"a": ["string"]}}, ["a", "b"], ["b"])
    ['b']
    """
    known, before = identity.get("keys") or {}, set(identity.get("by_column") or ())
    ways = {True: "a partition column", False: "Spark's hash of the key"}
    for topic in topics:
        was, now = topic in before, topic in by_column
        if topic in known and was != now:
            raise CheckpointError(
                f"{root}: the rows of topic {topic!r} were split by {ways[was]}, found {ways[now]}; it assigns keys "
                "to other partitions: go back to the original, or start a new checkpoint"
            )
    return sorted(before | set(by_column))


def with_keys(
    root: Path, bound: Mapping[str, Any] | None, keys: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return the key types that the checkpoint is bound to, with those of more topics.

    A key column with only nulls has no type; the first type that comes binds it.

    >>> with_keys(Path("/checkpoint"), {"a": ["string"]}, {"b": ["int"]})
    {'a': ['string'], 'b': ['int']}
    """
    types: dict[str, Any] = dict(bound or {})
    for topic, given in keys.items():
        known = list(types.get(topic, given))
        if len(known) != len(given) or any(
            UNTYPED not in (before, now) and before != now for before, now in zip(known, given, strict=True)
        ):
            raise CheckpointError(
                f"{root}: the key of topic {topic!r} had the types {', '.join(types[topic])}, "
                f"found {', '.join(given)}; another type assigns keys to other partitions: cast the key, or start a "
                "new checkpoint"
            )
        known = [now if before == UNTYPED else before for before, now in zip(known, given, strict=True)]
        if set(known) != {UNTYPED}:
            types[topic] = known
    return types
