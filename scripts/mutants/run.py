"""Checks the tests themselves: changes the code at one random place at a time, and sees whether a fast test fails.

    make mutants ARGS="--seed 7 --count 120"

1. Copies of the project are made in a temporary directory; nothing is changed here.
2. Every fast test (without Spark, not slow) is run once, to record which functions it calls. The record is kept in
   `var/mutants/calls.json`, per test file; a file is run again when it or the code has changed.
3. `--count` mutants (`sites.py`) are drawn with `--seed`, spread over the packages by their lines of code.
4. For each mutant the tests run that call the changed function, fast ones first, until one fails. A test has failed
   when it takes longer than a minute and 20 times its time without a change; so has a run that hangs outside of Python.
   What is outside functions concerns all tests that call something in that file or in a file that imports it, and all
   tests of the files that import it themselves: the methods of a dataclass are in no file.
5. A mutant that no test notices has survived, unless `equivalent.json` says why it changes no behaviour.

The mutants come in random order: with `--minutes`, those that were judged by then are a sample as well.

Seed, table and survivors are printed; the exit code is 1 if fewer than `--goal` percent of the mutants that are not
equivalent were killed. Doctests do not count.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import calls
from sites import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "var" / "mutants"
LAST = KEPT / "last.json"
EQUIVALENT = Path(__file__).with_name("equivalent.json")
PACKAGES = {
    "assign": ("taskplace/assign/*.py",),
    "refine": ("taskplace/refine/*.py",),
    "rebalance": ("taskplace/rebalance/*.py",),
    "model": ("taskplace/model/*.py",),
    "planner, lag, verify": ("taskplace/planner.py", "taskplace/lag/*.py", "taskplace/verify.py"),
    "groups": ("taskplace/groups/*.py",),
    "topology": ("topology/*.py",),
    "state": ("taskplace/spark/state/*.py",),
    "checks at the start": (
        "taskplace/spark/compile/keys.py",
        "taskplace/spark/worker/partition_checks.py",
        "taskplace/spark/compile/infer.py",
        "taskplace/spark/compile/forms.py",
        "taskplace/spark/processors/facts.py",
        "taskplace/spark/processors/changes.py",
        "taskplace/spark/driver/bins.py",
        "taskplace/spark/worker/external.py",
    ),
}
# About the project and not about the code that is changed, or too slow.
LEFT_OUT = (
    "tests/differential/",
    "tests/test_benchmarks.py",
    "tests/test_house.py",
    "tests/test_mutants.py",
    "tests/test_scripts.py",
)
COPIED = (
    "taskplace",
    "topology",
    "tests",
    "conf",
    "docs",
    "examples",
    "benchmarks",
    "scripts",
    "pyproject.toml",
    "README.md",
)


@dataclass
class Run:
    """One process that runs tests in one copy of the project."""

    pid: int
    slot: int
    deadline: float
    what: Any
    timed_out: bool = False


@dataclass
class Pool:
    """At most so many runs at a time; `each` slot has its own copy of the project."""

    trees: list[Path]
    runs: list[Run] = field(default_factory=list)

    def free(self) -> Iterator[tuple[Run, int]]:
        """Yield finished runs and their exit codes until a slot is free."""
        while len(self.runs) == len(self.trees):
            yield from self._wait()

    def rest(self) -> Iterator[tuple[Run, int]]:
        """Yield all runs that are left, as they finish."""
        while self.runs:
            yield from self._wait()

    def start(self, tests: list[str], plugin: Any, timeout: float, what: Any) -> None:
        """Run tests in a free slot."""
        slot = self.slot()
        pid = calls.fork(self.trees[slot], tests, self.log(slot), plugin, timeout)
        self.runs.append(Run(pid, slot, time.monotonic() + timeout, what))

    def slot(self) -> int:
        """Return the next free slot."""
        return min(set(range(len(self.trees))) - {run.slot for run in self.runs})

    def log(self, slot: int) -> Path:
        """Return where a slot's run writes its output."""
        return self.trees[slot].with_suffix(".log")

    def stop(self) -> None:
        """End what runs."""
        for run in self.runs:
            _kill(run.pid)

    def _wait(self) -> Iterator[tuple[Run, int]]:
        time.sleep(0.02)
        for run in list(self.runs):
            pid, status = os.waitpid(run.pid, os.WNOHANG)
            if pid:
                self.runs.remove(run)
                _kill(run.pid)  # what it has started and left
                yield run, os.waitstatus_to_exitcode(status)
            elif time.monotonic() > run.deadline:
                run.timed_out = True
                _kill(run.pid)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def record(pool: Pool, *, trust: bool) -> dict[str, dict[str, Any]]:
    """Return seconds and called functions of every fast test. `trust`: run changed tests only, not all for code."""
    kept = KEPT / "calls.json"
    known: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    helpers = [p for p in sorted((ROOT / "tests").rglob("*.py")) if not p.name.startswith("test_")]
    code = b"".join(p.read_bytes() for p in [*_files(*PACKAGES.values()), *helpers])
    found: dict[str, Any] = {}
    stale: list[str] = []
    for test in _test_files():
        own = (ROOT / test).read_bytes()
        digest = [hashlib.sha256(text).hexdigest() for text in (own, own + code)]
        same = slice(0, 1) if trust else slice(0, 2)
        if test in known and known[test]["digest"][same] == digest[same]:
            found[test] = known[test]
        else:
            found[test] = {"digest": digest, "tests": {}}
            stale.append(test)

    def finish(run: Run, status: int) -> None:
        out = json.loads(run.what.read_text()) if run.what.exists() else None
        if status not in (0, 5) or out is None:
            sys.exit(f"the tests fail without any change:\n{pool.log(run.slot).read_text()[-3000:]}")
        for test, facts in out.items():
            found[test.partition("::")[0]]["tests"][test] = facts

    size = min(len(stale), 4 * len(pool.trees))
    batches = [stale[at::size] for at in range(size)]
    print(
        f"recording what {len(stale)} test files call" if stale else "what the tests call is known",
        flush=True,
    )
    for number, batch in enumerate(batches):
        for done in pool.free():
            finish(*done)
        tree = pool.trees[pool.slot()]
        out = tree.with_name(f"calls-{number}.json")
        recorder = calls.Recorder(
            tree, ("taskplace", "topology"), lambda tests, out=out: out.write_text(json.dumps(tests))
        )
        pool.start(batch, recorder, 1800, out)
    for done in pool.rest():
        finish(*done)
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(found))
    return {test: facts for part in found.values() for test, facts in part["tests"].items()}


