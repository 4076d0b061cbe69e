"""A file that belongs to another command is one line: what it is, what was expected, and which command takes it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import taskplace
from taskplace.cli import main
from taskplace.cli.documents import KINDS, kind_of
from taskplace.spark.codec import sealed
from taskplace.spec.document import read_file as read
from tests.support.command_line import APPLICATION, STABLE, one_line

SUBSCRIPTIONS = {"topics": {"t": 1}, "members": {"A": {"topics": ["t"]}}}
EVENTS = [[{"kind": "kill", "name": "a"}]]
PLAN = taskplace.plan(STABLE).to_dict()
TRANSCRIPT = dict(taskplace.simulate(STABLE).transcript)
TOPOLOGY = {"name": "t", "sources": {"a": {"partitions": 1}}, "nodes": {"out": {"sink": "a"}}}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of all kinds in the current directory, and directories."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    documents = {
        "problem.json": STABLE,
        "plan.json": PLAN,
        "transcript.json": TRANSCRIPT,
        "subscriptions.json": SUBSCRIPTIONS,
        "events.json": EVENTS,
        "topology.json": TOPOLOGY,
    }
    for name, document in documents.items():
        (tmp_path / name).write_text(json.dumps(document))
    (tmp_path / "shop.py").write_text(APPLICATION)
    (tmp_path / "app.yaml").write_text("application:\n  id: shop\n  class: shop:Shop\n")
    (tmp_path / "steer.yaml").write_text("application: {id: q, class: a:b}\nsteering: {}\n")
    (tmp_path / "empty").touch()
    (tmp_path / "image").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "lines.jsonl").write_text('{"event":"start","schema":"taskplace.run/1"}\n')
    (tmp_path / "misspelt.json").write_text('{"taks": [], "instances": []}')
    (tmp_path / "other.json").write_text('{"a": 1, "b": 2, "c": 3, "d": 4}')
    (tmp_path / "check.json").write_text('{"schema": "taskplace.check/1", "valid": true}')
    (tmp_path / "checkpoint" / "epochs").mkdir(parents=True)
    (tmp_path / "checkpoint" / "manifests").mkdir()
    (tmp_path / "checkpoint" / "status.json").write_bytes(sealed({"batch": 3}))
    (tmp_path / "checkpoint" / "manifests" / "1.json").write_bytes(sealed({"batch": 3}))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "orders.yaml").touch()
    (tmp_path / "nothing").mkdir()
    return tmp_path


APP = "expected an application's YAML file"
PROBLEM = "expected a placement problem (problem.json)"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("run none.yaml", "none.yaml: there is no such file"),
        ("run ap.yaml", "did you mean 'app.yaml'?"),
        ("run orders.yaml", "did you mean 'conf/orders.yaml'?"),
        ("run conf", f"conf: found 'a directory', {APP}"),
        ("run nothing", f"nothing: found 'a directory', {APP}\n"),
        ("run checkpoint", f"found 'a checkpoint', {APP}; `taskplace inspect checkpoint` takes it"),
        ("run empty", f"empty: found 'an empty file', {APP}"),
        ("run problem.json", f"found 'a placement problem (problem.json)', {APP}; `taskplace plan problem.json` takes"),
        ("run problem.json --check", "`taskplace plan problem.json` takes it"),
        ("run plan.json", "`taskplace verify PROBLEM --plan plan.json` takes it"),
        ("run subscriptions.json", "`taskplace partitions subscriptions.json` takes it"),
        ("run topology.json", f"found 'a topology', {APP}; `taskplace topology topology.json` takes it"),
        ("run steer.yaml", f"found 'the file of a steered query: it has a section `steering`', {APP}; a program"),
        ("config steer.yaml", "see docs/steering.md"),
        ("config problem.json", "`taskplace plan problem.json` takes it"),
        ("run events.json", f"events.json: found 'list', {APP}"),
        ("topology problem.json", f"{APP} or a topology; `taskplace plan problem.json` takes it"),
        ("plan app.yaml", f"an application's YAML file\", {PROBLEM}; `taskplace run app.yaml` takes it"),
        ("explain app.yaml", "`taskplace run app.yaml` takes it"),
        ("explain nosuch", "nosuch: there is no such file or directory; expected the directory of a checkpoint, or "),
        ("explain chekpoint", "; did you mean 'checkpoint'?"),
        ("verify problm", "; did you mean 'problem.json'?"),
        ("report chekpoint", "; did you mean 'checkpoint'?"),
        ("explain problm.json", "problm.json: there is no such file; did you mean 'problem.json'?"),
        ("verify app.yaml", "`taskplace run app.yaml` takes it"),
        ("simulate app.yaml", f"{PROBLEM} or a simulation to replay (transcript.json); `taskplace run app.yaml`"),
        ("plan empty", f"empty: found 'an empty file', {PROBLEM}"),
        ("plan nothing", f"nothing: found 'a directory', {PROBLEM}"),
        ("plan checkpoint", "`taskplace inspect checkpoint` takes it"),
        ("plan problm.json", "did you mean 'problem.json'?"),
        ("plan plan.json", "found 'a plan (plan.json)'"),
        ("plan transcript.json", "`taskplace simulate transcript.json` takes it"),
        ("plan events.json", "`taskplace simulate PROBLEM --events events.json` takes it"),
        ("verify problem.json --plan problem.json", "found 'a placement problem (problem.json)', expected a plan"),
        ("simulate problem.json --events problem.json", "expected events of a simulation (events.json); `taskplace"),
        ("partitions problem.json", "expected subscriptions of a group (subscriptions.json); `taskplace plan"),
        ("status nö", "nö: there is no such directory; expected the directory of a checkpoint\n"),
        ("status chekpoint", "there is no such directory; expected the directory of a checkpoint; did you mean /"),
        ("status problem.json", "found 'a placement problem (problem.json)', expected a checkpoint; `taskplace plan "),
        ("drain problem.json 1", "expected a checkpoint; `taskplace plan problem.json` takes it"),
        ("inspect plan.json", "`taskplace verify PROBLEM --plan plan.json` takes it"),
        ("status lines.jsonl", "`taskplace report lines.jsonl` takes it"),
        ("status empty", "found 'a file', expected the directory of a checkpoint"),
        ("status image", "found 'a file', expected the directory of a checkpoint"),
        ("report checkpoint/status.json", "checkpoint/status.json: found 'a file of a checkpoint, with its checksum'"),
        ("report checkpoint/status.json", "; `taskplace inspect CHECKPOINT` takes it"),
        ("plan other.json", f"other.json: found 'a document with the keys a, b, c and 1 more', {PROBLEM}"),
        ("plan misspelt.json", "did you mean 'tasks'?"),
        ("plan check.json", f"check.json: found 'a document of the schema taskplace.check/1', {PROBLEM}"),
        ("explain problem.json --task 9_9", "--task: found '9_9', expected "),
        ("explain problem.json --can-remove nö", "--can-remove: found 'nö', expected "),
    ],
)  # fmt: skip
def test_what_it_is_and_which_command_takes_it(
    command: str, says: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    assert says in one_line(capsys)


@pytest.mark.parametrize(
    "command", ["inspect app.yaml", "status app.yaml", "drain app.yaml 1", "can-remove app.yaml 1"]
)
def test_the_checkpoint_of_an_application_is_named(
    command: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    assert f"expected a checkpoint; its checkpoint is {files}/var/shop/checkpoint\n" in one_line(capsys)


def test_a_file_with_blanks_in_its_name_is_quoted(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "my problem.json").write_text(json.dumps(STABLE))
    assert main(["run", "my problem.json"]) == 2
    assert "`taskplace plan 'my problem.json'` takes it" in one_line(capsys)


def test_standard_input_is_judged_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("application: {id: shop}\n"))
    assert main(["plan", "-"]) == 2
    assert '-: found "an application\'s YAML file"' in one_line(capsys)


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (STABLE, "problem"), (PLAN, "plan"), (TRANSCRIPT, "transcript"), (SUBSCRIPTIONS, "subscriptions"),
        (EVENTS, "events"), (EVENTS[0], "events"), (TOPOLOGY, "topology"), ({"application": {}}, "application"),
        ({"application.id": "x"}, "application"), ({"placement": {}}, "application"), ({"schema": "x/1"}, None),
        ({}, None), ([], None), ([1], None), (3, None), (None, None), ({1: 2}, None),
    ],
)  # fmt: skip
def test_the_kind_of_a_document(document: object, kind: str | None) -> None:
    assert kind_of(document) == kind
    assert kind is None or kind in KINDS


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "application:\n\tid: a\n", "a.yaml:2: found "),
        ("a.json", "not json", "a.json:1:1: found 'Expecting value', expected a JSON"),
        ("a.json", "tasks: []\ninstances: []", "a.json:1:1: found 'Expecting value'"),
        (
            "a.json",
            '{"tasks": [],\n "instances": [],}',
            "a.json:2:18: found ",
        ),
        (
            "a.json",
            '{"tasks": [1,], "instances": []}',
            "a.json:1:14: found ",
        ),
        (
            "a.json",
            "{'tasks': [], 'instances': []}",
            "a.json:1:2: found ",
        ),
        ("a.json", '{"tasks": [] "instances": []}', "a.json:1:14: found \"Expecting ',' delimiter\""),
    ],
)
def test_what_is_wrong_with_a_text_is_said_plainly(name, text, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    command = ["run", name, "--check"] if name.endswith("yaml") else ["plan", name]
    assert main(command) == 2
    assert says in one_line(capsys)


def test_a_byte_order_mark_is_no_part_of_a_document(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(STABLE), encoding="utf-8-sig")
    monkeypatch.setattr("sys.stdin", io.StringIO(path.read_text(encoding="utf-8")))
    assert main(["plan", str(path)]) == main(["plan", "-"]) == 0
    path.write_text("a: 1", encoding="utf-8-sig")
    assert read(path) == {"a": 1}
