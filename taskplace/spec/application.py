"""The configuration of an application: one YAML file, read and checked completely before anything starts.

The file has sections, and each section has keys. A key may contain dots: `snapshot.interval` in the section
`runtime`. docs/configuration.md lists all keys with their types, defaults and units.

    application    the id and the class of the application
    spark          how Spark is started
    checkpoint     the directory of manifests, changelogs and snapshots
    state          the executors' directory of copies
    placement      Kafka's keys, verbatim (`taskplace.model.config`)
    runtime        how a batch runs
    topology       the topology (`taskplace.spark.yaml_application`)
    input, output  keys of the application class; without a class, the inputs of sources and the outputs of sinks
    chaos          a list of {batch, kill}: executors to kill, for drills
    report         how a run is shown, logged and measured

Errors: `ConfigError` with the path, the value found, the value expected and the nearest known key.

An override names a key by its path: `runtime.snapshot.bytes=1000`. The path may lead into nested values
(`topology.sources.flights.partitions=6`, `input.flights.path=/in`). At each level the longest existing key that matches
is used; the rest of the path is one key.

`taskplace.spec.document` reads the YAML.

Non-goals: no environment variables, no includes, no templates. `--set key=value` is for single changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, structs

from taskplace.errors import ConfigError
from taskplace.model.config import PlacementConfig
from taskplace.model.keys import Configuration, Count, about, read, texts, words
from taskplace.model.placed_options import DurationAboveZero, PlacedOptions
from taskplace.redaction import redacted
from taskplace.spec.document import override, read_file, with_value
from taskplace.spec.nodes import Input, Output, SparkOptions, Topology
from taskplace.spec.paths import is_uri, local_path
from taskplace.validation import nearest

MOST_ACTIVE = "executor-with-most-active"
#: The class of an application that is YAML alone.
YAML_APPLICATION = "taskplace.spark.yaml_application:YamlApplication"


# ------------------------------------------------------------------------------------------------ types of values


def _on_this_host(words: str, *, uri: bool = False) -> Meta:
    """Return what a directory or a file of this host is; `uri`: it may be a file:// URI."""

    def checked(value: Any, path: str) -> str:
        if not isinstance(value, str) or (is_uri(value) and not uri):
            raise ConfigError(path, found=value, expected=words)
        local_path(value, path, expected=words, error=ConfigError)
        return value

    return Meta(extra={"read": checked, "words": words})


def _like(pattern: str, words: str) -> Meta:
    """Return what a text of this form is."""
    return Meta(pattern=pattern, extra={"words": words})


def _executor(value: Any, path: str) -> str:
    """Return the id as text: Spark's ids are digits, so YAML reads them as integers."""
    name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    hint = nearest(name, [MOST_ACTIVE]) if name != MOST_ACTIVE else ""
    if not isinstance(name, str) or not re.fullmatch(r"\S+", name) or hint:
        raise ConfigError(path, found=name, expected=_EXECUTOR, hint=hint)
    return name


def _log_format(value: Any, path: str) -> str | None:
    """Return the format; None for "none"."""
    given = read(_LogFormats, value, path)
    return None if given == "none" else str(given)


def _files(value: Any, path: str) -> tuple[str, ...]:
    """Return the paths of a list."""
    if not isinstance(value, list | tuple):
        raise ConfigError(path, found=value, expected="a list of files on this host")
    return tuple(read(_File, each, f"{path}[{at}]") for at, each in enumerate(value))


