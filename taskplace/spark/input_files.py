"""Finds files of an input that are of another format than the one that the input names, before Spark starts.

**Idea.** A wrong `path` often leads to something that exists: to a YAML file instead of a directory, to CSV files of an
input that says parquet. Spark notices when a batch reads the file, after the start, or not at all: as JSON, such lines
are rows of nulls. Most formats are known by their first bytes, so a few bytes of a few files are enough.

Properties:
- Looks at what Spark would read: not at names that begin with `_` or `.`, not at what `pathGlobFilter` leaves out, and
  at no empty file. At most `MOST_FILES` files, found in the order of the file system, and `HEAD` bytes of each.
- Only what cannot be right is found. Text in no known form passes as csv and text. Nothing is looked at if
  the options say that other files or lines may come, or name a character set.
- Files that cannot be read are left to Spark.

Errors: none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import NamedTuple

#: How many files of a directory are looked at, and the bytes of each.
MOST_FILES, HEAD = 100, 512
#: The first bytes of files of these formats.
_FIRST = {"parquet": b"PAR1", "orc": b"ORC", "avro": b"Obj\x01"}
#: The first signs of the text formats that have one, after blanks.
_SIGNS = {"json": b"{[", "xml": b"<"}
#: What Spark decompresses by itself when it reads text, by the end of the name.
_COMPRESSED = (".gz", ".bz2", ".lz4", ".snappy", ".deflate", ".zst", ".zstd", ".xz")
#: The options of Spark, in small letters, by which files or lines of another form are no mistake.
_LENIENT = ("ignorecorruptfiles", "columnnameofcorruptrecord", "encoding", "charset")


class WrongFile(NamedTuple):
    """A file that cannot be of the input's format, and what it is, or how it begins."""

    path: Path
    found: str


def wrong_file(path: Path, format_: str, options: Mapping[str, str]) -> WrongFile | None:
    """Return a file at `path` (a file or a directory) that is not of this format; None if none was found.

    - `options`: those of the source
    """
    given = {name.lower(): value for name, value in options.items()}
    if any(given.get(name, "false").lower() != "false" for name in _LENIENT):
        return None
    if given.get("mode", "").upper() == "DROPMALFORMED":
        return None
    for file in islice(_files(path, given.get("pathglobfilter", "*")), MOST_FILES):
        try:
            with file.open("rb") as opened:
                head = opened.read(HEAD)
        except OSError:
            continue
        if head and (found := _other(file, head, format_)):
            return WrongFile(file, found)
    return None


def _files(path: Path, pattern: str) -> Iterator[Path]:
    """Yield the files that Spark would read."""
    if path.is_file():
        yield path
    for directory, below, names in os.walk(path):
        below[:] = [name for name in below if not _hidden(name)]
        for name in names:
            if not _hidden(name) and fnmatchcase(name, pattern):
                yield Path(directory, name)


def _hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _other(file: Path, head: bytes, format_: str) -> str:
    """Return what a file is instead of this format, in words; "" if it may be of this format."""
    if format_ in _FIRST and not head.startswith(_FIRST[format_]):
        return _kind(head, file)
    if format_ in _FIRST or file.name.lower().endswith(_COMPRESSED):
        return ""
    if any(head.startswith(first) for first in _FIRST.values()):
        return _kind(head, file)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if format_ in _SIGNS and text and text[0] not in _SIGNS[format_]:
        return _kind(head, file)
    return ""


def _kind(head: bytes, file: Path) -> str:
    """Return what a file is: by its first bytes, or by the end of its name.

    >>> _kind(b"PAR1...", Path("part-0")), _kind(b"a,b", Path("x.csv")), _kind(b"?", Path("x"))
    ('a parquet file', 'a csv file', 'another file')
    """
    for name, first in _FIRST.items():
        if head.startswith(first):
            return f"{'an' if name[0] in 'ao' else 'a'} {name} file"
    ending = file.suffix.lower().removeprefix(".")
    if ending.isalnum() and ending not in _FIRST:
        return f"a {ending} file"
    return "another file"
