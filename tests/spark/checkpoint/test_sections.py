"""Files with sections: what is appended is read back by offset and length, and nothing else is taken for it."""

from __future__ import annotations

import os
import threading

import psutil
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint import files as sections
from taskplace.spark.checkpoint.files import SectionFile, open_section
from taskplace.spark.codec import checksum_of


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


def test_threads_share_a_file(tmp_path):
    file, starts = SectionFile(tmp_path, "f"), {}

    def append(number: int) -> None:
        for again in range(50):
            starts[number, again] = file.append(bytes([number]) * (number + 1))

    threads = [threading.Thread(target=append, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    data = file.path.read_bytes()
    assert len(data) == 50 * sum(range(1, 9))
    assert all(data[at : at + n + 1] == bytes([n]) * (n + 1) for (n, _), at in starts.items())


def open_files() -> int:
    return psutil.Process().num_fds()


def test_a_file_is_closed_with_its_object(tmp_path):
    before = open_files()
    file = SectionFile(tmp_path, "f")
    file.append(b"one")
    assert open_files() == before + 1
    del file
    assert open_files() == before
