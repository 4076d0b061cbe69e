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


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A cluster without Spark."""
    from tests.support.placed_without_spark import (
        World,  # loads PySpark, which most of these tests do without
    )

    return World(tmp_path, monkeypatch)


@pytest.fixture
def placed(world):
    """A driver that has tasks on two executors."""
    from tests.support.operators import run, stream, turn

    placed = stream(world)
    world.come()
    for batch in (1, 2):
        world.follow(placed)
        run(world, placed, batch)
    turn(placed)
    return placed
