"""`taskplace inspect` and `verify CHECKPOINT`, on a stream without Spark; checkpoints that cannot be read."""

from __future__ import annotations

import json
import os
import pwd
import re

import jsonschema
import pytest

from taskplace.cli import main
from taskplace.model.schema import schema
from tests.support.command_line import one_line

LOST = "missing; the state of 0_0 and 0_1 cannot be made of this checkpoint"


def found_by(command, placed, capsys, name):
    """Return the exit code of a command, and its JSON document, which has the schema of this name."""
    code = main([command, str(placed.checkpoint), "--output", "json"])
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema(name), cls=jsonschema.Draft202012Validator)
    return code, found


def test_inspect(placed, capsys):
    path = str(placed.checkpoint)
    assert main(["inspect", path, "--verify"]) == 0
    out = capsys.readouterr().out
    assert "last batch  2: 8 rows, committed by driver 1, generation 3" in out
    assert "totals      24 rows and 0 late rows since the checkpoint was created" in out
    assert out.endswith("result      sound (all bytes were read)\n")
    assert re.findall(
        r"^(executor-\d|  active) .* (0_\d|\d)$", out.partition("at the last commit")[2], re.M
    ) == [
        ("executor-1", "0"),
        ("  active", "0_0"),
        ("executor-2", "0"),
        ("  active", "0_1"),
    ]
    code, found = found_by("inspect", placed, capsys, "inspection")
    of_task = found["tasks"]["0_0"]
    shown = re.search(r"^0_0 +([\d,]+) +([\d,]+|none) +([\d,]+) +([\d,]+)$", out, re.M)
    said = [shown[k].replace(",", "") for k in (1, 3, 4)]
    assert said == [str(of_task[name]) for name in ("records", "replay", "bytes")]
    assert (code, found["sound"], found["last"]["batch"]) == (0, True, 2) and of_task["bytes"] > 0
    assert found["assignment"]["executor-2"]["active"] == ["0_1"]


def test_no_state_depends_on_a_status(placed, capsys):
    placed.close()
    (placed.checkpoint / "status.json").write_text("{}")
    assert main(["inspect", str(placed.checkpoint)]) == 0
    assert "\nstatus      " in capsys.readouterr().out
    assert "status.json: damaged" in found_by("inspect", placed, capsys, "inspection")[1]["status_error"]
    (placed.checkpoint / "status.json").unlink()
    assert main(["inspect", str(placed.checkpoint)]) == 0
    assert "\nstatus      " not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "name", "last"),
    [("inspect", "inspection", "DAMAGED (lengths were compared; --verify reads all bytes)"),
     ("verify", "checkpoint_verification", "NOT VALID")],
)  # fmt: skip
def test_damage(placed, capsys, command, name, last):
    code, found = found_by(command, placed, capsys, name)
    assert code == 0 and found["damaged"] == []
    next(placed.checkpoint.glob("changelog/*.segment")).unlink()
    assert main([command, str(placed.checkpoint)]) == 1
    out = capsys.readouterr().out
    assert LOST in out and out.endswith(f"result      {last}\n")
    code, found = found_by(command, placed, capsys, name)
    assert code == 1 and found["damaged"][0]["lost"] == ["0_0", "0_1"]


@pytest.mark.parametrize(
    "command", [["inspect"], ["status"], ["verify"], ["explain"], ["drain", "1"], ["can-remove", "1"]]
)
def test_a_path_without_a_checkpoint_is_bad_input(command, tmp_path, capsys):
    name, *executors = command
    assert main([name, str(tmp_path / "none"), *executors]) == 2
    assert "expected the directory of a checkpoint" in one_line(capsys)
    assert main([name, str(tmp_path), *executors]) == 2
    assert "this is no checkpoint of taskplace: it has no manifests/ and no epochs/" in one_line(capsys)


def refused(*words: object) -> str:
    """Raise as the kernel does for another user; root may read everything."""
    raise PermissionError(13, "Permission denied", str(words[0]))


@pytest.mark.parametrize("command", ["status", "inspect", "verify", "explain", "report"])
def test_a_private_checkpoint_of_another_user(placed, monkeypatch, capsys, command):
    monkeypatch.setattr("pathlib.Path.iterdir", refused)
    monkeypatch.setattr(os, "geteuid", lambda: 65_534)
    assert main([command, str(placed.checkpoint)]) == 2
    owner = pwd.getpwuid(placed.checkpoint.stat().st_uid).pw_name
    denied = f"(Permission denied; it belongs to user '{owner}': run the command as that user)"
    assert one_line(capsys) == f"taskplace: {placed.checkpoint}: it cannot be read {denied}\n"


@pytest.mark.parametrize("command", ["status", "explain"])
def test_a_status_that_is_a_directory(placed, capsys, command):
    placed.close()
    (placed.checkpoint / "status.json").unlink()
    (placed.checkpoint / "status.json").mkdir()
    assert main([command, str(placed.checkpoint)]) == 1
    assert one_line(capsys).startswith(
        f"taskplace: {placed.checkpoint}/status.json: damaged (it is not a file)"
    )


def test_a_file_that_no_command_expects_to_fail(placed, monkeypatch, capsys):
    monkeypatch.setattr("taskplace.spark.inspection.driver.numbered", lambda *_, **__: refused("/x/epochs"))
    assert main(["status", str(placed.checkpoint)]) == 1
    assert one_line(capsys).startswith("taskplace: /x/epochs: Permission denied")
