"""`taskplace config`: the values that are in force, and where each comes from.

**Idea.** `Settings` knows the values, but not where they are from. So the document is followed from the file through
each `--set`: a path that an override sets has the override as its origin, all others have their line in the file. What
neither sets is a default, Kafka's or this project's, or follows from another key.

Properties: needs no Spark. Values that look like secrets are hidden. A value that refers to the environment is shown
as it is written, never what was put in. Errors: those of `Settings`.

Non-goals: whether a value is wise (`taskplace doctor`), and what spark-submit and `spark-defaults.conf` set.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from taskplace.cli import codes
from taskplace.cli.documents import placed_application
from taskplace.cli.terminal import columns, show
from taskplace.doctor import ignored, reason
from taskplace.model.keys import Key, as_yaml
from taskplace.redaction import redacted
from taskplace.spark.session_conf import SparkProperty, application_properties, later_properties
from taskplace.spec.application import FREE, SECTIONS, YAML_APPLICATION, Settings, overridden
from taskplace.spec.document import key_lines, load, override
from taskplace.wording import count, wrapped

Steps = tuple[str, ...]
_WHOLE = object()
#: The place in a list.
_PLACE = re.compile(r"\[\d+\]")

SCHEMA = "taskplace.config/1"
#: The most letters of a value that the text shows; and of a column: what is longer ends its line.
SHOWN, WIDEST = 60, 44
#: The width of a column whose cells have the next column below them.
NARROW = 2
_SECTION = re.compile(r"[.\[]")


@dataclass(frozen=True)
class Origin:
    """Where a value is from.

    - `kind`: "file", "--set", "environment", "default", "derived" (follows from another key), or "taskplace" (Spark's
      properties that taskplace sets itself)
    - `text`: for people: `app.yaml:12`, `Kafka's default`, `from application.id`
    - `line`: in the file
    """

    kind: Literal["file", "--set", "environment", "default", "derived", "taskplace"]
    text: str
    line: int | None = None


@dataclass(frozen=True)
class Entry:
    """A value that is in force.

    - `path`: its path, as `--set` takes it
    - `replaces`: the values that it has priority over, with their origins, the last one first
    - `ignored`: why it has no effect, or ""
    - `note`: another remark, or ""
    """

    path: str
    value: Any
    origin: Origin
    replaces: tuple[tuple[Any, Origin], ...] = ()
    ignored: str = ""
    note: str = ""


@dataclass(frozen=True)
class Effective:
    """All values of an application, and all Spark properties that it sets."""

    application: str
    values: tuple[Entry, ...]
    spark: tuple[Entry, ...]


def effective(file: str, text: str, document: Mapping[str, Any], overrides: Sequence[str] = ()) -> Effective:
    """Return the values of the application in a file. `text`: of the file; `document`: the mapping in it."""
    settings = Settings.from_mapping(document, overrides)
    followed = _Followed(file, key_lines(text), load(text, file))
    for each in overrides:
        followed.set(*override(each, None))
    values = list(_values(settings, followed))
    reasons = ignored(settings, {one.path for one in values if one.origin.kind not in ("default", "derived")})
    spark = list(_spark(settings, followed))
    return Effective(
        followed.as_written("application.id", settings.application.id),
        tuple(_displayed(one, one.path, reason(reasons, one.path)) for one in values),
        tuple(_displayed(one, path := f"spark.conf.{one.path}", reasons.get(path, "")) for one in spark),
    )


def _displayed(one: Entry, path: str, ignored: str) -> Entry:
    """Return an entry without its secrets. `path`: in the file; `ignored`: as in `Entry`."""
    name = _PLACE.sub("", path)
    replaces = tuple((redacted(value, name), origin) for value, origin in one.replaces)
    return replace(one, value=redacted(one.value, name), replaces=replaces, ignored=ignored)


# ------------------------------------------------------------------------------------------------ origins


class _Followed:
    """A document on its way from the file through the overrides."""

    def __init__(self, file: str, lines: Mapping[Steps, int], document: Mapping[str, Any]) -> None:
        self.document = document
        self._file, self._lines = file, lines
        self._set: dict[Steps, list[tuple[Any, Origin]]] = {}

    def set(self, path: str, value: Any) -> None:
        """Apply an override."""
        after = overridden(self.document, path, value)
        for steps in self._places(path, value):
            before = [] if (old := _at(self.document, steps)) is _WHOLE else [(old, self.origin(steps))]
            self._set[steps] = [*before, *self._set.get(steps, ())]
        self.document = after

    def _places(self, path: str, value: Any) -> list[Steps]:
        if "." not in path and isinstance(value, Mapping):  # is merged into the section
            return [(path, f"{name}") for name in value]
        mark = object()
        return [steps for steps, found in _leaves(overridden(self.document, path, mark)) if found is mark]

    def origin(self, steps: Steps) -> Origin:
        """Return where the value at a path is from."""
        if any(steps[:n] in self._set for n in range(len(steps), 0, -1)):
            return Origin("--set", "--set")
        line = next(
            (self._lines[steps[:n]] for n in range(len(steps), 0, -1) if steps[:n] in self._lines), None
        )
        return Origin("file", self._file if line is None else f"{self._file}:{line}", line)

    def as_written(self, path: str, value: Any) -> Any:
        """Return a value, or the text with a reference to the environment that the file has in its place."""
        section, _, key = path.partition(".")
        raw = _at(self.document, (section, key))
        return raw if isinstance(raw, str) and "${" in raw else value

    def replaced(self, steps: Steps) -> tuple[tuple[Any, Origin], ...]:
        """Return what overrides at this path replaced."""
        return tuple(self._set.get(steps, ()))


def _at(document: Any, steps: Steps) -> Any:
    for step in steps:
        if not isinstance(document, Mapping) or step not in document:
            return _WHOLE
        document = document[step]
    return document


def _leaves(value: Any, steps: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Yield all values that are neither mappings nor lists, and empty ones of these."""
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list):
        inner = ((f"[{i}]", each) for i, each in enumerate(value))
    empty = True
    for key, each in inner:
        empty = False
        yield from _leaves(each, (*steps, f"{key}"))
    if empty:
        yield steps, value


