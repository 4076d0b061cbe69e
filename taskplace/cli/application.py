"""Loads the application that `application.class` in the configuration names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from taskplace.cli.documents import application_document
from taskplace.errors import ConfigError
from taskplace.model import callables
from taskplace.model.callables import unfit
from taskplace.spec import nodes
from taskplace.spec.application import YAML_APPLICATION, Settings
from taskplace.spec.document import nearest_file, override, with_value
from topology.errors import nearest_name

if TYPE_CHECKING:
    from taskplace.spark.driver.definition import StreamDefinition
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


#: The methods that are called, if they are there, with their arguments.
CALLED: Mapping[str, Sequence[str]] = {
    "topology": (),
    "sources": ("spark",),
    "prepare": (),
    "batches": (),
    "check": ("spark",),
}
SPARKS_OWN = ("pyspark", "py4j", "pyarrow", "lmdb", "pandas", "psutil")
"""What the extra `spark` brings."""


def load_application(settings: Settings) -> Application:
    """Import the class and make the application.

    The current directory comes first on the path, here and in the workers that Spark starts, because that is
    where an application that was never installed lies.

    Errors: `ConfigError` for `application.class`: no such module or class, a module that does not load, a
    class without the methods of `Application` or with other parameters, or one that needs what is not installed.
    """
    reach_workers()
    name = settings.application.cls
    module = name.partition(":")[0]

    def refused(expected: str, hint: str = "", found: str = name) -> ConfigError:
        return ConfigError("application.class", found=found, expected=expected, hint=hint)

    try:
        made = callables.load(name)
    except callables.UnknownName as error:
        names = [known.partition(":")[2] for known in error.known]
        near = nearest_name(name.partition(":")[2], names)
        hint = f"did you mean '{error.module}:{near}'?" if near else ""
        raise refused(f"a class of module {module!r}", hint) from None
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise refused(f"a module that can be imported in {Path.cwd()}") from None
        raise _needs(settings, error) from error
    except (ImportError, SyntaxError) as error:
        raise refused("a module that can be imported", f"{error}") from error
    lacking = [method for method in ("topology", "sources") if not callable(getattr(made, method, None))]
    if lacking or not isinstance(made, type):
        hint = f"it lacks {', '.join(lacking)}" if lacking else ""
        raise refused("a class with the methods topology, sources", hint)
    if (parameters := unfit(made, ["settings"])) is not None:
        raise refused(f"{name}(settings)", found=f"{name}{parameters}")
    with _needing(settings):
        application: Application = made(settings)
    for method, arguments in CALLED.items():  # `check` is called after the stream
        called = getattr(application, method, None)
        if callable(called) and (parameters := unfit(called, arguments)) is not None:
            expected = f"{name}.{method}({', '.join(arguments)})"
            raise refused(expected, found=f"{name}.{method}{parameters}")
    return application


def built_topology(application: Application, settings: Settings) -> BuiltTopology:
    """Return the application's topology, built. Errors: `ConfigError`; `TopologyError` with the path in the file."""
    from taskplace.spark.yaml_paths import node_path
    from topology import TopologyError

    try:
        with _needing(settings):
            return application.topology().build()
    except TopologyError as error:
        raise type(error)(node_path(str(error), settings.topology), node=error.node) from error


def judge(application: Any, built: BuiltTopology, settings: Settings) -> StreamDefinition | None:
    """Refuse what a start would refuse; where Spark's packages are missing, nothing is judged.

    Errors: `ConfigError` and `TopologyError` with the path in the file, as far as it is there.
    """
    if settings.application.cls == YAML_APPLICATION:  # judged when it was made, with its sources
        return application.definition  # type: ignore[no-any-return]
    try:
        from taskplace.spark.yaml_application import judge
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in SPARKS_OWN:
            raise
        return None
    return judge(built, settings)


def shown_topology(file: str, overrides: Sequence[str] = ()) -> Topology:
    """Return the topology to show of a file: an application's, or a topology's own document.

    A document has its name, `sources` and `nodes` at the top, and is what `Topology.from_dict` takes; its processors
    are not made. Of an application without a class, neither `input` nor `output` matters, and Spark is not needed.
    """
    from topology import Topology

    document = application_document(file, "topology")
    if not {"sources", "nodes"}.isdisjoint(document) and "application" not in document:
        from taskplace.spark.stub_processors import Anything

        for text in overrides:
            document = with_value(document, *override(text), nodes.Topology)
        return Topology.from_dict(document, Anything())
    settings = Settings.from_mapping(document, overrides)
    if settings.application.cls != YAML_APPLICATION:
        application = load_application(settings)
        with _needing(settings):
            return application.topology()
    reach_workers()  # processors of one's own lie in the current directory
    with _needing(settings):
        from taskplace.spark.yaml_application import declared_topology

        return declared_topology(settings)


@contextmanager
def _needing(settings: Settings) -> Iterator[None]:
    """Say in one line that a package is missing which the application loads late."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise _needs(settings, error) from error


def _needs(settings: Settings, error: ModuleNotFoundError) -> ConfigError:
    missing = error.name or str(error)
    extras = "spark" if missing.partition(".")[0] in SPARKS_OWN else "spark,examples"
    hint = f"it needs {missing!r}; pip install 'taskplace[{extras}]'"
    path, found = "application.class", settings.application.cls
    if found == YAML_APPLICATION:  # which the user never wrote
        path, found = "topology", "no Spark"
    return ConfigError(path, found=found, expected="packages that can be imported", hint=hint)


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
        near = nearest_file(directory, "*", os.path.isdir)
        hint = f"did you mean {near!r}?" if near else ""
        raise ConfigError(path, found=str(directory), expected="a directory that exists", hint=hint)
