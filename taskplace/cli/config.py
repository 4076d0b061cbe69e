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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs, to_builtins

from taskplace.cli import codes
from taskplace.cli.documents import placed_application
from taskplace.cli.terminal import show
from taskplace.doctor import ignored, reason
from taskplace.model.keys import Key, as_yaml
from taskplace.redaction import redacted
from taskplace.spark.session_conf import SparkProperty, application_properties, later_properties
from taskplace.spec.application import FREE, SECTIONS, YAML_APPLICATION, Settings, overridden
from taskplace.spec.document import Steps, key_lines, load, override
from taskplace.wording import count

SCHEMA = "taskplace.config/1"
#: The most letters of a value that the text shows; and of a column: what is longer shifts its line.
SHOWN, WIDEST = 60, 44
_PLACE_IN_LIST = re.compile(r"\[\d+\]")


class Origin(Struct, frozen=True):
    """Where a value is from.

    - `kind`: "derived" follows from another key; "taskplace" is a property of Spark's that taskplace sets itself
    - `text`: for people: `app.yaml:12`, `Kafka's default`, `from application.id`
    - `line`: in the file
    """

    kind: Literal["file", "--set", "environment", "default", "derived", "taskplace"]
    text: str
    line: int | None = None


class Given(Struct, frozen=True):
    """A value and its origin."""

    value: Any
    origin: Origin


class Entry(Struct, frozen=True):
    """A value that is in force.

    - `key`: its path, as `--set` takes it; in `Effective.spark` the name of the property
    - `replaces`: the values that it has priority over, the last one first
    - `ignored`: why it has no effect; `note`: another remark
    """

    key: str
    value: Any
    origin: Origin
    replaces: tuple[Given, ...] = ()
    ignored: str | None = None
    note: str | None = None


class Effective(Struct, frozen=True):
    """All values of an application, and all Spark properties that it sets: a "taskplace.config/1" document."""

    schema: str
    file: str
    application: str
    values: list[Entry]
    spark: list[Entry]


def config(args: argparse.Namespace) -> int:
    """Print the values of an application with their origins; with `--all`, also the defaults."""
    document = placed_application(args.file)
    found = effective(args.file, Path(args.file).read_text(encoding="utf-8"), document, args.set)
    values = [one for one in found.values if args.all or _is_shown(one)]
    if args.output == "json":
        print(json.dumps(to_builtins(structs.replace(found, values=values)), indent=1, default=str))
    else:
        show(_lines(found, values))
    return codes.DONE


def effective(file: str, text: str, document: Mapping[str, Any], overrides: Sequence[str] = ()) -> Effective:
    """Return the values of the application in a file. `text`: of the file; `document`: the mapping in it."""
    settings = Settings.from_mapping(document, overrides)
    written = _Written(file, text)
    for each in overrides:
        written.set(*override(each, None))
    values, spark = list(_values(settings, written)), list(_spark(settings, written))
    reasons = ignored(settings, {one.key for one in values if one.origin.kind not in ("default", "derived")})
    return Effective(
        SCHEMA,
        file,
        written.reference("application.id", settings.application.id),
        [_displayed(one, one.key, reason(reasons, one.key)) for one in values],
        [_displayed(one, key := f"spark.conf.{one.key}", reasons.get(key, "")) for one in spark],
    )


def _displayed(one: Entry, path: str, why: str) -> Entry:
    """Return an entry without its secrets. `path`: in the file; `why`: it is ignored."""
    name = _PLACE_IN_LIST.sub("", path)
    replaces = tuple(Given(redacted(each.value, name), each.origin) for each in one.replaces)
    return structs.replace(one, value=redacted(one.value, name), replaces=replaces, ignored=why or None)


# ------------------------------------------------------------------------------------------------ origins


