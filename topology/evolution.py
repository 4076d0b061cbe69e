"""Compares two topologies, and decides whether existing state can be kept.

**Idea.** State is stored by task id and store name, and is split by key. It can be kept if two conditions hold. Every
remaining store has the same subtopology number, the same number of tasks, and a changelog exactly if it had one before.
And the inputs of the nodes that use it are partitioned as before: each comes from the same topics, with the same key
columns in the same order and the same partition counts (`topology.structure`).

Properties:
- both sides may be `BuiltTopology.to_dict()`, so a checkpoint's stored structure is enough;
- `reasons` are the causes of incompatibility, and `notes` other changes. The change is `compatible` if there are no
  reasons;
- nodes between those topics and a store may change freely, and so may nodes before a repartition;
- nodes may be renamed. Two remaining nodes may not exchange their stores, although the keys would be in the right
  tasks;
- doubtful cases are refused. Removing one store and adding another in the same pipeline counts as a rename, because a
  renamed store would silently start empty. A pipeline consists of subtopologies that repartitions connect. An old and a
  new pipeline are the same if they share a node, an external topic or a subtopology number;
- unknown counts (of a topology that is not ready) are not compared.

Errors: `TopologyError` for a value that is not a structure, with the side and, if known, the path.

Non-goals: moving state. An incompatible change needs a new checkpoint.

Source: the rules by which Kafka Streams applications may be upgraded without a reset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from topology.errors import TopologyError, shown
from topology.node import TopologyView
from topology.partitions import named
from topology.structure import SCHEMA, Inputs, Layout


@dataclass(frozen=True, slots=True)
class Evolution:
    """The difference from an old topology to a new one.

    - `added`, `removed`: nodes and stores, such as "node stats" and "store delays", sorted
    - `renumbered`: (old, new) pairs of subtopology numbers
    - `reasons`: why existing state cannot be kept
    - `notes`: other changes

    >>> from topology import Topology, compare
    >>> def keyed_by(column):
    ...     topo = Topology("t")
    ...     _ = topo.source("flights", key=column).process(name="stats", stores=[{"name": "delays"}])
    ...     return topo.build()
    >>> print(compare(keyed_by("tailnum"), keyed_by("carrier")))
    existing state cannot be kept:
      - store 'delays': was keyed by (tailnum), is now keyed by (carrier), in topic 'flights'
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    renumbered: tuple[tuple[int, int], ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def compatible(self) -> bool:
        """Whether existing state can be kept."""
        return not self.reasons

    def explain(self) -> str:
        """Return the verdict, the reasons and the notes, one per line."""
        head = "existing state can be kept" if self.compatible else "existing state cannot be kept:"
        return "\n".join([head, *(f"  - {r}" for r in self.reasons), *(f"  note: {n}" for n in self.notes)])

    def __str__(self) -> str:
        return self.explain()


def compare(old: TopologyView | Mapping[str, Any], new: TopologyView | Mapping[str, Any]) -> Evolution:
    """Return the differences of `new` from `old`. Each side is a built topology or its `to_dict()`.

    Linear in nodes, stores and edges, times the topics behind a merge.
    """
    before, after = _read(old, "old"), _read(new, "new")
    reasons = [
        *(reason for store in _kept(before, after) for reason in _split_otherwise(store, before, after)),
        *_other_logging(before, after),
        *_replaced_stores(before, after),
    ]
    labels = [
        {*(f"node {node}" for node in side.node_home), *(f"store {store}" for store in side.stores)}
        for side in (before, after)
    ]
    return Evolution(
        added=tuple(sorted(labels[1] - labels[0])),
        removed=tuple(sorted(labels[0] - labels[1])),
        renumbered=tuple(_renumbered(before, after)),
        reasons=tuple(dict.fromkeys(reasons)),
        notes=tuple(_notes(before, after)),
    )


def _read(given: object, side: str) -> Layout:
    # A class has the method too, but no structure.
    write = None if isinstance(given, type) else getattr(given, "to_dict", None)
    structure = given if isinstance(given, Mapping) else write() if callable(write) else None
    if not isinstance(structure, Mapping):
        raise TopologyError(f"{side}: found {shown(given)}, expected a built topology or its structure")
    if structure.get("schema") != SCHEMA:
        raise TopologyError(f"{side}.schema: found {shown(structure.get('schema'))}, expected {SCHEMA!r}")
    try:
        return Layout.of(structure)
    except (KeyError, ValueError) as error:
        raise TopologyError(f"{side}: not a topology's structure, {error}") from error


def _kept(old: Layout, new: Layout) -> list[str]:
    return [name for name in old.stores if name in new.stores]


def _split_otherwise(store: str, old: Layout, new: Layout) -> Iterator[str]:
    """Yield the reasons why keys of a store would be looked up in the wrong task."""
    was, now = old.store_home[store], new.store_home[store]
    if was != now:
        yield (
            f"store {store!r}: was in subtopology {was}, is now in {now}, but its state belongs to "
            f"tasks {was}_*; declare new parts after the old ones to keep the numbers"
        )
        return
    topics = [topic for topic in old.topics(store) if topic in new.keys]
    counts = [(topic, old.counts[topic], new.counts[topic]) for topic in topics]
    counts = [(topic, a, b) for topic, a, b in counts if a and b and a != b]
    for topic, a, b in counts:
        yield f"topic {topic!r}: {a} -> {b} partitions, but the keys of store {store!r} are split into {a} partitions"
    tasks = old.tasks[was], new.tasks[now]
    if not counts and all(tasks) and tasks[0] != tasks[1]:
        yield f"store {store!r}: was split over {tasks[0]} tasks, is now split over {tasks[1]}"
    if counts or (all(tasks) and tasks[0] != tasks[1]):
        return
    rekeyed = [topic for topic in topics if old.keys[topic] != new.keys[topic]]
    for topic in rekeyed:
        keys = f"was keyed by {_key(old.keys[topic])}, is now keyed by {_key(new.keys[topic])}"
        yield f"store {store!r}: {keys}, in topic {topic!r}"
    if not rekeyed:
        yield from _other_inputs(store, old, new)


def _key(columns: tuple[str, ...]) -> str:
    return f"({', '.join(columns)})" if columns else "nothing"


def _other_inputs(store: str, old: Layout, new: Layout) -> Iterator[str]:
    """Yield a reason if the nodes of a store have changed, read other topics, or read them as other inputs."""
    before, after = old.uses[store], new.uses[store]
    for node in before:
        if node in after and before[node] != after[node]:
            yield (
                f"store {store!r}: node {node!r} looked up keys from {_topics(before[node])}, now looks up keys from "
                f"{_topics(after[node])}"
            )
            return
    gone = [node for node in before if node not in after]
    come = [node for node in after if node not in before]
    # A renamed node has a new name. Two names that existed before are two different nodes.
    stayed, known = [n for n in gone if n in new.node_home], [n for n in come if n in old.node_home]
    if stayed and known:
        yield f"store {store!r}: was the state of node {stayed[0]!r}, is now the state of node {known[0]!r}"
        return
    split, other = set(before.values()), set(after.values())
    if split != other:
        yield (
            f"store {store!r}: was used with keys from {_splits(split)}, is now used with keys from "
            f"{_splits(other)}"
        )


def _topics(inputs: Inputs) -> str:
    return ", then ".join(" + ".join(map(repr, sorted(side))) for side in inputs)


def _splits(inputs: set[Inputs]) -> str:
    return " and ".join(sorted(map(_topics, inputs)))


def _other_logging(old: Layout, new: Layout) -> Iterator[str]:
    words = {True: "logged", False: "not logged"}
    for store in _kept(old, new):
        was, now = (side.stores[store].logged for side in (old, new))
        if was != now:
            yield f"store {store!r}: was {words[was]}, is now {words[now]}; its changelog would be incomplete"


def _replaced_stores(old: Layout, new: Layout) -> Iterator[str]:
    """Yield a reason if stores were removed and others were added in the same pipeline: these may be renamed stores."""
    gone, come = _by_home(old, new), _by_home(new, old)
    if not gone or not come:
        return
    heirs: dict[
        int, set[int]
    ] = {}  # pipeline of the old topology -> pipelines of the new one that share a part
    shared = [(was, new.node_home.get(node)) for node, was in old.node_home.items()]
    shared += [(was, new.external.get(topic)) for topic, was in old.external.items()]
    shared += [(number, number) for number in old.pipeline if number in new.pipeline]
    for was, now in shared:
        if now is not None:
            heirs.setdefault(old.pipeline[was], set()).add(new.pipeline[now])
    arrivals: dict[int, list[str]] = {}  # pipeline of the new topology -> stores that came
    for number, names in come.items():
        arrivals.setdefault(new.pipeline[number], []).extend(names)
    for number, names in sorted(gone.items()):
        places = heirs.get(old.pipeline[number], ())
        arrived = sorted(name for place in places for name in arrivals.get(place, ()))
        if arrived:
            yield (
                f"subtopology {number}: {named('store', sorted(names))} removed and {named('store', arrived)} added, "
                "which would start empty; keep the old name, or remove first and add in a later run"
            )


def _by_home(side: Layout, other: Layout) -> dict[int, list[str]]:
    """Return the stores that only `side` has, by subtopology."""
    stores_of: dict[int, list[str]] = {}
    for store, number in side.store_home.items():
        if store not in other.stores:
            stores_of.setdefault(number, []).append(store)
    return stores_of


def _renumbered(old: Layout, new: Layout) -> list[tuple[int, int]]:
    pairs = {(was, new.node_home[node]) for node, was in old.node_home.items() if node in new.node_home}
    return sorted((was, now) for was, now in pairs if was != now)


def _notes(old: Layout, new: Layout) -> Iterator[str]:
    for store in old.stores:
        if store not in new.stores:
            yield f"store {store!r} is removed: its state is no longer used"
        elif old.stores[store].retention_ms != new.stores[store].retention_ms:
            was, now = (side.stores[store].retention_ms for side in (old, new))
            yield f"store {store!r}: retention_ms was {was}, is now {now}"
    for store in new.stores:
        if store not in old.stores:
            yield f"store {store!r} is new: it starts empty"
    for node, join in old.joins.items():
        now_a = new.joins.get(node, join)
        if now_a != join:
            yield f"node {node!r}: was a {join} join, is now a {now_a} join"
    stateful = {pair for s in _kept(old, new) for pair in [(old.store_home[s], new.store_home[s])]}
    for was, now in _renumbered(old, new):
        if (was, now) not in stateful:
            yield f"subtopology {was} (or a part of it) is now {now}, without any state to move"
