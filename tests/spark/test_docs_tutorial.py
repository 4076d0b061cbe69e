"""The tutorial is right: its commands print what it says, and its program empties an executor."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from taskplace.cli import main
from taskplace.spark import Placed
from tests.support.pages import ROOT, blocks

PAGE = "docs/tutorial.md"
PARTS = re.findall(
    r"^```(\w+(?: [\w.]+)?)\n(.*?)^```$", (ROOT / PAGE).read_text(encoding="utf-8"), re.M | re.S
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty directory, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    return tmp_path


def printed(line: str) -> str:
    """Run a command, and return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        main(shlex.split(line)[1:])
    return "\n".join(text.rstrip() for text in out.getvalue().rstrip().split("\n")) + "\n"


def test_the_commands_print_what_the_page_says(folder):
    ran = 0
    for kind, text in PARTS:
        _, _, file = kind.partition(" ")
        if file:
            (folder / file).write_text(text)
        elif kind == "console":
            said = "".join(f"{line}\n{printed(line[2:])}" for line in re.findall(r"^\$ .*$", text, re.M))
            assert text == said
            ran += 1
    assert ran == 3


def test_the_program_empties_an_executor(folder, world, monkeypatch, capsys):
    (folder / "shop.py").write_text(blocks(PAGE, "python shop.py")[0])
    program, ask, drain, removal = blocks(PAGE, "python")
    monkeypatch.setattr(
        "taskplace.spark.Placed", lambda spark, *args, **more: Placed(spark, *args, bridge=world, **more)
    )
    world.come(2)
    names = {"spark": world.spark}
    exec(program.replace('"/data/', f'"{world.folder}/'), names)
    placed = names["placed"]

    def batch(number):
        table = pa.table(
            {
                "id": [number] * 4,
                "customer": ["ada", "ben", "cleo", "dan"],
                "cents": [500, 700, 0, 100],
            }
        )
        times = pa.array([1_767_225_600_000_000 + number] * 4, pa.timestamp("us", "UTC"))
        world.batch(placed, number, orders=table.append_column("at", times))
        world.follow(placed)

    for number in range(4):
        batch(number)
    exec(ask, names)
    *views, total = capsys.readouterr().out.splitlines()
    assert [view.split()[0] for view in views] == [f"executor-{id}" for id in sorted(world.there)]
    assert total == "{'orders': 4, 'cents': 2000}"
    exec(drain, names)
    exec(removal, names)
    assert capsys.readouterr().out.startswith("False ")
    for number in range(4, 12):
        batch(number)
    exec(removal, names)
    assert capsys.readouterr().out.startswith("True yes: ")
