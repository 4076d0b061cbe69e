"""Modules of version 0.1.0 are found under their old names, with a warning that names the new one."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from taskplace._renamed import RENAMED


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
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


def test_other_names_stay_unknown() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'taskplace\.writen'$"):
        importlib.import_module("taskplace.writen")
