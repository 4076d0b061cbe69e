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

A file nests what `topology`, `input` and `output` have in them; dotted paths are for overrides.
An override names a key by its path: `runtime.snapshot.bytes=1000`. The path may lead into nested values
(`topology.sources.flights.partitions=6`, `input.flights.path=/in`). At each level the longest existing key that matches
is used; the rest of the path is one key.

Ambiguous YAML is refused with its line (`taskplace.yamls`).

Non-goals: no environment variables, no includes, no templates. `--set key=value` is for single changes.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from taskplace.dotted_keys import check_nested
from taskplace.durations import Duration
from taskplace.errors import ConfigError
from taskplace.logs import FORMATS
from taskplace.misplaced import check_sections
from taskplace.model.config import PlacementConfig
from taskplace.model.keys import Boolean, Choice, Configuration, Integer, Text, key
from taskplace.model.placed_options import DurationAboveZero, PlacedOptions
from taskplace.redaction import redacted
from taskplace.spec.paths import is_uri, local_path
from taskplace.yaml_io import graft, override, read

MOST_ACTIVE = "executor-with-most-active"
YAML_APPLICATION = (
    "taskplace.spark.yaml_application:YamlApplication"  # the class of an application that is YAML alone
)


def shown(settings: Any) -> str:
    """Return the representation of settings, without their secrets."""
    values = {part.name: redacted(getattr(settings, part.name), part.name) for part in fields(settings)}
    return f"{type(settings).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"


# ------------------------------------------------------------------------------------------------ types of values


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory or a file of this host; `uri`: it may be a file:// URI."""

    words: str
    uri: bool = False

    def __str__(self) -> str:
        return self.words

    def read(self, path: str, value: Any) -> str:
        """Return the directory; `ConfigError` for anything else."""
        if not isinstance(value, str) or (is_uri(value) and not self.uri):
            raise ConfigError(path, found=value, expected=self.words)
        local_path(value, path, expected=self.words, error=ConfigError)
        return value


class ExecutorName:
    """The id of an executor, or the executor with the most active tasks."""

    def __str__(self) -> str:
        return f"{MOST_ACTIVE!r} or an executor id"

    def read(self, path: str, value: Any) -> str:
        """Return the id as text: Spark's ids are digits, so YAML reads them as integers."""
        value = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        name = Text(r"\S+", str(self)).read(path, value)
        if name != MOST_ACTIVE and difflib.get_close_matches(name, [MOST_ACTIVE], cutoff=0.8):
            raise ConfigError(path, found=name, expected=str(self), hint=f"did you mean {MOST_ACTIVE!r}?")
        return name


class SparkConf:
    """Spark's own keys, with their values as Spark writes them."""

    def __str__(self) -> str:
        return "a mapping of Spark's own keys"

    def read(self, path: str, value: Any) -> Mapping[str, str]:
        """Return the keys; `ConfigError` for anything else."""
        if not isinstance(value, Mapping | None):
            raise ConfigError(path, found=value, expected=str(self))
        return {name: _spark_value(f"{path}.{name}", each) for name, each in _texts(path, value or {})}


def _spark_value(path: str, value: object) -> str:
    if isinstance(value, bool):  # Spark writes true and false
        return str(value).lower()
    if not isinstance(value, (str, int, float)):
        raise ConfigError(path, found=value, expected="a string, a number or true/false")
    return str(value)


