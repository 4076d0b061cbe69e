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

docs/configuration.md has the options of each (`taskplace.yaml_fields`).
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
>>> registry["aggregate"](store="delays", by={"tailnum": "strin"}, aggregates={"n": "count"})
Traceback (most recent call last):
topology.errors.TopologyError: by.tailnum: found 'strin', expected a column type; did you mean 'string'?
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, update_wrapper
from types import MappingProxyType
from typing import Any

from taskplace.durations import milliseconds
from taskplace.errors import InputError
from taskplace.model import callables as named_objects
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
from taskplace.spark.processors.arguments import nearest_argument
from taskplace.spark.processors.parts import Aggregation
from taskplace.spark.stub_processors import store_of
from taskplace.spark.types import USUAL, parsed
from taskplace.spark.yaml_paths import option_path
from taskplace.spark.yaml_words import said
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
        return partial(_built_in, _BUILT_IN[name], self._options)

    def defaults(self, processor: str, node: str) -> Mapping[str, Any]:
        """Return the default options of a node, which is made next: `store` is its name."""
        self._options = f"{self._paths.get(node, f'topology.nodes.{node}')}.options"
        return store_of(processor, node)

    def __iter__(self) -> Iterator[str]:
        return iter(_BUILT_IN)

    def __len__(self) -> int:
        return len(_BUILT_IN)


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
        return named_objects.load(name)
    except named_objects.UnknownName as error:
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


def _built_in(factory: Callable[..., Any], path: str, /, **options: Any) -> Any:
    if "store" in options:
        check_legal_name(options["store"], "store")
    return _checked(factory, frozenset(), None, **_with_units(path, options, ("ttl",)))


