"""The configuration of an application: one YAML file, read and judged whole before anything starts.

A key is a dotted path (`runtime.snapshot.interval.batches`). It may be written flat or nested, as one likes;
both mean the same, and a key given twice is an error. Kafka's own keys stand verbatim under `placement`.

    application:            what runs
      id                    required; names the stream and its directories: letters, digits, . _ -
      class                 "module:Class" of the application; required unless there is a `topology`, which
                            `taskplace.spark.declared` runs by itself
    topology                free: the stream, see `taskplace.spark.declared`
    spark:
      master                Spark's own words; without it, spark-submit or local[*] decides
      app.name              default: the application's id
      conf                  Spark's own keys, handed on as they are
    checkpoint.dir          committed progress, changelogs, snapshots; default var/<id>/checkpoint
    state.dir               local disk of the executors; default var/<id>/state
    placement               Kafka's keys, see `taskplace.model.config`
    runtime:
      snapshot.interval.batches   batches between two snapshots of a task; default 10
      snapshot.bytes              or so many bytes of its changelog; default 64 MiB
      follower.share.percent      how much of the executors' slots standbys take while a batch runs; default 10
      changelog.compression       none, lz4 (default) or zstd
      locality.wait.ms            how long Spark waits for the planned executor; default 300000
      bytes.per.task.max          input of one task in one batch; default 128 MiB
    input, output           free: read by the application class alone; without one, where the topology's sources
                            come from and its sinks go to, see `taskplace.spark.declared`
    chaos                   a list of {batch, kill}: executors to kill, for drills
    report.progress         auto (default), rich, plain or none

Errors: `ConfigError` with the path, what was found, what was expected and the nearest known key.

An override may lead into nested values (`topology.sources.flights.partitions=6`, `input.flights.path=/in`); at each
step the longest key that is there is taken, and what is left is one key.

YAML that could be meant in two ways is refused with its line (`taskplace.yamls`).

Non-goals: no environment variables, no includes, no templates. `--set key=value` is for the odd change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from taskplace.errors import ConfigError, InputError
from taskplace.model import reading
from taskplace.model.config import PlacementConfig, Reader, choice_key
from taskplace.paths import is_uri, local_path
from taskplace.redaction import redacted
from taskplace.written import collect, flatten, graft, override, read


def shown(settings: Any) -> str:
    """Return how settings are represented: without their secrets."""
    values = {part.name: redacted(getattr(settings, part.name), part.name) for part in fields(settings)}
    return f"{type(settings).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"


MOST_ACTIVE = "executor-with-most-active"
DECLARED = "taskplace.spark.declared:Declared"  # the class of an application that is YAML alone


@dataclass(frozen=True)
class ApplicationSettings:
    """What runs: its id, and its class as "module:Class"."""

    id: str
    cls: str


@dataclass(frozen=True)
class SparkSettings:
    """How Spark is started; `conf` holds Spark's own keys, values as Spark writes them."""

    master: str | None = None
    app_name: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return shown(self)


@dataclass(frozen=True)
class RuntimeSettings:
    """How a placed batch runs: batches, milliseconds, bytes."""

    snapshot_interval_batches: int = 10
    snapshot_bytes: int = 64 * 2**20
    follower_share_percent: int = 10
    changelog_compression: str = "lz4"
    locality_wait_ms: int = 30_000
    bytes_per_task_max: int = 128 * 2**20


@dataclass(frozen=True)
class ChaosSettings:
    """A drill: in batch `batch`, kill executor `kill`, an executor's id or `MOST_ACTIVE`."""

    batch: int
    kill: str


