"""Applications on the command line: checked, drawn, and refused in one line; no Spark is started here."""

import json
import sys
from pathlib import Path

import pytest

from taskplace.cli import main
from tests.support.command_line import one_line


def test_checking_starts_nothing(shop, capsys):
    assert main(["run", shop(), "--check"]) == 0
    assert capsys.readouterr().out == "shop.yaml: valid; shop: 1 subtopology, 4 tasks\n"


@pytest.mark.parametrize("output", ["text", "json", "dot"])
def test_the_topology_of_an_application(shop, capsys, output):
    assert main(["topology", shop(), "--output", output]) == 0
    out = capsys.readouterr().out
    assert "clean-orders" in out
    if output == "json":
        json.loads(out)
    if output == "text":
        assert "subtopology 0: 4 tasks, no stores" in out


@pytest.mark.parametrize("flags", [["--svg", "shop.svg"], ["--svg", "-"]])
def test_the_topology_is_drawn(shop, capfd, tmp_path, flags):
    pytest.importorskip("pygraphviz")
    assert main(["topology", shop(), *flags]) == 0
    out = capfd.readouterr()
    drawn = (tmp_path / "shop.svg").read_text() if flags[1] != "-" else out.out
    assert out.err == ""
    assert drawn.lstrip().startswith("<?xml")
    assert "Sub&#45;topology 0: 4 tasks" in drawn
    assert "clean&#45;orders" in drawn


def test_a_picture_that_cannot_be_made_is_one_line(shop, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    assert main(["topology", shop(), "--svg", "-"]) == 2
    assert "pip install 'taskplace[plots]'" in one_line(capsys)
    monkeypatch.undo()


def test_a_picture_needs_a_place(shop, capsys):
    pytest.importorskip("pygraphviz")
    assert main(["topology", shop(), "--svg", "no/such/place.svg"]) == 2
    assert "--svg: found 'no/such/place.svg'" in one_line(capsys)


def test_dot_has_a_flag_of_its_own(shop, capsys):
    assert main(["topology", shop(), "--dot"]) == 0
    assert capsys.readouterr().out.startswith('digraph "shop" {')
    with pytest.raises(SystemExit) as stopped:
        main(["topology", shop(), "--dot", "--output", "json"])
    assert stopped.value.code == 2


@pytest.mark.parametrize("flags", [[], ["--check"]])
def test_a_topology_that_is_not_ready_is_not_run(shop, capsys, flags):
    assert main(["run", shop("shop:Waiting"), *flags]) == 2
    assert one_line(capsys) == (
        "taskplace: topology 'shop' is not ready: topic 'orders': missing, its partition count is not known\n"
    )
    assert main(["topology", shop("shop:Waiting")]) == 0
    assert "not ready: topic 'orders': missing" in capsys.readouterr().out


def test_a_topic_is_brought_in_once_and_read_as_often_as_one_likes(shop, capsys):
    assert main(["run", shop("shop:Twice"), "--check"]) == 2
    assert "topic 'orders' is already read by node 'orders'" in one_line(capsys)


YAML_ALONE = """application: {id: clicks}
topology:
  sources: {clicks: {key: page, partitions: 3}}
  nodes:
    visits: {process: clicks, processor: count, options: {by: {page: string}}}
    pages: {process: clicks, processor: deduplicate, options: {by: {page: string}}}
    out: {sink: visits}
    seen: {sink: pages}
input: {clicks: {format: json, path: in, schema: "page string"}}
output: {out: {path: out}, seen: {path: seen}}
"""


def test_an_application_may_be_yaml_alone(shop, tmp_path, capsys):
    pytest.importorskip("pyspark")
    (tmp_path / "clicks.yaml").write_text(YAML_ALONE)
    (tmp_path / "in").mkdir()
    assert main(["run", "clicks.yaml", "--check"]) == 0
    assert "clicks: 1 subtopology, 3 tasks" in capsys.readouterr().out
    assert main(["topology", "clicks.yaml"]) == 0
    assert "Processor: visits (stores: [visits])" in capsys.readouterr().out
    for override, says in [
        ("topology.nodes.visits.processor=cuont", "topology.nodes.visits.processor: found 'cuont'"),
        ("topology.sources.clicks.partitions=", "topology.sources.clicks.partitions: found nothing"),
        (
            "input.clicks.schema=side string",
            "input.clicks.schema: found \"no column 'page'\", expected the key columns",
        ),
    ]:
        assert main(["run", "clicks.yaml", "--set", override]) == 2
        assert says in one_line(capsys)


@pytest.mark.parametrize(
    ("cls", "says"),
    [
        ("shopp:Shop", "expected a module that can be imported"),
        ("nothing.like.it:Shop", "a module that can be imported in"),
        ("shop:Shopp", "did you mean 'shop:Shop'?"),
        ("shop:lonely", "a class with the methods topology, sources"),
        ("shop:Half", "it lacks sources"),
        ("shop:Bare", "found 'shop:Bare()', expected shop:Bare(settings)"),
        ("shop:Checks", "found 'shop:Checks.check()', expected shop:Checks.check(spark)"),
    ],
)
def test_a_class_that_is_not_there_or_not_right(shop, capsys, cls, says):
    assert main(["run", shop(cls)]) == 2
    line = one_line(capsys)
    assert "application.class: found" in line
    assert says in line


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_package\n", "it needs 'no_such_package'"),
        ("def (\n", "invalid syntax"),
        ("from shop import x\n", "x"),
    ],
)
def test_a_module_that_does_not_load(shop, tmp_path, capsys, source, says):
    (tmp_path / "shop.py").write_text(source)
    assert main(["run", shop()]) == 2
    line = one_line(capsys)
    assert "a module that can be imported" in line
    assert says in line


def test_a_topology_that_cannot_be_is_bad_input(shop, capsys):
    assert main(["run", shop("shop:Broken")]) == 2
    line = one_line(capsys)
    assert "orders" in line
    assert "items" in line


def test_a_bad_configuration_is_bad_input_before_anything_is_imported(shop, capsys):
    assert main(["run", shop(more="placement: {num.standby.replica: 1}\n")]) == 2
    assert "placement.num.standby.replica" in one_line(capsys)
    assert "shop" not in sys.modules
    assert main(["run", shop(), "--set", "runtime.snapshot.interval.batches=0"]) == 2
    assert "runtime.snapshot.interval.batches: found 0" in one_line(capsys)


def test_the_flights_application_is_valid(monkeypatch, capsys):
    pytest.importorskip("pyspark")
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    assert main(["run", "conf/flights.yaml", "--check"]) == 0
    assert "2 subtopologies, 24 tasks" in capsys.readouterr().out
    assert main(["run", "conf/flights.yaml", "--check", "--set", "input.file=3"]) == 2
    assert "input.file: found an unknown key" in one_line(capsys)
    assert main(["run", "conf/flights.yaml", "--check", "--set", "input.repeated=2"]) == 2
    assert "input.repeated: found 2" in one_line(capsys)
