"""Entries of a copy, many at a time: they are what single entries are."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.spark.messages import History, Position
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.environment import Environment
from taskplace.spark.state.keys import (
    LONG,
    SHORT,
    DamagedEntry,
    crc32_all,
    physical,
    physical_all,
    restore_columns,
    restore_entry,
    store_all,
    store_entry,
)
from taskplace.spark.state.transaction import get_values

DB = b"s"
keys_of_any_length = st.binary(min_size=1, max_size=4) | st.binary(max_size=3).map(
    lambda end: b"p" * SHORT + end
)
#: Short ones, long ones, and one that LMDB keeps on pages of its own.
values_of_any_length = st.binary(max_size=9) | st.sampled_from([b"v" * LONG, b"v" * 5000])
stores = st.dictionaries(keys_of_any_length, values_of_any_length, max_size=12)


def filled(root: Path, state: dict[bytes, bytes]) -> Environment:
    environment = Environment(root, [DB])
    with environment.begin(write=True) as txn, txn.cursor(db=environment.databases[DB]) as cursor:
        cursor.putmulti(store_all(list(state), list(state.values())))
    return environment


@settings(print_blob=True, deadline=None)
@given(stores, st.lists(keys_of_any_length, max_size=6), st.data())
def test_values_are_those_that_were_stored(tmp_path_factory, state, others, data):
    """A key may be missing, or asked for twice."""
    asked = data.draw(st.lists(st.sampled_from([*state, *others]), max_size=20)) if state or others else []
    environment = filled(tmp_path_factory.mktemp("entries"), state)
    with environment.begin() as txn:
        found = get_values(txn, environment.databases[DB], asked)
    environment.close()
    assert found == {key: state.get(key) for key in asked}


@pytest.mark.parametrize("length", [3, SHORT + 1])
@pytest.mark.parametrize("at", [0, 4, -1])
def test_a_damaged_entry_is_told(tmp_path, length, at):
    state = {b"%0*d" % (length, i): b"value" for i in range(5)}
    environment = filled(tmp_path, state)
    database, key = environment.databases[DB], list(state)[2]
    with environment.begin(write=True) as txn:
        raw = bytearray(txn.get(physical(key), db=database) or b"")
        raw[at] ^= 1
        txn.put(physical(key), bytes(raw), db=database)
    with environment.begin() as txn, pytest.raises(DamagedEntry, match="its checksum does not fit"):
        get_values(txn, database, list(state))
    environment.close()


@settings(print_blob=True, deadline=None)
@given(st.lists(st.tuples(keys_of_any_length, values_of_any_length), max_size=8))
def test_columns_are_restored_as_single_entries_are(some):
    stored = [store_entry(key, value) for key, value in some]
    keys, raw = [key for key, _ in stored], [value for _, value in stored]
    restored = [restore_entry(*entry) for entry in stored]
    assert list(zip(*restore_columns(keys, raw), strict=True)) == restored == some
    assert list(physical_all([key for key, _ in some])) == keys


@settings(print_blob=True, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=5), st.data())
def test_any_changed_byte_of_columns_is_told(keys, data):
    stored = [store_entry(key, data.draw(st.binary(max_size=9))) for key in keys]
    raw = [bytearray(value) for _, value in stored]
    row = data.draw(st.integers(0, len(raw) - 1))
    kept = data.draw(st.integers(0, len(raw[row])))
    if kept < len(raw[row]) and data.draw(st.booleans()):
        raw[row][kept] ^= data.draw(st.integers(1, 255))
    else:
        raw[row] = raw[row][:kept] if kept < len(raw[row]) else raw[row] + b"\0"
    with pytest.raises(DamagedEntry):
        restore_columns([key for key, _ in stored], [bytes(value) for value in raw])


@settings(print_blob=True, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20) | st.just(b"v" * 2000)), max_size=6))
def test_checksums_of_columns_are_those_of_their_bytes(some):
    keys, values = [key for key, _ in some], [value for _, value in some]
    assert list(crc32_all(keys, values)) == [zlib.crc32(key + value) for key, value in some]


#: Long keys that differ in their last bytes only, and keys about as long as LMDB takes.
long_keys = st.lists(
    keys_of_any_length | st.binary(min_size=SHORT - 1, max_size=SHORT + 40),
    min_size=1,
    max_size=12,
    unique=True,
)


@settings(print_blob=True, deadline=None, max_examples=15)
@given(st.data(), long_keys)
def test_long_keys_through_a_copy(tmp_path_factory, committed, contents, data, keys):
    root = tmp_path_factory.mktemp("long")
    state = {key: b"%d" % i for i, key in enumerate(keys)}
    history = committed(History(), root, {"s": dict(state)}, 0)
    gone = data.draw(st.lists(st.sampled_from(keys), unique=True))
    with Copy(root / "c", ["s", "t"]) as copy:
        copy.bring_to(history, root)
        assert contents(copy)["s"] == state and copy.count("s") == len(keys)
        assert copy.get_many("s", [*keys, b"none", b"none" * 200]) == [*state.values(), None, None]
        copy.commit({"s": dict.fromkeys(gone) | {b"N" * 700: b"new"}}, Position(1, "lost", 99))
    with Copy(root / "c", ["s", "t"]) as copy:
        _, pieces = copy.dump(2)
        after = {key: value for _, entries in pieces for key, value in entries}
        assert after == {k: v for k, v in state.items() if k not in gone} | {b"N" * 700: b"new"}
        assert copy.bring_to(history, root).rolled_back
        assert contents(copy)["s"] == state