@dataclass(frozen=True)
class Settings:
    """All an application may be told, valid by construction when it comes from `load` or `from_mapping`.

    `checkpoint_dir` is an absolute path or a URI with a scheme; `state_dir` is an absolute local path.
    Relative ones are taken from the current directory.

    >>> app = {"id": "demo", "class": "shop.orders:Orders"}
    >>> settings = Settings.from_mapping({"application": app, "report.progress": "plain"})
    >>> settings.application.cls, settings.report_progress, settings.runtime.locality_wait_ms
    ('shop.orders:Orders', 'plain', 30000)
    >>> Settings.from_mapping({"application": app, "runtime.locality.wait": 5})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    taskplace.errors.ConfigError: runtime.locality.wait: found an unknown key, ... mean 'locality.wait.ms'?
    """

    application: ApplicationSettings
    checkpoint_dir: str
    state_dir: Path
    placement: PlacementConfig
    topology: Mapping[str, Any] = field(default_factory=dict)
    spark: SparkSettings = field(default_factory=SparkSettings)
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)
    input: Mapping[str, Any] = field(default_factory=dict)
    output: Mapping[str, Any] = field(default_factory=dict)
    chaos: tuple[ChaosSettings, ...] = ()
    report_progress: str = "auto"

    def __repr__(self) -> str:
        return shown(self)

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Settings:
        """Read the YAML file at `path`; `overrides` are "key=value" lines that win over the file."""
        return cls.from_mapping(read(Path(path)), overrides)

    @classmethod
    def from_mapping(cls, document: Mapping[str, Any], overrides: Sequence[str] = ()) -> Settings:
        """Judge a document that was read already; `overrides` as for `load`."""
        if not isinstance(document, Mapping):
            raise ConfigError("settings", found=document, expected="a mapping with the key 'application'")
        if isinstance(overrides, str) or not all(isinstance(text, str) for text in overrides):
            raise ConfigError("overrides", found=overrides, expected="a list of 'key=value'")
        given = collect(flatten(document, FREE, _SECTIONS))
        for text in overrides:
            for path, value in flatten(dict([override(text)]), FREE, _SECTIONS):
                given = _put(given, path, value)
        return _build(given)


# ---------------------------------------------------------------------------------------------------- values


