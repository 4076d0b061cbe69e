"""`taskplace inspect`, `status`, `drain` and `can-remove`, on a stream without Spark."""

from __future__ import annotations

import json
import re
import sys

import jsonschema
import pytest

from taskplace.cli import main
from taskplace.cli.inspect import lag_lines
from taskplace.cli.status import events
from taskplace.model.schema import schema
from taskplace.record.events import Change, Rebalanced
from taskplace.spark.inspection.checkpoint import Inspection, LastStatus
from taskplace.spark.operator_messages import (
    DriverIdentity,
    Status,
)
from tests.support.command_line import one_line


def test_inspect(placed, capsys):
    path = str(placed.checkpoint)
    assert main(["inspect", path, "--verify"]) == 0
    out = capsys.readouterr().out
    assert "last batch  2: 8 rows, committed by driver 1, generation 3" in out
    assert out.endswith("result      sound (all bytes were read)\n")
    assert main(["inspect", path, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("inspection"), cls=jsonschema.Draft202012Validator)
    of_task = found["tasks"]["0_0"]
    shown = re.search(r"^0_0 +([\d,]+) +([\d,]+|none) +([\d,]+) +([\d,]+)$", out, re.M)
    assert [shown[k].replace(",", "") for k in (1, 3, 4)] == [
        str(of_task[name]) for name in ("records", "replay", "bytes")
    ]
    assert of_task["bytes"] > 0
    assert (found["schema"], found["sound"], found["last"]["batch"]) == ("taskplace.inspection/1", True, 2)

    next(placed.checkpoint.glob("changelog/*.segment")).unlink()
    assert main(["inspect", path]) == 1
    out = capsys.readouterr().out
    assert "missing; the state of 0_0 and 0_1 cannot be made of this checkpoint" in out
    assert "result      DAMAGED" in out


def test_inspect_shows_the_tasks_of_executors_the_generations_and_the_last_lags(world, placed, capsys):
    path = str(placed.checkpoint)
    assert main(["inspect", path]) == 0
    out = capsys.readouterr().out
    assert "totals      24 rows and 0 late rows since the checkpoint was created" in out
    assert "generations 1 in batch 0, 2 in batch 1, 3 in batch 2" in out
    held, lags = out.partition("at the last commit")[2].partition("\nlags        in records")[::2]
    assert re.findall(r"^(executor-\d|  active) .* (0_\d|\d)$", held, re.M) == [
        ("executor-1", "0"),
        ("  active", "0_0"),
        ("executor-2", "0"),
        ("  active", "0_1"),
    ]
    assert re.match(r" at batch 2, generation 3: status of driver 1, (just now|\d+ s ago)\n", lags)
    assert re.search(r"^executor +active lag +standby lag +warm-up lag$", lags, re.M)
    assert re.findall(r"^(executor-\d) +0 +0 +0$", lags, re.M) == ["executor-1", "executor-2"]
    assert main(["inspect", path, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["assignment"]["executor-2"]["active"] == ["0_1"]
    assert found["generations"][-1] == {"generation": 3, "first": 2, "last": 2}
    assert found["status"]["lags"]["executor-2"] == {"active": {"0_1": 0}, "standby": {}, "warmup": {}}

    placed.close()
    (placed.checkpoint / "status.json").write_text("{}")
    assert main(["inspect", path]) == 0, "no state depends on a status"
    assert "no lags     " in capsys.readouterr().out
    assert main(["inspect", path, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("inspection"), cls=jsonschema.Draft202012Validator)
    assert found["status"] is None
    assert "status.json: damaged" in found["status_error"]
    (placed.checkpoint / "status.json").unlink()
    assert main(["inspect", path]) == 0
    assert "lags" not in capsys.readouterr().out


def test_inspect_names_the_copies_that_lag_most_first_and_counts_the_others():
    lags = {"active": {}, "standby": {f"0_{k}": k for k in range(25)}, "warmup": {"1_0": 591}}
    status = LastStatus(2, True, 75.0, 4, 2, {"executor-1": lags})
    lines = list(lag_lines(Inspection("c", status=status)))
    assert lines[1].endswith("at batch 4, generation 2: status of driver 2, which has ended, 1 min 15 s ago")
    assert lines[3].split() == ["executor-1", "0", "300", "591"]
    assert lines[4].startswith("  standby   0_24: 24, 0_23: 23, ")
    assert lines[4].endswith("0_5: 5 and 4 more")
    assert lines[5:] == ["  warm-up   1_0: 591"]


def test_verify(placed, capsys):
    path = str(placed.checkpoint)
    assert main(["verify", path]) == 0
    out = capsys.readouterr().out
    assert "manifests   batches 0 to 2 are needed, and were read" in out
    assert re.search(r"^files       [\d,]+ bytes that manifests name were read", out, re.M)
    assert (
        "placement   2 tasks on 2 executors: each task is active exactly once, and no executor has two copies of it\n"
        in out
    )
    assert out.endswith("result      valid\n")
    assert main(["verify", path, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("checkpoint_verification"), cls=jsonschema.Draft202012Validator)
    assert found["valid"]

    next(placed.checkpoint.glob("changelog/*.segment")).unlink()
    assert main(["verify", path]) == 1
    out = capsys.readouterr().out
    assert "missing; the state of 0_0 and 0_1 cannot be made of this checkpoint" in out
    assert out.endswith("result      NOT VALID\n")
    assert main(["verify", path, "--output", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("checkpoint_verification"), cls=jsonschema.Draft202012Validator)
    assert found["damaged"][0]["lost"] == ["0_0", "0_1"]


def test_verify_takes_a_directory_for_a_checkpoint(placed, tmp_path, capsys):
    (tmp_path / "none").mkdir()
    assert main(["verify", str(tmp_path / "none")]) == 2
    assert "this is no checkpoint of taskplace: it has no manifests/ and no epochs/" in one_line(capsys)
    assert main(["verify", str(placed.checkpoint), "--plan", "plan.json"]) == 2
    assert "--plan: found 'plan.json', expected a problem.json as FILE" in one_line(capsys)


@pytest.mark.parametrize("command", [["inspect"], ["status"], ["drain", "1"], ["can-remove", "1"]])
def test_a_path_without_a_checkpoint_is_bad_input(command, tmp_path, capsys):
    name, *executors = command
    assert main([name, str(tmp_path / "none"), *executors]) == 2
    assert "expected the directory of a checkpoint" in one_line(capsys)


def test_status(placed, capsys):
    path = str(placed.checkpoint)
    assert main(["status", path]) == 0
    out = capsys.readouterr().out
    assert out.startswith("running: driver 1 (app-1, process ")
    assert "executor-2  host-2       1        0        0    0\n" in out
    assert "membership: executor-2 joined; 1 move, 1 warm-up; more to come" in out
    assert main(["status", path, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("status-seen"), cls=jsonschema.Draft202012Validator)
    assert (found["runs"], found["status"]["batch"]) == (True, 2)
    assert found["status"]["totals"] == {"since": 0, "rows": 24, "late": 0, "bad": {}}
    assert found["status"]["late_here"] == 0
    placed.close()
    assert main(["status", path]) == 4
    assert capsys.readouterr().out.startswith("no driver runs: driver 1 (app-1, process ")


@pytest.mark.parametrize(
    ("moves", "last"), [(6, "0_5: new standby on executor-1"), (9, "... and 3 more moves")]
)
def test_status_says_how_many_moves_it_leaves_out(moves, last):
    shown = tuple(Change(f"0_{i}", "standby", None, "executor-1", "") for i in range(6))
    driver = DriverIdentity("h", 7, "app", 0.0)
    change = Rebalanced(1, 2, "start", shown, more=moves - 6)
    now = Status("id", "t", 1, driver, written=9.0, number=1, interval=2.0, rebalances=(change,))
    first, *lines = events(now)
    assert f"{moves} moves" in first
    assert [line.strip() for line in lines[:6]] == list(map(str, shown))
    assert lines[-1].strip() == last


def test_a_terminal_gets_no_line_that_it_would_break(placed, capsys, monkeypatch):
    path = str(placed.checkpoint)
    main(["status", path])
    long = [line for line in capsys.readouterr().out.splitlines() if line.startswith("rebalance")]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "70")
    main(["status", path])
    folded = capsys.readouterr().out
    assert max(map(len, folded.splitlines())) <= 70
    assert any(len(line) > 70 for line in long)
    for line in long:
        assert line in re.sub(r"\n {12}(?=\S)", " ", folded)
