"""Exit codes and JSON: each code that a command's help names comes of a command line here, as text and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing

import taskplace
from taskplace.cli import codes, main, parser
from taskplace.errors import InvalidPlan, TaskplaceError
from taskplace.model.schema import NAMES, schema
from tests.support.command_line import APPLICATION, STABLE, UNBALANCED
from tests.support.operators import attended, run, stream, turn
from tests.support.placed_without_spark import World

HELPS = {name: one.help_ for name, one in parser().commands.choices.items()}
SUBSCRIPTIONS = {"topics": {"t": 1}, "members": {"A": {"topics": ["t"], "owned": [["t", 0]]}}}
FILES = {
    "problem.json": STABLE,
    "unbalanced.json": UNBALANCED,
    "subscriptions.json": SUBSCRIPTIONS,
    "moving.json": {
        "topics": {"t": 2},
        "members": {"A": {"topics": ["t"], "owned": [["t", 0], ["t", 1]]}, "B": {"topics": ["t"]}},
    },
    "unlike.json": {**taskplace.plan(STABLE).to_dict(), "assignment": {"a": {"active": ["0_0"]}, "b": {}}},
}
#: What `--output json` does not apply to: it prints what another program reads.
WITHOUT_JSON = {"completion"}


class Scene:
    """A directory with a file of each kind, and the checkpoint of a stream without Spark."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.monkeypatch = path, monkeypatch
        self._placed: Any = None
        monkeypatch.chdir(path)
        monkeypatch.syspath_prepend(str(path))
        monkeypatch.delitem(sys.modules, "shop", raising=False)
        monkeypatch.setenv("PYTHONPATH", "")
        for name, document in FILES.items():
            (path / name).write_text(json.dumps(document))
        (path / "shop.py").write_text(APPLICATION)
        (path / "app.yaml").write_text("application:\n  id: shop\n  class: shop:Shop\n")

    @property
    def placed(self) -> Any:
        """A running driver with tasks on two executors."""
        if self._placed is None:
            world = World(self.path / "stream", self.monkeypatch)
            self._placed = stream(world)
            world.come()
            for batch in (1, 2):
                world.follow(self._placed)
                run(world, self._placed, batch)
            turn(self._placed)
        return self._placed

    @property
    def checkpoint(self) -> str:
        """Its checkpoint."""
        return str(self.placed.checkpoint)

    def stopped(self) -> str:
        """Return the checkpoint of a driver that has ended."""
        self.placed.close()
        return self.checkpoint

    def fails(self, where: str, error: BaseException) -> None:
        """Have a function raise an error."""

        def raises(*args: Any, **options: Any) -> Any:
            raise error

        self.monkeypatch.setattr(where, raises)

    def runs(self, code: int) -> None:
        """Have `run` end with a code, without Spark."""
        app = pytest.importorskip("taskplace.spark.app")
        self.monkeypatch.setattr(app, "run", lambda settings, application, reporter: code)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    yield Scene(tmp_path, monkeypatch)
    sys.modules.pop("shop", None)


Made = list[str]
SCENES: dict[tuple[str, int, str], tuple[Callable[[Scene], Made], bool]] = {}


def shows(name: str, code: int, what: str = "", *, attended: bool = False) -> Any:
    """Register a function that prepares a scene and returns the arguments; `attended`: the driver answers."""

    def register(prepare: Callable[[Scene], Made]) -> Callable[[Scene], Made]:
        SCENES[name, code, what] = (prepare, attended)
        return prepare

    return register


def line(name: str, code: int, *arguments: str, what: str = "") -> None:
    """Register a command line that needs nothing but the files."""
    SCENES[name, code, what] = (lambda scene: list(arguments), False)


line("run", 0, "app.yaml", "--check", what="check")
line("run", 2, "none.yaml")
line("run", 2, "app.yaml", "--set", "runtime.nothing=1", "--check", what="check")
line("topology", 0, "app.yaml")
line("topology", 2, "none.yaml")
line("pack", 2, "environment.tar.gz", "--with", "no-such-library")
for engine in ("plan", "explain", "verify", "simulate"):
    line(engine, 0, "problem.json")
    line(engine, 2, "none.json")
for engine in ("plan", "explain", "verify"):
    line(engine, 3, "unbalanced.json")
