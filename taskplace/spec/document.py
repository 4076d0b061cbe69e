"""Reads YAML 1.2 as plain values, with the lines of its keys, and sets values by their paths.

- Words are what they look like: `yes`, `no`, `on` and dates are texts.
- A key given twice is refused; so is a tag that is not one of YAML's own.
- Where an environment is given, `${NAME}` in a value stands for its variable, which has to be set and not empty, and
  `${NAME:-default}` for the default without one; `$${` is a literal `${`. What is put in is a value, never a part of
  the document: in quotes a text, else what it looks like. Values below `spark.conf` are left alone, because Spark has
  its own `${...}`.
- A document is refused if it is nested deeper than `DEEPEST`, or has more than `MOST` values with its aliases expanded.

Errors: `InputError` with the line; no value of a key that is a secret's is shown (`taskplace.redaction`).

>>> load("runtime: {on: 1, since: 2024-01-01}", "app.yaml")
{'runtime': {'on': 1, 'since': '2024-01-01'}}
>>> load("a: 1\\na: no", "app.yaml")
Traceback (most recent call last):
taskplace.errors.InputError: app.yaml:2: found "the key 'a' given twice", expected YAML
"""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from ruamel.yaml import YAML
from ruamel.yaml.comments import TaggedScalar
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.scalarstring import ScalarString

from taskplace.errors import ConfigError, InputError, plainly
from taskplace.model.keys import bare, is_struct, keys_of
from taskplace.redaction import HIDDEN, may_be_secret
from taskplace.spec.nodes import PROCESSORS

DEEPEST = 100
MOST = 100_000
Steps = tuple[str, ...]
#: A reference to a variable of the environment; without a name, what only begins like one.
_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^{}]*))?\})?", re.ASCII)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_YAML = "tag:yaml.org,2002:"
_TAGS = ("str", "int", "float", "bool", "null", "seq", "map", "timestamp", "merge")


class _Constructor(RoundTripConstructor):
    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Refuse a tag that does not repeat what a value looks like."""
        if str(node.tag).removeprefix(_YAML) not in _TAGS:
            raise MarkedYAMLError(problem="a tag, and values need none", problem_mark=node.start_mark)
        return super().construct_object(node, deep=deep)

    def check_mapping_key(self, node: Any, key_node: Any, mapping: Any, key: Any, value: Any) -> bool:
        """Refuse a key given twice. The parser's own error would show both values."""
        if key in mapping:
            raise MarkedYAMLError(problem=f"the key {key!r} given twice", problem_mark=key_node.start_mark)
        return True


_Constructor.add_constructor(f"{_YAML}timestamp", lambda _, node: node.value)


def _parser() -> YAML:
    parser = YAML(typ="rt")
    parser.Constructor = _Constructor
    parser.preserve_quotes = True
    return parser


# ------------------------------------------------------------------------------------------------ reading


