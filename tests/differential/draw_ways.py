"""Random nodes by which rows and state meet on other ways: casts, shared stores, and functions that read a store."""

from __future__ import annotations

from tests.differential.case import Case, Node, Shape, options_by, stateful, store_of
from tests.differential.draw_nodes import NodeDrawing
from tests.differential.drawing import CASTS
from tests.differential.routing import Routes, routes


class WayDrawing(NodeDrawing):
    """Draws casts, shared stores and lookups, too."""

    def _cast(self, name: str) -> Node | None:
        """Cast a column: as another stream of the same columns has it, or by chance; maybe repartition by it."""
        before = self.shapes[name]
        fixed = {"i", *before.times, *(c for c in before.columns if c.startswith(("at", "window")))}
        columns = {c: kind for c, kind in before.columns.items() if c not in fixed}
        found = {c: CASTS[k] for c, k in columns.items() if k in CASTS and (c[0] != "x" or k != "date")}
        if not found:
            return None
        column = self._column_of(name, [*found])
        others = [s.columns for s in self.shapes.values() if s.columns.keys() == before.columns.keys()]
        alike = [columns[column] for columns in others if columns[column] in found[column]]
        kind = self.draw.choice(alike or found[column])
        options = {"kinds": {column: kind}, **self._declared(name), **self._form()}
        cast = Node(self._name("cast"), "cast", [name], options)
        if alike or self.maybe(0.5) or not self._fits(cast):
            return cast
        self._add(cast)
        return self._by_key(cast.name, [column])

    def _share(self, _: str) -> Node | None:
        """Keep the state of a node in the store of another one that has the same options."""
        found = [node for node in self.nodes if stateful(node)]
        if not found:
            return None
        owner = self.draw.choice(found)
        if owner.options.get("window") and not self.daring:
            return None
        one = self.shapes[owner.inputs[0]]
        others = [name for name, other in self.shapes.items() if self._serves(owner, one, other, name)]
        if not others:
            return None
        options = {**owner.options, "store": store_of(owner)}
        inputs = [self.draw.choice(others), *owner.inputs[1:]]
        return Node(self._name("shares"), owner.op, inputs, options)

    def _serves(self, owner: Node, one: Shape, other: Shape, name: str) -> bool:
        """Return whether a stream has all that a node reads, and the same times; it may be the node's own."""
        joined = {*owner.options["columns"]} if owner.op == "join" else set()
        if other.columns.keys() & joined or (joined and name == owner.inputs[1]):
            return False
        alike = [(s.times, s.columns, s.changes, None if self.daring else s.key) for s in (one, other)]
        return alike[0] == alike[1] and (other.orders(options_by(owner)) or owner.op == "per_key")

    def _lookup(self, name: str) -> Node | None:
        """Look up what another node keeps by the columns that these rows are split by, too."""
        before, draw = self.shapes[name], self.draw
        here = {way.split() for way in self._routes()[name]}
        found = []
        for node in self.nodes:
            if not stateful(node) or node.options.get("window") or node.options.get("kept"):
                continue
            table, by = self.shapes[node.inputs[-1]], options_by(node)
            there = {way.split() for i in node.inputs for way in self._routes()[i]}
            alike = all(before.columns.get(c) == table.columns[c] for c in by)
            if alike and here == there and len(here) == 1 and before.times == table.times:
                columns = {"seen_in_batch": "int64"} if node.op == "deduplicate" else {}
                columns |= {c: table.columns[c] for c in node.options.get("columns", ())}
                columns |= {"n": "int64"} if node.op == "per_key" else {}
                aggregates = node.options.get("aggregates", {})
                columns |= {c: kind for c, (function, _, kind) in aggregates.items() if function != "avg"}
                found += [(node, c, kind) for c, kind in columns.items()]
        if not found:
            return None
        node, column, kind = draw.choice(found)
        options = {"by": options_by(node), "store": store_of(node), "column": column, "kind": kind}
        options |= {"new": f"f{len(self.nodes)}", **self._declared(name), **self._form()}
        return Node(self._name("lookup"), "lookup", [name], options)

    def _routes(self) -> dict[str, Routes]:
        return routes(Case(self.sources, self.nodes, []))