class _Written:
    """A document as it is written, on its way from the file through the overrides."""

    def __init__(self, file: str, text: str) -> None:
        self.document = load(text, file)
        self._file, self._lines = file, key_lines(text)
        self._set: dict[Steps, tuple[Given, ...]] = {}

    def set(self, path: str, value: Any) -> None:
        """Apply an override."""
        if "." not in path and isinstance(value, Mapping):  # is merged into the section
            places: list[Steps] = [(path, f"{name}") for name in value]
        else:
            mark = object()
            places = [steps for steps, each in _leaves(overridden(self.document, path, mark)) if each is mark]
        for steps in places:
            before = self._at(steps)
            replaced = () if before is None else (Given(before, self.origin(steps)),)
            self._set[steps] = (*replaced, *self._set.get(steps, ()))
        self.document = overridden(self.document, path, value)

    def _at(self, steps: Steps) -> Any:
        found = self.document
        for step in steps:
            found = found.get(step) if isinstance(found, Mapping) else None
        return found

    def origin(self, steps: Steps) -> Origin:
        """Return where the value at a path is from."""
        above = [steps[:n] for n in range(len(steps), 0, -1)]
        if any(each in self._set for each in above):
            return Origin("--set", "--set")
        line = next((self._lines[each] for each in above if each in self._lines), None)
        return Origin("file", self._file if line is None else f"{self._file}:{line}", line)

    def entry(self, steps: Steps, value: Any, note: str | None = None) -> Entry:
        """Return a value that is written at a path."""
        path = "".join(step if step.startswith("[") else f".{step}" for step in steps)[1:]
        return Entry(path, value, self.origin(steps), self._set.get(steps, ()), note=note)

    def reference(self, path: str, value: Any) -> Any:
        """Return a value, or the text with a reference to the environment that the file has in its place."""
        section, _, key = path.partition(".")
        raw = self._at((section, key))
        return raw if isinstance(raw, str) and "${" in raw else value


