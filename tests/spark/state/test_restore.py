"""A restore in pieces: it goes on where it was stopped, or begins anew where history leads elsewhere."""

from __future__ import annotations

import subprocess
import sys
import zlib

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.spark.messages import EMPTY, History, Position
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.environment import DATA
from taskplace.spark.state.keys import SHORT, crc32, store_all, store_entry
from tests.support.copies import AT, peek, snapshot_of

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


# -- a restored copy has the entries of its original, in whatever order a snapshot has them, and wherever it was stopped


Entries = list[tuple[bytes, bytes]]

short = st.binary(min_size=1, max_size=3)
near_the_edge = st.integers(SHORT - 1, SHORT + 2).map(lambda size: b"p" * size)
alike = st.binary(max_size=2).map(lambda end: b"p" * SHORT + end)
keys = st.lists(short | near_the_edge | alike, max_size=12)
#: Pieces of a snapshot in any order, with keys that come again: each is a store and some entries of it.
pieces_of_any_order = st.lists(st.tuples(st.sampled_from(["s", "t", "gone"]), keys), max_size=6)


def entries_of(pieces: list[tuple[str, Entries]]) -> dict[str, dict[bytes, bytes]]:
    state: dict[str, dict[bytes, bytes]] = {store: {} for store in STORES}
    for store, entries in pieces:
        state.get(store, {}).update(entries)
    return state


def numbered(pieces: list[tuple[str, list[bytes]]]) -> list[tuple[str, Entries]]:
    """Give each entry a value of its own."""
    values = iter(range(10**6))
    return [(store, [(key, b"%d" % next(values)) for key in part]) for store, part in pieces]


@settings(print_blob=True, deadline=None)
@given(pieces=pieces_of_any_order, stops=st.sets(st.integers(0, 6)))
def test_any_order_of_pieces_and_entries(tmp_path_factory, contents, pieces, stops):
    """Some pieces are loaded by a process each, as if the one before had been killed."""
    root = tmp_path_factory.mktemp("order")
    snapshot = snapshot_of(root, numbered(pieces), stores=STORES)
    history = History((), (snapshot,))
    for number in range(len(pieces) + 1):
        with Copy(root / "c", STORES) as copy:
            done = copy.follow(history, root, pause=lambda number=number: number not in stops)
        assert done is not None
        if not done.unfinished:
            break
    with Copy(root / "c", STORES) as copy:
        assert copy.position() == AT
        copy.bring_to(history, root)
        assert contents(copy) == entries_of(numbered(pieces))


@settings(print_blob=True, deadline=None, max_examples=30)
@given(
    states=st.fixed_dictionaries(
        {store: st.dictionaries(short | near_the_edge | alike, st.binary(max_size=9)) for store in STORES}
    ),
    rows=st.integers(1, 5),
)
def test_what_a_snapshot_restores_is_what_it_was_made_of(tmp_path_factory, committed, contents, states, rows):
    """From a copy to a snapshot, as a follow job writes it, to another copy: every entry, in LMDB's own order."""
    root = tmp_path_factory.mktemp("round")
    history = committed(History(), root, {store: dict(entries) for store, entries in states.items()}, 0)
    with Copy(root / "original", STORES) as copy:
        copy.bring_to(history, root)
        copy.commit_unchanged()
        _, dumped = copy.dump(rows)
        snapshot = snapshot_of(root, dumped, stores=STORES)
    with Copy(root / "restored", STORES) as copy:
        copy.bring_to(History((), (snapshot,)), root)
        assert contents(copy) == states
        copy.commit_unchanged()
    with Copy(root / "original", STORES) as one, Copy(root / "restored", STORES) as other:
        assert list(other.dump(10**6)[1]) == list(one.dump(10**6)[1])


