"""Files of the checkpoint and their sections: they come back as they were written, or are refused by name."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint import files
from taskplace.spark.checkpoint import files as sections
from taskplace.spark.checkpoint.files import (
    SectionFile,
    decode_records,
    encode_changes,
    file_name,
    open_section,
    read_sealed,
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


@pytest.fixture
def sealed(tmp_path):
    path = tmp_path / "deep" / "er" / "0-a.arrow"
    data = encode_changes({"s": {b"k%d" % i: b"v" * i for i in range(50)}}, {})
    write_file(path, data, sync=True)
    return path, data.size, checksum_of(data)


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


# -- files with sections: what is appended is read back by offset and length, and nothing else is taken for it


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=40), max_size=8), st.sampled_from([0, 10, 1 << 20]))
def test_each_section_is_read_back(tmp_path_factory, parts, at_once):
    root = tmp_path_factory.mktemp("sections")
    file = SectionFile(root, "deep/er/file")
    starts = [file.append(part) for part in parts]
    file.sync()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "READ_AT_ONCE", at_once)  # below its size, a section is read in parts
        for start, part in zip(starts, parts, strict=True):
            if part:
                with open_section(file.path, start, len(part), checksum_of(part)) as section:
                    assert section.size() == len(part)
                    assert section.read() == part


@pytest.mark.parametrize("at_once", [0, 1 << 20])
def test_an_arrow_file_is_read_from_a_section(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(sections, "READ_AT_ONCE", at_once)
    rows, out = pa.table({"n": list(range(10_000))}), pa.BufferOutputStream()
    with pa.ipc.new_file(out, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=1000)
    data, file = out.getvalue(), SectionFile(tmp_path, "f")
    file.append(b"before")
    start = file.append(data)
    file.append(b"behind")
    with open_section(file.path, start, data.size, checksum_of(data)) as section:
        assert pa.ipc.open_file(section).read_all() == rows


@pytest.mark.parametrize("at_once", [0, 1 << 20])
@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda path: path.unlink(), "the file is missing; a manifest names 4 bytes of it"),
        (lambda path: os.truncate(path, 5), "found 5 bytes, the manifest names the bytes 3 to 7"),
        (
            lambda path: path.write_bytes(b"onetwo.three"),
            "found checksum .* of the bytes 3 to 7, the manifest",
        ),
    ],
)
def test_a_damaged_section_is_refused(tmp_path, monkeypatch, at_once, harm, says):
    monkeypatch.setattr(sections, "READ_AT_ONCE", at_once)
    file = SectionFile(tmp_path, "f")
    file.append(b"one")
    start = file.append(b"two!")
    file.append(b"three")
    harm(file.path)
    with pytest.raises(CheckpointError, match=f"{file.path}: {says}"):
        open_section(file.path, start, 4, checksum_of(b"two!"))


def test_damage_elsewhere_in_the_file_does_not_matter(tmp_path):
    file = SectionFile(tmp_path, "f")
    start = [file.append(part) for part in (b"one", b"two", b"three")][1]
    file.path.write_bytes(b"???two??")
    with open_section(file.path, start, 3, checksum_of(b"two")) as section:
        assert section.read() == b"two"


def test_nothing_is_made_before_the_first_section_and_nothing_is_replaced(tmp_path):
    file = SectionFile(tmp_path, "f")
    file.sync()
    assert file.usable() and not file.path.exists()
    file.path.write_bytes(b"of another")
    with pytest.raises(FileExistsError):
        file.append(b"mine")
    assert file.path.read_bytes() == b"of another" and not file.usable()


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_after_an_error_a_file_is_not_used_again(tmp_path, monkeypatch, call):
    file = SectionFile(tmp_path, "f")
    file.append(b"one")
    assert file.usable()

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space"):
            file.append(b"two") if call == "write" else file.sync()
    assert not file.usable()


def test_a_file_that_was_removed_or_replaced_is_not_used_again(tmp_path):
    file = SectionFile(tmp_path, "f")
    file.append(b"one")
    file.path.unlink()
    assert not file.usable()
    file.path.write_bytes(b"of another")
    assert not file.usable()


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:2]))
    file = SectionFile(tmp_path, "f")
    assert [file.append(b"seven b"), file.append(b"x")] == [0, 7]
    assert file.path.read_bytes() == b"seven bx"


def open_files() -> int:
    return psutil.Process().num_fds()


def test_a_file_is_closed_with_its_object(tmp_path):
    before = open_files()
    file = SectionFile(tmp_path, "f")
    file.append(b"one")
    assert open_files() == before + 1
    del file
    assert open_files() == before
