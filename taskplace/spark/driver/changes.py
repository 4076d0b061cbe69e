"""Follows streams of changes through a topology, and refuses nodes that would count intermediate rows.

**Idea.** Each node declares whether its output is changes (`taskplace.spark.processors.changes`), parents first. The
declaration of a repartition applies in the subtopologies that read it. A node that has `check_changes` judges its
inputs. A node that declares nothing passes changes on, with columns of which nothing is known.

Limit: what a function of the user, or of a `PerKey`, makes of changes is not checked.

Errors: `InputError` with the node, its option, the node that emits the changes, and the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskplace.errors import InputError
from taskplace.spark.processors.changes import Changes, merged
from taskplace.spark.processors.facts import overrides_process
from topology import BuiltTopology, Node


def check_changes(built: BuiltTopology) -> None:
    """Refuse nodes whose result depends on the intermediate rows of a node before them. O(nodes x columns).

    >>> from taskplace.spark.processors import Aggregate, Count, sum_
    >>> from topology import Topology
    >>> topo = Topology("t")
    >>> counted = topo.source("in", key="k", partitions=2).process(Count("n", by={"k": "string"}), name="n")
    >>> total = Aggregate("total", by={"k": "string"}, total=sum_("count", "int64"))
    >>> _ = counted.process(total, name="total")
    >>> check_changes(topo.build())
    Traceback (most recent call last):
    taskplace.errors.InputError: node 'total', Aggregate('total').total: found "a sum of 'count' over rows of 'n', \
which emits a key again whenever it changes", expected final rows; otherwise the result depends on how the rows were \
cut into batches; give 'n' windows with emit="final", or declare over_changes=True to take each change for a row of \
its own
    """
    topics: dict[str, Changes | None] = {}
    by_id = {sub.id: sub for sub in built.subtopologies}
    for number in built.order:
        known: dict[str, Changes | None] = {}
        for node in by_id[number].nodes:
            inputs = [known[parent] for parent in node.parents]
            known[node.name] = (
                topics.get(node.topic or "") if node.kind == "source" else _output(node, inputs)
            )
            if node.kind == "repartition" and node.topic:
                topics[node.topic] = known[node.name]


def _output(node: Node, inputs: Sequence[Changes | None]) -> Changes | None:
    if node.kind not in ("processor", "join"):
        return merged(inputs) if node.kind == "merge" else inputs[0]
    judge = getattr(node.processor, "check_changes", None)
    if judge is not None:
        try:
            judge(*inputs)
        except InputError as error:
            path = f"node {node.name!r}, {error.path}"
            raise InputError(path, found=error.found, expected=error.expected, hint=error.hint) from None
    says = getattr(node.processor, "output_changes", None)
    if says is None:
        first = next((changes for changes in inputs if changes is not None), None)
        return None if first is None else Changes(first.origin)
    output: Changes | None = says(node.name, *inputs)
    if output is not None and overrides_process(node.processor, "output_changes"):
        return Changes(output.origin)
    return output
