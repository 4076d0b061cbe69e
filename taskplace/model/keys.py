"""Configuration keys: each is declared once, with its name, type, default, unit and meaning.

**Idea.** A configuration is a frozen dataclass with fields from `key(...)`. The base class `Configuration` reads a
mapping of keys, checks every value, writes the keys back, and lists them for the documentation.

Properties: unknown keys, values of a wrong type and values out of range are refused, also when the dataclass is created
in Python. Reading a written configuration gives an equal one.

Errors: `ConfigError` with the path of the key, the value found, the values expected, and the nearest known name.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True, kw_only=True)
... class Lights(Configuration, section="lights"):
...     lamp_count: int = key(Integer(1, 8), 2, "lamps that are on")
>>> Lights.from_properties({"lamp.count": 3}).lamp_count
3
>>> Lights.from_properties({"lamp.cuont": 3})
Traceback (most recent call last):
taskplace.errors.ConfigError: lights.lamp.cuont: found an unknown key, expected 'lamp.count', the only key here
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from taskplace import validation
from taskplace.errors import ConfigError, InputError

C = TypeVar("C", bound="Configuration")


class Reader(Protocol):
    """The type of a key's values. Its `str()` describes the expected values in errors."""

    def read(self, path: str, value: Any) -> Any:
        """Convert the value at `path`. Errors: `ConfigError`."""


class Nothing:
    """The value of a missing required key, for error messages."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = Nothing()


# ------------------------------------------------------------------------------------------------ types of values


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer from `least` to `most`. `written`: it may be a string, as in a properties file."""

    least: int
    most: int = validation.MOST
    optional: bool = False
    written: bool = False

    def __str__(self) -> str:
        return validation.integer_from(self.least, self.most, optional=self.optional)

    def read(self, path: str, value: Any) -> Any:
        """Return the value; `ConfigError` for any other."""
        number = value
        if self.written and isinstance(value, str):
            with contextlib.suppress(ValueError):
                number = int(value)
        try:
            return validation.integer(number, path, self.least, self.most, optional=self.optional)
        except InputError:
            raise ConfigError(path, found=value, expected=str(self)) from None


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number above 0 (`above`), or of at least 0. `words`: the description. `written`: it may be a string."""

    words: str
    above: bool = True
    optional: bool = False
    written: bool = False

    def __str__(self) -> str:
        return self.words

    def read(self, path: str, value: Any) -> float | None:
        """Return the value; `ConfigError` for any other."""
        if value is None and self.optional:
            return None
        number = math.nan
        if isinstance(value, int | float | (str if self.written else float)) and not isinstance(value, bool):
            # An integer may be too large for a float, and a string may not be a number.
            with contextlib.suppress(ValueError, OverflowError):
                number = float(value)
        if not math.isfinite(number) or number < 0 or (self.above and number == 0):
            raise ConfigError(path, found=value, expected=self.words)
        return number


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false."""

    def __str__(self) -> str:
        return "true or false"

    def read(self, path: str, value: Any) -> bool:
        """Return the value; `ConfigError` for any other."""
        if not isinstance(value, bool):
            raise ConfigError(path, found=value, expected=str(self))
        return value


class Choice:
    """One of several words.

    >>> Choice("lz4", "zstd").read("compression", "zst")
    Traceback (most recent call last):
    taskplace.errors.ConfigError: compression: found 'zst', expected one of lz4, zstd; did you mean 'zstd'?
    """

    def __init__(self, *known: str) -> None:
        self.known = known

    def __str__(self) -> str:
        return "one of " + ", ".join(self.known)

    def read(self, path: str, value: Any) -> str:
        """Return the value; `ConfigError` for any other."""
        if not isinstance(value, str) or value not in self.known:
            hint = validation.nearest(value, self.known)
            raise ConfigError(path, found=value, expected=str(self), hint=hint)
        return value


@dataclass(frozen=True, slots=True)
class Text:
    """A string that matches `pattern` as a whole. `words`: the description."""

    pattern: str
    words: str

    def __str__(self) -> str:
        return self.words

    def read(self, path: str, value: Any) -> str:
        """Return the value; `ConfigError` for any other."""
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise ConfigError(path, found=value, expected=self.words)
        return value


# ------------------------------------------------------------------------------------------------ keys


class Key(NamedTuple):
    """One key.

    - `name`: its name in files; `second_name`: another name that is read, but never written
    - `field`: the field of the dataclass
    - `default`: its default value
    - `type`: the type of its values
    - `doc`: its meaning
    - `unit`: the unit of its values, such as "ms" or "bytes", or ""
    - `unless`: for a required key, the part of the file that replaces it, or ""
    - `kafka`: whether its default is Kafka's
    """

    name: str
    field: str
    default: Any
    type: Reader
    doc: str
    second_name: str = ""
    unit: str = ""
    unless: str = ""
    kafka: bool = False

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING


def key(
    kind: Reader,
    default: Any = MISSING,
    doc: str = "",
    *,
    name: str = "",
    second_name: str = "",
    unit: str = "",
    unless: str = "",
    kafka: bool = False,
) -> Any:
    """Return the field of a key, for a subclass of `Configuration`. A key without a default is required.

    - `name`: its name in files, by default the field's name with dots
    - `second_name`: another name that is read, but never written
    - `unit`: the unit of its values; a key whose name ends in `.ms` has the unit "ms"
    - `unless`: for a required key, the part of the file that replaces it
    - `kafka`: whether its default is Kafka's
    """
    metadata = {
        "type": kind,
        "doc": doc,
        "name": name,
        "second_name": second_name,
        "unit": unit,
        "unless": unless,
        "kafka": kafka,
    }
    return field(default=default, metadata=metadata)


