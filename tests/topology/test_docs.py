"""The user's page is right: its examples run."""

from __future__ import annotations

import doctest
from pathlib import Path

import yaml

from topology import Topology

PAGE = Path(__file__).parents[2] / "docs" / "topology.md"


def test_the_examples_of_the_page_run() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 10
    assert found.failed == 0


def test_the_yaml_of_the_page_is_the_python_of_the_page() -> None:
    written = yaml.safe_load(PAGE.read_text().split("```yaml\n")[1].split("```")[0])
    registry = {"table-join": lambda: "join", "aggregate": lambda keep: keep}
    built = Topology.from_dict(written, registry).build()
    assert [(s.id, s.partitions, [n.name for n in s.nodes]) for s in built.subtopologies] == [
        (0, 12, ["flights", "weather", "with-weather", "by-aircraft"]),
        (1, 6, ["by-aircraft-source", "stats", "out"]),
    ]


def test_the_application_of_the_page_is_the_example() -> None:
    written = yaml.safe_load(PAGE.read_text().split("```yaml application")[1].split("```")[0])
    example = yaml.safe_load((PAGE.parents[1] / "examples" / "table_join.yaml").read_text())
    assert written == {name: example[name] for name in ("application", "topology", "input", "output")}