class Choice:
    """Which tests a mutant concerns: those that call the changed function, fast ones first."""

    def __init__(self, tests: dict[str, dict[str, Any]]) -> None:
        self.seconds = {test: facts["seconds"] for test, facts in tests.items()}
        self._by_code: dict[str, set[str]] = {}
        self._by_file: dict[str, set[str]] = {}
        for test, facts in tests.items():
            for call in facts["calls"]:
                self._by_code.setdefault(call, set()).add(test)
                self._by_file.setdefault(call.partition(":")[0], set()).add(test)
        self._of_file: dict[str, set[str]] = {}
        for test in tests:
            self._of_file.setdefault(test.partition("::")[0], set()).add(test)
        self._importers = _importers()

    def tests(self, mutant: Mutant, budget: float) -> list[str]:
        """Return the tests in the order in which they are to run: those that fit into `budget` seconds, and one."""
        if mutant.function:
            found = self._by_code.get(f"{mutant.path}:{mutant.scope}", set())
        else:
            files = {mutant.path} | self._importers.get(_module(mutant.path), set())
            parts = (self._by_file, self._of_file)
            found = set().union(*(part.get(file, set()) for part in parts for file in files))
        ordered = sorted(found, key=lambda test: (self.seconds[test], test))
        spent = list(accumulate(self.seconds[test] for test in ordered))
        return ordered[: bisect_left(spent, budget) + 1]


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _importers() -> dict[str, set[str]]:
    """Return which files import each module; a name that a package passes on is of the module it comes from."""
    paths = [*_files(tuple(f"{root}/**/*.py" for root in ("taskplace", "topology"))), *_test_files()]
    names = {str(path.relative_to(ROOT) if isinstance(path, Path) else path): None for path in paths}
    imported = {name: list(_imported(ROOT / name)) for name in names}
    for test in _test_files():
        imported[test] += _by_helpers(imported[test])
    passed_on = {
        f"{_module(name)}.{item}": module
        for name, found in imported.items()
        if name.endswith("__init__.py")
        for module, item in found
    }
    result: dict[str, set[str]] = {}
    for name, found in imported.items():
        for module, item in found:
            while True:
                result.setdefault(module, set()).add(name)
                result.setdefault(f"{module}.{item}", set()).add(name)
                origin = passed_on.get(f"{module}.{item}", module)
                if origin == module:
                    break
                module = origin
    return result