def _text(pattern: str, expected: str) -> Reader:
    def read(path: str, value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ConfigError(path, found=value, expected=expected)
        return value

    return read


def _directory(expected: str, *, uri: bool) -> Reader:
    def read(path: str, value: object) -> str:
        if not isinstance(value, str) or (is_uri(value) and not uri):
            raise ConfigError(path, found=value, expected=expected)
        local_path(value, path, expected=expected, error=ConfigError)
        return value

    return read


def _integer(low: int, high: int = reading.MOST) -> Reader:
    def read(path: str, value: object) -> Any:
        try:
            return reading.integer(value, path, low, high)
        except InputError:
            at_most = f" and <= {high}" if high < reading.MOST else ""
            raise ConfigError(path, found=value, expected=f"an integer >= {low}{at_most}") from None

    return read


def _executor(path: str, value: object) -> str:
    # Spark's ids are digits, so YAML reads them as integers.
    value = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return str(_text(r"\S+", f"{MOST_ACTIVE!r} or an executor id")(path, value))


_MASTER = (
    r"local|local\[(\*|\d+)(, *\d+)?\]|local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]|spark://.+|yarn|k8s://.+"
)

KEYS: Mapping[str, Mapping[str, Reader]] = {
    "application": {
        "id": _text(r"(?!\.{1,2}$)[A-Za-z0-9._-]+", "a name of letters, digits, '.', '_' and '-'"),
        "class": _text(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "'module:Class', or a topology in its place"),
    },
    "spark": {
        "master": _text(_MASTER, "a Spark master like 'local-cluster[3,2,1024]' or 'spark://host:7077'"),
        "app.name": _text(r".*\S.*", "a name"),
    },
    "checkpoint": {
        # Elsewhere there is no exclusive create that is known to work, and the commit stands on it.
        "dir": _directory("a directory, or a file:// URI, of this host", uri=True)
    },
    "state": {"dir": _directory("a directory on the executors' local disk, no URI", uri=False)},
    "runtime": {
        "snapshot.interval.batches": _integer(1),
        "snapshot.bytes": _integer(1),
        "follower.share.percent": _integer(1, 100),
        "changelog.compression": choice_key("none", "lz4", "zstd"),
        "locality.wait.ms": _integer(0),
        # One element of a partition travels as one Java array: 2 GiB is where those end.
        "bytes.per.task.max": _integer(1, 2**31 - 1),
    },
    "report": {"progress": choice_key("auto", "rich", "plain", "none")},
}
_CHAOS: Mapping[str, Reader] = {"batch": _integer(0), "kill": _executor}
FREE = ("topology", "input", "output")  # the application's own: one level of keys, values as they are
_OPEN = ("placement", "spark.conf", *FREE)  # keys that are judged elsewhere, or not at all
SECTIONS = (*KEYS, "placement", *FREE, "chaos")
_SECTIONS = (*SECTIONS, "spark.conf")


# -------------------------------------------------------------------------------------------------- building


def _put(given: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Set a key that an override names; one that leads into a free section changes its nested values."""
    section = path.partition(".")[0]
    free = {key: value for key, value in given.items() if section in FREE and key.startswith(f"{section}.")}
    return {**given, **graft(free, path, value)}


def _build(given: Mapping[str, Any]) -> Settings:
    for path, value in given.items():
        _known(path, value)
    known = {path: read for section, keys in KEYS.items() for path, read in _paths(section, keys)}
    values = {path: read(path, given[path]) for path, read in known.items() if path in given}
    topology = _under("topology", given)
    if topology:
        values.setdefault("application.class", DECLARED)
    for path in ("application.id", "application.class"):
        if path not in values:
            known[path](path, _NOTHING)
    app = ApplicationSettings(values["application.id"], values["application.class"])
    spark = SparkSettings(
        values.get("spark.master"),
        values.get("spark.app.name", app.id),
        {key: _scalar(f"spark.conf.{key}", value) for key, value in _under("spark.conf", given).items()},
    )
    runtime = {
        path.partition(".")[2].replace(".", "_"): v
        for path, v in values.items()
        if path.startswith("runtime.")
    }
    checkpoint = absolute(values.get("checkpoint.dir", f"var/{app.id}/checkpoint"))
    state = absolute(values.get("state.dir", f"var/{app.id}/state"))
    if local_path(checkpoint, "checkpoint.dir") == Path(state):
        raise ConfigError("state.dir", found=state, expected="another directory than checkpoint.dir")
    return Settings(
        application=app,
        checkpoint_dir=checkpoint,
        state_dir=Path(state),
        placement=PlacementConfig.from_properties(_under("placement", given), path="placement"),
        topology=topology,
        spark=spark,
        runtime=RuntimeSettings(**runtime),
        input=_under("input", given),
        output=_under("output", given),
        chaos=_chaos(given.get("chaos", [])),
        report_progress=values.get("report.progress", "auto"),
    )


class _Nothing:
    """What is found where a required key is missing."""

    def __repr__(self) -> str:
        return "nothing"


_NOTHING = _Nothing()


def _paths(section: str, keys: Mapping[str, Reader]) -> Iterator[tuple[str, Reader]]:
    return ((f"{section}.{key}", read) for key, read in keys.items())


def _known(path: str, value: object) -> None:
    section, _, rest = path.partition(".")
    if path == "chaos" or (rest and any(path.startswith(f"{free}.") for free in _OPEN)):
        return
    if section not in SECTIONS:
        raise ConfigError.unknown_key("", section, (*SECTIONS, "checkpoint.dir", "state.dir"))
    if not rest or path == "spark.conf":
        raise ConfigError(path, found=value, expected="a mapping")
    if section == "chaos":
        raise ConfigError(section, found={rest: value}, expected="a list of {batch, kill}")
    keys = [*KEYS[section], *(["conf"] if section == "spark" else [])]
    if rest not in keys:
        raise ConfigError.unknown_key(section, rest, keys)


def _under(section: str, given: Mapping[str, Any]) -> dict[str, Any]:
    start = f"{section}."
    return {path.removeprefix(start): value for path, value in given.items() if path.startswith(start)}


def _scalar(path: str, value: object) -> str:
    if isinstance(value, bool):  # Spark writes true and false
        return str(value).lower()
    if not isinstance(value, (str, int, float)):
        raise ConfigError(path, found=value, expected="a text, a number or true/false")
    return str(value)


def absolute(directory: str) -> str:
    """Return a path as seen from the current directory; a URI as it is."""
    return directory if is_uri(directory) else str(Path(directory).expanduser().absolute())


def _chaos(entries: object) -> tuple[ChaosSettings, ...]:
    if not isinstance(entries, list):
        raise ConfigError("chaos", found=entries, expected="a list of {batch, kill}")
    drills = []
    for i, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise ConfigError(f"chaos[{i}]", found=entry, expected="{batch, kill}")
        for key in entry:
            if key not in _CHAOS:
                raise ConfigError.unknown_key(f"chaos[{i}]", key, _CHAOS)
        drills.append(
            ChaosSettings(
                **{k: read(f"chaos[{i}].{k}", entry.get(k, _NOTHING)) for k, read in _CHAOS.items()}
            )
        )
    return tuple(drills)
