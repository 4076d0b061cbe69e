"""Loads the application that `application.class` in the configuration names."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from taskplace.cli.documents import application_document
from taskplace.errors import ConfigError
from taskplace.model import callables
from taskplace.model.callables import unfit
from taskplace.spec.application import YAML_APPLICATION, Settings
from taskplace.spec.document import override, with_value

if TYPE_CHECKING:
    from topology import BuiltTopology, Topology


class Application(Protocol):
    """The required methods of an application class. It is created with the `Settings` as its only argument.

    Its constructor checks `settings.input` and `settings.output`, and raises `ConfigError`. Optional methods:
    - `prepare()`: creates the input if it is missing; called before Spark starts;
    - `batches()`: returns the expected number of batches, for the progress bar; called after `prepare`;
    - `check(spark)`: returns a `CheckResult` about the result; called after the stream has ended.
    """

    def topology(self) -> Topology:
        """Return the topology to run."""

    def sources(self, spark: Any) -> Mapping[str, Any]:
        """Return a streaming DataFrame for each external topic of the topology."""


METHODS = ("topology", "sources")
#: The methods that are called, if they are there, with their arguments.
CALLED: Mapping[str, Sequence[str]] = {
    "topology": (),
    "sources": ("spark",),
    "prepare": (),
    "batches": (),
    "check": ("spark",),
}
SPARKS_OWN = ("pyspark", "py4j", "pyarrow", "lmdb", "pandas", "psutil")  # what the extra `spark` brings


def load_application(settings: Settings) -> Application:
    """Import the class and make the application.

    The current directory comes first on the path, here and in the workers that Spark starts, because that is
    where an application that was never installed lies.

    Errors: `ConfigError` for `application.class`: no such module or class, a module that does not load, a
    class without the methods of `Application` or with other parameters, or one that needs what is not installed.
    """
    reach_workers()
    path, name = "application.class", settings.application.cls
    module_name, _, class_name = name.partition(":")
    try:
        made = callables.load(name)
    except callables.UnknownName as error:
        near = difflib.get_close_matches(class_name, [known.partition(":")[2] for known in error.known], n=1)
        hint = f"did you mean {module_name + ':' + near[0]!r}?" if near else ""
        raise ConfigError(
            path, found=name, expected=f"a class of module {module_name!r}", hint=hint
        ) from None
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        if missing == module_name or module_name.startswith(f"{missing}."):
            expected = f"a module that can be imported in {Path.cwd()}"
            raise ConfigError(path, found=name, expected=expected) from None
        raise _needs(settings, error) from error
    except (ImportError, SyntaxError) as error:
        raise ConfigError(
            path, found=name, expected="a module that can be imported", hint=f"{error}"
        ) from error
    lacking = [method for method in METHODS if not callable(getattr(made, method, None))]
    if lacking or not isinstance(made, type):
        expected = "a class with the methods " + ", ".join(METHODS)
        raise ConfigError(
            path, found=name, expected=expected, hint=(lacking and "it lacks " + ", ".join(lacking)) or ""
        )
    _check_call(made, name, ["settings"])
    with _needing(settings):
        application: Application = made(settings)
    for method, arguments in CALLED.items():
        if callable(called := getattr(application, method, None)):
            _check_call(called, f"{name}.{method}", arguments)
    return application


def _check_call(function: Callable[..., Any], name: str, arguments: Sequence[str]) -> None:
    """Refuse a class, or a method of it, that cannot be called as it will be: `check` is called after the stream."""
    if (parameters := unfit(function, arguments)) is not None:
        called = "()" if not arguments else f"({', '.join(arguments)})"
        raise ConfigError("application.class", found=f"{name}{parameters}", expected=f"{name}{called}")


def topology_of(application: Application, settings: Settings) -> Topology:
    """Return the application's topology. Errors: as `load_application`, and those of the topology itself."""
    with _needing(settings):
        return application.topology()


