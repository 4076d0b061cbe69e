"""Applications on the command line: checked, drawn, and refused in one line; no Spark is started here."""

import sys
from pathlib import Path

import pytest

from taskplace.cli import main
from tests.support.command_line import one_line


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


def test_a_picture_for_which_the_disk_has_no_room_is_one_line(shop, capsys, monkeypatch):
    monkeypatch.setattr("taskplace.cli.topology.svg", lambda built: b"<svg/>")
    assert main(["topology", shop(), "--svg", "/dev/full"]) == 2
    expected = "expected a file that can be written (No space left on device)"
    assert f"--svg: found '/dev/full', {expected}" in one_line(capsys)


def test_a_picture_that_cannot_be_made_is_one_line(shop, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    assert main(["topology", shop(), "--svg", "-"]) == 2
    assert "pip install 'taskplace[plots]'" in one_line(capsys)
    monkeypatch.undo()


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
    assert "can be imported" in line
    assert says in line


@pytest.mark.parametrize(("name", "near"), [("Shopp", "'shop:Shop'"), ("Orders", "")])
def test_an_unknown_class_has_a_hint_only_if_one_is_alike(shop, capsys, name, near):
    assert main(["run", shop(f"shop:{name}")]) == 2
    assert (
        one_line(capsys).partition("a class of module 'shop'")[2]
        == (near and f"; did you mean {near}?") + "\n"
    )


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
