"""Environments that stay open between uses are the same as ones that are opened anew."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from taskplace.errors import CheckpointError
from taskplace.spark.messages import History, Position
from taskplace.spark.state import environment as warm
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.environment import DATA, LOCK
from taskplace.spark.state.transaction import View
from tests.support.copies import peek


@pytest.fixture
def pool(monkeypatch):
    """The process's environments: at most three."""
    kept = warm.Warm(most=3)
    monkeypatch.setattr(warm, "WARM", kept)
    yield kept
    kept.clear()


@pytest.fixture
def history(tmp_path, committed):
    return committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)


def bring(path: Path, history: History, stores: tuple[str, ...] = ("s",)) -> dict[str, dict[bytes, bytes]]:
    with Copy(path, stores) as copy:
        copy.bring_to(history, path.parent)
        contents = {store: dict(copy.scan(store)) for store in stores}
        copy.commit_unchanged()
    return contents


def opened(monkeypatch) -> list[str]:
    """Return the list to which each further opening of an environment is added."""
    really_open, paths = lmdb.open, []

    def open_(path, *args, **kwargs):
        paths.append(Path(path).name)
        return really_open(path, *args, **kwargs)

    monkeypatch.setattr(lmdb, "open", open_)
    return paths


def test_the_next_use_opens_nothing(tmp_path, pool, history, monkeypatch):
    bring(tmp_path / "0_0", history)
    paths = opened(monkeypatch)
    assert bring(tmp_path / "0_0", history) == {"s": {b"k": b"1"}}
    assert peek(tmp_path / "0_0") == history.end
    assert paths == []
    assert len(pool) == 1


def test_a_process_that_is_not_started_keeps_nothing(tmp_path, history, monkeypatch):
    monkeypatch.setattr(warm, "WARM", warm.Warm())
    bring(tmp_path / "0_0", history)
    assert len(warm.WARM) == 0
    warm.keep_environments()
    assert 0 < warm.WARM.most <= warm.ENVIRONMENTS_LIMIT


@pytest.mark.parametrize(
    ("descriptors", "most"),
    [(7, 0), (8, 1), (1024, 128), (8192, 1024), (8200, 1024), (resource.RLIM_INFINITY, 1024)],
)
def test_copies_take_an_eighth_of_the_file_descriptors_at_most(monkeypatch, descriptors, most):
    monkeypatch.setattr(warm, "WARM", warm.Warm())
    monkeypatch.setattr(resource, "getrlimit", lambda what: (descriptors, descriptors))
    warm.keep_environments()
    assert warm.WARM.most == most
    monkeypatch.setattr(resource, "getrlimit", lambda what: (80, 80))
    warm.keep_environments()
    assert warm.WARM.most == (most or 10), "a process that is started keeps its limit"


def test_those_that_were_used_last_are_kept(tmp_path, pool, history, monkeypatch):
    for name in ("0_0", "0_1", "0_2", "0_0", "0_3"):
        bring(tmp_path / name, history)
    assert len(pool) == 3
    paths = opened(monkeypatch)
    bring(tmp_path / "0_0", history)
    bring(tmp_path / "0_1", history)
    assert paths == ["0_1"]


APPLY = """
import sys
from pathlib import Path
from taskplace.spark.messages import History
from taskplace.spark.state.copy import Copy
path, history = Path(sys.argv[1]), History.decode(sys.argv[2].encode())
with Copy(path, ["s"]) as copy:
    copy.growing(lambda: copy.bring_to(history, path.parent))
    copy.commit_unchanged()
"""


def apply(path: Path, history: History) -> None:
    """Bring a copy to the end of a history, in another process."""
    other = [sys.executable, "-c", APPLY, str(path), history.encode().decode()]
    subprocess.run(other, check=True, timeout=60)


