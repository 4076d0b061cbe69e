"""Finds the modules of version 0.1.0 under their old names. Each such import warns and names the new module.

Version 0.2.0 still knows the old names. Version 0.3.0 removes them, and this file with them.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

RENAMED = {
    "taskplace.explain": "taskplace.explanation",
    "taskplace.report.events": "taskplace.model.events",
    "taskplace.simulate": "taskplace.simulation",
    "taskplace.simulate.cluster": "taskplace.simulation.cluster",
    "taskplace.simulate.events": "taskplace.simulation.events",
    "taskplace.simulate.run": "taskplace.simulation.run",
    "taskplace.simulate.scenarios": "taskplace.simulation.scenarios",
    "taskplace.spark.declared": "taskplace.spark.yaml_application",
    "taskplace.spark.reading": "taskplace.spark.store_reader",
    "taskplace.written": "taskplace.yaml_io",
    "taskplace.model.columns": "taskplace.model.problem_columns",
    "taskplace.partitions.columns": "taskplace.partitions.subscription_columns",
}


class _CallablePackage(ModuleType):
    """An old package whose name is a function of `taskplace` now: `explain`, `simulate`. Removed in version 0.3.0.

    An import of `taskplace.explain` binds the package in `taskplace`, in place of the function. So the package can be
    called like the function. Nothing simpler works: a module's `__getattr__` is not asked for a name that is bound,
    and a function has no modules that can be imported from it.
    """

    def __init__(self, old: str, new: ModuleType) -> None:
        super().__init__(old, new.__doc__)
        self.__path__: list[str] = []  # its modules are found by their old names
        self._new, self._function = new, old.rpartition(".")[2]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._new, name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return getattr(self._new, self._function)(*args, **options)


class _Finder(MetaPathFinder, Loader):
    """Finds old names. It is asked last, so that it costs other imports nothing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = any(name.startswith(f"{fullname}.") for name in RENAMED)
        return ModuleSpec(fullname, self, is_package=package) if fullname in RENAMED else None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = RENAMED[old]
        warnings.warn(f"{old} is deprecated: import {new}", DeprecationWarning, stacklevel=2)
        found = importlib.import_module(new)
        hidden = callable(getattr(sys.modules[old.rpartition(".")[0]], old.rpartition(".")[2], None))
        sys.modules[old] = _CallablePackage(old, found) if hidden else found


def install() -> None:
    """Make the old names importable, once per process."""
    if not any(type(finder).__qualname__ == _Finder.__qualname__ for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
