"""`taskplace simulate`: events in, a trajectory out; a transcript replays."""

from __future__ import annotations

import json
import os
import sys

import pytest

from taskplace.cli import main
from tests.support.terminal import Terminal

PROBLEM = {
    "tasks": [{"id": f"0_{i}", "end_offset": 50_000} for i in range(6)],
    "instances": [{"id": "a"}, {"id": "b"}],
    "config": {"num.standby.replicas": 1},
}


@pytest.fixture
def problem(tmp_path):
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(PROBLEM))
    return file


def test_random_events_come_from_their_seed_and_replay(problem, tmp_path, capsys):
    def run(seed):
        main(["simulate", str(problem), "--random-events", "6", "--seed", str(seed), "--output", "json"])
        return capsys.readouterr().out

    assert run(3) == run(3) != run(4)
    transcript = tmp_path / "transcript.json"
    transcript.write_text(run(3))
    main(["simulate", str(transcript), "--output", "json"])
    assert capsys.readouterr().out == transcript.read_text()


def test_bars_go_to_standard_error_and_the_answer_does_not_change(problem, tmp_path):
    events = tmp_path / "events.json"
    events.write_text(json.dumps([[{"kind": "add", "name": "c"}]]))
    # The bars begin at once, and the first plan waits until one is seen.
    os.mkfifo(tmp_path / "seen")
    code = f"""
from pathlib import Path
from taskplace.cli import main
from taskplace.record import reporters
from taskplace.simulation import run
reporters.BAR_SECONDS = 0.0
def plan(problem):
    with gate as file:
        file.read()
    return real(problem)
class Once:
    def __enter__(self):
        self.file = (Path({str(tmp_path)!r}) / "seen").open() if not done else Path("/dev/null").open()
        done.append(1)
        return self.file
    def __exit__(self, *error):
        self.file.close()
done, gate, real = [], Once(), run.plan_once
run.settle.__kwdefaults__["planner"] = plan
main(["simulate", {str(problem)!r}, "--events", {str(events)!r}, "--output", "json"])
"""
    terminal = Terminal(columns=70)
    seen = []

    def look(screen):
        if not seen and any("0 of 2 groups of events" in line for line in screen):
            seen.append(screen)
            (tmp_path / "seen").write_text("go on")

    with (tmp_path / "out").open("w") as out:
        assert terminal.run([sys.executable, "-c", code], stdout=out, seen=look) == 0
    assert seen
    assert terminal.screen == ()
    assert json.loads((tmp_path / "out").read_text())["schema"] == "taskplace.transcript/1"
