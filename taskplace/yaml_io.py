"""Reading an application's YAML: a file as a mapping, nested keys as dotted paths, and overrides.

What the keys mean is `taskplace.spec.application`'s affair.

Errors: `InputError` for a file that cannot be read, with its line; `ConfigError` for a key.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from taskplace.errors import ConfigError, InputError, plainly
from taskplace.redaction import HIDDEN, may_be_secret
from taskplace.yamls import load


def read(path: Path, expected: str = "a mapping with the key 'application'") -> Mapping[str, Any]:
    """Return the mapping in a YAML file. `expected`: what it should be, for errors."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or "bytes that are not UTF-8"
        near = nearest_file(path, "*.y*ml")
        hint = f"did you mean {near!r}?" if near else ""
        wrong = InputError(str(path), found=found, expected="a readable YAML file", hint=hint)
        if isinstance(error, FileNotFoundError):
            raise plainly(wrong, "there is no such file" + (hint and f"; {hint}")) from None
        raise wrong from None
    document = load(text, str(path), environment=os.environ)
    if not isinstance(document, Mapping):
        found = type(document).__name__ if document is not None else "an empty file"
        raise InputError(str(path), found=found, expected=expected)
    return document


def nearest_file(path: Path, pattern: str, wanted: Callable[[Path], bool] = Path.exists) -> str:
    """Return the file whose name is most like that of a missing one; "" if there is none that is `wanted`.

    It has the same name, in a directory beside the missing file (`conf/app.yaml` for `app.yaml`), or lies beside it.
    """
    beside = {one.name: str(one) for one in sorted(path.parent.glob(pattern)) if one != path and wanted(one)}
    names = sorted(path.parent.glob(f"*/{path.name}")) if path.name else []
    below = [str(one) for one in names if wanted(one)]
    near = difflib.get_close_matches(
        path.name, beside, n=1
    )  # not whole paths: in long ones, all names are alike
    return next(iter([*below, *(beside[name] for name in near)]), "")


def flatten(
    node: Mapping[Any, Any], free: Collection[str], empty: Collection[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield dotted paths and their values; a section in `free` is opened one level, and not at all below.

    Paths in `empty` are sections, which may be there and say nothing.

    >>> dict(flatten({"a": {"b": 1, "c.d": 2}, "own": {"e": {"f": 3}}}, free=["own"], empty=[]))
    {'a.b': 1, 'a.c.d': 2, 'own.e': {'f': 3}}
    """
    for key, value in node.items():
        path = f"{prefix}.{key}" if prefix else f"{key}"
        if not isinstance(key, str):
            raise ConfigError(path, found=key, expected="a string as key (quote it)")
        if value in (None, {}) and path in empty:
            continue
        if value and isinstance(value, Mapping) and (path in free or path.partition(".")[0] not in free):
            yield from flatten(value, free, empty, path)
        else:
            yield path, value


def collect(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values by path. Errors: `ConfigError` for a path that was given flat and nested."""
    given: dict[str, Any] = {}
    for path, value in pairs:
        if path in given:
            raise ConfigError(path, found="a key given twice", expected="one value")
        given[path] = value
    return given


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
    """Return an override that has no key or no `=`, without a secret's value: `password x`.

    >>> _without_secret("kafka.ssl.key.password x"), _without_secret("runtime.locality.wait.ms 5")
    ('kafka.ssl.key.password (hidden)', 'runtime.locality.wait.ms 5')
    """
    if not may_be_secret(text):
        return text
    name, rest = re.fullmatch(r"([\w.\-]*+)(.*+)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{name} {HIDDEN}" if rest and may_be_secret(name) else HIDDEN if rest else name


def graft(tree: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of nested values with one more; the longest key that leads on is followed at each step.

    >>> graft({"a": {"b.c": {"d": 1}}}, "a.b.c.e.f", 2)
    {'a': {'b.c': {'d': 1, 'e.f': 2}}}
    """
    inner = [k for k in tree if isinstance(k, str) and path.startswith(f"{k}.")]
    inner = [key for key in inner if tree[key] is None or isinstance(tree[key], Mapping)]
    if path in tree or not inner:
        return {**tree, path: value}
    key = max(inner, key=len)
    return {**tree, key: graft(tree[key] or {}, path.removeprefix(f"{key}."), value)}
