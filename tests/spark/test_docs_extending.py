"""The page on extending is right: its examples run, also in a stream, and its links and places are there."""

from __future__ import annotations

import doctest
import importlib
import re
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from taskplace.model.keys import Configuration
from taskplace.spark import targets
from taskplace.spec.application import SECTIONS
from topology import Topology

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extending.md"
FILES = dict(
    re.findall(r"^```python (my_\w+)\.py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the page, on the path."""
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)


def test_the_examples_of_the_page_run(modules):
    text = re.sub(r"^```.*$", "", PAGE.read_text(encoding="utf-8"), flags=re.M)
    test = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    found = doctest.DocTestRunner().run(test)
    assert found.attempted > 25
    assert found.failed == 0
    assert set(FILES) == {"my_assignors", "my_processors", "my_sinks"}


def test_the_processor_and_the_sink_of_the_page_run_in_a_stream(modules, world):
    latest, csv = importlib.import_module("my_processors"), importlib.import_module("my_sinks")
    topology = Topology("t")
    rows = topology.source("in", key="id", partitions=2).process(latest.Latest("latest"), name="latest")
    rows.sink("out", target=csv.CsvSink(world.folder / "csv"))
    world.come(1)
    placed = world.open(topology)
    for batch, (a, b) in enumerate([(1, 5), (3, 4), (2, 2)]):
        world.batch(placed, batch, **{"in": pa.table({"id": ["a", "b"], "at": [a, b]})})
    assert world.stored(placed, "latest") == [("a", 3), ("b", 5)]
    written = {path.name: path.read_text() for path in (world.folder / "csv").iterdir()}
    assert sorted(written) == ["0.csv", "1.csv"]
    assert written["1.csv"] == '"id","at"\n"a",3\n'


def test_the_page_has_all_members_of_a_target():
    tables = (
        PAGE.read_text(encoding="utf-8").partition("| member |")[2].partition("| member of `commit` |")[0]
    )
    members = {name for kind in (targets.CommitTarget, targets.SinkTarget) for name in vars(kind)}
    own = {name for name in members if not name.startswith("_")}
    assert set(re.findall(r"^\| `(\w+)", tables, re.M)) == own - {"publish_commit"}


def test_the_page_has_all_members_of_a_commit():
    table = PAGE.read_text(encoding="utf-8").partition("| member of `commit` |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)(?:\(\))?`", "".join(row.split("|")[1] for row in table.splitlines()[2:])))
    members = {*targets.Commit.__dataclass_fields__, "checksum"} - {"read_checksum"}
    assert named == members


def test_the_places_that_the_page_names_are_there():
    text = PAGE.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+\.md)", text):
        assert (PAGE.parent / link).exists(), link
    for heading in re.findall(r"\]\(#([\w-]+)\)", text):
        assert f"\n## {heading.replace('-', ' ')}".lower() in text.lower(), heading
    for place in re.findall(r"`((?:taskplace|tests|scripts|docs)/[\w/.]*)`", text):
        assert (ROOT / place).exists(), place
    for name, file in re.findall(r"`([A-Z_]{3,})` (?:in|of) `(taskplace/[\w/.]+)`", text):
        assert name in (ROOT / file).read_text(), (name, file)
    sections = {section.partition(".")[0] for section in SECTIONS}
    assert {"placement", "runtime"} <= sections
    assert all(issubclass(kind, Configuration) for kind in SECTIONS.values())
    assert "(docs/extending.md)" in (ROOT / "README.md").read_text()
    assert "(extending.md)" in (PAGE.parent / "architecture.md").read_text()
