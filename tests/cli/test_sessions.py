"""The words of the commands: each file in `sessions` has command lines, with what they print and their exit codes.

`UPDATE_SESSIONS=1 pytest tests/cli/test_sessions.py` writes what is printed now into the files; look at the difference.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import taskplace
from taskplace.cli import main
from taskplace.spark.codec import sealed
from tests.support.command_line import APPLICATION, STABLE, UNBALANCED

SESSIONS = sorted((Path(__file__).parent / "sessions").glob("*.txt"))
WORKERS = {
    "assignor": "copartitioned",
    "global_topics": ["codes"],
    "topics": {"orders": 2, "codes": 1},
    "members": {
        "w0": {"topics": ["orders", "codes"], "url": "http://w0:6066", "owned": [["orders", 0]]},
        "w1": {"topics": ["orders", "codes"], "owned": [["orders", 1], ["codes", 0]]},
        "w2": {"topics": []},
    },
}
GROUP = {
    "topics": {"t0": 1, "t1": 2, "t2": 3, "lonely": 2},
    "members": {"C1": {"topics": ["t0", "t1"]}, "C2": {"topics": ["t0", "t1", "t2"], "owned": [["t0", 0]]}},
}
RACKS = {
    "rack_priority": "racks",
    "topics": {"t": {"partitions": 2, "racks": [["a"], ["b"]]}},
    "members": {
        "A": {"topics": ["t"], "owned": [["t", 1]], "rack": "a"},
        "B": {"topics": ["t"], "owned": [["t", 0]], "rack": "b"},
    },
}
SWAPPED = {"a": {"active": ["0_1"]}, "b": {"active": ["0_0"]}}
PLAN = taskplace.plan(UNBALANCED).to_dict()
DOCUMENTS = {
    "stable.json": STABLE,
    "my problem.json": STABLE,
    "problem.json": UNBALANCED,
    "slots.json": {"tasks": [{"id": f"0_{p}"} for p in range(3)], "instances": [{"id": "a", "capacity": 2}]},
    "empty.json": {**STABLE, "tasks": []},
    "plan.json": PLAN,
    "twice.json": {**PLAN, "assignment": dict.fromkeys(("a", "b"), PLAN["assignment"]["a"])},
    "bad-plan.json": {"assignment": 3},
    "transcript.json": dict(taskplace.simulate(STABLE).transcript),
    "add.json": [[{"kind": "add", "name": "c"}]],
    "kil.json": [[{"kind": "kil", "name": "a"}]],
    "group.json": GROUP,
    "workers.json": WORKERS,
    "racks.json": RACKS,
    "racks-wrong.json": {**RACKS, "rack_priority": "rack"},
    "short.json": {"assignor": "copartitioned", "replicas": 2, "topics": {"t": 2}, "members": {
        "A": {"topics": ["t"]}, "B": {"topics": ["t"]}}},
    "large.json": {"topics": {"t": 2**62}, "members": {"C0": {"topics": ["t"]}}},
    "topology.json": {"name": "t", "sources": {"a": {"partitions": 1}}, "nodes": {"out": {"sink": "a"}}},
    "misspelt.json": {"taks": [], "instances": []},
    "other.json": {"a": 1, "b": 2, "c": 3, "d": 4},
    "check.json": {"schema": "taskplace.check/1", "valid": True},
    "bad-task.json": {"tasks": [{"id": "0-3"}], "instances": []},
    "swap.json": {
        "tasks": [{"id": t, "end_offset": 9} for t in ("0_0", "0_1")],
        "instances": [{"id": n, "active": [t], "lags": {"0_0": 0, "0_1": 0}} for n, t in (("a", "0_0"), ("b", "0_1"))],
    },
    "swapped.json": {"assignment": SWAPPED},
    "needless.json": {"assignment": SWAPPED, "target": SWAPPED},
    "withheld.json": {"topics": {"t": 2}, "members": {
        "a": {"topics": ["t"], "owned": [["t", 0], ["t", 1]]}, "b": {"topics": ["t"]}}},
    "kill.json": [[{"kind": "kill", "name": "z"}]],
    "new.json": {"tasks": [{"id": "0_0"}, {"id": "0_1"}], "instances": [{"id": "a"}]},
    "other-plan.json": {"tasks": [{"id": "0_0"}], "instances": [{"id": "x"}]},
    "bad-plan-task.json": {"schema": "taskplace.plan/1", "assignment": {"a": {"active": [7]}}},
    "bad-key.json": {"tasks": [], "instances": [], "config": {"max.warmup.replica": 1}},
}  # fmt: skip
TEXTS = {
    "shop.py": APPLICATION,
    "shop.yaml": "application:\n  id: shop\n  class: shop:Shop\n",
    "steer.yaml": "application: {id: q, class: a:b}\nsteering: {}\n",
    "tab.yaml": "application:\n\tid: a\n",
    "empty": "",
    "image": "",
    "lines.jsonl": '{"event":"start","schema":"taskplace.run/1"}\n',
    "not.json": "not json",
    "comma.json": '{"tasks": [1,], "instances": []}',
    "twice-a-key.json": '{"tasks": [], "tasks": []}',
    "nan.json": '{"tasks": [NaN]}',
    "deep.json": "[" * 200_000,
    "conf/orders.yaml": "",
    "clicks.yaml": """application: {id: clicks}
