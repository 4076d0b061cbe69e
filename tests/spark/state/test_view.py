"""A view of a copy: the last committed point, and one clear error for each copy that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from taskplace.errors import CheckpointError
from taskplace.spark.messages import History, Position
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.environment import DATA, META, UNDO
from taskplace.spark.state.transaction import View


@pytest.fixture
def history(tmp_path, committed) -> History:
    return committed(History(), tmp_path, {"s": {b"k": b"1", b"l": b"1"}}, 0)


@pytest.fixture
def path(tmp_path, history) -> Path:
    with Copy(tmp_path / "0_0", ["s"]) as copy:
        copy.follow(history, tmp_path)
    return tmp_path / "0_0"


def refused(path: Path, store: str, history: History, message: str) -> None:
    """Twice: a view that was refused leaves nothing open."""
    first = pytest.raises(CheckpointError, match=message)
    with first:
        View(path, store, history)
    with pytest.raises(CheckpointError, match=message):
        View(path, store, history)
    del first


def test_a_batch_that_is_not_committed_is_not_seen(tmp_path, path, history) -> None:
    with Copy(path, ["s"]) as copy:
        copy.bring_to(history, tmp_path)
        copy.commit({"s": {b"k": b"2", b"l": None, b"m": b"2"}}, Position(1, "lost", 3))
    with View(path, "s", history) as view:
        assert view.position == history.end
        assert view.get_many([b"m", b"l", b"k", b"x"]) == [None, b"1", b"1", None]
        assert dict(view.scan()) == {b"k": b"1", b"l": b"1"}


def test_a_copy_that_is_missing_is_named(tmp_path, history) -> None:
    refused(tmp_path / "0_7", "s", history, "^0_7: no copy on this executor$")


def test_a_store_that_is_missing_is_named(path, history) -> None:
    refused(path, "t", history, "^0_0: the copy has no store 't'$")


def test_a_copy_that_is_no_database_cannot_be_read(path, history) -> None:
    (path / DATA).write_bytes(b"garbage " * 4096)
    refused(path, "s", history, r"^0_0: the copy cannot be read \(.*\)$")


def test_a_copy_that_was_cut_is_damaged(path, history) -> None:
    os.truncate(path / DATA, 2 * 4096)
    refused(path, "s", history, r"^0_0: the copy cannot be read \(.*the file is shorter than its contents\)$")


def test_a_copy_of_another_history_is_refused(tmp_path, path, history, committed) -> None:
    other = committed(History(), tmp_path, {"s": {b"k": b"9"}}, 5)
    refused(path, "s", other, "^0_0: the copy is at .*, which is not in its history$")


def test_a_copy_that_is_partly_restored_is_refused(tmp_path, path, history) -> None:
    with Copy(tmp_path / "0_1", ["s", "t"]) as copy:
        copy.follow(history, tmp_path)
    (tmp_path / "empty").mkdir()
    refused(path, "s", History(), "^0_0: the copy is at .*, which is not in its history$")
    with Copy(path, ["s"]) as copy, copy._env.begin(write=True) as txn:
        txn.put(b"position", b"damaged", db=copy._env.databases[META])
    refused(path, "s", history, "^0_0: no usable copy$")


def test_an_undo_record_that_is_gone_is_told(tmp_path, path, history) -> None:
    with Copy(path, ["s"]) as copy:
        copy.bring_to(history, tmp_path)
        copy.commit({"s": {b"k": b"2"}}, Position(1, "lost", 1))
        with copy._env.begin(write=True) as txn:
            assert txn.delete(UNDO, db=copy._env.databases[META])
    refused(path, "s", history, "the copy has no undo record$")
