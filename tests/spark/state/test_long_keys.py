"""Keys of any length are told apart, also through a copy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.spark.messages import History, Position
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.keys import SHORT, physical, restore_entry, store_entry

STORES = ["s", "t"]

near_the_edge = st.binary(min_size=SHORT - 1, max_size=SHORT + 40)
alike = st.binary(max_size=3).map(lambda end: b"p" * SHORT + end)
short = st.binary(min_size=1, max_size=5)
long_keys = st.lists(near_the_edge | alike | short, min_size=1, max_size=12, unique=True)


@settings(print_blob=True, deadline=None, max_examples=40)
@given(long_keys, st.binary(max_size=20))
def test_keys_of_any_length_are_told_apart(keys, value):
    stored = [store_entry(key, value) for key in keys]
    assert len({key for key, _ in stored}) == len(keys)
    assert all(len(key) <= 511 for key, _ in stored)
    assert [restore_entry(*entry) for entry in stored] == [(key, value) for key in keys]


def test_a_key_is_never_empty():
    with pytest.raises(ValueError, match="never empty"):
        physical(b"")


@settings(print_blob=True, deadline=None, max_examples=15)
@given(st.data(), long_keys)
def test_long_keys_through_a_copy(tmp_path_factory, committed, contents, data, keys):
    root = tmp_path_factory.mktemp("long")
    state = {key: b"%d" % i for i, key in enumerate(keys)}
    history = committed(History(), root, {"s": dict(state)}, 0)
    gone = data.draw(st.lists(st.sampled_from(keys), unique=True))
    with Copy(root / "c", STORES) as copy:
        copy.bring_to(history, root)
        assert contents(copy)["s"] == state and copy.count("s") == len(keys)
        assert copy.get_many("s", [*keys, b"none", b"none" * 200]) == [*state.values(), None, None]
        copy.commit({"s": dict.fromkeys(gone) | {b"N" * 700: b"new"}}, Position(1, "lost", 99))
    with Copy(root / "c", STORES) as copy:
        _, pieces = copy.dump(2)
        after = {key: value for _, entries in pieces for key, value in entries}
        assert after == {k: v for k, v in state.items() if k not in gone} | {b"N" * 700: b"new"}
        assert copy.bring_to(history, root).rolled_back
        assert contents(copy)["s"] == state
