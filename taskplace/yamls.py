"""Reads YAML strictly: ambiguous values are refused with an error that names the line.

The parser implements YAML 1.1, which reads some words as other values than they look like. Here
- `yes`, `no`, `on` and `off` are text as keys, and refused as values: write true or false, or quote them;
- dates are text, as in YAML 1.2;
- numbers with a leading zero (octal) or with colons (base 60) are refused: quote them, or give the number;
- so are numbers with underscores (`1_2` would be 12), and hexadecimal and binary ones (`0x10` would be 16);
- a key given twice is refused, also the merge key `<<`;
- a tag may repeat the type of a value (`!!int 5`), or make it a text (`!!str 5`); any other tag, and
  `!!int abc`, is refused.

Where an environment is given, `${NAME}` in a value stands for its variable, which has to be there and not empty, and
`${NAME:-default}` for the default without one; `$${` is a literal `${`. What is put in is a value, never a part of the
document: in quotes a text, else what it looks like. Values below `spark.conf` are left alone, because Spark has its own
`${...}`.

A document is refused before it is converted if it contains itself, is nested deeper than `DEEPEST`, or has more than
`MOST` values with its aliases expanded.

Errors: `InputError` with the line. A value whose key is that of a secret is hidden (`taskplace.redaction`).

>>> load("runtime: {on: 1, since: 2024-01-01}", "app.yaml")
{'runtime': {'on': 1, 'since': '2024-01-01'}}
>>> load("a: 1\\nb: no", "app.yaml")
Traceback (most recent call last):
taskplace.errors.InputError: app.yaml:2: found 'no', expected true or false, or a quoted string
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import yaml

from taskplace.errors import InputError, plainly
from taskplace.redaction import HIDDEN, is_secret, may_be_secret

DEEPEST = 100
MOST = 100_000
LONGEST = 40

_YAML = "tag:yaml.org,2002:"
_STR, _BOOL, _INT, _FLOAT, _NULL, _MAP, _SEQ = (
    f"{_YAML}{name}" for name in ("str", "bool", "int", "float", "null", "map", "seq")
)
_TIMESTAMP = f"{_YAML}timestamp"
#: The tags of a plain `<<` and `=`; they are allowed as keys, and the parser refuses them elsewhere.
_SIGNS = {f"{_YAML}merge": "<<", f"{_YAML}value": "="}
_LOOSE_BOOL = re.compile(r"yes|no|on|off", re.IGNORECASE)
_OCTAL = re.compile(r"[-+]?0[0-9_]+")
#: A reference to a variable of the environment; without a name, what only begins like one.
_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_]\w*)(?::-(?P<default>[^{}]*))?\})?", re.ASCII)
_OTHER_BASE = re.compile(r"[-+]?0[xb].*", re.IGNORECASE)


def load(text: str, path: str, key: str = "", environment: Mapping[str, str] | None = None) -> Any:
    """Return the value of a YAML document; `path` names the document in errors. O(values).

    - `key`: the key under which the value of the document is, for values that are hidden
    - `environment`: the variables that values may refer to; None leaves references as they are
    """
    try:
        loader = _Loader(text)  # checks for characters that YAML does not allow
        loader.path = path
        node = loader.get_single_node()
        if node is None:
            return None
        _Check(path, loader, environment).values(node, (), DEEPEST, key)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        found = getattr(error, "problem", None) or "a syntax error"
        if _QUOTED.search(found) and may_be_secret(_key_before(text, mark) or key):
            found = _QUOTED.sub(HIDDEN, found)  # an alias or a tag, which was meant to be a value
        flow = mark is not None and "{" in found and "${" in (mark.get_snippet(0, LONGEST * 10) or "")
        hint = 'inside braces and brackets, quote it: "${NAME}"' if flow else ""
        wrong = InputError(where, found=found, expected="YAML", hint=hint)
        if "'\\t'" in found or r"'\t'" in found:
            raise plainly(wrong, "a line begins with a tab; YAML needs spaces") from None
        raise wrong from None
    except RecursionError:
        raise InputError(
            path, found="brackets nested too deeply", expected=f"at most {DEEPEST} levels"
        ) from None
    except InputError:
        raise
    except (ValueError, OverflowError) as error:  # an escape without a character
        raise InputError(path, found=str(error), expected="values that can be read") from None


def nodes(text: str) -> yaml.Node | None:
    """Return the nodes of a document that `load` reads, with their places in it; None for an empty one."""
    found: yaml.Node | None = _Loader(text).get_single_node()
    return found


#: A word of the document in an error of the parser; one letter shows nothing.
_QUOTED = re.compile(r"'..+'|\"..+\"")


def _key_before(text: str, mark: yaml.Mark | None) -> str:
    """Return the last key before a mark; "" if there is none."""
    found, is_key = "", False
    with suppress(yaml.YAMLError):
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if mark is not None and token.start_mark.index > mark.index:
                break
            if is_key and isinstance(token, yaml.ScalarToken):
                found = token.value
            is_key = isinstance(token, yaml.KeyToken)
    return found


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, with dates as text. Stops at `MOST` nodes, because it takes 20 us for each."""

    path = ""
    _nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node."""
        self._nodes += 1
        if self._nodes > MOST:
            raise InputError(self.path, found=f"more than {MOST} values", expected=f"at most {MOST} values")
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Check:
    """Checks the nodes of a document, each once."""

    def __init__(self, path: str, loader: _Loader, environment: Mapping[str, str] | None) -> None:
        self._path, self._loader, self._environment = path, loader, environment
        self._sizes: dict[int, tuple[int, int]] = {}  # by node: its number of values, and its depth

    def values(
        self, node: yaml.Node, above: tuple[int, ...], room: int, key: str, is_key: bool = False
    ) -> tuple[int, int]:
        """Return a node's number of values, with aliases expanded, and its depth; check the limits and each value.

        - `key`: the dotted keys on the way to the node
        - `is_key`: the node is a key itself
        """
        if id(node) in above:
            raise self._error(node, "an alias inside its own anchor", "values that do not contain themselves")
        if room < 0:
            raise self._error(node, "brackets nested too deeply", f"at most {DEEPEST} levels")
        if id(node) not in self._sizes:
            if isinstance(node, yaml.ScalarNode) and not is_key:
                self._put_in(node, key)
            self._tag(node, key)
            inner: list[tuple[yaml.Node, str, bool]] = []
            if isinstance(node, yaml.MappingNode):
                self._keys(node)
                for name, value in node.value:
                    inner += [(name, key, True), (value, _below(key, name), False)]
            elif isinstance(node, yaml.SequenceNode):
                inner = [(part, key, False) for part in node.value]
            else:
                self._scalar(node, key)
            found = [self.values(part, (*above, id(node)), room - 1, at, named) for part, at, named in inner]
            size, depth = (
                1 + sum(size for size, _ in found),
                max((1 + depth for _, depth in found), default=0),
            )
            if size > MOST:
                raise self._error(node, f"{size} values, with every alias followed", f"at most {MOST} values")
            self._sizes[id(node)] = size, depth
        if self._sizes[id(node)][1] > room:
            raise self._error(node, "brackets nested too deeply", f"at most {DEEPEST} levels")
        return self._sizes[id(node)]

    def _keys(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise self._error(key, f"the key {key.value!r} given twice", "every key once")
            seen.add(key.value)
            if key.tag == _BOOL and _is_plain(key) and _LOOSE_BOOL.fullmatch(key.value):
                key.tag = _STR

    def _put_in(self, node: yaml.ScalarNode, key: str) -> None:
        """Put variables of the environment in where a value refers to them."""
        environment, text = self._environment, node.value
        if environment is None or "${" not in text or f"{key}.".startswith("spark.conf."):
            return

        def put(found: re.Match[str]) -> str:
            name, default = found["name"], found["default"]
            value = default if name is None else environment.get(name) or default
            if name is None and found[0] == "$${":
                return "${"
            if value is not None:
                return value
            where = f"{self._path}:{node.start_mark.line + 1}" + (key and f": {key}")
            wrong = InputError(where, found=found[0], expected="a variable of the environment")
            if name is None:
                raise plainly(
                    wrong, "found `${`, expected ${NAME}, ${NAME:-default}, or $${ for a literal ${"
                )
            state = "empty" if name in environment else "not set"
            remedy = f"set it, or give a default: ${{{name}:-...}}"
            raise plainly(wrong, f"the environment variable {name} is {state}; {remedy}")

        node.value = _REFERENCE.sub(put, text)
        if _is_plain(node) and node.tag == _STR:
            node.tag = self._loader.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]

    def _tag(self, node: yaml.Node, key: str) -> None:
        if isinstance(node, yaml.ScalarNode):
            known = node.tag in (_STR, _BOOL, _INT, _FLOAT, _NULL) or _SIGNS.get(node.tag) == node.value
        else:
            known = node.tag == (_MAP if isinstance(node, yaml.MappingNode) else _SEQ)
        if not known:
            expected = "YAML without this tag: a string, a number, true, false, null, a list or a mapping"
            raise self._error(node, f"the tag {_shown(_short(node.tag), key)}", expected)

    def _scalar(self, node: yaml.Node, key: str) -> None:
        """Refuse an ambiguous word, and a value that does not match its tag."""
        value = _shown(node.value, key)
        if node.tag == _BOOL and _LOOSE_BOOL.fullmatch(node.value):
            raise self._error(node, value, "true or false, or a quoted string")
        if node.tag == _INT and _OCTAL.fullmatch(node.value):
            expected = "a number without a leading zero, or a quoted string"
            raise self._error(node, value, expected)
        if node.tag in (_INT, _FLOAT) and ("_" in node.value or _OTHER_BASE.fullmatch(node.value)):
            expected = "a decimal number without underscores, or a quoted string"
            raise self._error(node, value, expected)
        if node.tag == _INT and len(node.value) > LONGEST:
            raise self._error(node, f"a number of {len(node.value)} digits", f"at most {LONGEST} digits")
        if node.tag in (_INT, _FLOAT) and ":" in node.value:
            raise self._error(node, value, "a number without colons, or a quoted string")
        if node.tag == _STR or node.tag in _SIGNS:
            return
        looks = self._loader.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
        if looks != node.tag and (looks, node.tag) != (_INT, _FLOAT):
            raise self._error(
                node, f"{_short(node.tag)} {value!r}", f"a value that fits {_short(node.tag)}, or no tag"
            )
        try:
            self._loader.construct_object(node)
        except (ValueError, OverflowError):  # `0x_`
            raise self._error(node, value, "a number, or a quoted string") from None

    def _error(self, node: yaml.Node, found: str, expected: str) -> InputError:
        return InputError(f"{self._path}:{node.start_mark.line + 1}", found=found, expected=expected)


def _below(key: str, name: yaml.Node) -> str:
    """Return the dotted keys on the way to the value of a key."""
    word = name.value if isinstance(name, yaml.ScalarNode) else ""
    return f"{key}.{word}" if key else word


def _shown(text: str, key: str) -> str:
    """Return a value's text, or that it is hidden: the parser finds secrets that nothing else has read yet."""
    return HIDDEN if key and is_secret(key) else text


def _short(tag: str) -> str:
    return "!!" + tag.removeprefix(_YAML) if tag.startswith(_YAML) else tag


def _is_plain(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style is None