def test_entries_in_order_are_appended_to_full_pages(tmp_path):
    """A fill by appending takes less space, and gives the same entries as one in another order."""
    entries = [(b"%08d" % number, b"v" * 900) for number in range(4_000)]
    used = []
    for name, pieces in (
        ("up", [entries[:2_000], entries[2_000:]]),
        ("down", [entries[2_000:], entries[:2_000]]),
    ):
        root = tmp_path / name
        snapshot = snapshot_of(root, [("s", piece) for piece in pieces])
        with Copy(root / "c", STORES) as copy:
            copy.follow(History((), (snapshot,)), root)
            assert [*copy.dump(10**6)[1]] == [("s", entries)]
        used.append((root / "c" / DATA).stat().st_blocks)  # the file itself is as long as its map
    assert used[0] < used[1]


def test_a_store_is_filled_again_after_another_snapshot_was_begun(tmp_path, contents):
    """The keys that lie there are behind those of the new snapshot: what was begun is removed first."""
    begun = snapshot_of(tmp_path, [("s", [(b"zzz", b"old")]), ("s", [(b"zzzz", b"old")])])
    with Copy(tmp_path / "c", STORES) as copy:
        assert copy.follow(History((), (begun,)), tmp_path, pause=lambda: False).unfinished
    (tmp_path / begun.file).unlink()
    other = snapshot_of(tmp_path, [("s", [(b"a", b"new"), (b"b", b"new")])])
    with Copy(tmp_path / "c", STORES) as copy:
        copy.bring_to(History((), (other,)), tmp_path)
        assert contents(copy) == {"s": {b"a": b"new", b"b": b"new"}, "t": {}}


def test_an_empty_key_is_refused_before_anything_is_written(tmp_path):
    snapshot = snapshot_of(tmp_path, [("s", [(b"a", b"1"), (b"", b"2")])])
    with Copy(tmp_path / "c", STORES) as copy, pytest.raises(ValueError, match="never empty"):
        copy.follow(History((), (snapshot,)), tmp_path)
    with Copy(tmp_path / "c", STORES) as copy:
        assert copy.position() == EMPTY


@settings(print_blob=True, deadline=None)
@given(keys=st.lists(short | near_the_edge | alike), data=st.data())
def test_columns_are_stored_as_single_entries_are(keys, data):
    values = data.draw(st.lists(st.binary(max_size=9), min_size=len(keys), max_size=len(keys)))
    assert list(store_all(keys, values)) == [store_entry(*entry) for entry in zip(keys, values, strict=True)]


def test_lmdb_refuses_to_append_what_is_not_behind_its_last_key(tmp_path):
    """`Transaction.load` relies on it: it neither appends such a key nor stops there, and says how many it appended."""
    with lmdb.open(str(tmp_path), max_dbs=1) as env:
        db = env.open_db(b"s")
        with env.begin(write=True, db=db) as txn, txn.cursor() as cursor:
            assert cursor.putmulti([(b"b", b"1"), (b"a", b"2"), (b"b", b"3"), (b"c", b"4")], append=True) == (
                4,
                2,
            )
            assert cursor.first() and [*cursor.iternext()] == [(b"b", b"1"), (b"c", b"4")]


@given(st.binary(max_size=2_000), st.integers(0, 2**32 - 1))
def test_any_package_computes_the_same_checksum(data, start):
    assert crc32(data, start) == zlib.crc32(data, start)
    assert crc32(memoryview(bytearray(data)), start) == zlib.crc32(data, start)


def test_a_copy_is_read_without_the_package_that_wrote_it():
    """Executors on other platforms may lack it."""
    code = """
import sys
sys.modules["isal"] = None
from taskplace.spark.state.keys import crc32_of_long
from taskplace.spark.state.keys import restore_entry, store_entry
print(crc32_of_long.__module__, restore_entry(*eval(sys.argv[1])), store_entry(b"k", b"value"))
"""
    stored = store_entry(b"k", b"value")
    done = subprocess.run(
        [sys.executable, "-c", code, repr(stored)], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"zlib {(b'k', b'value')} {stored}\n"
