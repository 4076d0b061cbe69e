"""The tutorial is right: its commands print what it says, and its program empties an executor."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from taskplace.cli import main
from taskplace.spark import Placed
from taskplace.spark.yaml_application import YamlApplication
from taskplace.spec.application import Settings
from tests.support.pages import ROOT, blocks
from tests.support.placed_without_spark import World

PAGE = "docs/tutorial.md"
PARTS = re.findall(
    r"^```(\w+(?: [\w.]+)?)\n(.*?)^```$", (ROOT / PAGE).read_text(encoding="utf-8"), re.M | re.S
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory with sample orders, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    exec(blocks(PAGE, "python make_orders.py")[0], {})
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


def test_the_file_makes_of_the_sample_orders_what_the_page_says(folder, world, capsys):
    """The last form of the file, run as `Placed` runs it, but without Spark."""
    (folder / "shop.py").write_text(blocks(PAGE, "python shop.py")[0])
    application = YamlApplication(Settings.from_mapping(yaml.safe_load(blocks(PAGE, "yaml orders.yaml")[-1])))
    world.come(1)
    placed = world.open(application.topology())
    world.batch(placed, 0, orders=pq.read_table("in/orders"))
    exec(blocks(PAGE, "python")[0], {})
    (said,) = blocks(PAGE, "text")
    assert capsys.readouterr().out == said


def test_the_sample_orders_are_new_in_each_file(folder):
    exec(blocks(PAGE, "python make_orders.py")[0], {})
    first, second = (pq.read_table(f"in/orders/{number}.parquet").to_pylist() for number in (0, 1))
    assert {row["id"] for row in first}.isdisjoint(row["id"] for row in second)
    assert max(row["at"] for row in first) < min(row["at"] for row in second)


def test_the_program_empties_an_executor(folder, world, monkeypatch, capsys):
    (folder / "shop.py").write_text(blocks(PAGE, "python shop.py")[0])
    _, program, ask, tested, drain, removal = blocks(PAGE, "python")
    monkeypatch.setattr(
        "taskplace.spark.Placed", lambda spark, *args, **more: Placed(spark, *args, bridge=world, **more)
    )
    world.come(2)
    names = {"spark": world.spark}
    exec(program, names)
    placed = names["placed"]

    def batch(number):
        table = pa.table(
            {"id": [number] * 4, "customer": ["ada", "ben", "cleo", "dan"], "cents": [500, 700, 0, 100]}
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
    exec(tested, names)
    exec(drain, names)
    exec(removal, names)
    assert capsys.readouterr().out.startswith("False ")
    for number in range(4, 12):
        batch(number)
    exec(removal, names)
    assert capsys.readouterr().out.startswith("True yes: ")


class Arriving:
    """Replaces Spark: the orders that the program has written become a batch while it sleeps."""

    def __init__(self, world: World) -> None:
        self.world, self.read, self.stopped = world, set(), []
        self.builder = self.readStream = self
        self.properties = {}

    def __getattr__(self, name):
        """Return a step of a builder, or of a reader: each returns this object."""
        return lambda *given, **named: self

    def config(self, map):
        """Keep the properties of the session, as a builder does."""
        self.properties |= map
        return self

    def open(self, spark, *args, **more):
        """Return the stream, as `Placed` does; the same query as Spark's is this object."""
        self.placed = Placed(self.world.spark, *args, bridge=self.world, **more)
        self.placed.start = lambda sources, trigger: self
        return self.placed

    def stop(self):
        self.stopped.append(True)

    def sleep(self, seconds):
        new = sorted(set((Path("data") / "in").iterdir()) - self.read)
        table = pa.concat_tables([pq.read_table(file) for file in new])
        self.world.batch(self.placed, len(self.read), orders=table)
        self.world.follow(self.placed)
        self.read |= set(new)


def test_the_whole_program_runs_to_its_end(folder, world, monkeypatch, capsys):
    (folder / "shop.py").write_text(blocks(PAGE, "python shop.py")[0])
    (program,) = blocks(PAGE, "python stream.py")
    world.come(2)
    spark = Arriving(world)
    monkeypatch.setattr("taskplace.spark.Placed", spark.open)
    names = {"__name__": "stream"}
    exec(compile(program, "stream.py", "exec"), names)
    names["SparkSession"], names["time"] = spark, spark
    before = signal.getsignal(signal.SIGTERM)
    try:
        names["main"]()
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)
    totals, draining, empty = capsys.readouterr().out.splitlines()
    total = ast.literal_eval(totals.removeprefix("totals: "))
    assert total["orders"] >= 6
    assert total["cents"] == 500 * total["orders"]
    name = draining.removeprefix("draining ")
    assert empty.startswith(f"{name} is empty: yes: ")
    assert len(spark.stopped) == 2
    assert str(folder) in spark.properties["spark.executorEnv.PYTHONPATH"].split(os.pathsep), "it has shop.py"
