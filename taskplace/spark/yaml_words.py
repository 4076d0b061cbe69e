"""Says in YAML's words what an error says in Python's.

**Idea.** Processors, sinks and checks are written for Python. Their errors show how to call something: `emit="final"`,
`process(..., event_time='at')`, `{'id': 'int64'}`. The author of a YAML file sees the same errors, but writes no calls.
So every error on its way to such an author passes through here, where calls become keys. The paths of errors are
translated by `taskplace.spark.yaml_paths`.

Properties: only calls and arguments of taskplace are translated. Values that an error found are left as they are.

Errors: none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from taskplace.errors import ConfigError, InputError
from taskplace.model.keys import as_yaml
from taskplace.yaml_fields import PROCESSOR_OPTIONS, SOURCE_OPTIONS, WINDOW

_ARGUMENTS = {
    *SOURCE_OPTIONS, *WINDOW, *(name for options in PROCESSOR_OPTIONS.values() for name in options),
    "schema", "stores", "bad_records",
}  # fmt: skip
_VALUE = r"""'[^']*'|"[^"]*"|\{[^{}]*\}|\[[^\[\]]*\]|True|False|None|\d+"""
_ARGUMENT = rf"\b(?:{'|'.join(sorted(_ARGUMENTS))})=(?:{_VALUE})"
_MORE = rf"(?P<more>{_ARGUMENT}(?:, {_ARGUMENT})*)"
_MAPPING = re.compile(r"\{(?:'\w+': (?:'\w+'|\.\.\.)(?:, )?)+(?:\.\.\.)?\}")


def _options_of_source(call: re.Match[str]) -> str:
    name = (call["source"] or "NAME").strip("'\"")
    return f"`topology.sources.{name}.options: {{{_keys(call['more'])}}}`"


def _options(call: re.Match[str]) -> str:
    return f"`options: {{{_keys(call['more'])}}}`"


def _entry(call: re.Match[str]) -> str:
    return f"`topology.nodes.{call['sink']}: {{{_keys(call['more'])}, ...}}`"


_PROCESSOR = re.compile(r"an object with process\(context, \*inputs\), or a function of the same arguments")
#: Calls, and the keys that stand for them; in this order.
_CALLS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (
        re.compile(rf"topology\.source\((?P<source>'[^']*'|\"[^\"]*\")?(?:\.\.\.)?, {_MORE}\)"),
        _options_of_source,
    ),
    (re.compile(rf"process\((?:f|\.\.\.), {_MORE}\)"), _options),
    (re.compile(rf"sink\('(?P<sink>[^']*)', {_MORE}\)"), _entry),
    (re.compile(rf"(?P<more>{_ARGUMENT})"), lambda argument: f"`{_keys(argument['more'])}`"),
    (re.compile(r"\b(sum|min|max)_(?=[ (])"), lambda function: function[1]),
    (_PROCESSOR, lambda _: "a processor of taskplace, or 'module:name' of a function or a class"),
    (_MAPPING, lambda mapping: _value(mapping[0])),
)


def in_yaml(text: str) -> str:
    """Return a text of an error in which calls and arguments of Python are keys of YAML.

    >>> in_yaml("declare the column there: process(..., event_time='at', delay='0 s')")
    'declare the column there: `options: {event_time: at, delay: 0 s}`'
    >>> in_yaml('give windows with emit="final", or declare over_changes=True')
    'give windows with `emit: final`, or declare `over_changes: true`'
    >>> in_yaml("columns with their types, such as {'id': 'int64'}")
    'columns with their types, such as {id: int64}'
    """
    for pattern, made in _CALLS:
        text = pattern.sub(made, text)
    return text


def said(error: InputError) -> str:
    """Return what an error says behind its path. What was found stays as it is.

    >>> said(InputError("Count('n').by", found={"by=1": 2}, expected="columns, such as {'id': 'int64'}"))
    "found {'by=1': 2}, expected columns, such as {id: int64}"
    >>> said(InputError("Count('n').time", found=None, expected="a column"))
    'found nothing, expected a column'
    """
    text = str(error).removeprefix(error.path).removeprefix(": ")
    for part in (error.expected, error.hint):
        if part and (before := text.rpartition(part))[1]:
            text = before[0] + in_yaml(part) + before[2]
    return text


def refused(path: str, error: InputError) -> ConfigError:
    """Return an error of a class as the error of a file. `path`: of the value in the file.

    >>> refused("topology.nodes.n", InputError("Count('n')", found=1, expected="by={'id': 'long'}"))
    ConfigError('topology.nodes.n: found 1, expected `by: {id: long}`')
    """
    made = ConfigError(path, found=error.found, expected=in_yaml(error.expected), hint=in_yaml(error.hint))
    made.args = (f"{path}: {said(error)}",)
    return made


def _keys(arguments: str) -> str:
    """Return arguments as keys of a mapping in one line."""
    return re.sub(rf"\b(\w+)=({_VALUE})", lambda each: f"{each[1]}: {_value(each[2])}", arguments)


def _value(written: str) -> str:
    """Return a value of Python as YAML has it."""
    if written[0] in "{[":  # may have "..." for what is left out
        return re.sub(r"'(\w+)'", r"\1", written)
    return as_yaml(ast.literal_eval(written))