# ------------------------------------------------------------------------------------------------ values


def _values(settings: Settings, followed: _Followed) -> Iterator[Entry]:
    for name, section in SECTIONS.items():
        given = followed.document.get(name) or {}
        for declared in section.declared_keys():
            path = f"{name}.{declared.name}"
            if path != "spark.conf":  # is among the properties of Spark
                yield from _of_key(path, declared, settings, given, followed)
    for name in (*FREE, "chaos"):
        for steps, value in _leaves(followed.document.get(name) or {}, (name,)):
            if steps != (name,):
                yield Entry(_dotted(steps), value, followed.origin(steps), followed.replaced(steps))
                yield from _from_environment(steps, value)


def _of_key(
    path: str, declared: Key, settings: Settings, given: Mapping[str, Any], followed: _Followed
) -> Iterator[Entry]:
    section = path.partition(".")[0]
    names = [declared.name, declared.second_name]
    written = next((name for name in names if name in given), None)
    value = _effective(path, declared, settings)
    if written is None:
        origin = _default(path, declared, settings)
        if origin.kind == "derived" and isinstance(value, str):
            id_ = settings.application.id
            value = value.replace(id_, followed.as_written("application.id", id_))
        yield Entry(path, value, origin)
        return
    if isinstance(given[written], Mapping) and given[written]:
        for steps, each in _leaves(given[written], (section, written)):
            yield Entry(_dotted(steps), each, followed.origin(steps), followed.replaced(steps))
        return
    steps = (section, written)
    note = f"written as {written}" if written != declared.name else ""
    value = followed.as_written(f"{section}.{written}", value)
    yield Entry(path, value, followed.origin(steps), followed.replaced(steps), note=note)


def _effective(path: str, declared: Key, settings: Settings) -> Any:
    if path == "checkpoint.dir":
        return settings.checkpoint_dir
    if path == "state.dir":
        return str(settings.state_dir)
    value = getattr(getattr(settings, path.partition(".")[0]), declared.field)
    return list(value) if isinstance(value, tuple) else value


def _default(path: str, declared: Key, settings: Settings) -> Origin:
    derived = {
        "checkpoint.dir": "from application.id and the current directory",
        "state.dir": "from application.id and the current directory",
        "spark.app.name": "from application.id",
    }
    if settings.application.cls == YAML_APPLICATION:
        derived["application.class"] = "from the section `topology`"
    if path in derived:
        return Origin("derived", derived[path])
    if path == "spark.master":
        return Origin("default", "Spark's default: that of spark-submit, or else local[*]")
    return Origin("default", "Kafka's default" if declared.kafka else "taskplace's default")


def _from_environment(steps: Steps, value: Any) -> Iterator[Entry]:
    """Yield the brokers that a variable of the environment has, beside the key that names it."""
    if steps[0] in ("input", "output") and steps[-1].endswith("servers_env") and isinstance(value, str):
        path = _dotted(steps).removesuffix("_env")
        note = "" if value in os.environ else "the variable is not set: the application does not start"
        yield Entry(path, os.environ.get(value), Origin("environment", f"environment {value}"), note=note)


def _dotted(steps: Steps) -> str:
    """Return a path for people.

    >>> _dotted(("chaos", "[0]", "batch")), _dotted(("runtime", "snapshot.interval"))
    ('chaos[0].batch', 'runtime.snapshot.interval')
    """
    return "".join(step if step.startswith("[") else f".{step}" for step in steps)[1:]


# ------------------------------------------------------------------------------------------------ Spark


def _spark(settings: Settings, followed: _Followed) -> Iterator[Entry]:
    """Yield the properties that are in force; of those with the same name, the last one is."""
    by_name: dict[str, list[tuple[Any, Origin]]] = {}
    for each in application_properties(settings):
        value = followed.as_written(each.key, each.value)
        by_name.setdefault(each.name, []).append((value, _of_property(each, followed)))
    later = {each.name: each for each in later_properties(settings)}
    for name, given in by_name.items():
        (value, origin), *others = reversed(given)
        replaced = (*followed.replaced(("spark", "conf", name)), *others)
        note = f"{later[name].value} {later[name].why}" if name in later else ""
        yield Entry(name, value, origin, replaced, note=note)
    for each in later.values():
        if each.name not in by_name:
            yield Entry(each.name, each.value, _of_property(each, followed))