def _by_helpers(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return what a test file imports by way of its helpers, and of theirs."""
    more: list[tuple[str, str]] = []
    seen: set[str] = set()
    left = list(found)
    while left:
        module, item = left.pop()
        for name in (module, f"{module}.{item}"):
            helper = ROOT / f"{name.replace('.', '/')}.py"
            if name.startswith("tests.") and name not in seen and helper.exists():
                seen.add(name)
                more += (these := list(_imported(helper)))
                left += these
    return more


def _imported(path: Path) -> Iterator[tuple[str, str]]:
    """Yield module and name of all that a file imports; the name is "" for a module as a whole."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def judge(
    pool: Pool, chosen: list[Mutant], choice: Choice, budget: float, minutes: float
) -> dict[Mutant, str]:
    """Return what became of each mutant: "killed", "survived" or "not called"; none is begun after `minutes`."""
    result: dict[Mutant, str] = {}
    end = time.monotonic() + 60 * minutes

    def finish(run: Run, status: int) -> None:
        mutant = run.what
        (pool.trees[run.slot] / mutant.path).write_bytes((ROOT / mutant.path).read_bytes())
        log = pool.log(run.slot).read_text()
        # The timeout of a test may hit pytest itself, which is an internal error then.
        run.timed_out |= status != 0 and "from pytest-timeout" in log
        # A conftest.py that cannot be imported is the mutant's doing: it could before.
        if status in (3, 4, 5) and not run.timed_out and "while loading conftest" not in log:
            sys.exit(f"{mutant}: the tests did not run:\n{log[-3000:]}")
        result[mutant] = "survived" if status == 0 else "killed"
        hung = " (hung)" if run.timed_out else ""
        print(f"{len(result)}/{len(chosen)} {result[mutant]:8} {mutant}{hung}", flush=True)

    for mutant in chosen:
        if time.monotonic() > end:
            break
        tests = choice.tests(mutant, budget)
        if not tests:
            result[mutant] = "not called"
            print(f"{len(result)}/{len(chosen)} not called by any test: {mutant}", flush=True)
            continue
        for done in pool.free():
            finish(*done)
        tree = pool.trees[pool.slot()]
        (tree / mutant.path).write_bytes(mutant.apply((ROOT / mutant.path).read_bytes()))
        files = sorted({test.partition("::")[0] for test in tests})
        timeouts = {test: 60 + 20 * choice.seconds[test] for test in tests}
        patience = 120 + 10 * sum(choice.seconds[test] for test in tests)
        pool.start(files, calls.Chosen(timeouts), patience, mutant)
    for done in pool.rest():
        finish(*done)
    return result


def draw(
    seed: int, count: int, packages: list[str], only: list[str], keys: set[tuple[Any, ...]]
) -> dict[str, list[Mutant]]:
    """Return the sample of each package: by lines of code, at least six of each; or all that are asked for."""
    files = {p: [str(f.relative_to(ROOT)) for f in _files(PACKAGES[p])] for p in packages}
    sites = {p: [m for f in files[p] for m in mutants(ROOT, f)] for p in packages}
    if keys or only:
        return {
            p: [m for m in found if m.key in keys or any(text in str(m) for text in only)]
            for p, found in sites.items()
        }
    lines = {p: sum(len((ROOT / f).read_text().splitlines()) for f in files[p]) for p in packages}
    dice = random.Random(seed)
    share = {p: min(len(sites[p]), max(6, round(count * lines[p] / sum(lines.values())))) for p in packages}
    shuffled = {p: dice.sample(sites[p], len(sites[p])) for p in packages}
    usable = {
        p: (m for m in found if m.compiles((ROOT / m.path).read_bytes())) for p, found in shuffled.items()
    }
    return {p: list(islice(usable[p], share[p])) for p in packages}