def test_behind_a_lock_file_that_was_replaced_a_copy_is_opened_anew(tmp_path, pool, history, committed):
    """Without the old lock file, the other process neither waits for this one nor tells it of its commit."""
    bring(tmp_path / "0_0", history)
    (tmp_path / "0_0" / LOCK).unlink()
    later = committed(history, tmp_path, {"s": {b"k": b"2"}}, 1)
    apply(tmp_path / "0_0", later)
    assert peek(tmp_path / "0_0") == later.end
    assert bring(tmp_path / "0_0", later) == {"s": {b"k": b"2"}}
    lock = (tmp_path / "0_0" / LOCK).stat().st_ino
    assert [environment.lock_id[1] for environment in pool._kept.values()] == [lock]


def replace_data(path: Path) -> None:
    other = path / "other"
    shutil.copy(path / DATA, other)
    other.rename(path / DATA)


@pytest.mark.parametrize(
    "harm",
    [shutil.rmtree, lambda path: (path / DATA).unlink(), lambda path: (path / LOCK).unlink(), replace_data],
    ids=["directory gone", "data gone", "lock gone", "data replaced"],
)
@pytest.mark.parametrize("name", ["0_0", "0_7"])
def test_a_copy_with_other_files_is_opened_anew(tmp_path, pool, history, monkeypatch, harm, name):
    """Also under another name. LMDB must not open a file, or a path, twice."""
    bring(tmp_path / "0_0", history)
    harm(tmp_path / "0_0")
    if name != "0_0" and (tmp_path / "0_0").exists():
        (tmp_path / "0_0").rename(tmp_path / name)
    paths = opened(monkeypatch)
    assert bring(tmp_path / name, history) == {"s": {b"k": b"1"}}
    assert name in paths
    pool.tidy()
    kept = pool._kept[tmp_path / name]
    assert (kept.file_id[1], kept.lock_id[1]) == tuple(
        (tmp_path / name / f).stat().st_ino for f in (DATA, LOCK)
    )
    assert len(pool) == 1


def test_an_error_closes_the_copy(tmp_path, pool, history):
    bring(tmp_path / "0_0", history)
    with pytest.raises(ValueError, match="of the processor"), Copy(tmp_path / "0_0", ["s"]) as copy:
        copy.bring_to(history, tmp_path)
        raise ValueError("of the processor")
    assert len(pool) == 0
    assert bring(tmp_path / "0_0", history) == {"s": {b"k": b"1"}}


def test_an_error_of_a_borrower_closes_the_copy(tmp_path, pool, history, monkeypatch):
    bring(tmp_path / "0_0", history)
    with pytest.raises(ValueError, match="of the reader"), pool.borrow(tmp_path / "0_0") as environment:
        assert environment is not None
        raise ValueError("of the reader")
    assert len(pool) == 0
    paths = opened(monkeypatch)
    assert bring(tmp_path / "0_0", history) == {"s": {b"k": b"1"}}
    assert paths == ["0_0"]


def test_a_file_that_was_cut_meanwhile_is_noticed(tmp_path, pool, history):
    bring(tmp_path / "0_0", history)
    os.truncate(tmp_path / "0_0" / DATA, 4096)
    assert peek(tmp_path / "0_0") is None
    assert bring(tmp_path / "0_0", history) == {"s": {b"k": b"1"}}


@pytest.mark.parametrize("page", [0, 1])
def test_a_file_that_was_overwritten_meanwhile_is_noticed(tmp_path, pool, history, page):
    bring(tmp_path / "0_0", history)
    with (tmp_path / "0_0" / DATA).open("r+b") as file:
        file.seek(page * 4096)
        file.write(b"garbage " * 512)
    assert peek(tmp_path / "0_0") is None
    assert len(pool) == 0
    assert bring(tmp_path / "0_0", history) == {"s": {b"k": b"1"}}


def test_a_further_store_is_there(tmp_path, pool, history):
    bring(tmp_path / "0_0", history)
    assert bring(tmp_path / "0_0", history, ("s", "t")) == {"s": {b"k": b"1"}, "t": {}}


def test_a_view_of_a_copy_that_is_kept_open_takes_back_what_is_not_committed(
    tmp_path, pool, history, monkeypatch
):
    with Copy(tmp_path / "0_0", ["s"]) as copy:
        copy.bring_to(history, tmp_path)
        copy.commit({"s": {b"k": b"2", b"l": b"2"}}, Position(1, "lost", 2))
    paths = opened(monkeypatch)
    with View(tmp_path / "0_0", "s", history) as view:
        assert view.position == history.end
        assert dict(view.scan()) == {b"k": b"1"}
    assert bring(tmp_path / "0_0", history) == {"s": {b"k": b"1"}}
    assert paths == []


