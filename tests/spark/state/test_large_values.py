"""Values by the MiB: files are cut into pieces that Arrow can hold, and whoever reads them takes any.

No test has values that large: what is the most is lowered.
"""

from __future__ import annotations

import mmap
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskplace.errors import InputError
from taskplace.spark.checkpoint import files
from taskplace.spark.checkpoint.files import RecordFile, decode_records, encode_changes, pieces, read_sealed
from taskplace.spark.messages import FollowRequest, History, Position, Question
from taskplace.spark.state import copy as copy_module
from taskplace.spark.state.copy import Copy
from taskplace.spark.state.transaction import View
from taskplace.spark.worker import lookup
from taskplace.spark.worker.follow import follow
from taskplace.spark.worker.lookup import answer
from tests.support.copies import snapshot_of
from topology import TaskId

STORES = ["s", "t"]
LIMIT = 1000


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(files, "BYTES_PER_BATCH", LIMIT)


def wide(count: int, width: int = 90) -> dict[bytes, bytes | None]:
    return {b"%04d" % i: (b"%d" % (i % 10)) * width for i in range(count)}


def size(entries) -> int:
    return sum(len(key) + len(value or b"") for key, value in entries)


def sizes_of_pieces(data) -> list[int]:
    return [size(entries) for _, entries in decode_records(data)]


@settings(print_blob=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.none() | st.binary(max_size=40)), max_size=40),
    st.integers(1, 60),
    st.integers(1, 8),
)
def test_pieces_are_as_large_as_they_may_be_and_no_larger(monkeypatch, entries, most, rows):
    monkeypatch.setattr(files, "BYTES_PER_BATCH", most)
    found = list(pieces("s", entries, rows))
    assert [entry for piece in found for entry in piece] == entries
    assert all(0 < len(piece) <= rows and (len(piece) == 1 or size(piece) <= most) for piece in found)
    for piece, following in pairwise(found):
        assert len(piece) == rows or size([*piece, following[0]]) > most
    changes = {"s": dict(entries), "t": {b"k": b"v"}}
    data = encode_changes(changes, {})
    back: dict[str, dict[bytes, bytes | None]] = {}
    for store, piece in decode_records(data):
        assert len(piece) == 1 or size(piece) <= most
        back.setdefault(store, {}).update(piece)
    assert back == {store: written for store, written in changes.items() if written}


def test_the_limit_is_that_of_arrow():
    zeros = memoryview(mmap.mmap(-1, files.LARGEST + 1))  # nobody looks at them: no memory is taken
    with pytest.raises(pa.ArrowCapacityError, match=f"more than {files.LARGEST} bytes"):
        pa.array([zeros], pa.binary())


def test_what_no_file_can_hold_is_refused_and_its_store_named(monkeypatch, small_pieces):
    monkeypatch.setattr(files, "LARGEST", 2000)
    fits = {"s": wide(3) | {b"large": b"x" * 2000}}
    assert sizes_of_pieces(encode_changes(fits, {})) == [3 * 94, 2005]
    for entry in ((b"large", b"x" * 2001), (b"x" * 2001, None)):
        with pytest.raises(InputError, match=r"stores\.s: found 'a key or value of 2001 bytes', .* 2000"):
            encode_changes({"s": wide(3) | dict([entry])}, {})


def test_changes_their_undo_record_and_snapshots_are_cut_by_bytes(
    tmp_path, small_pieces, committed, contents
):
    before, after = wide(100), dict.fromkeys(wide(60), b"new" * 50)
    history = committed(History(), tmp_path, {"s": before, "t": {b"k": b"v"}}, 0)
    change = history.changes[0]
    assert max(sizes_of_pieces(read_sealed(tmp_path / change.file, change.size, change.checksum))) <= LIMIT
    with Copy(tmp_path / "c", STORES) as copy:
        copy.bring_to(history, tmp_path)
        copy.commit({"s": dict(after)}, Position(1, "lost", 999))
        _, dumped = copy.dump(50)
        found = list(dumped)
        assert max(size(entries) for _, entries in found) <= LIMIT
        assert dict(e for store, entries in found if store == "s" for e in entries) == before | after
    with View(tmp_path / "c", "s", history) as view:  # takes the last batch back by itself
        assert dict(view.scan()) == before
    with Copy(tmp_path / "c", STORES) as copy:
        assert copy.bring_to(history, tmp_path).rolled_back
        assert contents(copy) == {"s": before, "t": {b"k": b"v"}}


