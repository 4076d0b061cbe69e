"""The rules of the layout, checked on the source: which module may import what (imports inside functions count as
well), how much code a package has, where tests lie, and which promises every test run checks.
"""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

import grimp
import networkx
import pytest

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
#: Directories of tests that belong to no package: helpers, checkpoints of earlier versions, random pipelines.
OF_NO_PACKAGE = {"support", "golden", "differential"}
TOP = ("taskplace", "topology", "tests", "examples", "benchmarks", "scripts")
#: Files of others that the docs name: kafka-python's and Faust's tests, and a user's module.
OF_OTHERS = {"test_assignors.py", "test_coordinator.py", "test_copartitioned_assignor.py", "my_assignors.py"}
OF_OTHERS |= {"my_processors.py", "my_sinks.py", "make_orders.py", "stream.py"}
#: Lines of code of a package, without blank lines, comments and docstrings, and the most that it may have. A feature
#: costs its lines for ever: raise a number only for what users need.
BUDGET = {
    "taskplace": 1260,
    "taskplace/assign": 1750,
    "taskplace/cli": 2280,
    "taskplace/doctor": 510,
    "taskplace/explanation": 770,
    "taskplace/groups": 3000,
    "taskplace/lag": 180,
    "taskplace/model": 2020,
    "taskplace/rebalance": 250,
    "taskplace/record": 1900,
    "taskplace/refine": 270,
    "taskplace/simulation": 510,
    "taskplace/spark": 3840,
    "taskplace/spark/bridge": 600,
    "taskplace/spark/checkpoint": 1340,
    "taskplace/spark/compile": 960,
    "taskplace/spark/driver": 3780,
    "taskplace/spark/inspection": 820,
    "taskplace/spark/kafka": 2900,
    "taskplace/spark/processors": 1120,
    "taskplace/spark/state": 1590,
    "taskplace/spark/steering": 1850,
    "taskplace/spark/worker": 2160,
    "taskplace/spec": 740,
    "topology": 1800,
}
LONGEST_FUNCTION = 70  # lines, with its docstring
MOST_BY_POSITION = 6  # arguments
NO_CODE = {
    tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT,
}  # fmt: skip
SPARK_SIDE = {"pyspark", "py4j", "pyarrow", "lmdb", "psutil", "pandas"}


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def files(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    assert found
    return found


@pytest.mark.parametrize("path", files("topology"), ids=lambda path: path.name)
def test_topology_imports_networkx_and_msgspec_only(path):
    assert imported(path) <= set(sys.stdlib_module_names) | {"msgspec", "networkx", "topology"}


@pytest.mark.parametrize(
    "path",
    [path for path in files("taskplace") if "spark" not in path.relative_to(ROOT).parts],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_only_the_spark_part_imports_spark(path):
    assert not imported(path) & SPARK_SIDE


@pytest.mark.parametrize("what", ["codec.py", "messages.py", "state", "worker", "processors"])
def test_what_runs_on_executors_does_without_spark(what):
    there = ROOT / "taskplace" / "spark" / what
    for path in [there] if there.is_file() else files(f"taskplace/spark/{what}"):
        assert not imported(path) & {"pyspark", "py4j"}, path
        assert "taskplace.spark.driver" not in path.read_text(), path


def test_private_calls_into_spark_are_in_the_bridges():
    """`_jvm`, `_jdf` and their like lead to the JVM; what steering calls there is in a file of its own."""
    private = re.compile(r"\._(?:jvm|jsc|jdf|jsq|jsparkSession|instantiatedSession)\b")
    spark = ROOT / "taskplace" / "spark"
    calling = {path for path in files("taskplace") if private.search(path.read_text())}
    assert calling <= {*(spark / "bridge").glob("*.py"), spark / "steering" / "bridge.py"}


def test_the_driver_does_without_the_bridge():
    """A stand-in for `taskplace.spark.cluster.Cluster` is enough for it."""
    for path in files("taskplace/spark/driver"):
        assert "taskplace.spark.bridge" not in path.read_text(), path


def test_every_promise_has_a_test_with_spark_in_every_run():
    """The marks `everyday` name the sections of docs/guarantees.md: all of them, and nothing else."""
    sections = re.findall(r"^## (.+)$", (ROOT / "docs" / "guarantees.md").read_text(), re.MULTILINE)
    marks = [
        node
        for path in sorted(TESTS.rglob("test_*.py"))
        if "mark.everyday" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.everyday"
    ]
    kept = {ast.literal_eval(name) for mark in marks for name in mark.args}
    assert kept == set(sections) - {"Not promised", "Where each is tested"}


def test_the_guarantees_read_without_the_files_that_test_them():
    """The last section has them: all sections above it, and files that are there."""
    text = (ROOT / "docs" / "guarantees.md").read_text()
    above, _, below = text.partition("\n## Where each is tested\n")
    assert re.findall(r"[\w/]+\.py\b", above) == []
    assert re.findall(r"^### (.+)$", below, re.MULTILINE) == re.findall(r"^## (.+)$", above, re.MULTILINE)
    named = {Path(name).name for name in re.findall(r"[\w/]*\btest_\w+\.py", below)}
    assert named <= {path.name for path in TESTS.rglob("test_*.py")}


def test_the_configuration_page_is_what_the_code_declares():
    made = subprocess.run(
        [sys.executable, "-c", "import configuration; print(configuration.page(), end='')"],
        cwd=ROOT / "scripts",
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == made.stdout, "run `python scripts/configuration.py`"


@pytest.fixture(scope="module")
def imports() -> list[tuple[str, str]]:
    """Every import counts, also one inside a function and one for types alone."""
    found = grimp.build_graph("taskplace", "topology", cache_dir=None)
    return [
        (module, other)
        for module in found.modules
        for other in found.find_modules_directly_imported_by(module)
    ]


def circles(imports: list[tuple[str, str]]) -> list[list[str]]:
    parts = networkx.strongly_connected_components(networkx.DiGraph(imports))
    return [sorted(part) for part in parts if len(part) > 1]


def test_no_files_import_each_other_in_a_circle(imports):
    assert circles(imports) == []


@pytest.mark.parametrize("package", ["taskplace", "taskplace.spark"])
def test_no_packages_import_each_other_in_a_circle(imports, package):
    """Nor do a package and a file beside it: a package counts as one with all that is in it."""
    inside = f"{package}."

    def child(module: str) -> str:
        return module.removeprefix(inside).partition(".")[0]

    between = [
        (child(module), child(other))
        for module, other in imports
        if module.startswith(inside) and other.startswith(inside) and child(module) != child(other)
    ]
    assert between
    assert circles(between) == []


def code_lines(text: str) -> int:
    """Return the number of lines that hold code: no blank line, comment or docstring."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        documentable = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documentable and ast.get_docstring(node) is not None:
            documented.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            used.update(range(token.start[0], token.end[0] + 1))
    return len(used - documented)


def test_lines_of_code_are_counted():
    text = '"""A module."""\n\nimport os  # used\n\ndef f():\n    """Text."""\n    # why\n    return """a\nb"""\n'
    assert code_lines(text) == 4


def room(path: Path) -> str:
    """Return the package that a file counts to: of `taskplace/spark`, each package counts by itself."""
    parts = path.relative_to(ROOT).parts
    depth = 3 if parts[:2] == ("taskplace", "spark") else 2 if parts[0] == "taskplace" else 1
    return "/".join(parts[: min(depth, len(parts) - 1)])


def test_no_package_grows_beyond_its_budget():
    sizes: Counter[str] = Counter()
    for top in ("taskplace", "topology"):
        for path in files(top):
            sizes[room(path)] += code_lines(path.read_text())
    assert sizes.keys() == BUDGET.keys()
    assert {name: size for name, size in sizes.items() if size > BUDGET[name]} == {}


def test_tests_lie_where_the_source_lies():
    """A directory of tests is called as the package that it tests."""
    directories = {path.parent.relative_to(TESTS) for path in TESTS.rglob("*.py")} - {Path()}
    mirrored = {there for there in directories if there.parts[0] not in OF_NO_PACKAGE}
    assert mirrored
    for there in sorted(mirrored):
        packages = [ROOT / "taskplace" / there, ROOT / there]
        assert any(list(package.glob("*.py")) for package in packages), f"tests/{there} mirrors no package"


def wide_or_long(source: str) -> dict[int, str]:
    """Return what has too many arguments by position, or too many lines, by line number."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            if len(set(names) - {"self", "cls"}) > MOST_BY_POSITION:
                found[node.lineno] = f"{node.name} takes {len(names)} arguments by position"
            if (lines := node.end_lineno - node.lineno + 1) > LONGEST_FUNCTION:
                found[node.lineno] = f"{node.name} has {lines} lines"
        elif isinstance(node, ast.Call) and len(node.args) > MOST_BY_POSITION:
            found[node.lineno] = f"{ast.unparse(node.func)} gets {len(node.args)} arguments by position"
    return found


@pytest.mark.parametrize(
    "source",
    [
        "def f(self, a, b, c, d, e, f, g): ...",
        "def f(a, b, c, /, d, e, f, g): ...",
        "f(1, 2, 3, 4, 5, 6, 7)",
        "def f():\n" + "    a = 1\n" * LONGEST_FUNCTION,
    ],
)
def test_what_is_wide_or_long_is_found(source):
    assert len(wide_or_long(source)) == 1


def test_arguments_have_names_and_functions_are_read_at_a_glance():
    """What travels together is a value with fields; what else a function takes is keyword-only."""
    wide = {
        f"{path.relative_to(ROOT)}:{line}": what
        for package in ("taskplace", "topology")
        for path in files(package)
        for line, what in wide_or_long(path.read_text()).items()
    }
    assert wide == {}


def test_the_files_that_the_docs_name_are_there():
    """Docs name files from the root ("tests/lag/test_index.py"), or from the package ("checkpoint/journal.py")."""
    there = {str(path.relative_to(ROOT)) for top in TOP for path in (ROOT / top).rglob("*.py")}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    missing = {
        f"{page.name}: {name}"
        for page in pages
        if page.exists()
        for name in re.findall(r"(?<![\w./<>*-])([\w/]+\.py)\b", page.read_text())
        if name not in OF_OTHERS and not any(f"/{path}".endswith(f"/{name}") for path in there)
    }
    assert missing == set()
