"""What changed between two topologies, and whether state that exists can be kept.

**Idea.** State lies under task ids and store names, split by key. It can be kept exactly if every store that
is still there is found under the same subtopology number, with the same number of tasks, the same partition
counts, the same key, and with or without a changelog as before.

Properties:
- works on `BuiltTopology.to_dict()` of either side, so a checkpoint's stored structure is enough;
- `reasons` are what stands against it, `notes` what else a reader wants to know; `compatible` = no reasons;
- rules err to the safe side: what may be a renamed store counts as one, because it would silently start
  empty;
- counts that are not known (a topology that is not ready) are not compared.

Errors: `TopologyError` for a mapping that is not a structure, with its path.

Non-goals: moving state. An incompatible change needs a new checkpoint.

Source: the rules by which Kafka Streams applications may be upgraded without a reset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topology.errors import TopologyError
from topology.structure import SCHEMA

if TYPE_CHECKING:
    from topology.built import BuiltTopology


@dataclass(frozen=True, slots=True)
class Evolution:
    """The difference from an old topology to a new one.

    `added` and `removed` are sorted, like "node stats" and "store delays"; `renumbered` are pairs (old, new)
    of subtopology numbers.

    >>> from topology import Topology, compare
    >>> def keyed_by(column):
    ...     topo = Topology("t")
    ...     _ = topo.source("flights", key=column).process(name="stats", stores=[{"name": "delays"}])
    ...     return topo.build()
    >>> print(compare(keyed_by("tailnum"), keyed_by("carrier")))
    existing state cannot be kept:
      - store 'delays': was keyed by (tailnum), is keyed by (carrier)
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
        """Return the verdict, its reasons and the notes, one a line."""
        head = "existing state can be kept" if self.compatible else "existing state cannot be kept:"
        return "\n".join([head, *(f"  - {r}" for r in self.reasons), *(f"  note: {n}" for n in self.notes)])

    def __str__(self) -> str:
        return self.explain()