class Configuration:
    """The base of all configurations: reads, checks, writes and lists the keys of its fields."""

    __slots__ = ()
    SECTION: ClassVar[str] = "config"

    def __init_subclass__(cls, section: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if section:
            cls.SECTION = section

    def __post_init__(self) -> None:
        for declared in self.declared_keys():
            value = getattr(self, declared.field)
            if value is not declared.default:
                value = declared.type.read(f"{self.SECTION}.{declared.name}", value)
                object.__setattr__(self, declared.field, value)
        self._agree(self.SECTION)

    def _agree(self, path: str) -> None:
        """Refuse values that are valid separately, but not together. Subclasses override this."""

    @classmethod
    @cache
    def declared_keys(cls) -> tuple[Key, ...]:
        """Return all keys, in the order in which they are declared."""
        return tuple(
            Key(
                name=(name := f.metadata["name"] or f.name.replace("_", ".")),
                field=f.name,
                default=f.default,
                type=f.metadata["type"],
                doc=f.metadata["doc"],
                second_name=f.metadata["second_name"],
                unit=f.metadata["unit"] or ("ms" if name.endswith(".ms") else ""),
                unless=f.metadata["unless"],
                kafka=f.metadata["kafka"],
            )
            for f in fields(cls)  # type: ignore[arg-type]
            if "type" in f.metadata
        )

    @classmethod
    def known_keys(cls) -> tuple[str, ...]:
        """Return the names of all keys, sorted."""
        return tuple(sorted(declared.name for declared in cls.declared_keys()))

    @classmethod
    def from_properties(cls: type[C], mapping: Mapping[str, Any], path: str | None = None) -> C:
        """Return the configuration that `mapping` describes. Missing keys get their defaults.

        Null is accepted where it is the default.

        `path`: the path of the mapping; errors begin with it.
        """
        path = cls.SECTION if path is None else path
        if not isinstance(mapping, Mapping):
            only = cls.declared_keys()[0].name
            hint = f"write `{path}: {{{only}: ...}}`" if len(cls.declared_keys()) == 1 else ""
            raise ConfigError(path, found=mapping, expected="a mapping of keys to values", hint=hint)
        by_name = {declared.name: declared for declared in cls.declared_keys()}
        by_name |= {
            declared.second_name: declared for declared in cls.declared_keys() if declared.second_name
        }
        values: dict[str, Any] = {}
        for name, value in mapping.items():
            if name not in by_name:
                raise _unknown(path, name, value, by_name, cls.known_keys())
            declared = by_name[name]
            if declared.field in values:
                raise ConfigError(
                    f"{path}.{name}", found="a key given twice", expected="one of its two names"
                )
            default = value is None and declared.default is None
            values[declared.field] = None if default else declared.type.read(f"{path}.{name}", value)
        for declared in cls.declared_keys():
            if declared.required and declared.field not in values:
                declared.type.read(f"{path}.{declared.name}", NOTHING)
        try:
            return cls(**values)
        except ConfigError as error:  # each value is valid separately, so the error is from `_agree`
            inner = error.path.removeprefix(f"{cls.SECTION}.")
            where = f"{path}.{inner}"
            raise ConfigError(where, found=error.found, expected=error.expected, hint=error.hint) from None

    @classmethod
    def reference(cls) -> str:
        """Return the keys as a table in Markdown: name, default, unit, values, meaning."""
        lines = ["| key | default | unit | value | |", "|---|---|---|---|---|"]
        for declared in cls.declared_keys():
            if declared.required:
                default = f"required, unless there is {declared.unless}" if declared.unless else "required"
            else:
                default = "none" if declared.default in (None, "", ()) else f"`{as_yaml(declared.default)}`"
            cells = (f"`{declared.name}`", default, declared.unit, str(declared.type), declared.doc)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        return "\n".join(lines)

    def to_properties(self) -> dict[str, Any]:
        """Return every key with its value, sorted, as JSON values. `from_properties` reads them back."""
        out: dict[str, Any] = {}
        for declared in sorted(self.declared_keys(), key=attrgetter("name")):
            value = getattr(self, declared.field)
            out[declared.name] = list(value) if isinstance(value, tuple) else value
        return out


def as_yaml(value: object) -> str:
    """Return a plain value in YAML notation.

    >>> as_yaml(True), as_yaml(None), as_yaml(0.1), as_yaml("lz4")
    ('true', 'null', '0.1', 'lz4')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)


def _unknown(
    path: str, name: object, value: Any, by_name: Mapping[str, Key], known: tuple[str, ...]
) -> ConfigError:
    """Return the error for an unknown key. If a dotted key was written as nested ones, the error has its right form."""
    if not isinstance(name, str):
        return ConfigError(f"{path}.{name}", found=name, expected="a string as key (quote it)")
    inner, words = value, [name]
    while isinstance(inner, Mapping) and len(inner) and isinstance(next(iter(inner)), str):
        first = next(iter(inner))
        words.append(first)
        inner = inner[first]
        if (whole := ".".join(words)) in by_name:
            return ConfigError(
                f"{path}.{whole}",
                found="a nested key",
                expected=f"one dotted key: `{whole}: {as_yaml(inner)}`",
            )
    return ConfigError.unknown_key(path, name, known)
