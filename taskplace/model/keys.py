"""Configuration keys: each is declared once, with its name, type, range, default, unit and meaning.

**Idea.** A configuration is a msgspec Struct. A field's type and `Meta` say what a file may have for it, and what it
means; `read` checks a value against a type, and the documentation, the command line and the doctor read the same
declarations. A key is its field's name with dots for underscores, unless `msgspec.field(name=...)` says otherwise.

Besides limits, the annotations of a field may have, as `about(meaning, ...)` or `Meta(extra=...)`,
- `words`: what is expected, for errors and the documentation; without it, the type says so
- `read`: a function `(value, path)` that checks and converts a value in place of the type; it raises `InputError`
- `unit`: the unit of the values, such as "bytes"; a key that ends in `.ms` has the unit "ms"
- `second_name`: another name that is read, but never written
- `default`: what the default stands for, if its value does not say so
- `unless`: for a required key, the part of the file that replaces it
- `kafka`: whether its default is Kafka's

Properties: unknown keys, values of a wrong type and values out of range are refused, also when the Struct is created in
Python. Reading a written configuration gives an equal one.

Errors: `ConfigError` with the path of the key, the value found, the values expected, and the nearest known name.

>>> class Lights(Configuration, frozen=True, kw_only=True):
...     SECTION: ClassVar[str] = "lights"
...     lamp_count: Annotated[int, Meta(ge=1, le=8), about("lamps that are on")] = 2
>>> Lights.from_properties({"lamp.count": 3}).lamp_count
3
>>> Lights(lamp_count=9)
Traceback (most recent call last):
taskplace.errors.ConfigError: lights.lamp.count: found 9, expected an integer of at least 1, at most 8
>>> Lights.from_properties({"lamp.cuont": 3})
Traceback (most recent call last):
taskplace.errors.ConfigError: lights.lamp.cuont: found an unknown key, expected 'lamp.count', the only key here
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import NODEFAULT, Meta, Struct, UnsetType, ValidationError, convert
from msgspec.structs import fields, force_setattr

from taskplace import validation
from taskplace.errors import ConfigError, InputError

S = TypeVar("S", bound=Struct)
C = TypeVar("C", bound="Configuration")

Count = Annotated[int, Meta(ge=0, le=validation.MOST)]
Positive = Annotated[int, Meta(ge=1, le=validation.MOST)]
AboveZero = Annotated[float, Meta(gt=0, le=validation.MOST_NUMBER)]


# ------------------------------------------------------------------------------------------------ declarations


def about(description: str, **extra: Any) -> Meta:
    """Return the meaning of a key, and what else its declaration has, for `Annotated`."""
    return Meta(description=description, extra=extra)


class Key(NamedTuple):
    """One key: its name in files, the field, its type, the default, its meaning, and the rest of `Meta(extra=...)`."""

    name: str
    field: str
    type: Any
    default: Any
    doc: str
    second_name: str = ""
    unit: str = ""
    unless: str = ""
    kafka: bool = False
    meant: str = ""

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is NODEFAULT

    @property
    def values(self) -> str:
        """The values that it takes, in words."""
        return words(self.type)


@cache
def keys_of(kind: type[Struct]) -> tuple[Key, ...]:
    """Return the keys of a Struct, in the order in which they are declared."""
    types = get_type_hints(kind, include_extras=True)
    found = []
    for each in fields(kind):
        _, doc, extra = _parts(types[each.name])
        unit = extra.get("unit", "ms" if each.encode_name.endswith(".ms") else "")
        default = each.default if each.default_factory is NODEFAULT else each.default_factory()
        more = (
            extra.get("second_name", ""),
            unit,
            extra.get("unless", ""),
            extra.get("kafka", False),
            extra.get("default", ""),
        )
        found.append(Key(each.encode_name, each.name, types[each.name], default, doc, *more))
    return tuple(found)


def _parts(kind: Any) -> tuple[Any, str, dict[str, Any]]:
    """Return a type without its annotations, its description, and the extras of all of them."""
    if get_origin(kind) is not Annotated:
        return kind, "", {}
    base, *metas = get_args(kind)
    metas = [meta for meta in metas if isinstance(meta, Meta)]
    extra = {name: value for meta in metas for name, value in (meta.extra or {}).items()}
    return base, "".join(meta.description or "" for meta in metas), extra


def bare(kind: Any) -> Any:
    """Return a type without its annotations, and without None.

    >>> bare(Annotated[Positive | None, Meta(description="how many")])
    <class 'int'>
    """
    base = _parts(kind)[0]
    if get_origin(base) in (Union, UnionType):
        return bare(next(each for each in get_args(base) if each not in (NoneType, UnsetType)))
    return base


def _words_of(kind: Any) -> list[str]:
    """Return the words that an enumeration or a `Literal` has; none for any other type."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(each.value) for each in kind]
    return list(get_args(kind)) if get_origin(kind) is Literal else []


