"""From `application.class` in the configuration to an object that can run."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from taskplace.errors import ConfigError
from taskplace.settings import Settings

if TYPE_CHECKING:
    from topology import Topology


class Application(Protocol):
    """What an application class has to have; it is made with the `Settings` as its one argument.

    It judges `settings.input` and `settings.output` when it is made, and raises `ConfigError` then.

    It may have more, and what it has is used:
    - `prepare()`: makes the input if it is missing; called before Spark starts;
    - `batches()`: how many batches there will be, for the progress bar; called after `prepare`;
    - `check(spark)`: a `CheckResult` that says whether the result is right; called after the stream has ended.
    """

    def topology(self) -> Topology:
        """Return the topology to run."""

    def sources(self, spark: Any) -> Mapping[str, Any]:
        """Return a streaming DataFrame for each external topic of the topology."""


METHODS = ("topology", "sources")


def load_application(settings: Settings) -> Application:
    """Import the class and make the application.

    The current directory comes first on the path, here and in the workers that Spark starts, because that is
    where an application that was never installed lies.

    Errors: `ConfigError` for `application.class`: no such module or class, a module that does not load, or a
    class without the methods of `Application`.
    """
    _reach_workers()
    path, name = "application.class", settings.application.cls
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        if missing == module_name or module_name.startswith(f"{missing}."):
            expected = f"a module that can be imported in {Path.cwd()}"
            raise ConfigError(path, found=name, expected=expected, hint=_near_module(missing)) from None
        hint = f"it needs {missing!r}; pip install 'taskplace[spark,examples]' brings what the examples need"
        raise ConfigError(path, found=name, expected="a module that loads", hint=hint) from error
    except (ImportError, SyntaxError) as error:
        raise ConfigError(path, found=name, expected="a module that loads", hint=f"{error}") from error
    made = getattr(module, class_name, None)
    if made is None:
        near = difflib.get_close_matches(class_name, [n for n in vars(module) if not n.startswith("_")], n=1)
        hint = f"did you mean {module_name + ':' + near[0]!r}?" if near else ""
        raise ConfigError(path, found=name, expected=f"a class of module {module_name!r}", hint=hint)
    lacking = [method for method in METHODS if not callable(getattr(made, method, None))]
    if lacking or not isinstance(made, type):
        expected = "a class with the methods " + ", ".join(METHODS)
        raise ConfigError(
            path, found=name, expected=expected, hint=(lacking and "it lacks " + ", ".join(lacking)) or ""
        )
    application: Application = made(settings)
    return application


def _reach_workers() -> None:
    # A worker's Python is the first python3 on the PATH unless one says otherwise; it has to be this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    # Workers are other processes: they learn it from the environment, which they inherit.
    inherited = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if here not in inherited:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *inherited])


def _near_module(missing: str) -> str:
    """Return a hint with the nearest module beside the missing one, as far as its package exists."""
    parent, _, leaf = missing.rpartition(".")
    directory = Path.cwd().joinpath(*parent.split(".")) if parent else Path.cwd()
    beside = (
        [p.stem for p in directory.iterdir() if p.suffix == ".py" or p.is_dir()] if directory.is_dir() else []
    )
    near = difflib.get_close_matches(leaf, beside, n=1)
    return f"did you mean {'.'.join(filter(None, [parent, near[0]]))!r}?" if near else ""