line("explain", 0, "problem.json", "--task", "0_1", what="task")
line("explain", 3, "unbalanced.json", "--can-remove", "a", what="can-remove")
line("verify", 1, "problem.json", "--plan", "unlike.json")
line("simulate", 3, "unbalanced.json", "--limit", "1")
line("partitions", 0, "subscriptions.json")
line("partitions", 0, "subscriptions.json", "--key", "t", "k", what="key")
line("partitions", 2, "none.json")
line("partitions", 3, "moving.json")
line("report", 0, "problem.json")
line("report", 2, "none.json")
line("config", 0, "app.yaml", "--all")
line("config", 2, "none.yaml")
PLACES = ("--set", "state.dir=/data/state", "--set", "checkpoint.dir=/data/checkpoint")
line("doctor", 0, "app.yaml", *PLACES)
line("doctor", 1, "app.yaml", *PLACES, "--set", "runtime.weights={'9_9': 1}")
line("doctor", 2, "none.yaml")
line("doctor", 6, "app.yaml", *PLACES, "--set", "spark.conf.spark.speculation=true")
line("completion", 0, "bash")
for of_checkpoint in ("inspect", "status"):
    line(of_checkpoint, 2, "none")
for of_executors in ("drain", "can-remove"):
    line(of_executors, 2, "none", "1")


@shows("run", 0)
def _(scene: Scene) -> Made:
    scene.runs(0)
    return ["app.yaml"]


@shows("run", 1)
def _(scene: Scene) -> Made:
    scene.runs(1)
    return ["app.yaml"]


@shows("run", 1, "failed")
def _(scene: Scene) -> Made:
    pytest.importorskip("taskplace.spark.app")
    scene.fails("taskplace.spark.app.run", TaskplaceError("batch 3 failed"))
    return ["app.yaml"]


@shows("pack", 0)
def _(scene: Scene) -> Made:
    scene.monkeypatch.setattr("taskplace.cli.pack.WORKERS", ("msgspec",))
    scene.monkeypatch.setattr("taskplace.cli.pack.KAFKA", ())
    return ["environment.tar.gz"]


@shows("topology", 1)
def _(scene: Scene) -> Made:
    pytest.importorskip("pygraphviz")
    scene.fails("pygraphviz.AGraph.draw", OSError("no dot"))
    return ["app.yaml", "--svg", "-"]


@shows("plan", 1)
@shows("explain", 1)
def _(scene: Scene) -> Made:
    scene.fails("taskplace.plan", InvalidPlan("once: 0_0"))
    return ["problem.json"]


@shows("simulate", 1)
def _(scene: Scene) -> Made:
    scene.fails("taskplace.simulation.simulate", InvalidPlan("once: 0_0"))
    return ["problem.json"]


@shows("partitions", 1)
def _(scene: Scene) -> Made:
    scene.fails("taskplace.cli.partitions.assign_partitions", InvalidPlan("fair: a partition goes to nobody"))
    return ["subscriptions.json"]


@shows("inspect", 0)
@shows("verify", 0, "checkpoint")
@shows("status", 0)
def _(scene: Scene) -> Made:
    return [scene.checkpoint]


@shows("inspect", 1)
@shows("verify", 1, "checkpoint")
def _(scene: Scene) -> Made:
    next(scene.placed.checkpoint.glob("changelog/*.segment")).unlink()
    return [scene.checkpoint]


@shows("status", 1)
def _(scene: Scene) -> Made:
    scene.fails("taskplace.cli.status.driver_of", TaskplaceError("status.json cannot be read"))
    return [scene.checkpoint]


@shows("explain", 3, "checkpoint")
def _(scene: Scene) -> Made:
    scene.placed.drain("2")
    scene.placed.rebalancer.events.changes += 1
    scene.placed._runner.operations._last = 0.0
    turn(scene.placed)
    return [scene.checkpoint]


@shows("explain", 4, "manifest")
def _(scene: Scene) -> Made:
    checkpoint = scene.stopped()
    (Path(checkpoint) / "status.json").unlink()
    return [checkpoint, "--task", "0_0"]


@shows("explain", 4)
@shows("status", 4)
def _(scene: Scene) -> Made:
    return [scene.stopped()]


@shows("drain", 0, attended=True)
def _(scene: Scene) -> Made:
    return [scene.checkpoint, "2", "--yes"]


@shows("drain", 3, attended=True)
@shows("can-remove", 3, attended=True)
def _(scene: Scene) -> Made:
    return [scene.checkpoint, "2"]