def is_struct(kind: Any) -> bool:
    """Return whether a type is a Struct."""
    return isinstance(kind, type) and issubclass(kind, Struct)


def words(kind: Any) -> str:
    """Return what a type takes, in words.

    >>> words(Literal["lz4", "zstd"] | None), words(Positive)
    ('one of lz4, zstd', 'an integer of at least 1')
    """
    base, _, extra = _parts(kind)
    if "words" in extra:
        return str(extra["words"])
    if get_origin(base) in (Union, UnionType):
        return " or ".join(words(each) for each in get_args(base) if each not in (NoneType, UnsetType))
    if known := _words_of(base):
        return "one of " + ", ".join(known)
    metas = get_args(kind)[1:] if base is not kind else ()
    bounds = {
        name: getattr(meta, name)
        for meta in metas
        for name in ("gt", "ge", "le")
        if getattr(meta, name) is not None
    }
    if base is int:
        return validation.integer_from(bounds.get("ge", -validation.MOST), bounds.get("le", validation.MOST))
    if base is float:
        return "a number above 0" if "gt" in bounds else "a number of at least 0"
    if is_struct(base):
        return "a mapping of keys to values"
    named = {bool: "true or false", str: "a string", list: "a list", tuple: "a list"}
    return named.get(get_origin(base) or base, "a mapping")


# ------------------------------------------------------------------------------------------------ checks


def read(kind: Any, value: Any, path: str, *, strict: bool = True) -> Any:
    """Return a value of a type, converted. `strict`: a number may not be a text. Errors: `ConfigError`.

    >>> read(dict[str, Positive], {"a": 0}, "limits")
    Traceback (most recent call last):
    taskplace.errors.ConfigError: limits.a: found 0, expected an integer of at least 1
    """
    base, _, extra = _parts(kind)
    if "read" in extra:
        try:
            return extra["read"](value, path)
        except InputError as error:
            raise error.at(error.path) from None
    if get_origin(base) in (Union, UnionType):
        if value is None and NoneType in get_args(base):
            return None
        others = [each for each in get_args(base) if each not in (NoneType, UnsetType)]
        if len(others) == 1:
            return read(others[0], value, path, strict=strict)
    elif is_struct(base):
        return read_struct(base, value, path)
    elif get_origin(base) in (dict, Mapping) and isinstance(value, Mapping) and value:
        name_type, inner = get_args(base)
        items = texts(value, path) if name_type is str else value.items()
        return {name: read(inner, each, f"{path}.{name}") for name, each in items}
    elif get_origin(base) is list and isinstance(value, list | tuple):
        return [read(get_args(base)[0], each, f"{path}[{place}]") for place, each in enumerate(value)]
    try:
        return convert(value, kind, strict=strict or not isinstance(value, str))
    except ValidationError:
        hint = validation.nearest(value, _words_of(base))
        raise ConfigError(path, found=value, expected=words(kind), hint=hint) from None


def texts(value: Mapping[Any, Any], path: str) -> list[tuple[str, Any]]:
    """Return the items of a mapping whose keys are text; `ConfigError` for any other key."""
    for name in value:
        if not isinstance(name, str):
            raise ConfigError(f"{path}.{name}".lstrip("."), found=name, expected="a string as key (quote it)")
    return list(value.items())


