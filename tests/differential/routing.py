"""Says of a case whether all rows of each state key reach one task, and so whether it may or must be refused.

The rules are the model's own: they follow how each topic's rows are split, through the nodes, to the state.

- A *route* of a stream is a topic that its rows come from, with the values that the topic was split by: the columns
  that have them now, how they were called, and the types as which they were hashed.
- State is *sound* if it lies in one task, or if all routes that lead to it are split by the same columns, with the same
  types, over equal numbers of partitions, and the state's key has these columns without loss.
- Unsound state must be refused, or give what one task would give (`one_task`).
- State of rows that later ones replace may be refused, unless the node declares that each counts for itself.
- A join of topics without a key may be refused, even in one task. So may one that orders its table by a column that it
  keeps in a type with another order.
- Sound state may be refused behind topics that tasks read themselves, if functions lie between that declare nothing.
- Sound state may be refused where functions lie between whose columns are not declared: nobody can see there that a
  column with another name, or of another type, has the values that the rows are split by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from tests.differential.case import Case, Node, Shape, options_by, shapes, stateful, store_of

MUST, MAY = "must be refused, or be right", "may be refused"
#: Nodes that do not say which columns of their input they keep; `rename` only as a bare function.
UNDECLARED = ("where", "rename", "cast", "lookup", "per_key")
#: Nodes whose state is of rows, and which must say so if later rows replace earlier ones.
OF_ROWS = ("aggregate", "deduplicate", "join")
#: Casts that make one value of several.
LOSSY = {
    *((kind, "bool") for kind in ("int8", "int16", "int32", "int64")),
    *((kind, "date") for kind in ("timestamp", "timestamp_ntz")),
}
#: Types that are hashed as others are.
_HASHED = {"int8": "int32", "int16": "int32", "timestamp_ntz": "timestamp"}


@dataclass(frozen=True)
class Value:
    """What rows were split by: the column that has it now (None: it is lost), its name then, and its type then.

    `cast`: a function has given it another type.
    """

    now: str | None
    then: str
    kind: str
    cast: bool = False


@dataclass(frozen=True)
class Route:
    """A topic that rows come from. `hidden`: undeclared nodes lie between."""

    topic: str
    partitions: int
    values: tuple[Value, ...]
    hidden: bool = False

    def split(self) -> tuple[int, tuple[tuple[str | None, str], ...]]:
        """Return what decides on a row's task."""
        return self.partitions, tuple((v.now, _HASHED.get(v.kind, v.kind)) for v in self.values)


Routes = frozenset[Route]


def predicted(case: Case, *, one_partition: bool = True) -> str:
    """Return `MUST` or `MAY`, or "" for a case that has to run.

    Without `one_partition`, subtopologies with a single task are judged like the others.
    """
    shape, route = shapes(case), routes(case)
    single = {name for part in parts(case) if one_partition and _tasks(case, part) == 1 for name in part}
    counted = [node for node in case.nodes if node.op in OF_ROWS and not node.options.get("over_changes")]
    found = MAY if any(shape[name].changes for node in counted for name in node.inputs) else ""
    joined = {way for node in case.nodes if node.op == "join" for name in node.inputs for way in route[name]}
    found = MAY if any(not way.values for way in joined) else found
    found = MAY if any(_disordered(node, shape[node.inputs[-1]]) for node in case.nodes) else found
    if "most_records" in case.settings and any(_hides(node) for node in case.nodes):
        found = MAY
    users: dict[str, list[Node]] = {}
    for node in case.nodes:
        if stateful(node):
            users.setdefault(store_of(node), []).append(node)
    for nodes in users.values():
        if len(nodes) > 1 and any(node.options.get("window") for node in nodes):
            return MUST  # each would send windows that the other still fills
        if nodes[0].name in single:
            continue
        ways = frozenset().union(*(route[name] for node in nodes for name in node.inputs))
        if not all(_sound(node, ways, shape[node.inputs[-1]]) for node in nodes):
            return MUST
        found = found or (MAY if _unseen(nodes, ways) else "")
    return found


def _sound(node: Node, ways: Routes, before: Shape) -> bool:
    if len({way.split() for way in ways}) > 1:
        return False
    by, kept = options_by(node), node.options.get("kept", {})
    names = [value.now for way in ways for value in way.values or [Value(None, "", "")]]
    return all(name in by and (before.columns[name], kept.get(name)) not in LOSSY for name in names)