def built_topology(application: Application, settings: Settings) -> BuiltTopology:
    """Return the application's topology, built. Errors: as `topology_of`; `TopologyError` with the path in the file."""
    from taskplace.spark.yaml_paths import node_path
    from topology import TopologyError

    try:
        return topology_of(application, settings).build()
    except TopologyError as error:
        raise type(error)(node_path(str(error), settings.topology), node=error.node) from error


def judge(built: BuiltTopology, settings: Settings) -> None:
    """Refuse what a start would refuse; where Spark's packages are missing, nothing is judged.

    Errors: `ConfigError` and `TopologyError` with the path in the file, as far as it is there.
    """
    if settings.application.cls == YAML_APPLICATION:  # judged when it was made, with its sources
        return
    try:
        from taskplace.spark.yaml_application import judge
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in SPARKS_OWN:
            raise
        return
    judge(built, settings)


def shown_topology(file: str, overrides: Sequence[str] = ()) -> Topology:
    """Return the topology to show of a file: an application's, or a topology's own document.

    A document has its name, `sources` and `nodes` at the top, and is what `Topology.from_dict` takes; its processors
    are not made. Of an application without a class, neither `input` nor `output` matters, and Spark is not needed.
    """
    document = application_document(file, "topology")
    sections = {f"{key}".partition(".")[0] for key in document}
    if not {"sources", "nodes"}.isdisjoint(document) and "application" not in sections:
        return _plain(document, overrides)
    settings = Settings.from_mapping(document, overrides)
    if settings.application.cls != YAML_APPLICATION:
        return topology_of(load_application(settings), settings)
    reach_workers()  # processors of one's own lie in the current directory
    with _needing(settings):
        from taskplace.spark.yaml_application import declared_topology

        return declared_topology(settings)


def _plain(document: Mapping[str, Any], overrides: Sequence[str]) -> Topology:
    from taskplace.spark.stub_processors import Anything
    from taskplace.spec import nodes
    from topology import Topology

    for text in overrides:
        document = with_value(document, *override(text), nodes.Topology)
    return Topology.from_dict(document, Anything())


@contextmanager
def _needing(settings: Settings) -> Iterator[None]:
    """Say in one line that a package is missing which the application loads late."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise _needs(settings, error) from error


def _needs(settings: Settings, error: ModuleNotFoundError) -> ConfigError:
    missing = error.name or str(error)
    if missing.partition(".")[0] in SPARKS_OWN:
        hint = f"it needs {missing!r}; pip install 'taskplace[spark]'"
    else:
        hint = f"it needs {missing!r}; pip install 'taskplace[spark,examples]' brings what the examples need"
    if settings.application.cls == YAML_APPLICATION:  # which the user never wrote
        return ConfigError(
            "topology", found="no Spark", expected="the packages that run a topology", hint=hint
        )
    return ConfigError(
        "application.class",
        found=settings.application.cls,
        expected="a module that can be imported",
        hint=hint,
    )


def reach_workers() -> None:
    """Let this process, and the workers that Spark starts, import what lies in the current directory."""
    # A worker's Python is the first python3 on the PATH unless one says otherwise; it has to be this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    # Workers are other processes: they learn it from the environment, which they inherit.
    inherited = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if here not in inherited:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *inherited])


def check_inputs(application: Any, settings: Settings) -> None:
    """Refuse input directories of a file without a class that do not exist on this host. Errors: `ConfigError`."""
    if settings.application.cls != YAML_APPLICATION:  # a class may make them in `prepare`
        return
    for path, directory in application.missing_inputs().items():
        near = difflib.get_close_matches(directory.name, _directories(directory.parent), n=1)
        hint = f"did you mean {str(directory.with_name(near[0]))!r}?" if near else ""
        raise ConfigError(path, found=str(directory), expected="a directory that exists", hint=hint)


def _directories(parent: Path) -> list[str]:
    return [each.name for each in parent.iterdir() if each.is_dir()] if parent.is_dir() else []
