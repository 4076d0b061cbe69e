"""`taskplace partitions`: what it prints, and its exit codes."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from taskplace.cli import main
from taskplace.groups.partitioner import partition_for_key
from taskplace.groups.partitions import assign_partitions

GROUP: dict[str, Any] = {
    "topics": {"t0": 1, "t1": 2, "t2": 3, "lonely": 2},
    "members": {"C1": {"topics": ["t0", "t1"]}, "C2": {"topics": ["t0", "t1", "t2"], "owned": [["t0", 0]]}},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "subscriptions.json"
    path.write_text(json.dumps(GROUP))
    return path


def test_it_prints_who_gets_what(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partitions", str(file)]) == 3
    assert capsys.readouterr().out.splitlines() == [
        "C1  3: t0[0] t1[0-1]",
        "C2  3: t2[0-2]",
        "unassigned, because no member subscribes: lonely",
        "balance score 0, 0 preserved, 1 moved",
    ]


def test_in_two_phases(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partitions", str(file), "--assignor", "cooperative"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["C1  2: t1[0-1]", "    after them 1: t0[0]"]
    assert lines[-1] == "balance score 0, 0 preserved, 1 moved; assign again when this assignment is in force"


def test_json_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = assign_partitions(GROUP, "sticky_fair")
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(GROUP)))
    assert main(["partitions", "-", "--output", "json", "--assignor", "sticky_fair"]) == 0
    assert capsys.readouterr().out == made.to_json()


def test_standbys_and_warnings_are_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(
        json.dumps(
            {
                "assignor": "copartitioned",
                "replicas": 2,
                "topics": {"t": 2},
                "members": {"A": {"topics": ["t"]}, "B": {"topics": ["t"]}},
            }
        )
    )
    assert main(["partitions", str(file)]) == 0
    out = capsys.readouterr().out
    assert "follows 1: t[" in out
    assert "warning: 2 of 2 partitions get 1 of the 2 configured standbys" in out


def test_a_document_says_whether_partitions_move_for_racks(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document: dict[str, Any] = {
        "topics": {"t": {"partitions": 2, "racks": [["a"], ["b"]]}},
        "members": {
            "A": {"topics": ["t"], "owned": [["t", 1]], "rack": "a"},
            "B": {"topics": ["t"], "owned": [["t", 0]], "rack": "b"},
        },
    }
    for priority, code, lines in (
        ("stickiness", 0, ["A  1: t[1]", "B  1: t[0]"]),
        ("racks", 3, ["A  1: t[0]", "B  1: t[1]"]),
    ):
        file.write_text(json.dumps({**document, "rack_priority": priority}))
        assert main(["partitions", str(file)]) == code
        assert capsys.readouterr().out.splitlines()[:2] == lines
    file.write_text(json.dumps({**document, "rack_priority": "rack"}))
    assert main(["partitions", str(file)]) == 2
    assert "rack_priority: found 'rack', expected one of stickiness, racks" in capsys.readouterr().err


def test_bad_input_is_one_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partitions", str(file), "--assignor", "rang"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert "assignor: found 'rang'" in said.err and "did you mean 'range'?" in said.err
    file.write_text("{")
    assert main(["partitions", str(file)]) == 2


@pytest.mark.parametrize(
    ("topics", "found"),
    [
        ({"t": 2**62}, "topics.t.partitions: found 4611686018427387904"),
        ({"t": 2**31 - 1}, "topics.t.partitions: found 2147483647"),
        ({"t": {"partitions": 2**63 - 1}}, "topics.t.partitions: found 9223372036854775807"),
        ({"t": 6_000_000, "u": 6_000_000}, "topics: found 12000000"),
        ({"\ud800": 1}, "subscriptions: found"),
    ],
)
def test_counts_that_nobody_can_list_are_bad_input(
    file: Path, topics: dict[str, Any], found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(json.dumps({"topics": topics, "members": {"C0": {"topics": ["t"]}}}))
    assert main(["partitions", str(file)]) == 2
    said = capsys.readouterr().err
    assert found in said and "Traceback" not in said


def test_more_replicas_than_there_can_be_are_a_warning(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members = {name: {"topics": ["t"]} for name in "ab"}
    file.write_text(
        json.dumps({"assignor": "copartitioned", "replicas": 2**62, "topics": {"t": 2}, "members": members})
    )
    assert main(["partitions", str(file)]) in (0, 2)
    said = "".join(capsys.readouterr())
    assert "get 1 of the 4611686018427387904 configured standbys" in said or "replicas: found" in said


WORKERS: dict[str, Any] = {
    "assignor": "copartitioned",
    "global_topics": ["codes"],
    "topics": {"orders": 2, "codes": 1},
    "members": {
        "w0": {"topics": ["orders", "codes"], "url": "http://w0:6066", "owned": [["orders", 0]]},
        "w1": {"topics": ["orders", "codes"], "owned": [["orders", 1], ["codes", 0]]},
        "w2": {"topics": []},
    },
}


def test_urls_and_global_topics_are_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(json.dumps(WORKERS))
    assert main(["partitions", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "w0  1: orders[0]",
        "    at http://w0:6066",
        "    follows 1: codes[0]",
        "w1  2: codes[0] orders[1]",
        "w2  0: -",
        "on every subscriber: codes",
        "warning: 1 of 3 members do not subscribe to the global topic codes and have no copy of it: w2; "
        "subscribe them",
        "balance score 4, 3 preserved, 0 moved",
    ]


def test_who_has_a_key(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(json.dumps(WORKERS))
    said = set()
    for key in "abcdef":
        assert main(["partitions", str(file), "--key", "orders", key]) == 0
        number = partition_for_key(key.encode(), 2)
        said.add(capsys.readouterr().out)
        assert f"orders[{number}]  {('w0 at http://w0:6066', 'w1')[number]}\n" in said
    assert len(said) == 2
    assert main(["partitions", str(file), "--key", "codes", "a"]) == 0
    assert capsys.readouterr().out == "codes[0]  w1\n  followed by w0 at http://w0:6066\n"
    assert main(["partitions", str(file), "--key", "codes", "a", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": "taskplace.partition_location/1",
        "partition": ["codes", 0],
        "active": "w1",
        "standby": ["w0"],
        "url": None,
        "standby_urls": ["http://w0:6066"],
    }
    assert main(["partitions", str(file), "--key", "code", "a"]) == 2
    assert "did you mean 'codes'?" in capsys.readouterr().err


def test_a_key_that_is_no_text_is_its_bytes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(json.dumps(WORKERS))
    for raw in (b"\xff", b"\xfe\x80a", b"\xc3"):
        assert main(["partitions", str(file), "--key", "orders", os.fsdecode(raw)]) == 0
        assert capsys.readouterr().out.startswith(f"orders[{partition_for_key(raw, 2)}]  ")


def test_a_key_whose_partition_is_withheld_is_on_nobody(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members = {"a": {"topics": ["t"], "owned": [["t", 0], ["t", 1]]}, "b": {"topics": ["t"]}}
    file.write_text(json.dumps({"topics": {"t": 2}, "members": members}))
    out = set()
    for key in "abcdef":
        assert main(["partitions", str(file), "--assignor", "cooperative", "--key", "t", key]) == 0
        out.add(capsys.readouterr().out.split("]  ")[1])
    assert out == {"no member yet\n", "a\n"}
