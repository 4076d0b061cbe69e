"""Files of the checkpoint: they come back as they were written, or are refused by name."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint import files
from taskplace.spark.checkpoint.files import (
    decode_records,
    encode_changes,
    encode_records,
    file_name,
    read_sealed,
    record_batch,
    write_file,
)
from taskplace.spark.codec import checksum_of

keys, values = st.binary(min_size=1, max_size=700), st.none() | st.binary(max_size=50)
changes = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8),
    st.dictionaries(keys, values, max_size=20),
    max_size=4,
)


def gather(data: pa.Buffer | bytes) -> dict[str, dict[bytes, bytes | None]]:
    found: dict[str, dict[bytes, bytes | None]] = {}
    for store, entries in decode_records(data):
        found.setdefault(store, {}).update(entries)
    return found


@settings(print_blob=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes, st.sampled_from(["lz4", "zstd", None]), st.integers(1, 8))
def test_changes_come_back(monkeypatch, drawn, compression, rows_per_batch):
    monkeypatch.setattr(files, "ROWS_PER_BATCH", rows_per_batch)
    data = encode_changes(drawn, {"task": "0_1"}, compression)
    assert gather(data) == gather(data.to_pybytes()) == {store: e for store, e in drawn.items() if e}
    assert all(len(entries) <= rows_per_batch for _, entries in decode_records(data))
    # Equal changes make equal bytes, in whatever order they were written.
    again = {store: dict(reversed(entries.items())) for store, entries in reversed(drawn.items())}
    assert encode_changes(again, {"task": "0_1"}, compression).equals(data)


def test_records_say_their_store():
    data = encode_records(["a", "b"], [record_batch(1, [(b"k", b"v"), (b"l", None)])], {}, None)
    assert list(decode_records(data)) == [("b", [(b"k", b"v"), (b"l", None)])]


@pytest.fixture
def sealed(tmp_path):
    path = tmp_path / "deep" / "er" / "0-a.arrow"
    data = encode_changes({"s": {b"k%d" % i: b"v" * i for i in range(50)}}, {})
    write_file(path, data, sync=True)
    return path, data.size, checksum_of(data)


def test_a_whole_file_is_read(sealed):
    path, size, checksum = sealed
    assert gather(read_sealed(path, size, checksum))["s"][b"k3"] == b"vvv"
    assert checksum_of(path.read_bytes()) == checksum
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("keep", [0, 1, -1])
def test_a_torn_file_is_named(sealed, keep):
    path, size, checksum = sealed
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=rf"{path}: found \d+ bytes, the manifest says {size}"):
        read_sealed(path, size, checksum)


@settings(
    print_blob=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_one_flipped_bit_is_told(sealed, data):
    path, size, checksum = sealed
    whole = path.read_bytes()
    at, bit = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, 7))
    try:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
        with pytest.raises(CheckpointError, match=f"{path}: found checksum .*, the manifest says {checksum}"):
            read_sealed(path, size, checksum)
    finally:
        path.write_bytes(whole)


def test_a_missing_file_is_named(sealed):
    path, size, checksum = sealed
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{path}: the file is missing; a manifest names"):
        read_sealed(path, size, checksum)


def test_a_file_is_written_once(sealed):
    path, _, checksum = sealed
    with pytest.raises(FileExistsError):
        write_file(path, b"other", sync=False)
    assert checksum_of(path.read_bytes()) == checksum


@settings(print_blob=True, deadline=None, max_examples=50)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_name_is_one_path_component(name):
    assert "/" not in file_name(name) and file_name(name) not in (".", "..", "")


@settings(print_blob=True, deadline=None, max_examples=50)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_two_names_are_two_components(one, other):
    assert (file_name(one) == file_name(other)) == (one == other)


def test_a_synced_file_survives_with_its_directories(tmp_path, monkeypatch):
    synced = []
    really = files.sync_directory
    monkeypatch.setattr(files, "sync_directory", lambda path: (synced.append(path), really(path)))
    write_file(tmp_path / "a" / "b" / "1", b"x", sync=True)
    assert synced == [tmp_path / "a" / "b", tmp_path / "a", tmp_path], "each directory that got a name"
    synced.clear()
    write_file(tmp_path / "a" / "b" / "2", b"x", sync=True)
    assert synced == [tmp_path / "a" / "b"]
    write_file(tmp_path / "a" / "b" / "3", b"x", sync=False)
    assert synced == [tmp_path / "a" / "b"]


def test_no_threads_are_started_for_it():
    """In a process of its own, as others of this one may have started Arrow's pool long ago."""
    script = """
import psutil, tempfile, pathlib, pyarrow as pa
from taskplace.spark.checkpoint.files import decode_records, encode_changes
from taskplace.spark.checkpoint.files import SectionFile
from taskplace.spark.worker import boundary
from tests.support.boundaries import read
before = psutil.Process().num_threads()
changes = {"s": {b"%d" % i: b"v" * 30 for i in range(20_000)}}
for compression in ("lz4", "zstd", None):
    assert sum(len(entries) for _, entries in decode_records(encode_changes(changes, {}, compression))) == 20_000
root = pathlib.Path(tempfile.mkdtemp())
rows = pa.table({"k": [str(i) for i in range(20_000)]})
written = boundary.write(SectionFile(root, "x"), rows, ["k"], 3)
assert read(root, [written], 1).num_rows == written.slices[1].rows
print(psutil.Process().num_threads() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "0"