def _disordered(node: Node, table: Shape) -> bool:
    """Return whether a join compares its table's rows by a column that it keeps in another order, or without one."""
    kept = node.options.get("kept", {})
    kinds = [(table.columns[c], kept[c]) for c in node.options.get("order_by", ()) if c in kept]
    return any(pair in LOSSY or (pair[0].startswith("int") and pair[1] == "string") for pair in kinds)


def _unseen(nodes: list[Node], ways: Routes) -> bool:
    """Return whether the names and types of columns do not show that the state is sound."""
    names = {tuple(value.then for value in way.values) for way in ways}
    cast = any(value.cast for way in ways for value in way.values)
    by = set(options_by(nodes[0]))
    return any(way.hidden for way in ways) and (cast or len(names) > 1 or not set(*names) <= by)


def routes(case: Case) -> dict[str, Routes]:
    """Return the routes of each stream."""
    shape = shapes(case)
    found: dict[str, Routes] = {}
    for name, source in case.sources.items():
        values = tuple(Value(c, c, source.columns[c]) for c in source.key)
        found[name] = frozenset({Route(name, source.partitions, values)})
    for node in case.nodes:
        before = shape[node.inputs[0]]
        if node.op == "repartition":
            values = tuple(Value(c, c, before.columns[c]) for c in node.options["key"])
            found[node.name] = frozenset({Route(node.name, node.options["partitions"], values)})
        elif node.op == "merge":
            found[node.name] = frozenset().union(*(found[name] for name in node.inputs))
        else:
            found[node.name] = frozenset(_through(node, before, way) for way in found[node.inputs[0]])
    return found


def _through(node: Node, before: Shape, way: Route) -> Route:
    """Return a route behind a node: its columns may have other names there, or lose values."""
    options = node.options

    def behind(column: str | None) -> str | None:
        if column is None:
            return None
        if node.op == "rename":
            return str(options["names"].get(column, column))
        kinds = options.get("kinds") or options.get("kept") or {}
        keyed = node.op in ("aggregate", "per_key")
        lost = (keyed or node.op == "cast") and (before.columns[column], kinds.get(column)) in LOSSY
        return None if lost or (keyed and column not in options["by"]) else column

    cast = options.get("kinds", {}) if node.op == "cast" else {}
    values = tuple(replace(v, now=behind(v.now), cast=v.cast or v.now in cast) for v in way.values)
    return replace(way, values=values, hidden=way.hidden or _hides(node))


def _hides(node: Node) -> bool:
    return node.op in UNDECLARED and (node.op != "rename" or bool(node.options.get("function")))


# ------------------------------------------------------------------------- subtopologies


def parts(case: Case) -> list[set[str]]:
    """Return the subtopologies as sets of streams: what is connected otherwise than through a repartition."""
    part = {name: {name} for name in [*case.sources, *(node.name for node in case.nodes)]}
    owner: dict[str, str] = {}
    for node in case.nodes:
        ties = [] if node.op == "repartition" else list(node.inputs)
        if store := store_of(node):
            ties.append(owner.setdefault(store, node.name))
        for tie in ties:
            part[node.name] |= part[tie]
            for name in part[node.name]:
                part[name] = part[node.name]
    return list({id(names): names for names in part.values()}.values())


def has_cycle(case: Case) -> bool:
    """Return whether a subtopology reads what it has written itself."""
    place = {name: number for number, names in enumerate(parts(case)) for name in names}
    graph: dict[int, set[int]] = {}
    for node in case.nodes:
        if node.op == "repartition":
            graph.setdefault(place[node.name], set()).add(place[node.inputs[0]])
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return True
    return False


def _tasks(case: Case, part: set[str]) -> int:
    topics = [source.partitions for name, source in case.sources.items() if name in part]
    again = [node for node in case.nodes if node.op == "repartition" and node.name in part]
    return max([*topics, *(node.options["partitions"] for node in again)], default=1)


def one_task(case: Case) -> Case:
    """Return the case with one partition everywhere: what is right, however rows are split."""
    return with_partitions(case, lambda _: 1)


def with_partitions(case: Case, of: Callable[[int], int]) -> Case:
    """Return the case with other numbers of partitions, by the number now."""

    def split(node: Node) -> Node:
        if node.op != "repartition":
            return node
        return replace(node, options={**node.options, "partitions": of(node.options["partitions"])})

    sources = {n: replace(source, partitions=of(source.partitions)) for n, source in case.sources.items()}
    return replace(case, sources=sources, nodes=list(map(split, case.nodes)))
