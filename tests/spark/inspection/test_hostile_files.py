"""Files of a checkpoint that a person has copied, or that others have put there: each is damage, in one line.

Nothing hangs, nothing is read outside of the checkpoint, and no reader goes in circles.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from taskplace.cli import main
from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint import journal as module
from taskplace.spark.checkpoint.files import encode_changes, seal_of, write_file
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.checkpoint.manifests import history_before, path_of
from taskplace.spark.codec import sealed, unsealed
from taskplace.spark.inspection.checkpoint import inspect
from taskplace.spark.inspection.driver import driver_of
from taskplace.spark.messages import Change, History
from taskplace.spark.operator_messages import STATUS_FILE, Status, read
from taskplace.spark.state.copy import Copy
from tests.spark.driver.test_operations import asked
from tests.support.journals import run_batches
from tests.support.operators import stream, turn, write_status
from tests.support.word_counts import words
from topology import TaskId

TASK = TaskId(0, 0)


def replaced(path: Path, by: str, content: bytes = b"") -> None:
    """Put something else in the place of a file."""
    path.unlink(missing_ok=True)
    if by == "directory":
        path.mkdir()
    elif by == "pipe":
        os.mkfifo(path)
    elif by == "link":
        path.symlink_to(content.decode() or path.name)
    else:
        path.write_bytes(content)


def told_of(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the damage of a manifest that `verify` prints, which is a line without a traceback."""
    assert main(["verify", str(checkpoint)]) == 1
    printed = capsys.readouterr()
    assert "Traceback" not in printed.out + printed.err
    return " ".join(printed.out.split())


# -- a manifest that does not say its own name


@pytest.mark.parametrize(("source", "name"), [(4, 5), (4, 3), (3, 4), (3, 9)])
def test_a_manifest_under_a_wrong_number_is_damage_to_every_reader(tmp_path, capsys, source, name):
    journal = Journal(tmp_path, {})
    run_batches(journal, range(5))
    path = path_of(tmp_path, name)
    shutil.copy(path_of(tmp_path, source), path)
    says = f"damaged manifest (it is of batch {source}"
    for reader in (
        lambda: Journal(tmp_path, {}),
        journal.take_over,
        lambda: history_before(tmp_path, 10, TASK),
    ):
        with pytest.raises(CheckpointError) as refused:
            reader()
        assert str(refused.value).startswith(f"{path}: {says}")
    assert says in told_of(tmp_path, capsys)
    assert journal.epoch == 1


def test_a_driver_that_others_outrun_each_time_stops_after_a_while(tmp_path, monkeypatch):
    journal, taken = Journal(tmp_path, {}, take_over=False), []
    numbers = module.numbers
    monkeypatch.setattr(module, "numbers", lambda root: [*numbers(root), 99] if taken else numbers(root))
    monkeypatch.setattr(journal, "_load", taken.clear)
    take = journal._epochs.take
    monkeypatch.setattr(journal._epochs, "take", lambda *args: taken.append(1) or take(*args))
    with pytest.raises(CheckpointError, match="other drivers take over or commit meanwhile; end all but one"):
        journal.take_over()


@pytest.mark.parametrize("bases", [["", "x"], ["", "a", "a"], ["x"], ["", "b"]], ids=str)
@pytest.mark.parametrize("attempts", ["abc", "aba", "abab"])
def test_no_history_is_replayed_for_ever(tmp_path, attempts, bases):
    """Changes that do not follow each other, or turn in a circle."""
    changes = []
    for version, attempt in enumerate(attempts):
        base = bases[version] if version < len(bases) else attempts[version - 1]
        file = tmp_path / "changelog" / str(version)
        write_file(file, encode_changes({"s": {b"k": attempt.encode()}}, {}), sync=False)
        named = str(file.relative_to(tmp_path)), file.stat().st_size, seal_of(file)
        changes.append(Change(version, attempt, base, version + 1, 1, *named))
    copy = Copy(tmp_path / "0_0", ["s"])
    with suppress(CheckpointError):
        copy.bring_to(History(tuple(changes)), tmp_path)
    copy.close()


