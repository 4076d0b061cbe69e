"""The line of each key in a YAML document."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskplace.yaml_lines import key_lines
from tests.support.pages import ROOT

DOCUMENT = """\
# a comment
base: &base
  memory: 1g
  cores: 2
spark:
  <<: *base
  cores: 4
  conf: {a.b: 1,
         c: 2}
chaos:
- batch: 1
  kill: x
-
  batch: 2
"on": [1, 2]
"""


def test_every_key_has_its_line() -> None:
    lines = key_lines(DOCUMENT)
    assert lines["spark",] == 5
    assert lines["spark", "conf", "a.b"] == 8
    assert lines["spark", "conf", "c"] == 9
    assert lines["chaos", "[0]", "kill"] == 12
    assert lines["chaos", "[1]", "batch"] == 14
    assert lines["on",] == 15


def test_a_merged_key_has_the_line_of_its_anchor_unless_it_is_given() -> None:
    lines = key_lines(DOCUMENT)
    assert lines["spark", "memory"] == 3
    assert lines["spark", "cores"] == 7


def test_a_list_of_mappings_is_merged_in_its_order() -> None:
    lines = key_lines("a: &a {x: 1}\nb: &b {x: 2,\n y: 3}\nc:\n  <<: [*a, *b]\n")
    assert (lines["c", "x"], lines["c", "y"]) == (1, 3)


@pytest.mark.parametrize("text", ["", "# nothing", "3", "null"])
def test_a_document_without_keys(text: str) -> None:
    assert key_lines(text) == {}


@pytest.mark.parametrize("file", sorted((ROOT / "conf").glob("*.yaml")), ids=lambda path: path.name)
def test_the_line_has_the_key(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    rows = text.splitlines()
    for path, line in key_lines(text).items():
        assert path[-1].startswith("[") or path[-1] in rows[line - 1], (path, line)