def _leaves(value: Any, steps: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Yield all values that are neither mappings nor lists, and empty ones of these."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves(each, (*steps, f"{key}"))
    elif isinstance(value, list) and value:
        for place, each in enumerate(value):
            yield from _leaves(each, (*steps, f"[{place}]"))
    else:
        yield steps, value


# ------------------------------------------------------------------------------------------------ values


def _values(settings: Settings, written: _Written) -> Iterator[Entry]:
    for name, section in SECTIONS.items():
        for declared in section.declared_keys():
            if (name, declared.name) != ("spark", "conf"):  # is among the properties of Spark
                yield from _of_key(name, declared, settings, written)
    for name in (*FREE, "chaos"):
        for steps, value in _leaves(written.document.get(name) or {}, (name,)):
            if steps == (name,):
                continue
            entry = written.entry(steps, value)
            yield entry
            if name in ("input", "output") and steps[-1] == "servers_env" and isinstance(value, str):
                note = (
                    None if value in os.environ else "the variable is not set: the application does not start"
                )
                origin = Origin("environment", f"environment {value}")
                yield Entry(entry.key.removesuffix("_env"), os.environ.get(value), origin, note=note)


def _of_key(section: str, declared: Key, settings: Settings, written: _Written) -> Iterator[Entry]:
    given, path = written.document.get(section) or {}, f"{section}.{declared.name}"
    name = next((name for name in (declared.name, declared.second_name) if name in given), None)
    derived = {"checkpoint.dir": settings.checkpoint_dir, "state.dir": str(settings.state_dir)}
    value = derived.get(path) or getattr(getattr(settings, section), declared.field)
    if name is None:
        if path in derived or path == "spark.app.name":
            id_ = settings.application.id
            value = value.replace(id_, written.reference("application.id", id_))
        yield Entry(path, value, _default(path, declared, settings))
    elif isinstance(given[name], Mapping) and given[name]:
        for steps, each in _leaves(given[name], (section, name)):
            yield written.entry(steps, each)
    else:
        note = f"written as {name}" if name != declared.name else None
        value = written.reference(f"{section}.{name}", value)
        yield structs.replace(written.entry((section, name), value, note), key=path)


def _default(path: str, declared: Key, settings: Settings) -> Origin:
    if path in ("checkpoint.dir", "state.dir"):
        return Origin("derived", "from application.id and the current directory")
    if path == "spark.app.name":
        return Origin("derived", "from application.id")
    if path == "application.class" and settings.application.cls == YAML_APPLICATION:
        return Origin("derived", "from the section `topology`")
    if path == "spark.master":
        return Origin("default", "Spark's default: that of spark-submit, or else local[*]")
    return Origin("default", "Kafka's default" if declared.kafka else "taskplace's default")


# ------------------------------------------------------------------------------------------------ Spark


def _spark(settings: Settings, written: _Written) -> Iterator[Entry]:
    """Yield the properties that are in force; of those with the same name, the last one is."""
    by_name: dict[str, Entry] = {}
    for each in application_properties(settings):
        value, origin = written.reference(each.key, each.value), _of_property(each, written)
        replaced = written.entry(("spark", "conf", each.name), value).replaces if each.in_conf else ()
        before = by_name.get(each.name)
        given = () if before is None else (Given(before.value, before.origin), *before.replaces)
        by_name[each.name] = Entry(each.name, value, origin, (*replaced, *given))
    for each in later_properties(settings):
        if each.name in by_name:
            note = f"{each.value} {each.why}"
            by_name[each.name] = structs.replace(by_name[each.name], note=note)
        else:
            by_name[each.name] = Entry(each.name, each.value, _of_property(each, written))
    yield from by_name.values()


def _of_property(each: SparkProperty, written: _Written) -> Origin:
    if each.in_conf:
        return written.origin(("spark", "conf", each.name))
    return (
        Origin("derived", f"from {each.key}") if each.key else Origin("taskplace", f"taskplace: {each.why}")
    )


# ------------------------------------------------------------------------------------------------ text


def _is_shown(one: Entry) -> bool:
    """Whether a value is shown without `--all`: it is no default, and not an unchanged part of the topology."""
    own = one.key.startswith("topology.") and one.origin.kind == "file"
    return one.origin.kind != "default" and not own


def _lines(found: Effective, values: list[Entry]) -> Iterator[str]:
    yield f"{found.file}: application {found.application}"
    sections: dict[str, list[Entry]] = {}
    for one in values:
        sections.setdefault(re.split(r"[.\[]", one.key)[0], []).append(one)
    for name, entries in sections.items():
        yield from ("", name, *_table({one.key.removeprefix(f"{name}."): one for one in entries}))
    yield ""
    yield "Spark properties that the application sets; those of spark-submit and spark-defaults.conf come in addition"
    yield from _table({one.key: one for one in found.spark})
    yield ""
    if without := [one.key for one in (*values, *found.spark) if one.ignored]:
        yield f"{count(len(without), 'value')} ignored: {', '.join(without)}"
        yield f"`taskplace doctor {shlex.quote(found.file)}` says what to do about it"
    left_out = [one for one in found.values if one not in values]
    topology = sum(one.key.startswith("topology.") for one in left_out)
    if left_out:
        more = f" and {count(topology, 'value')} of the topology" if topology else ""
        yield f"{count(len(left_out) - topology, 'default')}{more} not shown: --all shows them"


def _table(rows: Mapping[str, Entry]) -> Iterator[str]:
    """Yield the entries, in columns; what they replace, and remarks, below them."""
    width = max((len(key) for key in rows if len(key) <= WIDEST), default=0)
    wide = max((len(shown) for one in rows.values() if len(shown := _shown(one.value)) <= WIDEST), default=0)
    for key, one in rows.items():
        yield f"  {key:<{width}}  {_shown(one.value):<{wide}}  {one.origin.text}"
        below = [f"instead of {_shown(each.value)} ({each.origin.text})" for each in one.replaces]
        below += filter(None, [one.note, one.ignored and f"IGNORED: {one.ignored}"])
        yield from (f"{'':<{width + 6}}{line}" for line in below)


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str) if isinstance(value, list | tuple | dict) else as_yaml(value)
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