def compare(old: BuiltTopology | Mapping[str, Any], new: BuiltTopology | Mapping[str, Any]) -> Evolution:
    """Return what is different in `new`; each side a built topology or its `to_dict()`; O(nodes)."""
    before, after = _Side.of(old, "old"), _Side.of(new, "new")
    reasons = [
        *_moved_stores(before, after),
        *_other_counts(before, after),
        *_other_keys(before, after),
        *_other_logging(before, after),
        *_replaced_stores(before, after),
    ]
    return Evolution(
        added=tuple(sorted(after.labels - before.labels)),
        removed=tuple(sorted(before.labels - after.labels)),
        renumbered=tuple(_renumbered(before, after)),
        reasons=tuple(dict.fromkeys(reasons)),
        notes=tuple(_notes(before, after)),
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """One topology, indexed by name."""

    subs: Mapping[int, Mapping[str, Any]]
    node_home: Mapping[str, int]
    stores: Mapping[str, Mapping[str, Any]]
    store_home: Mapping[str, int]
    keys: Mapping[str, frozenset[tuple[str, ...]]]  # store -> keys of the nodes that use it
    labels: frozenset[str]

    @classmethod
    def of(cls, given: BuiltTopology | Mapping[str, Any], side: str) -> _Side:
        found = given if isinstance(given, Mapping) else given.to_dict()
        if found.get("schema") != SCHEMA:
            raise TopologyError(f"{side}.schema: found {found.get('schema')!r}, expected {SCHEMA!r}")
        try:
            return cls._indexed(found)
        except (KeyError, TypeError, AttributeError) as error:
            raise TopologyError(f"{side}: not a topology's structure, {error!r} in it") from error

    @classmethod
    def _indexed(cls, found: Mapping[str, Any]) -> _Side:
        subs = {sub["id"]: sub for sub in found["subtopologies"]}
        nodes = [(node, number) for number, sub in subs.items() for node in sub["nodes"]]
        stores = {store["name"]: (store, number) for number, sub in subs.items() for store in sub["stores"]}
        keys: dict[str, set[tuple[str, ...]]] = {name: set() for name in stores}
        for node, _ in nodes:
            for store in node.get("stores", ()):
                keys[store].add(tuple(node.get("key", ())))
        return cls(
            subs=subs,
            node_home={node["name"]: number for node, number in nodes},
            stores={name: store for name, (store, _) in stores.items()},
            store_home={name: number for name, (_, number) in stores.items()},
            keys={name: frozenset(found) for name, found in keys.items()},
            labels=frozenset([f"node {node['name']}" for node, _ in nodes] + [f"store {s}" for s in stores]),
        )

    def counts(self, number: int) -> dict[str, int]:
        """Return the known partition counts of the topics that a subtopology reads."""
        nodes = self.subs[number]["nodes"]
        return {n["topic"]: n["partitions"] for n in nodes if n["kind"] == "source" and n["partitions"]}

    def names(self, number: int) -> set[str]:
        """Return the stores of a subtopology."""
        return {store["name"] for store in self.subs[number]["stores"]}


def _kept(old: _Side, new: _Side) -> list[str]:
    return [name for name in old.stores if name in new.stores]


def _moved_stores(old: _Side, new: _Side) -> Iterator[str]:
    for store in _kept(old, new):
        was, now = old.store_home[store], new.store_home[store]
        if was != now:
            yield (
                f"store {store!r}: was in subtopology {was}, is in {now}, but its state lies under "
                f"tasks {was}_*; declare new parts after the old ones, to keep the numbers"
            )


def _other_counts(old: _Side, new: _Side) -> Iterator[str]:
    for store in _kept(old, new):
        was, now = old.store_home[store], new.store_home[store]
        before, after = old.counts(was), new.counts(now)
        differ = [topic for topic in before if topic in after and before[topic] != after[topic]]
        for topic in differ:
            yield (
                f"topic {topic!r}: {before[topic]} -> {after[topic]} partitions under store {store!r}, "
                f"whose keys are split by {before[topic]}"
            )
        tasks = old.subs[was]["partitions"], new.subs[now]["partitions"]
        if not differ and all(tasks) and tasks[0] != tasks[1]:
            yield f"store {store!r}: is split over {tasks[0]} tasks, would be over {tasks[1]}"


def _other_keys(old: _Side, new: _Side) -> Iterator[str]:
    for store in _kept(old, new):
        if old.keys[store] != new.keys[store]:
            was, now = (_keys(side.keys[store]) for side in (old, new))
            yield f"store {store!r}: was keyed by {was}, is keyed by {now}"


def _keys(keys: frozenset[tuple[str, ...]]) -> str:
    return " and ".join(f"({', '.join(key)})" if key else "nothing" for key in sorted(keys))


def _other_logging(old: _Side, new: _Side) -> Iterator[str]:
    words = {True: "logged", False: "not logged"}
    for store in _kept(old, new):
        was, now = (bool(side.stores[store]["logged"]) for side in (old, new))
        if was != now:
            yield f"store {store!r}: was {words[was]}, is {words[now]}; its changelog would not be whole"


def _replaced_stores(old: _Side, new: _Side) -> Iterator[str]:
    """A store that went while another came to its place: renamed, or other state under the same tasks."""
    for number in old.subs:
        gone = sorted(old.names(number) - new.stores.keys())
        heirs = {new.node_home[n["name"]] for n in old.subs[number]["nodes"] if n["name"] in new.node_home}
        heirs |= {number} & new.subs.keys()
        come = sorted({name for heir in heirs for name in new.names(heir)} - old.stores.keys())
        if gone and come:
            yield (
                f"subtopology {number}: {_list('store', gone)} went and {_list('store', come)} came, which "
                "would start empty; keep the old name, or remove first and add in a later run"
            )


def _list(word: str, names: list[str]) -> str:
    return f"{word}{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


def _renumbered(old: _Side, new: _Side) -> Iterator[tuple[int, int]]:
    for number, sub in sorted(old.subs.items()):
        heirs = {new.node_home[n["name"]] for n in sub["nodes"] if n["name"] in new.node_home}
        yield from ((number, heir) for heir in sorted(heirs) if heir != number)


def _notes(old: _Side, new: _Side) -> Iterator[str]:
    for store in old.stores:
        if store not in new.stores:
            yield f"store {store!r} is gone: its state is no longer used"
        elif old.stores[store].get("retention_ms") != new.stores[store].get("retention_ms"):
            was, now = (side.stores[store].get("retention_ms") for side in (old, new))
            yield f"store {store!r}: retention_ms was {was}, is {now}"
    for store in new.stores:
        if store not in old.stores:
            yield f"store {store!r} is new: it starts empty"
    stateful = {pair for s in _kept(old, new) for pair in [(old.store_home[s], new.store_home[s])]}
    for was, now in _renumbered(old, new):
        if (was, now) not in stateful:
            yield f"subtopology {was} (or a part of it) is now {now}, without any state to move"