def _files(*patterns: tuple[str, ...]) -> list[Path]:
    return sorted({path for group in patterns for pattern in group for path in ROOT.glob(pattern)})


def _test_files() -> list[str]:
    found = (str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py")))
    return [name for name in found if not name.startswith(LEFT_OUT)]


def table(sample: dict[str, list[Mutant]], result: dict[Mutant, str], equivalent: set[Any]) -> float:
    """Print the table; return the percentage that was killed."""
    print(f"\n{'package':22}{'mutants':>9}{'killed':>9}{'survived':>10}{'equivalent':>12}")
    total = [0, 0, 0, 0]
    for package, drawn in sample.items():
        found = [m for m in drawn if m in result or m.key in equivalent]
        same = sum(m.key in equivalent for m in found)
        killed = sum(result.get(m) == "killed" for m in found)
        row = [len(found), killed, len(found) - killed - same, same]
        total = [a + b for a, b in zip(total, row, strict=True)]
        print(f"{package:22}{row[0]:9}{row[1]:9}{row[2]:10}{row[3]:12}")
    percent = 100 * total[1] / max(1, total[0] - total[3])
    print(
        f"{'all':22}{total[0]:9}{total[1]:9}{total[2]:10}{total[3]:12}\n{percent:.1f} % of those not equivalent killed"
    )
    for mutant, what in result.items():
        if what != "killed":
            print(f"{what}: {mutant}")
    return percent


def main() -> None:
    """Draw, run, print; see the module."""
    parser = argparse.ArgumentParser(
        description="change the code at random places, and see whether a fast test fails"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=120, help="mutants in all")
    parser.add_argument(
        "--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="tests at a time"
    )
    parser.add_argument("--goal", type=float, default=95, help="percent that must be killed")
    parser.add_argument(
        "--budget", type=float, default=math.inf, help="seconds of tests for a mutant, at most"
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no mutant later than that after the first"
    )
    parser.add_argument(
        "--package", action="append", choices=PACKAGES, help="this package only; may be repeated"
    )
    parser.add_argument(
        "--trust-record", action="store_true", help="record changed tests only, though the code has changed"
    )
    parser.add_argument("--again", action="store_true", help="those that survived the last time")
    parser.add_argument(
        "--only", action="append", default=[], help="all mutants whose line of output has this text"
    )
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    last = json.loads(LAST.read_text()) if options.again else []
    keys = {tuple(e["key"]) for e in last if e["result"] != "killed"}
    sample = draw(options.seed, options.count, options.package or list(PACKAGES), options.only, keys)
    listed = json.loads(EQUIVALENT.read_text())
    equivalent = {(e["path"], e["scope"], e["old"], e["new"], e.get("nth", 0)) for e in listed}
    chosen = [m for found in sample.values() for m in found if m.key not in equivalent]
    random.Random(options.seed).shuffle(chosen)
    calls.load()
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        pool = Pool([Path(directory).resolve() / f"tree-{n}" for n in range(options.jobs)])
        for tree in pool.trees:
            tree.mkdir()
            for name in COPIED:
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                copy(ROOT / name, tree / name)
        try:
            choice = Choice(record(pool, trust=options.trust_record))
            result = judge(pool, chosen, choice, options.budget, options.minutes)
        finally:
            pool.stop()
    percent = table(sample, result, equivalent)
    KEPT.mkdir(parents=True, exist_ok=True)
    LAST.write_text(json.dumps([{"key": m.key, "result": r} for m, r in result.items()]))
    sys.exit(percent < options.goal)


if __name__ == "__main__":
    main()