def test_a_snapshot_is_written_in_pieces_and_restored_in_them(runtime, monkeypatch):
    for batch in range(3):
        runtime.run_batch([(f"N{i}", i) for i in range(200 * batch, 200 * batch + 200)], [("N1", 10)])
    truth = runtime.contents(TaskId(0, 0), "1")
    monkeypatch.setattr(files, "BYTES_PER_BATCH", LIMIT)
    monkeypatch.setattr("taskplace.spark.worker.follow.SNAPSHOT_BYTES", LIMIT)
    runtime.be("1")
    databases = {0: sorted(runtime.first.databases)}
    where = str(runtime.checkpoint), str(runtime.state), "app"
    done = follow(
        FollowRequest(
            "executor-1", *where, databases, databases, snapshot={TaskId(0, 0): runtime.history[TaskId(0, 0)]}
        )
    )
    assert done.errors == {}
    made = done.snapshots[TaskId(0, 0)]
    data = (runtime.checkpoint / made.file).read_bytes()
    assert len(RecordFile(data)) > 5
    assert max(sizes_of_pieces(data)) <= LIMIT
    # Whoever restores it need not know how large pieces are now.
    monkeypatch.setattr(files, "BYTES_PER_BATCH", 17)
    monkeypatch.setattr(files, "ROWS_PER_BATCH", 1)
    runtime.history[TaskId(0, 0)] = History((), (made,))
    runtime.be("2")
    orders = FollowRequest(
        "executor-2",
        *where,
        databases,
        databases,
        follow={TaskId(0, 0): runtime.history[TaskId(0, 0)]},
        budget=30,
    )
    assert follow(orders).restored == made.records
    assert runtime.contents(TaskId(0, 0), "2") == truth


def test_a_restore_goes_on_in_the_very_file_that_it_began_with(tmp_path, contents):
    """Another file of the same attempt, from before pieces were cut by bytes, has its pieces elsewhere."""
    state = wide(95)
    entries = sorted(state.items())
    small, large = (
        snapshot_of(tmp_path, [("s", entries[i : i + n]) for i in range(0, 95, n)], file=f"{n}.arrow")
        for n in (10, 40)
    )
    for begun, other in ((small, large), (large, small)):
        path = tmp_path / f"from-{begun.file}"
        with Copy(path, STORES) as copy:
            for _ in range(2):
                done = copy.follow(History((), (begun,)), tmp_path, pause=lambda: False)
                assert done.restoring == "a3"
        with Copy(path, STORES) as copy:
            assert copy.bring_to(History((), (other,)), tmp_path).restored == 95
            assert contents(copy)["s"] == state


def test_more_than_an_undo_record_holds_is_refused(tmp_path, monkeypatch, committed, contents):
    history = committed(History(), tmp_path, {"s": wide(50)}, 0)
    monkeypatch.setattr(copy_module, "LARGEST_STORED", 4000)
    with Copy(tmp_path / "0_7", STORES) as copy:
        copy.bring_to(history, tmp_path)
        with pytest.raises(InputError, match=r"task 0_7: found '\d+ bytes of state that one batch"):
            copy.commit({"s": dict.fromkeys(wide(50))}, Position(1, "large", 50))
    with Copy(tmp_path / "0_7", STORES) as copy:
        copy.bring_to(history, tmp_path)
        copy.commit({"s": dict.fromkeys(wide(5))}, Position(1, "small", 50))
        assert copy.position().attempt == "small"


def test_a_store_is_read_into_a_file_in_pieces(runtime, small_pieces, tmp_path, monkeypatch):
    monkeypatch.setattr(lookup, "SCAN_BYTES", LIMIT)
    runtime.run_batch([(f"N{i}", i) for i in range(400)])
    runtime.be("1")
    schema = runtime.first.stores["totals"]
    asked = Question(
        TaskId(0, 0),
        runtime.history[TaskId(0, 0)],
        str(runtime.state),
        "app",
        file=str(tmp_path / "read" / "0_0"),
    )
    found = answer(schema, asked)
    assert found.error == ""
    assert pq.ParquetFile(found.file).num_row_groups > 3
    wanted = sorted(row["tailnum"] for row in runtime.contents(TaskId(0, 0), "1")["totals"])
    assert sorted(pq.read_table(found.file)["tailnum"].to_pylist()) == wanted