def _texts(path: str, mapping: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    """Return the items of a mapping whose keys are text; `ConfigError` for any other key."""
    for name in mapping:
        if not isinstance(name, str):
            where = f"{path}.{name}" if path else f"{name}"
            raise ConfigError(where, found=name, expected="a string as key (quote it)")
    return list(mapping.items())


# ------------------------------------------------------------------------------------------------ sections

_MASTER = (
    r"local|local\[(\*|\d+)(, *\d+)?\]|local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]|spark://.+|yarn|k8s://.+"
)


@dataclass(frozen=True)
class ApplicationSettings(Configuration, section="application"):
    """What runs."""

    id: str = key(
        Text(r"(?!\.{1,2}$)[A-Za-z0-9._-]+", "a name of letters, digits, '.', '_' and '-'"),
        doc="name of the stream and of its directories",
    )
    cls: str = key(
        Text(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "'module:Class', or a section `topology` instead"),
        doc="class of the application",
        name="class",
        unless="a section `topology`",
    )


@dataclass(frozen=True)
class SparkSettings(Configuration, section="spark"):
    """How Spark is started."""

    master: str | None = key(
        Text(_MASTER, "a Spark master like 'local-cluster[3,2,1024]' or 'spark://host:7077'"),
        None,
        "Spark master; default: the one of spark-submit, otherwise local[*]",
    )
    app_name: str = key(
        Text(r".*\S.*", "a name"), "", "name in Spark's web UI; default: the application's id"
    )
    conf: Mapping[str, str] = key(SparkConf(), None, "configuration keys that are passed to Spark unchanged")
    trigger_interval: Duration | None = key(  # noqa: RUF009  a field, as of dataclasses.field
        DurationAboveZero(),
        None,
        "run until stopped, and begin batches at most this often; without it, `taskplace run` reads what is there when "
        "it starts, and ends",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "conf", self.conf or {})

    def __repr__(self) -> str:
        return shown(self)


@dataclass(frozen=True)
class CheckpointSettings(Configuration, section="checkpoint"):
    """Where progress is committed."""

    # Elsewhere no exclusive create is known to work, and the commit stands on it.
    dir: str | None = key(
        Directory("a directory, or a file:// URI, of this host", uri=True),
        None,
        "directory for manifests, changelogs and snapshots; default: var/<id>/checkpoint",
    )


@dataclass(frozen=True)
class StateSettings(Configuration, section="state"):
    """Where executors keep their copies."""

    dir: str | None = key(
        Directory("a directory on the executors' local disk, no URI"),
        None,
        "directory for copies on each executor; default: var/<id>/state",
    )


@dataclass(frozen=True)
class ChaosSettings(Configuration, section="chaos[]"):
    """A drill that kills an executor in a batch."""

    batch: int = key(Integer(0), doc="batch in which the executor is killed; the first batch is 0")
    kill: str = key(ExecutorName(), doc="executor to kill: its id, or the one with the most active tasks")


class LogFormat:
    """A format of log lines, or none."""

    def __str__(self) -> str:
        return f"one of {', '.join(FORMATS)}, none"

    def read(self, path: str, value: Any) -> str | None:
        """Return the format; None for "none". Errors: `ConfigError`."""
        read = Choice(*FORMATS, "none").read(path, "none" if value is None else value)
        return None if read == "none" else read


@dataclass(frozen=True)
class ReportSettings(Configuration, section="report"):
    """How a run is shown, logged and measured."""

    progress: str = key(
        Choice("auto", "rich", "plain", "json", "none"),
        "auto",
        "auto: rich on a terminal, otherwise plain; plain also where CI is set; json: a line of JSON for each event",
    )
    log: str | None = key(
        LogFormat(),
        None,
        "write log lines to standard error: a line for each rebalance, warnings, errors; json: one object per line",
    )
    log_tasks: bool = key(Boolean(), False, "with `log`: also a line for each task that moves")
    metrics_port: int | None = key(
        Integer(0, 65_535, optional=True),
        None,
        "serve metrics to Prometheus on this port while the stream runs; 0: a free port, which the output names",
    )
    metrics_host: str = key(
        Text(r"\S+", "an address of this host"),
        "127.0.0.1",
        "address of the metrics' endpoint, which has no authentication",
    )
    html: str | None = key(
        Directory("a path of a file on this host, no URI"),
        None,
        "write an HTML page about the run there when it ends, also after an error; docs/report.md",
    )
    events: str | None = key(
        Directory("a path of a file on this host, no URI"),
        None,
        "write the events of the run there while it runs, a JSON line each; `taskplace report` makes a page of them",
    )
    ui_port: int | None = key(
        Integer(0, 65_535, optional=True),
        None,
        "serve a live page on this port while the run goes on; 0: a free port, which the output names",
    )
    ui_host: str = key(
        Text(r"\S+", "an address of this host"),
        "127.0.0.1",
        "address of the live page, which has no authentication",
    )


#: By section, the keys whose values are mappings: an override may name a key in them.
_MAPPINGS = {"spark": ("conf",), "runtime": ("tags", "weights")}
FREE = ("topology", "input", "output")
"""Sections that the application reads itself."""
SECTIONS: Mapping[str, type[Configuration]] = {
    part.SECTION: part
    for part in (
        ApplicationSettings,
        SparkSettings,
        CheckpointSettings,
        StateSettings,
        PlacedOptions,
        ReportSettings,
    )
} | {"placement": PlacementConfig}
_KNOWN = (*SECTIONS, *FREE, "chaos")


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
        return shown(self)

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Settings:
        """Read the YAML file at `path`; `overrides` are "key=value" texts with priority over the file."""
        return cls.from_mapping(read(Path(path)), overrides)

    @classmethod
    def from_mapping(cls, document: Mapping[str, Any], overrides: Sequence[str] = ()) -> Settings:
        """Check a parsed document and return its settings; `overrides` as for `load`."""
        if not isinstance(document, Mapping):
            raise ConfigError("settings", found=document, expected="a mapping with the key 'application'")
        if isinstance(overrides, str) or not all(isinstance(text, str) for text in overrides):
            raise ConfigError("overrides", found=overrides, expected="a list of 'key=value'")
        given: Mapping[str, Any] = document
        for text in overrides:
            given = overridden(given, *override(text))
        check_nested(document, entries=not _has_class(given))
        return _build(given)


def overridden(document: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return the document with one value set."""
    section, _, rest = path.partition(".")
    inside = document.get(section)
    if not rest:
        merge = isinstance(inside, Mapping) and isinstance(value, Mapping)
        return {**document, section: {**inside, **value} if merge else value}  # type: ignore[dict-item]
    if not isinstance(inside, Mapping | None):
        raise ConfigError(section, found=inside, expected="a mapping, because the override sets a key in it")
    return {**document, section: graft(_opened(section, dict(inside or {}), rest), rest, value)}


def _opened(section: str, tree: dict[str, Any], path: str) -> dict[str, Any]:
    """Return a section with the mappings that a path leads through. Of `runtime.tags`, the last word is a tag's name.

    >>> _opened("runtime", {}, "tags.host-1.rack"), _opened("runtime", {}, "snapshot.interval")
    ({'tags': {'host-1': {}}}, {})
    """
    name, _, rest = path.partition(".")
    if rest and name in _MAPPINGS.get(section, ()):
        inner = tree.get(name) or {}
        host, _, tag = rest.rpartition(".") if name == "tags" else ("", "", "")
        if host and tag and isinstance(inner, Mapping):
            inner = {**inner, host: inner.get(host) or {}}
        tree[name] = inner
    return tree


def _build(document: Mapping[str, Any]) -> Settings:
    check_sections(document, section_keys())
    given = {name: value for name, value in _texts("", document) if _is_section(name)}
    given["runtime"] = _renamed(given.get("runtime"))
    topology = _free("topology", given)
    if topology and isinstance(application := given.get("application"), Mapping):
        given["application"] = {"class": YAML_APPLICATION, **application}
    sections: dict[str, Any] = {
        name: part.from_properties({} if given.get(name) is None else given[name], path=name)
        for name, part in SECTIONS.items()
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
        topology=topology,
        spark=spark if spark.app_name else replace(spark, app_name=app.id),
        runtime=sections["runtime"],
        input=_free("input", given),
        output=_free("output", given),
        chaos=_chaos(given.get("chaos")),
        report=sections["report"],
    )


def section_keys() -> dict[str, tuple[str, ...]]:
    """Return the keys of each section; of one that is read elsewhere, such as `topology`, none."""
    return {**dict.fromkeys(_KNOWN, ()), **{name: part.known_keys() for name, part in SECTIONS.items()}}


def _has_class(document: Mapping[str, Any]) -> bool:
    """Return whether the application has a class of its own, which reads `input` and `output` as it likes."""
    application = document.get("application")
    return isinstance(application, Mapping) and application.get("class", YAML_APPLICATION) != YAML_APPLICATION


def _renamed(runtime: Any) -> Any:
    """Return the section `runtime` with a key of the previous version under its new name and unit."""
    old = "follower.share.percent"
    if not isinstance(runtime, Mapping) or old not in runtime:
        return runtime
    percent = Integer(1, 100).read(f"runtime.{old}", runtime[old])
    if "follower.share" in runtime:
        raise ConfigError(f"runtime.{old}", found="a key given twice", expected="one of its two names")
    return {
        **{name: value for name, value in runtime.items() if name != old},
        "follower.share": percent / 100,
    }


def _is_section(name: str) -> bool:
    """Return whether a name is the name of a section. Errors: `ConfigError` with the correct spelling."""
    if name in _KNOWN:
        return True
    section, _, rest = name.partition(".")
    if rest and section in _KNOWN:
        raise ConfigError(
            name,
            found="a dotted key at the top level",
            expected=f"the key in its section: `{section}: {{{rest}: ...}}`",
        )
    raise ConfigError.unknown_key("", name, _KNOWN)


def _free(section: str, given: Mapping[str, Any]) -> dict[str, Any]:
    value = given.get(section)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(section, found=value, expected="a mapping")
    return dict(_texts(section, value))


def absolute(directory: str) -> str:
    """Return a path as an absolute path; a URI unchanged."""
    return directory if is_uri(directory) else str(Path(directory).expanduser().absolute())


def _chaos(entries: object) -> tuple[ChaosSettings, ...]:
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise ConfigError("chaos", found=entries, expected="a list of {batch, kill}")
    for i, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise ConfigError(f"chaos[{i}]", found=entry, expected="{batch, kill}")
    return tuple(ChaosSettings.from_properties(each, path=f"chaos[{i}]") for i, each in enumerate(entries))