topology:
  sources: {clicks: {key: page, partitions: 3}}
  nodes:
    visits: {process: clicks, processor: count, options: {by: {page: string}}}
    pages: {process: clicks, processor: deduplicate, options: {by: {page: string}}}
    out: {sink: visits}
    seen: {sink: pages}
input: {clicks: {format: json, path: in, schema: "page string"}}
output: {out: {path: out}, seen: {path: seen}}
placement: {max.warmup.replicas: 3}
""",
}


@pytest.fixture
def here(shop, monkeypatch) -> Iterator[Path]:
    """A directory with files of all kinds, a checkpoint and an empty directory; its path is always as long."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name)
        monkeypatch.chdir(path)
        monkeypatch.setenv("COLUMNS", "100")
        for directory in ("conf", "in", "nothing", "checkpoint/epochs", "checkpoint/manifests"):
            (path / directory).mkdir(parents=True)
        for file, document in DOCUMENTS.items():
            (path / file).write_text(json.dumps(document))
        for file, text in TEXTS.items():
            (path / file).write_text(text)
        (path / "image").write_bytes(b"\xff\xd8\xff")
        for file in ("status.json", "manifests/1.json"):
            (path / "checkpoint" / file).write_bytes(sealed({"batch": 3}))
        yield path


@pytest.mark.parametrize("session", SESSIONS, ids=lambda path: path.stem)
def test_a_command_prints_what_it_says(session: Path, here: Path, monkeypatch, capsys) -> None:
    written = session.read_text(encoding="utf-8")
    monkeypatch.setattr("taskplace.cli.doctor.file_systems", dict)
    shown = []
    for line in (line for line in written.splitlines() if line.startswith("$ taskplace")):
        command, _, stdin = line.removeprefix("$ taskplace").partition(" < ")
        monkeypatch.setattr("sys.stdin", io.StringIO(Path(stdin).read_text() if stdin else ""))
        try:
            code = main(shlex.split(command))
        except SystemExit as stopped:
            code = stopped.code
        out = capsys.readouterr()
        assert (out.err != "") == out.err.startswith(
            ("taskplace: ", "usage: ")
        ) and "Traceback" not in out.err
        assert out.err.startswith("usage: ") or out.err.count("\n") == bool(out.err)  # an error is one line
        end = f"[exit {code}]\n" if code else ""
        shown.append(f"{line}\n{out.out}{out.err}{end}".replace(str(here), "/tmp/HERE"))
    text = "\n".join(shown)
    if os.environ.get("UPDATE_SESSIONS"):
        session.write_text(text, encoding="utf-8")
    assert text == written, "UPDATE_SESSIONS=1 pytest tests/cli/test_sessions.py"


def test_a_document_is_what_the_engine_makes(here: Path, capsys) -> None:
    assert main(["plan", "--output", "json", "problem.json"]) == 3
    assert capsys.readouterr().out == taskplace.plan(UNBALANCED).to_json()
    (here / "bom.json").write_text(json.dumps(STABLE), encoding="utf-8-sig")
    assert main(["plan", "bom.json"]) == 0