def read_file(path: Path, expected: str = "a mapping with the key 'application'") -> Mapping[str, Any]:
    """Return the mapping in a YAML file. `expected`: what it should be, for errors."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error, "a readable YAML file", "*.y*ml") from None
    document = load(text, str(path), environment=os.environ)
    if not isinstance(document, Mapping):
        found = type(document).__name__ if document is not None else "an empty file"
        raise InputError(str(path), found=found, expected=expected)
    return document


def unreadable(path: Path, error: Exception, expected: str, pattern: str = "") -> InputError:
    """Return the error for a file that cannot be read. Of a missing one, it names the nearest file of a pattern."""
    undecoded = "bytes that are not UTF-8" if isinstance(error, UnicodeDecodeError) else ""
    found = undecoded or getattr(error, "strerror", None) or str(error)
    near = nearest_file(path, pattern) if pattern else ""
    hint = f"did you mean {near!r}?" if near else ""
    wrong = InputError(str(path), found=found, expected=expected, hint=hint)
    if isinstance(error, FileNotFoundError):
        return plainly(wrong, "there is no such file" + (hint and f"; {hint}"))
    return wrong


def nearest_file(path: Path, pattern: str, wanted: Callable[[Path], bool] = Path.exists) -> str:
    """Return the file whose name is most like that of a missing one; "" if there is none that is `wanted`.

    It has the same name, in a directory beside the missing file (`conf/app.yaml` for `app.yaml`), or lies beside it.
    The name of the missing file is no pattern: it may be `ck[1]` or `a**b`.
    """
    beside = {one.name: str(one) for one in sorted(path.parent.glob(pattern)) if one != path and wanted(one)}
    names = sorted(path.parent.glob(f"*/{glob.escape(path.name)}")) if path.name else []
    below = [str(one) for one in names if wanted(one)]
    near = difflib.get_close_matches(
        path.name, beside, n=1
    )  # not whole paths: in long ones, all names are alike
    return next(iter([*below, *(beside[name] for name in near)]), "")


def load(text: str, path: str, key: str = "", environment: Mapping[str, str] | None = None) -> Any:
    """Return the value of a YAML document; `path` names the document in errors. O(values).

    - `key`: the key under which the value of the document is
    - `environment`: the variables that values may refer to; None leaves references as they are
    """
    return _Plain(path, environment).value(_parsed(text, path, key), key, 0, DEEPEST)


def key_lines(text: str) -> dict[Steps, int]:
    """Return the line of each key, and of each entry of a list, by its path. The first line is 1.

    `text` is a document that `load` reads. Keys that are merged (`<<`) have no line of their own.

    >>> key_lines("chaos:\\n- batch: 1\\n")
    {('chaos',): 1, ('chaos', '[0]'): 2, ('chaos', '[0]', 'batch'): 2}
    """
    return dict(_lines(_parsed(text, "", ""), ()))


def _lines(node: Any, steps: Steps) -> Iterator[tuple[Steps, int]]:
    if not isinstance(node, dict | list):
        return
    listed = isinstance(node, list)
    places = _places(node)
    for place in range(len(node)) if listed else node:
        name = f"[{place}]" if listed else f"{place}"
        if place in places:  # a merged key has no place
            yield (*steps, name), places[place][0] + 1
        yield from _lines(node[place], (*steps, name))


def _places(node: Any) -> Mapping[Any, Any]:
    """Return where the parts of a mapping or a list are, as lists that begin with the line, counted from 0."""
    return getattr(getattr(node, "lc", None), "data", None) or {}


def _parsed(text: str, path: str, key: str) -> Any:
    try:
        return _parser().load(text)
    except Exception as error:  # `!!bool 5` is a KeyError, deep brackets a RecursionError
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        found = getattr(error, "problem", None) or getattr(error, "reason", None) or "what YAML cannot hold"
        line = text.splitlines()[mark.line : mark.line + 1] if mark else []
        if may_be_secret(key) or any(may_be_secret(each) for each in line):
            found = found if found.startswith("the key ") else _QUOTED.sub(HIDDEN, found)
        hint = 'inside braces and brackets, quote it: "${NAME}"' if any("${" in each for each in line) else ""
        raise InputError(where, found=found, expected="YAML", hint=hint) from None


class _Plain:
    """Makes plain values of the parser's."""

    def __init__(self, path: str, environment: Mapping[str, str] | None) -> None:
        self._path, self._environment = path, environment
        self._values = 0

    def value(self, node: Any, key: str, line: int, room: int) -> Any:
        """Return a node's plain value. `key`: its dotted path; `room`: how much deeper it may be."""
        self._values += 1
        if room < 0 or self._values > MOST:
            raise InputError(f"{self._path}:{line + 1}", found="too many values, or too deep ones",
                             expected=f"at most {MOST} values, {DEEPEST} levels deep")  # fmt: skip
        if isinstance(node, TaggedScalar):
            node = str(node.value)
        places = _places(node)
        if isinstance(node, dict):
            made = {}
            for name, each in node.items():
                path, at = f"{key}.{name}".lstrip("."), places.get(name, [line])[0]
                made[self._key(name, line)] = self.value(each, path, at, room - 1)
            return made
        if isinstance(node, list):
            return [self.value(each, key, places.get(i, [line])[0], room - 1) for i, each in enumerate(node)]
        if isinstance(node, str):
            return self._text(node, key, line)
        if isinstance(node, bool | None):
            return node
        return int(node) if isinstance(node, int) else float(node) if isinstance(node, float) else bool(node)

    def _key(self, name: Any, line: int) -> Any:
        if isinstance(name, str):
            return str(name)
        if not isinstance(name, int | float | None):
            where = f"{self._path}:{line + 1}"
            raise InputError(where, found="a key that is no text", expected="a string as key")
        return name

    def _text(self, node: str, key: str, line: int) -> Any:
        text = str(node)
        if self._environment is None or "${" not in text or f"{key}.".startswith("spark.conf."):
            return text
        where = f"{self._path}:{line + 1}" + (key and f": {key}")
        put = _REFERENCE.sub(lambda found: self._variable(found, where), text)
        if isinstance(node, ScalarString):
            return put
        tag = str(_parser().resolver.resolve(ScalarNode, put, (True, False)))
        plain = tag in (f"{_YAML}str", f"{_YAML}timestamp")
        return put if plain else _Plain(self._path, None).value(_parsed(put, self._path, key), key, line, 0)

    def _variable(self, found: re.Match[str], where: str) -> str:
        name, default = found["name"], found["default"]
        value = default if name is None else (self._environment or {}).get(name) or default
        if name is None and found[0] == "$${":
            return "${"
        if value is not None:
            return value
        wrong = InputError(where, found=found[0], expected="a variable of the environment")
        if name is None:
            raise plainly(wrong, "found `${`, expected ${NAME}, ${NAME:-default}, or $${ for a literal ${")
        state = "empty" if name in (self._environment or {}) else "not set"
        remedy = f"set it, or give a default: ${{{name}:-...}}"
        raise plainly(wrong, f"the environment variable {name} is {state}; {remedy}")


