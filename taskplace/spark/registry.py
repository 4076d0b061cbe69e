"""Finds processors by name, for topologies in YAML.

| name | |
|---|---|
| `aggregate` | running aggregates by key |
| `count` | a running count by key, in the column `count` |
| `deduplicate` | lets each key through once: ever, or within `ttl` |
| `table-join` | adds a table's columns |
| `per-key` | a function per key and batch, with dicts |
| `module:function` | your own `function(context, *inputs)`; options are its keyword-only arguments |
| `module:Class` | your own processor, created once; options are the arguments of the class |
| `module:factory()` | what the factory returns is the processor |

docs/configuration.md has the options of each (`taskplace.spec.nodes`).
`by`, `columns`, `state` and `output` are columns with their types (`{tailnum: string}`). `store` names the state; the
default is the node's name. An aggregate is a function of a column, with the type in which it is stored
(`worst: {max: dep_delay, type: int64}`), or `count` for a count of rows.

All processors with a store take `ttl` and `time`: an entry expires the duration `ttl` after the event time in the
column `time`. `over_changes: true` takes each change of a node before it for a row of its own. A `window` is `{column:
at, size: 1 hour, grace: 10 minutes, emit: final}`. Durations have units (`taskplace.durations`).

Errors: `TopologyError` with the option's path, the value found, the values expected, and the nearest known name.

>>> registry = Registry()
>>> delays = registry["aggregate"](store="delays", by={"tailnum": "string"}, aggregates={"n": "count"})
>>> delays.layouts()["delays"]["value"]
{'n': 'int64'}
>>> registry["aggregate"](store="delays", by=["tailnum"], aggregates={"n": "count"})
Traceback (most recent call last):
topology.errors.TopologyError: by: found ['tailnum'], expected columns with types
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, update_wrapper
from types import MappingProxyType
from typing import Any, Literal

from taskplace.errors import ConfigError, InputError
from taskplace.model import callables
from taskplace.model.keys import keys_of, read, read_struct, texts
from taskplace.spark.compile.forms import EVENT_TIME_OPTIONS
from taskplace.spark.processors import (
    Aggregate,
    Count,
    Deduplicate,
    PerKey,
    TableJoin,
    Tumbling,
    avg,
    count,
    first,
    last,
    max_,
    min_,
    sum_,
)
from taskplace.spark.processors.parts import Aggregation
from taskplace.spark.stub_processors import store_of
from taskplace.spark.yaml_paths import key_path
from taskplace.spec.nodes import PROCESSORS, Column, given
from topology import TopologyError
from topology.errors import nearest, shown
from topology.names import check_legal_name

FUNCTIONS: Mapping[str, Callable[..., Aggregation]] = {
    "count": count,
    "sum": sum_,
    "min": min_,
    "max": max_,
    "avg": avg,
    "first": first,
    "last": last,
}


class Registry(Mapping[str, Callable[..., Any]]):
    """Factories of processors, by name. A "module:attribute" is imported when it is looked up."""

    def __init__(self, paths: Mapping[str, str] = MappingProxyType({})) -> None:
        """`paths`: by node, its path in the file, if that is another one than `topology.nodes.NAME`."""
        self._paths = paths
        self._options = "options"  # the path of the options of the node that is made

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if ":" in name:
            return _own(name)
        if name not in _MAKERS:
            raise KeyError(name)
        return partial(_built_in, name, self._options)

    def defaults(self, processor: str, node: str) -> Mapping[str, Any]:
        """Return the default options of a node, which is made next: `store` is its name."""
        self._options = f"{self._paths.get(node, f'topology.nodes.{node}')}.options"
        return store_of(processor, node)

    def __iter__(self) -> Iterator[str]:
        return iter(_MAKERS)

    def __len__(self) -> int:
        return len(_MAKERS)


def load(name: object) -> Any:
    """Import and return "module:attribute". Errors: `TopologyError`, with the nearest name in the module.

    >>> load("json:dump").__name__
    'dump'
    >>> load("json:dumpps")
    Traceback (most recent call last):
    topology.errors.TopologyError: found 'json:dumpps', expected a name in module 'json'; did you mean 'json:dumps'?
    """
    module, colon, attribute = str(name).partition(":")
    if not isinstance(name, str) or not (module and colon and attribute):
        raise TopologyError(f"found {shown(name)}, expected 'module:attribute'")
    try:
        return callables.load(name)
    except callables.UnknownName as error:
        hint = nearest(name, error.known)
        raise TopologyError(f"found {shown(name)}, expected a name in module {module!r}; {hint}") from None
    except (ImportError, SyntaxError, ValueError) as error:
        raise TopologyError(
            f"found {shown(name)}, expected a module that can be imported: {error}"
        ) from error


# ------------------------------------------------------------------------------------------ custom


def _own(name: str) -> Callable[..., Any]:
    """Return the factory for "module:attribute"."""
    target = load(name.removesuffix("()"))
    if not callable(target) and not hasattr(target, "process"):
        raise TopologyError(f"found {shown(name)}, expected a function or a class")
    if name.endswith("()") or isinstance(target, type):
        return partial(_checked, target, frozenset(), None)
    given = frozenset(
        parameter.name
        for parameter in _parameters(target)
        if parameter.kind not in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)
    )
    return partial(_checked, partial(_bound, target), given, target)


def _bound(function: Any, /, **options: Any) -> Any:
    """Bind a function to its options. Keeps the attributes that it declares (`every_batch`, `event_time`)."""
    if not options:
        return function
    bound = update_wrapper(partial(function, **options), function)
    del bound.__wrapped__  # else the options would still be missing in its signature
    return bound


def _built_in(name: str, at: str, /, **options: Any) -> Any:
    """Make a processor of taskplace of its options, as `taskplace.spec.nodes` declares them. `at`: their path."""
    try:
        made = given(read_struct(PROCESSORS[name], options, at))
        check_legal_name(made.get("store"), "store")
        return _MAKERS[name](**made)
    except InputError as error:
        raise _refused(error, error.path.removeprefix(f"{at}."), options) from error


# Positional only, so that an option may have any name.
def _checked(factory: Callable[..., Any], given: frozenset[str], of: Any, /, **options: Any) -> Any:
    """Call a factory after checking the names of its options. Python's own error would not suggest the nearest name.

    - `given`: the parameters that each batch passes, so options may not have these names
    - `of`: the callable whose signature has the options

    Options that declare the node's event time stay with the node, unless the factory takes them itself.
    """
    parameters = {p.name: p for p in _parameters(of or factory) if p.name not in given}
    kinds = {p.kind for p in parameters.values()}
    options = {
        name: value for name, value in options.items() if name in parameters or name not in EVENT_TIME_OPTIONS
    }
    names = [p.name for p in parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    for option in options if inspect.Parameter.VAR_KEYWORD not in kinds else ():
        if option not in names:
            hint = nearest(option, names)
            raise TopologyError(f"{option}: found an unknown option; {hint}")
    for name in names:
        if parameters[name].default is inspect.Parameter.empty and name not in options:
            raise TopologyError(f"{name}: found nothing, expected a value")
    try:
        return factory(**options)
    except InputError as error:
        raise _refused(error, error.path, options) from error


def _refused(error: InputError, path: str, options: Mapping[str, Any]) -> TopologyError:
    """Return an error of a processor, with the path of its option."""
    text = str(error).removeprefix(error.path).removeprefix(": ")
    found = key_path(options, path) or path.rpartition(")")[2].removeprefix(".")
    return TopologyError(f"{found}: {text}" if found else text)


def _parameters(target: Any) -> Sequence[inspect.Parameter]:
    try:
        return tuple(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):  # a C function may have no signature
        return (inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD),)


# ------------------------------------------------------------------------------------------- built in


def _aggregate(*, store: str, aggregates: Mapping[str, Any], **options: Any) -> Aggregate:
    made = {name: _aggregation(f"aggregates.{name}", spec) for name, spec in texts(aggregates, "aggregates")}
    for key in keys_of(PROCESSORS["aggregate"]):  # aggregates become keyword arguments, beside these
        if key.name in made:
            raise TopologyError(f"aggregates.{key.name}: found a reserved name, expected another one")
    return Aggregate(store, **{**made, **_with_window(options)})


def _count(*, store: str, **options: Any) -> Count:
    return Count(store, **_with_window(options))


def _with_window(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: Tumbling(**given(value)) if name == "window" else value for name, value in options.items()}


def _aggregation(path: str, spec: object) -> Aggregation:
    """Return `count`, or the function of a column, maybe with the type in which it is kept."""
    if spec == "count":
        return count()
    fields = dict(spec) if isinstance(spec, Mapping) else {}
    kept = {"type": fields.pop("type")} if "type" in fields else {}
    if len(fields) != 1:
        hint = nearest(spec, ["count"]) if isinstance(spec, str) else ""
        raise ConfigError(path, found=spec, expected=_FORM, hint=hint)
    ((function, column),) = fields.items()
    read(Literal[tuple(FUNCTIONS)], function, path)
    read(Column, column, f"{path}.{function}")
    if kept and function == "count":
        raise ConfigError(f"{path}.type", found=kept["type"], expected="nothing: a count is an int64")
    try:
        return FUNCTIONS[function](column, **kept)
    except InputError as error:
        raise error.at(f"{path}.{error.path.partition('.')[2]}".rstrip(".")) from None


_FORM = "'count', or a function and its column like {max: dep_delay, type: int64}"


def _per_key(*, store: str, function: str, **options: Any) -> PerKey:
    try:
        run = load(function)
    except TopologyError as error:
        raise TopologyError(f"function: {error}") from error
    return PerKey(store, run, **options)


_MAKERS: Mapping[str, Callable[..., Any]] = {
    "aggregate": _aggregate,
    "count": _count,
    "deduplicate": Deduplicate,
    "table-join": TableJoin,
    "per-key": _per_key,
}
