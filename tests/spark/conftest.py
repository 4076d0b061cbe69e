"""Pipelines on the one local-cluster that `tests/conftest.py` starts, and stages and streams that need no Spark."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from taskplace.spark.checkpoint.files import Changes
from taskplace.spark.messages import History
from taskplace.spark.state.copy import Copy
from taskplace.spark.worker import identity
from tests.support import runtime as without_spark
from tests.support.follow_jobs import ROWS
from tests.support.placed_harness import Pipeline
from tests.support.placed_without_spark import Frame, World
from tests.support.runtime import Bench, Runtime
from tests.support.shop import HERE, Latest, clean, longest, make_clean, show
from tests.support.topology_streams import Stream


@pytest.fixture
def pipeline(cluster, tmp_path, fault_orders):
    """Makes pipelines, and closes them."""
    made = []

    def make(kind: type[Pipeline] = Pipeline, **options) -> Pipeline:
        made.append(kind(cluster, tmp_path, **options))
        return made[-1]

    yield make
    for one in made:
        one.placed.close()
    for order in fault_orders.iterdir():
        order.unlink()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


@pytest.fixture(scope="session")
def bench() -> type[Bench]:
    return Bench


@pytest.fixture(scope="session")
def committed() -> Callable[[History, Path, Changes, int], History]:
    return without_spark.committed


@pytest.fixture(scope="session")
def contents() -> Callable[[Copy], dict[str, dict[bytes, bytes]]]:
    return without_spark.contents


@pytest.fixture
def be_executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes this process the worker of an executor of that id, which is alive as long as the test runs."""
    owner = identity.owner_of(psutil.Process())

    def be(executor_id: str) -> None:
        monkeypatch.setattr(identity, "executor", lambda: (executor_id, owner))
        identity.home.cache_clear()

    be("1")
    yield be
    identity.home.cache_clear()


@pytest.fixture
def runtime(tmp_path: Path, be_executor: Callable[[str], None]) -> Runtime:
    return Runtime(tmp_path, be_executor)


@pytest.fixture
def own_module(monkeypatch):
    """What an application's own module would have; tests are not importable by name here."""
    module = types.ModuleType(HERE)
    for each in (longest, clean, make_clean, Latest, show):
        setattr(module, each.__name__, each)
    module.lonely = 3
    monkeypatch.setitem(sys.modules, HERE, module)


@pytest.fixture
def stream(cluster, tmp_path):
    made = []

    def make(topology, **schemas) -> Stream:
        made.append(Stream(cluster, tmp_path, topology, schemas))
        return made[-1]

    yield make
    for one in made:
        one.placed.close()


@pytest.fixture
def truth(runtime, tmp_path, be_executor):
    """A runtime of its own, where every task is attempted once."""
    return type(runtime)(tmp_path / "truth", be_executor)


@pytest.fixture
def ran(runtime):
    """A runtime whose executor 1 has run three batches."""
    for rows in ROWS:
        runtime.run_batch(rows, [("N1", 100)])
    return runtime


@pytest.fixture
def frames_with_a_session(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the frames that sinks get know their session."""
    monkeypatch.setattr(Frame, "sparkSession", world.spark)
