"""Checks, at the start, that each node has a processor which can be called with the node's inputs.

Errors: `InputError` with the node, what was found, and the remedy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from taskplace.errors import InputError
from taskplace.spark.processors.base import layouts
from taskplace.spark.processors.traits import traits_of
from topology import BuiltTopology, Node

_FORM = "an object with process(context, *inputs), or a function of the same arguments"


def check_forms(built: BuiltTopology) -> None:
    """Refuse nodes without a processor, what is none, and processors of another number of inputs. O(nodes)."""
    for node in built.nodes:
        if node.kind in ("processor", "join"):
            check_form(node)


def check_form(node: Node) -> None:
    """Refuse a node's processor if it cannot process its inputs.

    >>> check_form(Node("seen", "processor", ("a", "b"), processor=lambda context, rows: rows))
    Traceback (most recent call last):
    taskplace.errors.InputError: nodes.seen.processor: found 'a function with the parameters (context, rows)', \
expected parameters for the context and 2 inputs: a, b
    """
    path, processor = f"nodes.{node.name}.processor", node.processor
    if processor is None:
        raise InputError(path, found="no processor", expected=_FORM)
    if isinstance(processor, type):
        name = processor.__name__
        raise InputError(path, found=f"the class {name}", expected=f"an instance of the class: {name}(...)")
    run: Callable[..., Any] | None = getattr(processor, "process", None) or processor
    if not callable(run):
        raise InputError(path, found=processor, expected=_FORM)
    _check_store(path, processor)
    try:
        signature = inspect.signature(run)
    except (TypeError, ValueError):  # what is written in C may not say
        return
    try:
        signature.bind(None, *node.parents)
    except TypeError:
        what = "a function" if run is processor else f"{type(processor).__name__}.process"
        inputs = f"{len(node.parents)} input{'s' * (len(node.parents) != 1)}: {', '.join(node.parents)}"
        raise InputError(
            path,
            found=f"{what} with the parameters {_parameters(signature)}",
            expected=f"parameters for the context and {inputs}",
        ) from None


def _check_store(path: str, processor: Any) -> None:
    """Refuse a processor whose traits speak of its store, and which does not name it."""
    traits, store = traits_of(processor), getattr(processor, "store", None)
    of_a_store = traits.keeps_state_by_key or traits.by_has_split_key or traits.owns_its_store
    declared = layouts(processor) if of_a_store else {}
    if of_a_store and not (isinstance(store, str) and store in declared):
        raise InputError(
            f"{path}.store",
            found=store,
            expected=f"the name of its store, since its class states traits of one: one of {sorted(declared)}",
        )


def _parameters(signature: inspect.Signature) -> str:
    """Return the parameters of a signature, without their types."""
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))