# ------------------------------------------------------------------------------------------------ overrides


def override(text: str, environment: Mapping[str, str] | None = os.environ) -> tuple[str, Any]:
    """Return key and value of an override. `environment`: as for `load`. Errors: `ConfigError`.

    >>> override("runtime.locality.wait.ms=5")
    ('runtime.locality.wait.ms', 5)
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError("--set", found=_without_secret(text), expected="key=value")
    try:
        return key.strip(), load(value, key.strip(), key.strip(), environment)
    except InputError as error:
        expected = "a YAML value" if error.expected == "YAML" else error.expected
        # Only a value by itself is shown as it was given: inside brackets, a part of it may be a secret.
        found = error.found if set(value) & set("{:") else value
        raise ConfigError(key.strip(), found=found, expected=expected) from None


def _without_secret(text: str) -> str:
    """Return an override that has no key or no `=`, without a secret's value: `password x`."""
    if not may_be_secret(text):
        return text
    name, rest = re.fullmatch(r"([\w.\-]*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{name} {HIDDEN}" if rest and may_be_secret(name) else HIDDEN if rest else name


def with_value(tree: Any, path: str, value: Any, kind: Any = None) -> dict[str, Any]:
    """Return a copy of nested mappings with one more value; missing mappings on the way are made.

    At each step the longest key that is there, or that `kind` declares, is followed. The name of an entry, such as that
    of a sink, ends before a field of the entry.

    >>> with_value({"a": {"b.c": {"d": 1}}}, "a.b.c.e.f", 2)
    {'a': {'b.c': {'d': 1, 'e.f': 2}}}
    """
    if not isinstance(tree, Mapping | None):
        raise ConfigError(path, found=tree, expected="a mapping, because the override sets a key in it")
    tree, kind = tree or {}, bare(kind)
    keys = keys_of(kind) if is_struct(kind) else ()
    declared = {name: bare(key.type) for key in keys for name in (key.name, key.second_name) if name}
    inner = get_args(kind)[1] if get_origin(kind) in (dict, Mapping) else None
    opened = {key for key, of in declared.items() if of is Any or is_struct(of) or get_origin(of)}
    opened |= {key for key in tree if isinstance(key, str) and isinstance(tree[key], Mapping | None)}
    opened -= {key for key in tree if not isinstance(tree[key], Mapping | None)}
    names = [key for key in opened if path.startswith(f"{key}.")]
    if path in tree or path in declared:
        return {**tree, path: value}
    if not (name := max(names, key=len, default="") or _entry(path, bare(inner))):
        return {**tree, path: value}
    below = inner if inner is not None else declared.get(name)
    if name == "options":  # those of the processor beside them
        below = PROCESSORS.get(f"{tree.get('processor')}", below)
    return {**tree, name: with_value(tree.get(name), path[len(name) + 1 :], value, below)}


def _entry(path: str, inner: Any) -> str:
    """Return the name of an entry that a path begins with: it ends before a field of the entry."""
    words = path.split(".")
    if get_origin(inner) in (dict, Mapping):  # such as the tags of a host: the last word is a name
        return ".".join(words[:-1])
    fields = [key.name for key in keys_of(inner)] if is_struct(inner) else []
    for place in range(1, len(words)):
        rest = f"{'.'.join(words[place:])}."
        if any(rest.startswith(f"{field}.") for field in fields):
            return ".".join(words[:place])
    return ""