# -- what whoever can write the checkpoint may put there


def deep(manifest: Path) -> bytes:
    body = b"[" * 100_000 + b"]" * 100_000
    return b'{"body":%b,"seal":"x"}' % body


def naming(file: str):
    def forged(manifest: Path) -> bytes:
        raw = json.loads(unsealed(manifest.read_bytes()))
        raw["sinks"] = {"n-out": [{"file": file, "rows": 1, "size": 1, "checksum": "x"}]}
        return sealed(raw)

    return forged


@pytest.mark.parametrize(
    ("by", "content"),
    [
        ("directory", None),
        ("pipe", None),
        ("link", None),
        ("link", lambda manifest: b"/nowhere"),
        ("deep JSON", deep),
        *(("a file outside", naming(file)) for file in ("/etc/passwd", "../x", "batches/../../x", "..")),
    ],
)
def test_a_hostile_manifest_is_damage_in_one_line(world, capsys, by, content):
    placed = stream(world)
    placed.close()
    path = path_of(placed.checkpoint, 0)
    replaced(path, by, b"" if content is None else content(path))
    with pytest.raises(CheckpointError) as refused:
        stream(world)
    assert str(refused.value).startswith(f"{path}: damaged manifest (")
    assert "damaged" in told_of(placed.checkpoint, capsys)


def test_a_negative_size_is_damage(world, capsys):
    placed = stream(world)
    placed.close()
    path = path_of(placed.checkpoint, 0)
    raw = json.loads(unsealed(path.read_bytes()))
    raw["changes"]["0_0"]["size"] = -1
    path.write_bytes(sealed(raw))
    assert "were changed" in told_of(placed.checkpoint, capsys)


@pytest.mark.parametrize("by", ["directory", "pipe", "link"])
@pytest.mark.parametrize("kind", ["epochs/*1", "changelog/*", "batches/*/sinks/*/*", STATUS_FILE, "tick"])
def test_what_is_no_file_is_damage_wherever_it_is(world, by, kind, capsys):
    placed = stream(world)
    turn(placed)
    placed.close()
    path = next(iter(placed.checkpoint.glob(kind)), placed.checkpoint / kind)
    replaced(path, by)
    if kind == STATUS_FILE:
        with pytest.raises(
            CheckpointError, match=r"status\.json: (damaged \(it is not a file\)|it cannot be read)"
        ):
            driver_of(placed.checkpoint)
        assert main(["status", str(placed.checkpoint)]) == 1
        assert "Traceback" not in capsys.readouterr().err
    elif kind != "tick":
        (damage,) = inspect(placed.checkpoint, verify=True).damaged
        assert damage.file == str(path.relative_to(placed.checkpoint))
    shutil.rmtree(world.folder / "state")  # the next driver's executors have no copies
    world.restart(1)
    needed = (
        nullcontext() if kind in (STATUS_FILE, "tick") else pytest.raises(CheckpointError, match="not a file")
    )
    with needed:
        again = world.open(placed.built)
        world.batch(again, 0 if "sinks" in kind else 1, **{"in": words(*"abcdefgh")})
        turn(again)


def test_requests_behind_a_bad_one_are_answered(world, caplog):
    placed = stream(world)
    turn(placed)
    requests = placed.checkpoint / "requests"
    requests.mkdir()
    (requests / "0.json").mkdir()
    os.mkfifo(requests / "1.json")
    (requests / "2.json").write_bytes(deep(requests))
    (requests / "3.taken").mkdir()
    for _ in range(3):
        assert asked(placed, "can-remove", "executor-1").removals[0].active == 2
    assert sorted(path.name for path in requests.iterdir()) == ["0.json", "3.taken"]
    assert caplog.text.count("0.json") == 1, "it is told once"
    write_status(placed)
    assert read(placed.checkpoint / STATUS_FILE, Status).number > 1