def test_a_view_sees_nothing_of_an_open_transaction_of_this_process(tmp_path, pool, history):
    bring(tmp_path / "0_0", history)
    kept = pool.take(tmp_path / "0_0", [b"s"])
    pool.give_back(kept)
    with kept.begin(write=True) as txn:
        txn.put(b"k", b"half", db=kept.databases[b"s"])
        with View(tmp_path / "0_0", "s", history) as view:
            assert len(list(view.scan())) == 1
            assert view.get_many([b"k"]) == [b"1"]
        txn.abort()
    assert bring(tmp_path / "0_0", history) == {"s": {b"k": b"1"}}
    assert len(pool) == 1


def test_a_view_leaves_an_attempt_of_this_process_alone_that_has_the_copy_open(tmp_path, pool, history):
    """LMDB must not open a file twice in a process."""
    with Copy(tmp_path / "0_0", ["s"]) as copy:
        copy.bring_to(history, tmp_path)
        with pytest.raises(CheckpointError, match=r"^0_0: the copy cannot be read"):
            View(tmp_path / "0_0", "s", history)
        copy.commit({"s": {b"k": b"2"}}, Position(1, "mine", 1))
        assert copy.position().attempt == "mine"


def test_a_view_is_of_the_moment_at_which_it_was_opened(tmp_path, pool, history, committed):
    bring(tmp_path / "0_0", history)
    later = committed(history, tmp_path, {"s": {b"k": b"2"}}, 1)
    with View(tmp_path / "0_0", "s", history) as view:
        apply(tmp_path / "0_0", later)
        assert view.get_many([b"k"]) == [b"1"]
    with View(tmp_path / "0_0", "s", later) as view:
        assert view.position == later.end
        assert view.get_many([b"k"]) == [b"2"]
    assert len(pool) == 1


def test_a_view_of_an_open_copy_cannot_write_it(tmp_path, pool, history):
    bring(tmp_path / "0_0", history)
    with View(tmp_path / "0_0", "s", history) as view, pytest.raises(lmdb.ReadonlyError):
        view._txn.put("s", [b"k"], [b"2"])
    assert bring(tmp_path / "0_0", history) == {"s": {b"k": b"1"}}


def test_a_view_of_an_open_copy_sees_what_another_process_has_written_to_a_larger_map(
    tmp_path, pool, history, committed
):
    bring(tmp_path / "0_0", history)
    large = {key.to_bytes(4, "big"): bytes(1000) for key in range(80_000)}  # more than the first map
    later = committed(history, tmp_path, {"s": large}, 1)
    apply(tmp_path / "0_0", later)
    with View(tmp_path / "0_0", "s", later) as view:
        assert sum(1 for _ in view.scan()) == 80_001
    assert len(pool) == 1


def test_a_view_of_a_store_that_the_open_copy_lacks_opens_it_anew(tmp_path, pool, history):
    bring(tmp_path / "0_0", history, ("s", "t"))
    pool.clear()
    bring(tmp_path / "0_0", history, ("s",))
    with View(tmp_path / "0_0", "t", history) as view:
        assert dict(view.scan()) == {}
    with pytest.raises(CheckpointError, match=r"^0_0: the copy has no store 'u'$"):
        View(tmp_path / "0_0", "u", history)
    assert bring(tmp_path / "0_0", history) == {"s": {b"k": b"1"}}


def in_another_process(work) -> None:
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join(60)
    assert worker.exitcode == 0


def test_a_fork_closes_what_is_kept(tmp_path, pool, history, monkeypatch):
    monkeypatch.setattr(warm, "WARM", pool)
    os.register_at_fork(before=lambda: None)  # handlers run in the reverse order of their registration
    bring(tmp_path / "0_0", history)
    in_another_process(lambda: bring(tmp_path / "0_0", history))
