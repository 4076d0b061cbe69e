"""Compares the key types of topics that feed one state, over all tasks and batches.

**Idea.** Equal keys of two topics meet in one task only if both are hashed in the same type: int and bigint of the same
value have different hashes. A task compares the types of the rows that it has in one batch. Here the driver compares
the types that the whole checkpoint is bound to (`Journal.bind_keys`): those of its sources, and those that attempts
have reported for internal topics. It does so when the sources are bound, and after each stage, before the commit.

Properties: a column that had only nulls so far has no type yet and is not compared. The groups of topics are those of
`taskplace.spark.compile.keys.alike`.

Errors: `InputError` with the topics, their types, and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from taskplace.errors import InputError, listed
from taskplace.spark.compile.keys import alike
from taskplace.spark.processors.facts import arrow_types
from taskplace.spark.worker.hashing import UNTYPED, hashed_as
from topology import BuiltTopology


class KeyTypes:
    """The comparison for one topology.

    >>> from taskplace.spark.processors import Count
    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> a, b = (topo.source(name, key="k", partitions=2) for name in "ab")
    >>> _ = a.merge(b).process(Count("n", by={"k": "int64"}), name="count")
    >>> check = KeyTypes(topo.build())
    >>> check({"a": ["bigint"], "b": ["bigint"]})
    >>> check({"a": ["bigint"], "b": ["int"]})
    Traceback (most recent call last):
    taskplace.errors.InputError: topics a, b: found 'co-partitioned keys of different types (a: int64; \
b: int32)', expected equal types; otherwise equal keys reach different tasks; cast the keys before the topics \
are partitioned
    """

    def __init__(self, built: BuiltTopology) -> None:
        self._groups = alike(built)
        self._internal = frozenset(n.topic for n in built.nodes if n.kind == "repartition")

    def __call__(self, bound: Mapping[str, Sequence[str]]) -> None:
        """Refuse different types within a group. `bound`: by topic, as the checkpoint's identity has them."""
        for group in self._groups:
            check_group({topic: self._hashed(topic, bound[topic]) for topic in group if topic in bound})

    def _hashed(self, topic: str, kinds: Sequence[str]) -> list[str]:
        """Return the types as which a key is hashed. The types of external topics have Spark's names."""
        if topic in self._internal:
            return list(kinds)
        named = arrow_types(dict(zip(map(str, range(len(kinds))), kinds, strict=True)))
        return [hashed_as(kind) for kind in named.values()]


def check_group(types: Mapping[str, Sequence[str]], path: str = "") -> None:
    """Refuse different types of one group. `types`: by topic, as which its key is hashed. `path`: for the error."""
    if any(len(set(kinds) - {UNTYPED}) > 1 for kinds in _by_place(types.values())):
        raise InputError(
            path or f"topics {', '.join(types)}",
            found=f"co-partitioned keys of different types ({listed(types)})",
            expected="equal types; otherwise equal keys reach different tasks",
            hint="cast the keys before the topics are partitioned",
        )


def _by_place(keys: Iterable[Sequence[str]]) -> Iterable[tuple[str, ...]]:
    return zip(*keys, strict=True)
