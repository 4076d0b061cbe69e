"""Directories are listed again only after a change; only the names that numbers get are numbers."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from taskplace.spark.checkpoint.manifests import number_of, numbered
from taskplace.spark.checkpoint.pruning import SETTLED_SECONDS, Listings


class Folders:
    """A directory with directories, whose times of change follow a clock of coarse ticks."""

    def __init__(self, root: Path) -> None:
        self.root, self.now, self.tick = root, 0.0, 1.0
        self.listings = Listings(clock=lambda: self.now)

    def change(self, folder: str, name: str) -> None:
        """Add a file, or remove it if it is there."""
        path = self.root / folder / name
        path.parent.mkdir(exist_ok=True)
        if path.exists():
            path.unlink()
        else:
            path.touch()
        stamp = int(self.now / self.tick) * 10**9
        os.utime(path.parent, ns=(stamp, stamp))

    def check(self) -> None:
        """The listing is that of the directory."""
        listed = self.listings.of(self.root)
        found = {
            path.name: sorted(file.name for file in path.iterdir())
            for path in self.root.iterdir()
            if path.is_dir()
        }
        assert {name: sorted(names) for name, names in listed.below.items()} == found
        assert sorted(listed.files) == sorted(path.name for path in self.root.iterdir() if path.is_file())


CHANGES = st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"))
STEPS = st.lists(
    st.one_of(CHANGES, st.sampled_from(["look", "file"]), st.floats(0.1, 2 * SETTLED_SECONDS)), max_size=30
)


@given(STEPS)
def test_what_is_listed_is_what_is_there(steps):
    with tempfile.TemporaryDirectory() as name:
        folders = Folders(Path(name))
        for step in steps:
            if isinstance(step, float):
                folders.now += step
            elif step == "look":
                folders.check()
            elif step == "file":
                (Path(name) / "file").touch()
            else:
                folders.change(*step)
        folders.check()


def test_a_directory_without_changes_is_listed_until_its_time_is_old(tmp_path, monkeypatch):
    folders = Folders(tmp_path)
    folders.change("a", "x")
    listed = []
    really_list = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(Path(path).name) or really_list(path))
    for _ in range(4):  # at 0, before and at the time from which on it counts, and later
        folders.listings.of(tmp_path)
        folders.now += SETTLED_SECONDS / 2 + 0.1
    assert listed.count("a") == 3
    folders.change("a", "y")
    assert sorted(folders.listings.of(tmp_path).below["a"]) == ["x", "y"]


def test_a_directory_that_is_gone_has_no_files(tmp_path):
    folders = Folders(tmp_path)
    assert folders.listings.of(tmp_path / "none").files == ()
    folders.change("a", "x")
    folders.check()
    (tmp_path / "a" / "x").unlink()
    (tmp_path / "a").rmdir()
    folders.check()
    folders.change("a", "y")
    folders.check()


# -- only the names that numbers get are numbers


@given(st.integers(0, 2**62), st.sampled_from(["", ".json"]), st.integers(1, 12))
def test_a_number_is_found_in_its_name(number, suffix, digits):
    assert number_of(f"{number:0{digits}d}{suffix}", suffix, digits) == number


@given(st.text(alphabet="0123456789²٣+-. _j", max_size=30), st.integers(1, 12))
def test_no_other_name_is_a_number(name, digits):
    number = number_of(name, digits=digits)
    assert number is None or f"{number:0{digits}d}" == name


def test_a_folder_is_listed_in_the_order_of_its_numbers(tmp_path):
    for name in ("0010.json", "0009.json", "9.json", "0011", "²000.json", "x.json"):
        (tmp_path / name).touch()
    assert numbered(tmp_path, ".json", 4) == [9, 10]
    assert numbered(tmp_path / "none") == numbered(tmp_path / "0011") == []
