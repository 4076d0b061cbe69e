"""Modules of version 0.1.0 are found under their old names, with a warning that names the new one."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from taskplace._renamed import RENAMED

#: Packages whose names are functions of `taskplace` now, and their modules.
HIDING = {"taskplace.explain", *(name for name in RENAMED if name.startswith("taskplace.simulate"))}


@pytest.mark.parametrize(("old", "new"), [(old, new) for old, new in RENAMED.items() if old not in HIDING])
def test_an_old_name_is_the_new_module(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if new.startswith("taskplace.spark."):
        pytest.importorskip("pyspark")
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"^{old} is deprecated: import {new}$") as caught:
        found = importlib.import_module(old)
    assert found is importlib.import_module(new)
    assert found.__name__ == found.__spec__.name == new
    assert len(caught) == 1
    monkeypatch.delitem(sys.modules, old)


def test_the_warning_is_about_the_line_that_imports() -> None:
    code = (
        "import taskplace\n\nfrom taskplace.report.events import CheckResult\nprint(CheckResult.__module__)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "taskplace.model.events"
    assert "<string>:3: DeprecationWarning: taskplace.report.events is deprecated" in done.stderr


@pytest.mark.parametrize("old", sorted(HIDING))
def test_an_old_package_does_not_hide_the_function_of_its_name(old: str) -> None:
    """In a process of its own: an import binds the name in `taskplace` for good."""
    function = ".".join(old.split(".")[:2])
    code = f"""
from importlib import import_module as load
from warnings import catch_warnings, simplefilter
import taskplace.errors
with catch_warnings(record=True) as caught:
    simplefilter("always")
    found, new = load("{old}"), load("{RENAMED[old]}")
assert "{old} is deprecated: import {RENAMED[old]}" in map(str, [w.message for w in caught])
for name in getattr(new, "__all__", ["__doc__"]):
    assert getattr(found, name) is getattr(new, name), name
try:
    {function}(3, *([None, "0_0"] if "{function}" == "taskplace.explain" else []))
except taskplace.errors.InputError:
    print("called")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("called", "")


def test_other_names_stay_unknown() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'taskplace\.writen'$"):
        importlib.import_module("taskplace.writen")
