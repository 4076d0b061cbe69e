"""An assignor that is installed as an entry point, from metadata as an installed package has it."""

from __future__ import annotations

from pathlib import Path

import pytest

import taskplace
from taskplace.errors import ConfigError

MODULE = """
def first_takes_all(problem):
    name = min(i.id for i in problem.instances)
    return {name: {"active": [str(t.id) for t in problem.tasks], "standby": []}}
"""


def _problem(assignor: str) -> dict[str, object]:
    return {
        "config": {"task.assignor.class": assignor},
        "tasks": [{"id": f"0_{p}"} for p in range(4)],
        "instances": [{"id": "a"}, {"id": "b"}],
    }


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "greedy_assignor.py").write_text(MODULE)
    info = tmp_path / "greedy_assignor-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greedy-assignor\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[taskplace.assignors]\ngreedy = greedy_assignor:first_takes_all\nbroken = greedy_assignor:gone\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_an_installed_assignor_is_found_by_its_name() -> None:
    plan = taskplace.plan(_problem("greedy"))
    assert [len(plan.target[name].active) for name in "ab"] == [4, 0]
    assert plan.warnings == ()


@pytest.mark.usefixtures("installed")
def test_a_misspelled_one_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="greedy"):
        taskplace.plan(_problem("gredy"))


@pytest.mark.usefixtures("installed")
def test_one_that_cannot_be_loaded_is_refused() -> None:
    with pytest.raises(ConfigError, match="gone"):
        taskplace.plan(_problem("broken"))


def test_without_the_package_there_is_no_such_assignor() -> None:
    with pytest.raises(ConfigError, match="'greedy'"):
        taskplace.plan(_problem("greedy"))
