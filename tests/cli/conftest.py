"""The command line: exit codes, one-line errors, JSON in and out; no Spark is started here."""

import json
import sys

import pytest

from tests.support.command_line import APPLICATION


@pytest.fixture
def write(tmp_path):
    def write(document, name="problem.json"):
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    return write


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """An application file in the current directory, and the module it names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    (tmp_path / "shop.py").write_text(APPLICATION)

    def write(cls="shop:Shop", more=""):
        (tmp_path / "shop.yaml").write_text(f"application: {{id: shop, class: '{cls}'}}\n{more}")
        return "shop.yaml"

    yield write
    sys.modules.pop("shop", None)
