"""Runs the fast tests: once to record which function each test calls, then a chosen few of them for each mutant.

All runs are forks of one process that has the heavy libraries loaded, but nothing of this project: they start faster.
Each run works in a copy of the project.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

FAST = "not spark and not slow"
HEAVY = (
    "numpy", "networkx", "sortedcontainers", "ortools.graph.python.min_cost_flow", "yaml", "rich.console", "rich.table",
    "jsonschema", "pandas", "pyarrow", "pyarrow.compute", "lmdb", "psutil", "hypothesis.stateful", "kafka",
)  # fmt: skip


def load() -> None:
    """Import what is slow to import, and set up hypothesis: the same examples each time, without shrinking."""
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            import_module(name)
    settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )
    settings.load_profile("mutants")  # the tests' own profile is made from the one that is loaded
    gc.freeze()


def fork(tree: Path, tests: Sequence[str], log: Path, plugin: Any, timeout: float) -> int:
    """Start pytest on test files in a process of its own, the leader of its group; return the process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 3
    try:
        os.setpgid(0, 0)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(tree)
        sys.dont_write_bytecode = True
        sys.path[:] = [str(tree), *(p for p in sys.path if Path(p or ".").name != "mutants")]
        os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        args = ["-q", "-p", "no:cacheprovider", "-m", FAST, f"--timeout={timeout:.0f}", f"--rootdir={tree}"]
        code = int(
            pytest.main(
                [*args, *plugin.arguments, "-c", str(tree / "pyproject.toml"), *tests], plugins=[plugin]
            )
        )
    finally:
        sys.stdout.flush()
        os._exit(code)


class Recorder:
    """A pytest plugin that records, per test, its seconds and the functions of `packages` it calls: path:name.

    What a shared fixture calls counts for each test that asks for it; what a test file calls while it is imported, for
    each of its tests.
    """

    arguments = ()

    def __init__(self, tree: Path, packages: Sequence[str], done: Callable[[dict[str, Any]], None]) -> None:
        self._prefix, self._within = f"{tree}/", tuple(f"{tree}/{p}/" for p in packages)
        self._codes: dict[CodeType, bool] = {}
        self._called: set[CodeType] = set()
        self._imports: dict[Path, set[CodeType]] = {}
        self._fixtures: dict[int, set[CodeType]] = {}
        self._done = done
        self._found: dict[str, Any] = {}

    def _trace(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        ours = self._codes.get(code)
        if ours is None:
            ours = self._codes[code] = code.co_filename.startswith(self._within)
        if ours:
            self._called.add(code)

    @contextlib.contextmanager
    def _traced(self) -> Iterator[set[CodeType]]:
        """Trace what is done within; give the set of what it calls. What is traced within this counts here, too."""
        outer, self._called = self._called, set()
        before = sys.gettrace()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            yield self._called
        finally:
            sys.settrace(before)
            threading.settrace(before)  # type: ignore[arg-type]
            outer |= self._called
            self._called = outer

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        """Trace the import of a test file."""
        with self._traced() as called:
            yield
        self._imports.setdefault(collector.path, set()).update(called)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        """Trace a fixture by itself: it is made once for all tests that share it."""
        with self._traced() as called:
            yield
        self._fixtures[id(fixturedef)] = set(called)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Trace one test, its fixtures included."""
        start = time.monotonic()
        with self._traced() as called:
            yield
        asked = getattr(item, "_fixtureinfo", None)
        shared = [fixture for named in asked.name2fixturedefs.values() for fixture in named] if asked else []
        calls = called.union(
            self._imports.get(item.path, ()), *(self._fixtures.get(id(fixture), ()) for fixture in shared)
        )
        cut = len(self._prefix)
        self._found[item.nodeid] = {
            "seconds": round(time.monotonic() - start, 4),
            "calls": sorted({f"{c.co_filename[cut:]}:{c.co_qualname}" for c in calls}),
        }

    def pytest_sessionfinish(self) -> None:
        """Hand over what was found."""
        self._done(self._found)


class Chosen:
    """A pytest plugin that runs the chosen tests only, in their order: the fast ones first.

    `timeouts` has the seconds after which each test has failed, whatever it asks for itself.
    """

    arguments = ("-x",)

    def __init__(self, timeouts: Mapping[str, float]) -> None:
        self._place = {test: at for at, test in enumerate(timeouts)}
        self._timeouts = timeouts

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what was chosen."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self._place), key=lambda item: self._place[item.nodeid]
        )
        for item in items:
            item.add_marker(pytest.mark.timeout(self._timeouts[item.nodeid]), append=False)
