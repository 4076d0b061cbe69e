"""Modules of version 0.1.0 under their old names, for one version: each import warns and names the new module."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

RENAMED = {
    "taskplace.report.events": "taskplace.model.events",
    "taskplace.spark.declared": "taskplace.spark.yaml_application",
    "taskplace.spark.reading": "taskplace.spark.store_reader",
    "taskplace.written": "taskplace.yaml_io",
}


class _Finder(MetaPathFinder, Loader):
    """Finds old names. It is asked last, so that it costs other imports nothing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in RENAMED else None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = RENAMED[old]
        warnings.warn(f"{old} is deprecated: import {new}", DeprecationWarning, stacklevel=2)
        sys.modules[old] = importlib.import_module(new)


def install() -> None:
    """Make the old names importable, once per process."""
    if not any(type(finder).__qualname__ == _Finder.__qualname__ for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
