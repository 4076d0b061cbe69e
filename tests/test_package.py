"""The package: quick to import, without Spark and without the solver; its public names."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import taskplace
import taskplace.spark


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_importing_loads_neither_spark_nor_the_solver_nor_networkx() -> None:
    heavy = ("pyspark", "pyarrow", "lmdb", "ortools", "networkx", "pandas", "rich", "yaml")
    code = f"import sys, taskplace; print([m for m in {heavy!r} if m in sys.modules])"
    assert run(code) == "[]"


def test_public_names_exist_and_are_listed() -> None:
    assert set(taskplace.__all__) == {
        "Instance", "LagIndex", "Move", "Optimality", "PlacementConfig", "Plan", "Problem", "Roles", "Task",
        "TaskId", "Violation", "assign_partitions", "check", "explain", "plan", "simulate",
    }  # fmt: skip
    for name in taskplace.__all__:
        assert callable(getattr(taskplace, name))


def for_type_checkers(package: ModuleType) -> dict[str, str]:
    """The names that the `TYPE_CHECKING` block of a package imports, with their modules."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    blocks = (
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imports = (each for block in blocks for each in block.body if isinstance(each, ast.ImportFrom))
    return {name.asname or name.name: str(each.module) for each in imports for name in each.names}


@pytest.mark.parametrize(
    ("package", "loaded"),
    [
        (taskplace, taskplace._HOME),
        (taskplace.spark, {name: f"taskplace.spark.{home}" for name, home in taskplace.spark._HOME.items()}),
    ],
)
def test_type_checkers_know_each_name_that_is_loaded_on_first_use(
    package: ModuleType, loaded: dict[str, str]
) -> None:
    assert for_type_checkers(package) == loaded
    assert set(loaded) <= set(package.__all__)
    assert [name for name in package.__all__ if name not in loaded and name not in vars(package)] == []


def test_no_module_hides_behind_a_public_function() -> None:
    """`explain` and `simulate` are functions; a module of that name would take their place once it is imported."""
    for name in taskplace.__all__:
        assert not importlib.util.find_spec(f"taskplace.{name}"), f"{name} is a public function and a module"


def test_simulate_can_be_called_however_it_was_imported() -> None:
    call = "taskplace.simulate({'tasks': [{'id': '0_0'}], 'instances': [{'id': 'a'}]}).stable"
    ways = ("import taskplace", "import taskplace, taskplace.simulation", "import taskplace.simulation.run")
    forget = "[sys.modules.pop(m) for m in [*sys.modules] if m.partition('.')[0] == 'taskplace']"
    lines = [line for way in ways for line in (forget, way, f"print({call})")]
    assert run("\n".join(["import sys", *lines])).split() == ["True"] * len(ways)


def test_the_same_problem_gives_the_same_bytes_in_another_process() -> None:
    code = (
        "from tests.support.scenarios import scenario; import taskplace, hashlib;"
        "print([hashlib.sha256(taskplace.plan(scenario(k, 1).problem).to_json().encode()).hexdigest()"
        " for k in ('random-lags', 'all-on-one')])"
    )
    hashed = {run(code) for _ in range(2)}  # hash seeds differ from process to process
    assert len(hashed) == 1