_EXECUTOR = f"{MOST_ACTIVE!r} or an executor id"
_LogFormats = Literal["text", "json", "none"]
_LogFormat = Annotated[str, Meta(extra={"read": _log_format, "words": words(_LogFormats)})]
_Port = Annotated[int, Meta(ge=0, le=65_535)]
_Host = Annotated[str, _like(r"^\S+\Z", "an address of this host")]
_File = Annotated[str, _on_this_host("a path of a file on this host, no URI")]
_Id = Annotated[str, _like(r"^(?!\.{1,2}$)[A-Za-z0-9._-]+\Z", "a name of letters, digits, '.', '_' and '-'")]
_Class = Annotated[
    str, _like(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z", "'module:Class', or a section `topology` instead")
]
_MASTERS = (
    r"local|local\[(\*|\d+)(, *\d+)?\]|local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]|spark://.+|yarn|k8s://.+"
)
_MASTER = "a Spark master like 'local-cluster[3,2,1024]' or 'spark://host:7077'"
_Master = Annotated[str, _like(rf"^({_MASTERS})\Z", _MASTER)]
_Files = Annotated[tuple[str, ...], Meta(extra={"read": _files, "words": "a list of files on this host"})]
_Name = Annotated[str, _like(r"\S", "a name")]
# Elsewhere no exclusive create is known to work, and the commit stands on it.
_CheckpointDir = Annotated[str, _on_this_host("a directory, or a file:// URI, of this host", uri=True)]
_StateDir = Annotated[str, _on_this_host("a directory on the executors' local disk, no URI")]
_Executor = Annotated[str, Meta(extra={"read": _executor, "words": _EXECUTOR})]


# ------------------------------------------------------------------------------------------------ sections


class ApplicationSettings(Configuration, frozen=True):
    """What runs."""

    SECTION: ClassVar[str] = "application"

    id: Annotated[_Id, about("name of the stream and its directories")]
    cls: Annotated[_Class, about("class of the application", unless="a section `topology`")] = msgspec.field(
        name="class"
    )


class SparkSettings(Configuration, frozen=True):
    """How Spark is started."""

    SECTION: ClassVar[str] = "spark"

    master: Annotated[_Master | None, about("default: spark-submit's, or local[*]")] = None
    app_name: Annotated[_Name, about("name in Spark's web UI; default: the application's id")] = ""
    conf: Annotated[SparkOptions, about("properties of Spark, unchanged")] = msgspec.field(
        default_factory=dict
    )
    py_files: Annotated[
        _Files, about("modules for executors: `.py`, `.zip` and `.whl` files, and directories of packages")
    ] = ()
    environment: Annotated[
        _File | None, about("libraries for executors: an archive that `taskplace pack` has written")
    ] = None
    trigger_interval: Annotated[
        DurationAboveZero | None,
        about("run until stopped, with batches at most this often; else until the input ends"),
    ] = None


class CheckpointSettings(Configuration, frozen=True):
    """Where progress is committed."""

    SECTION: ClassVar[str] = "checkpoint"

    dir: Annotated[_CheckpointDir | None, about("directory of progress; default: var/<id>/checkpoint")] = None


class StateSettings(Configuration, frozen=True):
    """Where executors keep their copies."""

    SECTION: ClassVar[str] = "state"

    dir: Annotated[_StateDir | None, about("directory on each executor; default: var/<id>/state")] = None


class ChaosSettings(Configuration, frozen=True):
    """A drill that kills an executor in a batch."""

    SECTION: ClassVar[str] = "chaos[]"

    batch: Annotated[Count, about("batch of the kill; the first is 0")]
    kill: Annotated[_Executor, about("its id, or the one with the most active tasks")]


class ReportSettings(Configuration, frozen=True):
    """How a run is shown, logged and measured."""

    SECTION: ClassVar[str] = "report"

    progress: Annotated[
        Literal["auto", "rich", "plain", "json", "none"],
        about("auto: rich on a terminal without CI, otherwise plain; json: a line for each event"),
    ] = "auto"
    log: Annotated[_LogFormat | None, about("rebalances, warnings, errors on standard error")] = None
    log_tasks: Annotated[bool, about("with `log`: each task that moves")] = False
    metrics_port: Annotated[_Port | None, about("serve metrics to Prometheus; 0: a free port")] = None
    metrics_host: Annotated[_Host, about("address of the metrics; no authentication")] = "127.0.0.1"
    html: Annotated[_File | None, about("write an HTML page there at the end")] = None
    events: Annotated[_File | None, about("write JSON lines for `taskplace report`")] = None
    ui_port: Annotated[_Port | None, about("serve a live page; 0: a free port")] = None
    ui_host: Annotated[_Host, about("address of the live page; no authentication")] = "127.0.0.1"


_INPUT, _OUTPUT = dict[str, Input], dict[str, Output]
FREE = ("topology", "input", "output")
"""Sections that the application reads itself."""
_PARTS = (
    ApplicationSettings,
    SparkSettings,
    CheckpointSettings,
    StateSettings,
    PlacedOptions,
    ReportSettings,
)
SECTIONS: Mapping[str, type[Configuration]] = {part.SECTION: part for part in _PARTS} | {
    "placement": PlacementConfig
}


# ------------------------------------------------------------------------------------------------ the whole


@dataclass(frozen=True)
class Settings:
    """The whole configuration of an application; values from `load` or `from_mapping` are checked.

    `checkpoint_dir` is an absolute path or a URI with a scheme; `state_dir` is an absolute local path.
    Relative paths are relative to the current directory.

    >>> app = {"id": "demo", "class": "shop.orders:Orders"}
    >>> settings = Settings.from_mapping({"application": app, "report": {"progress": "plain"}})
    >>> settings.application.cls, settings.report.progress, settings.runtime.locality_wait_ms
    ('shop.orders:Orders', 'plain', 30000)
    >>> Settings.from_mapping({"application": app, "runtime": {"locality.wait": 5}})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    taskplace.errors.ConfigError: runtime.locality.wait: found an unknown key, ... mean 'locality.wait.ms'?
    """

    application: ApplicationSettings
    checkpoint_dir: str
    state_dir: Path
    placement: PlacementConfig
    topology: Mapping[str, Any] = field(default_factory=dict)
    spark: SparkSettings = field(default_factory=SparkSettings)
    runtime: PlacedOptions = field(default_factory=PlacedOptions)
    input: Mapping[str, Any] = field(default_factory=dict)
    output: Mapping[str, Any] = field(default_factory=dict)
    chaos: tuple[ChaosSettings, ...] = ()
    report: ReportSettings = field(default_factory=ReportSettings)

    def __repr__(self) -> str:
        values = {part.name: redacted(getattr(self, part.name), part.name) for part in fields(self)}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Settings:
        """Read the YAML file at `path`; `overrides` are "key=value" texts with priority over the file."""
        return cls.from_mapping(read_file(Path(path)), overrides)

    @classmethod
    def from_mapping(cls, document: Mapping[str, Any], overrides: Sequence[str] = ()) -> Settings:
        """Check a parsed document and return its settings; `overrides` as for `load`."""
        if not isinstance(document, Mapping):
            raise ConfigError("settings", found=document, expected="a mapping with the key 'application'")
        if isinstance(overrides, str) or not all(isinstance(text, str) for text in overrides):
            raise ConfigError("overrides", found=overrides, expected="a list of 'key=value'")
        for text in overrides:
            document = overridden(document, *override(text))
        return _build(document)


def overridden(document: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return the document with one value set. A whole section is merged into that of the file."""
    inside = document.get(path)
    if isinstance(inside, Mapping) and isinstance(value, Mapping):
        return {**document, path: {**inside, **value}}
    section, _, rest = path.partition(".")
    if not rest:
        return {**document, section: value}
    application = document.get("application")
    given = application if isinstance(application, Mapping) else {}
    of_class = given.get("class", YAML_APPLICATION) != YAML_APPLICATION
    inside = document.get(section)
    there = isinstance(inside, Mapping) and any(rest.startswith(f"{name}.") for name in inside)
    kind: Any = {**SECTIONS, "topology": Topology, "input": _INPUT, "output": _OUTPUT}.get(section)
    if of_class and section in ("input", "output") and not there:
        kind = None  # a new key of a class may have any name
    return {**document, section: with_value(inside, rest, value, kind)}


def _build(document: Mapping[str, Any]) -> Settings:
    known = (*SECTIONS, *FREE, "chaos")
    for name, _ in texts(document, ""):
        if name not in known:
            raise ConfigError.unknown_key("", name, known)
    given = {name: value for name, value in document.items() if value is not None}
    free = {name: dict(texts(_mapping(name, given.get(name, {})), name)) for name in FREE}
    if free["topology"] and isinstance(application := given.get("application"), Mapping):
        given["application"] = {"class": YAML_APPLICATION, **application}
    sections: dict[str, Any] = {
        name: part.from_properties(given.get(name, {}), path=name) for name, part in SECTIONS.items()
    }
    app, spark = sections["application"], sections["spark"]
    checkpoint = absolute(sections["checkpoint"].dir or f"var/{app.id}/checkpoint")
    state = absolute(sections["state"].dir or f"var/{app.id}/state")
    if local_path(checkpoint, "checkpoint.dir") == Path(state):
        raise ConfigError("state.dir", found=state, expected="a directory other than checkpoint.dir")
    return Settings(
        application=app,
        checkpoint_dir=checkpoint,
        state_dir=Path(state),
        placement=sections["placement"],
        spark=spark if spark.app_name else structs.replace(spark, app_name=app.id),
        runtime=sections["runtime"],
        chaos=tuple(read(list[ChaosSettings], given.get("chaos", []), "chaos")),
        report=sections["report"],
        **free,
    )


def _mapping(section: str, value: object) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(section, found=value, expected="a mapping")
    return value


def absolute(directory: str) -> str:
    """Return a path as an absolute path; a URI unchanged."""
    return directory if is_uri(directory) else str(Path(directory).expanduser().absolute())
