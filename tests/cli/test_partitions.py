"""`taskplace partitions`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from taskplace.cli import main
from taskplace.groups.partitioner import partition_for_key

GROUP: dict[str, Any] = {
    "topics": {"t0": 1, "t1": 2, "t2": 3, "lonely": 2},
    "members": {"C1": {"topics": ["t0", "t1"]}, "C2": {"topics": ["t0", "t1", "t2"], "owned": [["t0", 0]]}},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "subscriptions.json"
    path.write_text(json.dumps(GROUP))
    return path


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