@shows("drain", 3, "undo")
def _(scene: Scene) -> Made:
    scene.placed.drain("2")
    scene.placed.rebalancer.events.changes += 1
    scene.placed._runner.operations._last = 0.0
    turn(scene.placed)
    return [scene.checkpoint, "2", "--undo"]


@shows("drain", 1)
@shows("can-remove", 1)
def _(scene: Scene) -> Made:
    scene.fails("taskplace.cli.drain.ask", OSError(28, "No space left on device"))
    return [scene.checkpoint, "2"]


@shows("drain", 4)
@shows("can-remove", 4)
def _(scene: Scene) -> Made:
    return [scene.stopped(), "2"]


@shows("drain", 5)
@shows("can-remove", 5)
def _(scene: Scene) -> Made:
    return [scene.checkpoint, "2", "--timeout", "0.01"]


@shows("can-remove", 0, attended=True)
def _(scene: Scene) -> Made:
    scene.placed.rebalancer.state.gone.add("executor-7")
    return [scene.checkpoint, "7"]


@shows("explain", 3, "checkpoint can-remove")
def _(scene: Scene) -> Made:
    return [scene.checkpoint, "--can-remove", "executor-2"]


def kind_of_schema(name: str) -> str:
    """Return what the file of a schema is called.

    >>> kind_of_schema("taskplace.plan/1")
    'plan'
    """
    return name.removeprefix("taskplace.").partition("/")[0]


def validator(kind: str) -> jsonschema.Draft202012Validator:
    """Return a validator of a kind of documents; a transcript names the schema of its problem."""
    resources = [(schema(name)["$id"], referencing.Resource.from_contents(schema(name))) for name in NAMES]
    return jsonschema.Draft202012Validator(
        schema(kind), registry=referencing.Registry().with_resources(resources)
    )


def played(scene: Scene, name: str, code: int, what: str, *more: str) -> None:
    prepare, answered = SCENES[name, code, what]
    arguments = prepare(scene)
    driver: AbstractContextManager[None] = attended(scene.placed) if answered else nullcontext()
    with driver:
        assert main([name, *arguments, *more]) == code


@pytest.mark.parametrize(("name", "code", "what"), SCENES)
def test_the_code_is_what_the_help_says(
    name: str, code: int, what: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code in HELPS[name].codes
    played(scene, name, code, what)
    out = capsys.readouterr()
    assert out.out or out.err
    # An error is a line of its own; what a command finds out is its result.
    assert (out.err != "") == out.err.startswith("taskplace: ")
    assert out.err.count("\n") == bool(out.err)


@pytest.mark.parametrize(
    ("name", "code", "what"),
    [one for one in SCENES if one[0] not in WITHOUT_JSON and one[:2] != ("topology", 1)],  # a picture is none
)
def test_json_is_one_document_that_names_its_schema(
    name: str, code: int, what: str, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    played(scene, name, code, what, "--output", "json")
    out = capsys.readouterr()
    if not out.out:
        assert out.err.startswith("taskplace: ") and code in (codes.FAILED, codes.BAD_INPUT)
        return
    documents = (
        [json.loads(each) for each in out.out.splitlines()] if name == "run" else [json.loads(out.out)]
    )
    found = documents[0]["schema"]
    assert found in HELPS[name].schemas
    for each in documents:
        validator(kind_of_schema(found)).validate(each)


def test_every_document_has_a_json_schema() -> None:
    """If this fails for a new document: write its schema in taskplace/model/schema, and name it there."""
    named = {kind_of_schema(each) for help_ in HELPS.values() for each in help_.schemas}
    assert named <= set(NAMES)
    for kind in named:
        jsonschema.Draft202012Validator.check_schema(schema(kind))


def test_every_code_of_every_help_is_shown_here() -> None:
    """If this fails for a new command: add a scene for each code of its help, with `line` or `shows`."""
    said = {
        (name, code) for name, help_ in HELPS.items() for code in help_.codes if code != codes.INTERRUPTED
    }
    assert said - {("completion", codes.BAD_INPUT)} - {(name, code) for name, code, _ in SCENES} == set()


@pytest.mark.parametrize("name", sorted(set(HELPS) - WITHOUT_JSON))
def test_every_command_has_json(name: str) -> None:
    choices = [
        action.choices for action in parser().commands.choices[name]._actions if action.dest == "output"
    ]
    assert "json" in (choices[0] or ())
    assert HELPS[name].schemas