def _with_units(path: str, options: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return options whose durations have units. The path in the warning of a bare number is that in the file."""
    made = {
        name: _with_unit(f"{path}.{name}", value) if name in names else value
        for name, value in options.items()
    }
    if isinstance(window := made.get("window"), Mapping):
        made["window"] = _with_units(f"{path}.window", window, ("size", "grace"))
    return made


def _with_unit(path: str, given: Any) -> Any:
    if isinstance(given, bool) or not isinstance(given, int | float) or not given:
        return given
    try:
        return f"{milliseconds(given, path)} ms"
    except InputError:  # the class refuses it
        return given


# Positional only, so that an option may have any name.
def _checked(factory: Callable[..., Any], given: frozenset[str], of: Any, /, **options: Any) -> Any:
    """Call a factory after checking the names of its options. Python's own error would not suggest the nearest name.

    - `given`: the parameters that each batch passes, so options may not have these names
    - `of`: the callable whose signature has the options

    Options that declare the node's event time stay with the node, unless the factory takes them itself.
    """
    parameters = [p for p in _parameters(of or factory) if p.name not in given]
    taken = {p.name for p in parameters}
    options = {
        name: value for name, value in options.items() if name in taken or name not in EVENT_TIME_OPTIONS
    }
    names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if not any(p.kind == p.VAR_KEYWORD for p in parameters):
        for option in options:
            if option not in names:
                hint = nearest_argument(option, names) or nearest(option, names)
                raise TopologyError(f"{option}: found an unknown option; {hint}")
    for parameter in parameters:
        if parameter.name in names and parameter.default is parameter.empty and parameter.name not in options:
            raise TopologyError(f"{parameter.name}: found nothing, expected a value")
    try:
        return factory(**options)
    except InputError as error:
        path, text = option_path(error.path, options), said(error)
        raise TopologyError(f"{path}: {text}" if path else text) from error


def _parameters(target: Any) -> Sequence[inspect.Parameter]:
    try:
        return tuple(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):  # a C function may have no signature
        return (inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD),)


# ------------------------------------------------------------------------------------------- built in


def _aggregate(
    *,
    store: str,
    by: object,
    aggregates: object,
    window: object = None,
    ttl: Any = None,
    time: Any = None,
    over_changes: Any = False,
) -> Aggregate:
    if not isinstance(aggregates, Mapping) or not aggregates:
        raise TopologyError(
            f"aggregates: found {shown(aggregates)}, expected a mapping of names to aggregates, {_FORM}"
        )
    for name in aggregates:
        if not isinstance(name, str):
            raise TopologyError(
                f"aggregates.{name}: found {shown(name)}, expected a string as name (quote it)"
            )
    made = {name: _aggregation(f"aggregates.{name}", spec) for name, spec in aggregates.items()}
    # Aggregates become keyword arguments, beside these.
    for name in ("store", "by", "window", "ttl", "time", "over_changes"):
        if name in made:
            raise TopologyError(f"aggregates.{name}: found a reserved name, expected another one")
    options: dict[str, Any] = {**made, "window": _window(window), "ttl": ttl, "time": time}
    options["over_changes"] = over_changes
    return Aggregate(store, by=_columns("by", by), **options)


def _window(given: object) -> Tumbling | None:
    if given is None:
        return None
    names = [parameter.name for parameter in _parameters(Tumbling)]
    if not isinstance(given, Mapping):
        raise TopologyError(f"window: found {shown(given)}, expected {{column: at, size: 1 hour}}")
    for name in given:
        if name not in names:
            raise TopologyError(f"window.{name}: found an unknown option; {nearest(name, names)}")
    for name, like in (("column", "at"), ("size", "1 hour")):
        if name not in given:
            raise TopologyError(f"window: found no {name!r}, expected {{{name}: {like}, ...}}")
    return Tumbling(**given)


def _aggregation(path: str, spec: object) -> Aggregation:
    if spec == "count":
        return count()
    if isinstance(spec, str):
        raise TopologyError(f"{path}: found {shown(spec)}, expected {_FORM}; {nearest(spec, ['count'])}")
    fields = dict(spec) if isinstance(spec, Mapping) else {}
    kept = {"type": fields.pop("type")} if "type" in fields else {}
    if len(fields) != 1:
        raise TopologyError(f"{path}: found {shown(spec)}, expected {_FORM}")
    ((function, column),) = fields.items()
    if function not in FUNCTIONS:
        raise TopologyError(
            f"{path}: found the function {function!r}, expected a known one; {nearest(function, FUNCTIONS)}"
        )
    if not isinstance(column, str) or not column:
        raise TopologyError(f"{path}.{function}: found {shown(column)}, expected the name of a column")
    if kept and function == "count":
        raise TopologyError(
            f"{path}.type: found {shown(kept['type'])}, expected nothing: a count is an int64"
        )
    if kept:
        _columns(path, kept)
    return FUNCTIONS[function](column, **kept)


_FORM = "'count', or a function and its column like {max: dep_delay, type: int64}"


def _count(
    *,
    store: str,
    by: object,
    window: object = None,
    ttl: Any = None,
    time: Any = None,
    over_changes: Any = False,
) -> Count:
    kept = _columns("by", by)
    return Count(store, by=kept, window=_window(window), ttl=ttl, time=time, over_changes=over_changes)


def _deduplicate(
    *, store: str, by: object, ttl: Any = None, time: Any = None, over_changes: Any = False
) -> Deduplicate:
    return Deduplicate(store, by=_columns("by", by), ttl=ttl, time=time, over_changes=over_changes)


def _table_join(
    *,
    store: str,
    by: object,
    columns: object,
    how: Any = "left",
    order_by: Sequence[str] = (),
    deleted: object = None,
    ttl: Any = None,
    time: Any = None,
    over_changes: Any = False,
) -> TableJoin:
    if how not in ("left", "inner"):
        raise TopologyError(
            f"how: found {shown(how)}, expected left or inner; {nearest(how, ('left', 'inner'))}"
        )
    ordered = [order_by] if isinstance(order_by, str) else order_by
    if not isinstance(ordered, list | tuple) or not all(isinstance(column, str) for column in ordered):
        raise TopologyError(f"order_by: found {shown(order_by)}, expected a list of column names")
    if not isinstance(deleted, str | None):
        raise TopologyError(f"deleted: found {shown(deleted)}, expected the name of a boolean column")
    kept = _columns("columns", columns)
    key = _columns("by", by)
    more: dict[str, Any] = {"order_by": ordered, "deleted": deleted, "ttl": ttl, "time": time}
    more["over_changes"] = over_changes
    return TableJoin(store, by=key, columns=kept, how=how, **more)


def _per_key(
    *,
    store: str,
    function: object,
    by: object,
    state: object,
    output: object,
    ttl: Any = None,
    time: Any = None,
    event_time: Any = None,
    delay: Any = None,
) -> PerKey:
    try:
        run = load(function)
    except TopologyError as error:
        raise TopologyError(f"function: {error}") from error
    keys, kept, sent = _columns("by", by), _columns("state", state), _columns("output", output)
    declared = {"event_time": event_time, "delay": delay}
    return PerKey(store, run, by=keys, state=kept, output=sent, ttl=ttl, time=time, **declared)


def _columns(path: str, given: object) -> dict[str, str]:
    """Return columns with their types. Refuses unknown types."""
    if not isinstance(given, Mapping) or not given:
        raise TopologyError(
            f"{path}: found {shown(given)}, expected columns with their types, like {{id: int64}}"
        )
    for name, kind in given.items():
        if not isinstance(kind, str):
            raise TopologyError(
                f"{path}.{name}: found {shown(kind)}, expected a column type; {nearest(kind, USUAL)}"
            )
        try:
            parsed(kind, f"{path}.{name}", "a column type")
        except InputError as error:
            hint = f"; {nearest(kind, USUAL)}" if error.found == kind and not error.hint else ""
            raise TopologyError(f"{error}{hint}") from None
    return dict(given)


_BUILT_IN: Mapping[str, Callable[..., Any]] = {
    "aggregate": _aggregate,
    "count": _count,
    "deduplicate": _deduplicate,
    "table-join": _table_join,
    "per-key": _per_key,
}


def signatures() -> Mapping[str, Callable[..., Any]]:
    """Return what makes each of taskplace's own processors, by name: its keyword arguments are the options."""
    return dict(_BUILT_IN)
