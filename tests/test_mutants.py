"""The check of the tests by mutants: what is changed, and that the equivalent ones are about code that is there."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
EQUIVALENT = json.loads((ROOT / "scripts/mutants/equivalent.json").read_text())

TEXT = '''
"""1 + 1"""
LIMIT: int = 3


class Box:
    size = 7

    def fits(self, amount: int, more: bool = True) -> bool:
        if not more and amount + 1 <= self.size:
            raise ValueError(f"{1 + amount}")
        self.last = max(amount, 0)
        return [k for k in range(amount, 9) if k < LIMIT] == []
'''


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"mutant_{name}", ROOT / f"scripts/mutants/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sites() -> ModuleType:
    return script("sites")


def test_each_mutant_changes_one_place(sites: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "box.py").write_text(TEXT)
    found = sites.mutants(tmp_path, "box.py")
    made = [f"{m.scope or '-'} {m.line}: {m.old} -> {m.new}" for m in found]
    for line in (
        "- 3: 3 -> 4",
        "Box 7: 7 -> 6",
        "Box 9: True -> False",
        "Box.fits 10: not more and amount + 1 <= self.size -> (not more or amount + 1 <= self.size)",
        "Box.fits 10: not more -> (more)",
        "Box.fits 10: amount + 1 <= self.size -> (amount + 1 < self.size)",
        "Box.fits 10: amount + 1 -> (amount - 1)",
        'Box.fits 11: raise ValueError(f"{1 + amount}") -> pass',
        "Box.fits 12: self.last = max(amount, 0) -> pass",
        "Box.fits 13: range(amount, 9) -> (range(9, amount))",
        "Box.fits 13: k < LIMIT -> (k >= LIMIT)",
    ):
        assert line in made
    assert not [line for line in made if "1 + 1" in line or "max(0" in line or "1 - amount" in line]
    whole = TEXT.encode()
    for mutant in found:
        changed = mutant.apply(whole)
        assert changed != whole
        assert changed.startswith(whole[: mutant.start]) and changed.endswith(whole[mutant.end :])


@pytest.mark.parametrize("path", sorted({e["path"] for e in EQUIVALENT}))
def test_what_is_called_equivalent_is_there_and_has_a_reason(path: str, sites: ModuleType) -> None:
    there = {mutant.key for mutant in sites.mutants(ROOT, path)}
    for e in EQUIVALENT:
        if e["path"] == path:
            assert (path, e["scope"], e["old"], e["new"], e.get("nth", 0)) in there, e
            assert len(e["why"]) > 5


def test_a_mutant_that_hangs_is_found_by_the_timeout_of_its_test(request: pytest.FixtureRequest) -> None:
    """Whatever the test asks for itself: the run of all tests of a mutant may take hours."""
    make = pytest.Function.from_parent
    slow, fast, other = (
        make(request.node.parent, name=name, callobj=lambda: None) for name in ("slow", "fast", "other")
    )
    slow.add_marker(pytest.mark.timeout(7_200))
    items = [other, slow, fast]
    script("calls").Chosen({fast.nodeid: 60.2, slow.nodeid: 80.0}).pytest_collection_modifyitems(items)
    assert items == [fast, slow]
    assert [item.get_closest_marker("timeout").args for item in items] == [(60.2,), (80.0,)]
