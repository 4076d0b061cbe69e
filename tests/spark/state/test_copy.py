"""A copy as files of a host: starting anew, damage, another boot, refusals."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from taskplace.errors import CheckpointError, Fenced
from taskplace.spark.checkpoint.files import Changes
from taskplace.spark.messages import Fence, History, Position
from taskplace.spark.state import environment as meta_module
from taskplace.spark.state.copy import Copy
from tests.support.copies import peek, snapshot_of

STORES = ["s", "t"]


def bulk(count: int, tag: str = "v") -> Changes:
    return {"s": {b"%06d" % i: (tag * 200).encode() for i in range(count)}}


# -- starting anew
@pytest.mark.parametrize("trimmed", [True, False])
def test_a_snapshot_replaces_all_that_was_there(tmp_path, trimmed, committed, contents):
    """Keys that were deleted meanwhile do not come back, whether the snapshot is the only way or the cheaper one."""
    first = committed(History(), tmp_path, {"s": {b"gone": b"1", b"k": b"1"}, "t": {b"gone": b"1"}}, 0)
    deleted = committed(first, tmp_path, {"s": {b"gone": None, b"k": b"2"}, "t": {b"gone": None}}, 1)
    end = committed(deleted, tmp_path, {"s": {b"k": b"3"}}, 2)
    snapshot = snapshot_of(tmp_path, [("s", [(b"k", b"2")])], deleted.end)
    with Copy(tmp_path / "c", STORES) as copy:
        copy.follow(first, tmp_path)
        done = copy.bring_to(History(end.changes[2:] if trimmed else end.changes, (snapshot,)), tmp_path)
        assert (done.restored, done.replayed, done.scratch) == (1, 1, trimmed)
        assert contents(copy) == {"s": {b"k": b"3"}, "t": {}}


def test_a_copy_from_nowhere_starts_empty(tmp_path, committed, contents):
    """What it has belongs to no committed attempt, and there is no undo record: it came from another checkpoint."""
    other_life = committed(History(), tmp_path, {"s": {b"other": b"1"}, "t": {b"other": b"1"}}, 7)
    history = committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)
    with Copy(tmp_path / "c", STORES) as copy:
        copy.follow(other_life, tmp_path)
        assert copy.bring_to(history, tmp_path).scratch
        assert contents(copy) == {"s": {b"k": b"1"}, "t": {}}
        copy.commit_unchanged()
        copy.bring_to(History(), tmp_path)
        assert contents(copy) == {"s": {}, "t": {}}


# -- damage, and another boot
@pytest.mark.parametrize("damage", [b"\x00" * 4096, b"garbage " * 1024, b"short", b""])
def test_a_damaged_copy_is_made_again(tmp_path, damage, committed, contents):
    history = committed(History(), tmp_path, bulk(100), 0)
    path = tmp_path / "c"
    with Copy(path, STORES) as copy:
        copy.follow(history, tmp_path)
    data = path / "data.mdb"
    data.write_bytes(damage + data.read_bytes()[len(damage) :] if len(damage) > 100 else damage)
    assert peek(path) is None
    with Copy(path, STORES) as copy:
        done = copy.bring_to(history, tmp_path)
        assert (done.replayed, done.scratch) == (100, True)
        assert contents(copy)["s"] == bulk(100)["s"]
        copy.commit_unchanged()
    assert peek(path) == history.end


@pytest.mark.parametrize(
    ("name", "other"), [("boot_id", lambda: "another boot"), ("FORMAT", meta_module.FORMAT + 1)]
)
def test_a_copy_of_another_boot_or_format_is_made_again(
    tmp_path, monkeypatch, committed, contents, name, other
):
    """The host crashed, and LMDB does not sync: what the file says may not be what was written."""
    history = committed(History(), tmp_path, bulk(10), 0)
    path = tmp_path / "c"
    with Copy(path, STORES) as copy:
        copy.follow(history, tmp_path)
        copy.bring_to(history, tmp_path)
        copy.commit({"s": {b"more": b"1"}}, Position(7, "lost", 11))
    monkeypatch.setattr(meta_module, name, other)
    assert peek(path) is None
    with Copy(path, STORES) as copy:
        done = copy.follow(history, tmp_path)
        assert done is not None and (done.replayed, done.scratch, done.rolled_back) == (10, True, False)
        copy.bring_to(history, tmp_path)
        assert contents(copy)["s"] == bulk(10)["s"]
    assert peek(path) == history.end


# -- looking from outside
def test_peek(tmp_path, committed):
    path = tmp_path / "c"
    assert peek(path) is None
    assert not path.exists(), "looking makes nothing"
    with Copy(path, STORES):
        pass
    assert peek(path) is None, "a copy that was never brought anywhere"
    history = committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)
    with Copy(path, STORES) as copy:
        copy.follow(history, tmp_path)
    assert peek(path) == history.end
    with Copy(path, STORES) as copy:
        copy.bring_to(history, tmp_path)
        copy.commit({"s": {b"k": b"2"}}, Position(1, "maybe", 2))
        assert copy.position() == Position(1, "maybe", 2)
    assert peek(path) == history.end, "an attempt that nobody has committed does not count"


# -- what a copy refuses
def test_older_work_is_refused_and_changes_nothing(tmp_path, committed):
    history = committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)
    path = tmp_path / "c"
    with Copy(path, STORES, fence=Fence(2, 1)) as copy:
        copy.bring_to(history, tmp_path)
        copy.commit({"s": {b"k": b"2"}}, Position(1, "new", 2))
    for older in (Fence(1, 9), Fence(2, 0)):
        with (
            Copy(path, STORES, fence=older) as copy,
            pytest.raises(Fenced, match=r"c: the fence of this attempt is .*epoch"),
        ):
            copy.bring_to(history, tmp_path)
    with Copy(path, STORES) as copy:
        assert copy.position() == Position(1, "new", 2)
    for as_new in (Fence(2, 1), Fence(3, 0)):
        with Copy(path, STORES, fence=as_new) as copy:
            copy.bring_to(history, tmp_path)
            copy.commit_unchanged()


def test_a_fence_is_not_forgotten_by_starting_anew(tmp_path, committed):
    with Copy(tmp_path / "c", STORES, fence=Fence(2, 1)) as copy:
        copy.bring_to(History(), tmp_path)
        copy.commit({"s": {b"k": b"1"}}, Position(1, "x", 1))
    history = committed(History(), tmp_path, {"s": {b"k": b"2"}}, 5)
    unknown = History((replace(history.changes[0], base="", offset=1),))
    with Copy(tmp_path / "c", STORES) as copy:
        copy.follow(unknown, tmp_path)
    with Copy(tmp_path / "c", STORES, fence=Fence(1, 9)) as copy, pytest.raises(Fenced):
        copy.bring_to(unknown, tmp_path)


def test_a_damaged_file_leaves_the_copy_where_it_was(tmp_path, committed, contents):
    first = committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)
    both = committed(first, tmp_path, {"s": {b"k": b"2"}}, 1)
    (tmp_path / both.changes[1].file).write_bytes(b"torn")
    with (
        Copy(tmp_path / "c", STORES) as copy,
        pytest.raises(CheckpointError, match=r"1\.arrow: found 4 bytes"),
    ):
        copy.bring_to(both, tmp_path)
    with Copy(tmp_path / "c", STORES) as copy:
        assert copy.position() == first.end
        assert not copy.bring_to(first, tmp_path).scratch
        assert contents(copy)["s"] == {b"k": b"1"}


# -- transactions that are over
USES = {
    "get_many": lambda copy: copy.get_many("s", [b"k"]),
    "scan": lambda copy: list(copy.scan("s")),
    "count": lambda copy: copy.count("s"),
    "commit": lambda copy: copy.commit({}, Position(1, "b", 1)),
    "commit_unchanged": lambda copy: copy.commit_unchanged(),
}
ENDS = {
    "begun": None,
    "committed": lambda copy: copy.commit({"s": {b"k": b"2"}}, Position(1, "b", 1)),
    "unchanged": lambda copy: copy.commit_unchanged(),
    "grown": lambda copy: copy.grow(),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("use", USES)
def test_a_copy_is_used_in_a_transaction_only(tmp_path, committed, end, use):
    history = committed(History(), tmp_path, {"s": {b"k": b"1"}}, 0)
    with Copy(tmp_path / "c", STORES) as copy:
        if finish := ENDS[end]:
            copy.bring_to(history, tmp_path)
            finish(copy)
        with pytest.raises(RuntimeError, match=r"bring_to\(\) has to come first"):
            USES[use](copy)
