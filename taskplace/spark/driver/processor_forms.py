"""Checks, at the start, that each node has a processor which can be called with the node's inputs.

Errors: `InputError` with the node, what was found, and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from taskplace.errors import InputError
from taskplace.model.callables import check_function, unfit
from taskplace.spark.processors.base import layouts
from taskplace.spark.processors.traits import renamed_keys, traits_of
from taskplace.wording import count
from topology import BuiltTopology, Node

_FORM = "an object with process(context, *inputs), or a function of the same arguments"
#: The optional methods of a processor that declare its columns and times, and whether they get the node's inputs.
_DECLARING = {
    "input_columns": False,
    "check_types": True,
    "output_columns": True,
    "input_time": False,
    "output_times": True,
}


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
    renamed_keys(processor)  # refuses names that are none
    what = "a function" if run is processor else f"{type(processor).__name__}.process"
    inputs = f"{count(len(node.parents), 'input')}: {', '.join(node.parents)}"
    if (parameters := unfit(run, ["context", *node.parents])) is not None:
        raise InputError(
            path,
            found=f"{what} with the parameters {parameters}",
            expected=f"parameters for the context and {inputs}",
        )
    check_function(run, path, arguments=["context", *node.parents])  # a generator or an async function
    for method, arguments in _DECLARING.items():
        declares = getattr(processor, method, None)
        if callable(declares):
            given = node.parents if arguments else ()
            if (parameters := unfit(declares, given)) is not None:
                raise InputError(
                    path,
                    found=f"{type(processor).__name__}.{method} with the parameters {parameters}",
                    expected=f"parameters for {inputs}" if arguments else "no parameters",
                )


def _check_store(path: str, processor: Any) -> None:
    """Refuse a processor whose traits speak of its store, and which does not name it."""
    traits, store = traits_of(processor), getattr(processor, "store", None)
    of_a_store = traits.keeps_state_by_key or traits.by_has_split_key or traits.owns_its_store
    declared = layouts(processor) if of_a_store else {}
    if of_a_store and not (isinstance(store, str) and store in declared):
        raise InputError(
            f"{path}.store",
            found=store,
            expected="the name of its store, since its class states traits of one: one of "
            + ", ".join(sorted(declared)),
        )