def read_struct(kind: type[S], value: Any, path: str) -> S:
    """Return the Struct that a mapping describes. Missing keys get their defaults; null is accepted where it is one."""
    keys = keys_of(kind)
    if not isinstance(value, Mapping):
        hint = f"write `{path}: {{{keys[0].name}: ...}}`" if len(keys) == 1 else ""
        raise ConfigError(path, found=value, expected="a mapping of keys to values", hint=hint)
    by_name = {each.name: each for each in keys} | {
        each.second_name: each for each in keys if each.second_name
    }
    strict = not getattr(kind, "WRITTEN", False)
    values: dict[str, Any] = {}
    for name, each in texts(value, path):
        if name not in by_name:
            raise ConfigError.unknown_key(path, name, [key.name for key in keys])
        key = by_name[name]
        if key.field in values:
            raise ConfigError(f"{path}.{name}", found="a key given twice", expected="one of its two names")
        default = each is None and key.default is None
        values[key.field] = None if default else read(key.type, each, f"{path}.{name}", strict=strict)
    for key in keys:
        if key.required and key.field not in values:
            raise ConfigError(f"{path}.{key.name}", found=None, expected=key.values)
    try:
        return kind(**values)
    except ConfigError as error:  # each value is valid separately, so they do not agree
        section = getattr(kind, "SECTION", "")
        raise error.at(f"{path}.{error.path.removeprefix(f'{section}.')}") from None


# ------------------------------------------------------------------------------------------------ configurations


def _dotted(name: str) -> str:
    return name.replace("_", ".")


class Configuration(Struct, frozen=True, rename=_dotted):
    """The base of all configurations: checks values given in Python, and reads and writes mappings of keys.

    - `SECTION`: the first word of paths in errors
    - `WRITTEN`: whether numbers may be texts, as in a properties file
    """

    SECTION: ClassVar[str] = "config"
    WRITTEN: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for key in keys_of(type(self)):
            value = getattr(self, key.field)
            if value is not key.default:
                value = read(key.type, value, f"{self.SECTION}.{key.name}", strict=not self.WRITTEN)
                force_setattr(self, key.field, value)
        self._agree(self.SECTION)

    def _agree(self, path: str) -> None:
        """Refuse values that are valid separately, but not together. Subclasses override this."""

    @classmethod
    def declared_keys(cls) -> tuple[Key, ...]:
        """Return all keys, in the order in which they are declared."""
        return keys_of(cls)

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        """Return the names of all keys, sorted."""
        return tuple(sorted(key.name for key in keys_of(cls)))

    @classmethod
    def from_properties(cls: type[C], mapping: Mapping[str, Any], path: str | None = None) -> C:
        """Return the configuration that `mapping` describes. `path`: of the mapping; errors begin with it."""
        return read_struct(cls, mapping, cls.SECTION if path is None else path)

    @classmethod
    def reference(cls) -> str:
        """Return the keys as a table in Markdown: name, default, unit, values, meaning."""
        lines = ["| key | default | unit | value | |", "|---|---|---|---|---|"]
        for key in keys_of(cls):
            default = "none" if key.default in (None, "", (), {}) else f"`{as_yaml(key.default)}`"
            if key.required:
                default = f"required, unless there is {key.unless}" if key.unless else "required"
            cells = (f"`{key.name}`", default, key.unit, key.values, key.doc)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        return "\n".join(lines)

    def to_properties(self) -> dict[str, Any]:
        """Return every key with its value, sorted, as JSON values. `from_properties` reads them back."""
        values = {
            key.name: getattr(self, key.field) for key in sorted(keys_of(type(self)), key=attrgetter("name"))
        }
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def as_yaml(value: object) -> str:
    """Return a plain value in YAML notation.

    >>> as_yaml(True), as_yaml(None), as_yaml(0.1), as_yaml("lz4")
    ('true', 'null', '0.1', 'lz4')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)
