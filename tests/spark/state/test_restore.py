"""A restore in pieces: it goes on where it was stopped, or begins anew where history leads elsewhere."""

from __future__ import annotations

from taskplace.spark.messages import History, Position
from taskplace.spark.state.copy import Copy
from tests.support.copies import peek, snapshot_of

STORES = ["s", "t"]


def pieces_of(root, count, at):
    """A snapshot of `count` keys in pieces of 10."""
    entries = [(f"{i:04d}".encode(), str(i).encode()) for i in range(count)]
    return snapshot_of(root, [("s", entries[i : i + 10]) for i in range(0, count, 10)], at, at.attempt)


def test_a_restore_in_pieces_goes_on_where_it_was_stopped(tmp_path, contents):
    history = History((), (pieces_of(tmp_path, 95, Position(3, "a3", 200)),))
    steps = 0
    for _ in range(20):
        with Copy(tmp_path / "c", STORES) as copy:  # each time another process would be as good
            done = copy.follow(history, tmp_path, pause=lambda: False)
            steps += 1
            if not done.unfinished:
                break
            assert peek(tmp_path / "c") in (None, Position(3, "a3", 200))  # half of a state is none
    assert steps == 11
    with Copy(tmp_path / "c", STORES) as copy:
        copy.bring_to(history, tmp_path)
        assert len(contents(copy)["s"]) == 95


def test_an_attempt_finishes_the_restore_that_a_follower_began(tmp_path, contents):
    history = History((), (pieces_of(tmp_path, 95, Position(3, "a3", 200)),))
    with Copy(tmp_path / "c", STORES) as copy:
        for _ in range(4):
            copy.follow(history, tmp_path, pause=lambda: False)
    with Copy(tmp_path / "c", STORES) as copy:
        recovery = copy.bring_to(history, tmp_path)
        assert (recovery.restored, recovery.scratch) == (55, False)
        assert len(contents(copy)["s"]) == 95


def test_half_a_restore_is_dropped_when_history_leads_elsewhere(tmp_path, committed, contents):
    old = History((), (pieces_of(tmp_path, 95, Position(3, "a3", 200)),))
    with Copy(tmp_path / "c", STORES) as copy:
        copy.follow(old, tmp_path, pause=lambda: False)
    new = History((), (pieces_of(tmp_path, 20, Position(5, "a5", 300)),))
    with Copy(tmp_path / "c", STORES) as copy:
        copy.bring_to(new, tmp_path)
        assert len(contents(copy)["s"]) == 20
    with Copy(tmp_path / "d", STORES) as copy:
        copy.follow(old, tmp_path, pause=lambda: False)
        history = committed(History(), tmp_path, {"t": {b"k": b"1"}}, 0)  # from the very beginning
        copy.bring_to(history, tmp_path)
        assert contents(copy) == {"s": {}, "t": {b"k": b"1"}}
    with Copy(tmp_path / "e", STORES) as copy:
        copy.follow(old, tmp_path, pause=lambda: False)
        copy.bring_to(History(), tmp_path)
        assert contents(copy) == {"s": {}, "t": {}}


def test_a_file_that_lost_its_end_is_made_anew(tmp_path, committed, contents):
    """LMDB maps what is not there; whoever touched it would be killed."""
    history = committed(History(), tmp_path, {"s": {f"{i}".encode(): b"x" * 200 for i in range(20_000)}}, 0)
    with Copy(tmp_path / "c", STORES) as copy:
        copy.bring_to(history, tmp_path)
        copy.commit_unchanged()
    file = tmp_path / "c" / "data.mdb"
    used = 512 * file.stat().st_blocks  # the rest is a hole
    with file.open("r+b") as handle:
        handle.truncate(used - 8192)
    with Copy(tmp_path / "c", STORES) as copy:
        assert copy.bring_to(history, tmp_path).scratch
        assert len(contents(copy)["s"]) == 20_000