def _of_property(each: SparkProperty, followed: _Followed) -> Origin:
    if not each.key:
        return Origin("taskplace", f"taskplace: {each.why}")
    if each.key.startswith("spark.conf."):
        return followed.origin(("spark", "conf", each.name))
    return Origin("derived", f"from {each.key}")


def config(args: argparse.Namespace) -> int:
    """Print the values of an application with their origins; with `--all`, also the defaults."""
    document = placed_application(args.file)
    found = effective(args.file, Path(args.file).read_text(encoding="utf-8"), document, args.set)
    values = [one for one in found.values if args.all or _is_shown(one)]
    if args.output == "json":
        print(json.dumps(_to_dict(args.file, found, values), indent=1, default=str))
    else:
        show(_lines(args.file, found, values, columns()))
    return codes.DONE


def _is_shown(one: Entry) -> bool:
    """Whether a value is shown without `--all`: it is no default, and not an unchanged part of the topology."""
    own = one.path.startswith("topology.") and one.origin.kind == "file"
    return one.origin.kind != "default" and not own


# ------------------------------------------------------------------------------------------------ text


def _lines(file: str, found: Effective, values: list[Entry], room: int) -> Iterator[str]:
    """Yield the text. `room`: the width that the columns have."""
    yield f"{file}: application {found.application}"
    sections: dict[str, list[Entry]] = {}
    for one in values:
        sections.setdefault(_SECTION.split(one.path)[0], []).append(one)
    for name, entries in sections.items():
        yield from ("", name, *_table([(one.path.removeprefix(f"{name}."), one) for one in entries], room))
    yield ""
    yield "Spark properties that the application sets; those of spark-submit and spark-defaults.conf come in addition"
    yield from _table([(one.path, one) for one in found.spark], room)
    yield ""
    if without := [one.path for one in (*values, *found.spark) if one.ignored]:
        yield f"{count(len(without), 'value')} ignored: {', '.join(without)}"
        yield f"`taskplace doctor {shlex.quote(file)}` says what to do about it"
    left_out = [one for one in found.values if one not in values]
    topology = sum(one.path.startswith("topology.") for one in left_out)
    if left_out:
        more = f" and {count(topology, 'value')} of the topology" if topology else ""
        yield f"{count(len(left_out) - topology, 'default')}{more} not shown: --all shows them"


def _table(rows: list[tuple[str, Entry]], room: int) -> Iterator[str]:
    """Yield the entries, in columns; what they replace, and remarks, below them.

    Columns that have no room beside each other are below each other, a step to the right each.
    """
    cells = [(key, _shown(one.value), one) for key, one in rows]
    width = max((len(key) for key, _, _ in cells if len(key) <= WIDEST), default=0)
    wide = max((len(value) for _, value, _ in cells if len(value) <= WIDEST), default=0)
    last = max((len(one.origin.text) for _, _, one in cells), default=0)
    if 2 + width + 2 + wide + 2 + last > room:
        width = NARROW
    if 2 + width + 2 + wide + 2 + last > room:
        wide = NARROW
    for key, value, one in cells:
        yield from _aligned((key, width), (value, wide), (one.origin.text, 0))
        below = [f"instead of {_shown(before)} ({origin.text})" for before, origin in one.replaces]
        below += [one.note] if one.note else []
        below += [f"IGNORED: {one.ignored}"] if one.ignored else []
        indent = " " * (width + 6)
        for line in below:
            yield from wrapped(line, room, indent, f"{indent}  ")


def _aligned(*cells: tuple[str, int]) -> Iterator[str]:
    """Yield a row of cells with their widths. The cell behind one that is too wide goes on under it, in its column.

    >>> list(_aligned(("a", 3), ("b", 3), ("c", 0))), list(_aligned(("a", 3), ("long", 3), ("c", 0)))
    (['  a    b    c'], ['  a    long', '            c'])
    """
    line, column = "", 2
    for text, width in cells:
        if len(line) + 2 > column and line:
            yield line
            line = ""
        line = f"{line:<{column}}{text}"
        column += width + 2
    yield line


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str) if isinstance(value, list | dict) else as_yaml(value)
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


# ------------------------------------------------------------------------------------------------ JSON


def _to_dict(file: str, found: Effective, values: Iterable[Entry]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "file": file,
        "application": found.application,
        "values": [_entry_dict(one) for one in values],
        "spark": [_entry_dict(one) for one in found.spark],
    }


def _entry_dict(one: Entry) -> dict[str, Any]:
    return {
        "key": one.path,
        "value": one.value,
        "origin": _origin_dict(one.origin),
        "replaces": [{"value": value, "origin": _origin_dict(origin)} for value, origin in one.replaces],
        "ignored": one.ignored or None,
        "note": one.note or None,
    }


def _origin_dict(origin: Origin) -> dict[str, Any]:
    return {"kind": origin.kind, "text": origin.text, "line": origin.line}
