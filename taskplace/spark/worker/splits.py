"""Refuses casts that would spread one key's state over several tasks.

**Idea.** What rows are split by has to be a function of the key that state is kept by. A store's key has the columns of
the topic's key, cast to declared types. If the cast makes one value of two ("7" and "07" as an integer), those two lie
in different tasks, each with a state of its own. And topics that meet in one store have to be hashed alike.

Properties: types are judged, not values. A source is judged before anything starts. A repartition's types are known
when rows come: a task judges them before it writes anything. The type in which a topic was split is compared with the
type in which the store keeps the column of that name, whatever lies between the two. A column without a type, as pandas
makes of nothing but nulls, is not judged: nulls go to one partition whatever their type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.spark.state.casts import keeps_apart
from taskplace.spark.worker.hashing import hashed_as


@dataclass(frozen=True, slots=True)
class Split:
    """A node that keeps state by what one of its topics is split by: `columns`, in the topic's order, as kept."""

    node: str
    store: str
    topic: str
    columns: tuple[tuple[str, pa.DataType], ...]


def check_splits(splits: Iterable[Split], types: Mapping[str, Mapping[str, pa.DataType]]) -> None:
    """Refuse splits whose rows of one key would lie in several tasks; `types`: by topic, of the columns that are known.

    A topic that is not among `types` is not judged. O(splits x columns). Errors: `InputError` with node, column, both
    types, and what to do.
    """
    met: dict[tuple[str, tuple[str, ...]], dict[str, list[str]]] = {}
    for split in splits:
        # A column without a type has nothing but nulls, which are hashed the same in every type.
        found = {
            name: kind for name, kind in types.get(split.topic, {}).items() if not pa.types.is_null(kind)
        }
        for name, kept in split.columns:
            if name in found and not keeps_apart(found[name], kept):
                raise InputError(
                    f"node {split.node!r}, column {name!r}",
                    found=f"state kept by {kept}, and {split.topic!r} split by {found[name]}",
                    expected=f"a type that keeps all values of {found[name]} apart, or rows of one key lie in "
                    "several tasks",
                    hint=f"keep it as {found[name]}; or cast it to {kept} in the source, or in a processor with a "
                    "repartition by it behind; a column that a processor has made anew needs a name of its own",
                )
        names = tuple(name for name, _ in split.columns)
        if all(name in found for name in names):
            hashed = met.setdefault((split.store, names), {})
            hashed[split.topic] = [hashed_as(found[name]) for name in names]
            if any(other != hashed[split.topic] for other in hashed.values()):
                raise InputError(
                    f"node {split.node!r}",
                    found=f"one key from topics that are split by different types: {hashed}",
                    expected="equal types, or equal keys lie in different tasks; cast them where the topics are made",
                )
