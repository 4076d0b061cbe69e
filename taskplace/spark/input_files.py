"""Finds files of an input that are of another format than the one that the input names, before Spark starts.

**Idea.** A wrong `path` often leads to something that exists: to a YAML file instead of a directory, to CSV files of an
input that says parquet. Spark notices when a batch reads the file, after the start, or not at all: as JSON, such lines
are rows of nulls. Most formats are known by their first bytes, so a few bytes of a few files are enough.

Properties:
- Looks only at what Spark would read: the files of the directory, and those below a directory `key=value`. Files of
  other directories count only with `recursiveFileLookup`. Names that begin with `_` or `.` and names that
  `pathGlobFilter` leaves out do not count, nor do empty files. At most `MOST_FILES` files are looked at, `HEAD` bytes
  of each, in at most `MOST_DIRECTORIES` directories.
- Finds only what cannot be right. Text in no known form passes as csv and text. Nothing is looked at if the options
  say that other files, lines or beginnings may come, or name a character set.
- Opens only regular files, so nothing waits for the writer of a pipe. Files that cannot be read are left to Spark.

Errors: none.
Source: what Spark 4.3 reads; `PartitioningAwareFileIndex.allFiles` and `HadoopFSUtils.shouldFilterOutPathName`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from taskplace.spec.paths import has_wildcards

#: How many files and directories are looked at, and the bytes of each file.
MOST_FILES, MOST_DIRECTORIES, HEAD = 100, 1000, 512
#: The first bytes of files of these formats; those of parquet also if it is encrypted.
_FIRST: Mapping[str, tuple[bytes, ...]] = {
    "parquet": (b"PAR1", b"PARE"),
    "orc": (b"ORC",),
    "avro": (b"Obj\x01",),
}
#: The first signs of the text formats that have one, after blanks.
_SIGNS: Mapping[str, tuple[bytes, ...]] = {"json": (b"{", b"["), "xml": (b"<",)}
#: What Spark decompresses by itself when it reads text, by the end of the name.
_COMPRESSED = (".gz", ".bz2", ".lz4", ".snappy", ".deflate", ".zst", ".zstd", ".xz")
#: The options of Spark, in small letters, by which files, lines or beginnings of another form are no mistake.
_LENIENT = (
    "allowcomments",
    "charset",
    "columnnameofcorruptrecord",
    "encoding",
    "ignorecorruptfiles",
    "linesep",
    "singlevariantcolumn",
)
#: The column of this name gets the lines of another form, if no option names another column.
_CORRUPT = "_corrupt_record"
#: What only Hadoop's patterns have, or has another meaning there than in Python's.
_ONLY_HADOOP = frozenset("[]{}\\")
#: Control characters that text may contain: white space, and separators of columns.
_OF_TEXT = frozenset(b"\t\n\v\f\r\x01\x02\x03\x1b\x1c\x1d\x1e\x1f")


class WrongFile(NamedTuple):
    """A file that cannot be of the input's format. `found`: how it begins, such as "begins like text"."""

    path: Path
    found: str


def wrong_file(
    path: Path, format_: str, options: Mapping[str, str], columns: tuple[str, ...] = ()
) -> WrongFile | None:
    """Return a file at `path` (a file or a directory) that is not of this format; None if none was found.

    - `options`, `columns`: the options of the source, and the names of the columns that it declares
    """
    given = {name.lower(): value for name, value in options.items()}
    if any(given.get(name, "false").lower() != "false" for name in _LENIENT):
        return None
    if given.get("mode", "").upper() == "DROPMALFORMED" or _CORRUPT in map(str.lower, columns):
        return None
    if "ignoreextension" in given:  # of Avro: then files of another ending may not be read
        return None
    pattern = given.get("pathglobfilter", "*")
    if _ONLY_HADOOP & set(pattern) or has_wildcards(str(path)):
        return None
    every = given.get("recursivefilelookup", "false").lower() == "true"
    lines = given.get("multiline", "false").lower() != "true"
    for file in islice(_files(path, pattern, every=every), MOST_FILES):
        head = _head(file)
        if head and _is_other(file, head, format_, lines=lines):
            return WrongFile(file, f"begins like {_kind(head)}")
    return None


def _files(path: Path, pattern: str, *, every: bool) -> Iterator[Path]:
    """Yield the files that Spark would read. `every`: also those of directories that are no `key=value`."""
    if os.path.exists(path / "_spark_metadata"):  # noqa: PTH110 - of a sink of Spark: it reads only what this names
        return
    if not os.path.isdir(path):  # noqa: PTH112 - never raises
        if not _hidden(path.name) and fnmatchcase(path.name, pattern):
            yield path
        return
    for directory, below, names in islice(os.walk(path), MOST_DIRECTORIES):
        below[:] = sorted(name for name in below if not _hidden(name))
        inside = Path(directory).relative_to(path).parts
        if inside and not every and not any("=" in name for name in inside):
            continue
        for name in names:
            if not _hidden(name) and fnmatchcase(name, pattern):
                yield Path(directory, name)


def _hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _head(file: Path) -> bytes:
    """Return the first bytes of a regular file; none of anything else, such as a pipe, and of what cannot be read."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            return b""
        # Without waiting, should a pipe have replaced the file meanwhile.
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as opened:  # noqa: PTH123
            return opened.read(HEAD)
    except OSError:
        return b""


def _is_other(file: Path, head: bytes, format_: str, *, lines: bool) -> bool:
    """Return whether a file cannot be of this format. `lines`: each line of JSON is a value of its own."""
    if format_ in _FIRST:
        return not head.startswith(_FIRST[format_])
    if file.name.lower().endswith(_COMPRESSED):
        return False
    if _binary(head):
        return True
    if format_ not in _SIGNS or _is_wide(head):
        return False
    text = _text(head)
    values = text.splitlines() if lines and format_ == "json" else [text]
    return bool(text) and not any(value.lstrip().startswith(_SIGNS[format_]) for value in values)


def _text(head: bytes) -> bytes:
    """Return the beginning of a text without the mark of its byte order and without blanks."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()


def _is_text(head: bytes) -> bool:
    """Return whether a file begins without the control characters that no text has."""
    return all(byte >= 32 or byte in _OF_TEXT for byte in head)


def _is_wide(head: bytes) -> bool:
    """Return whether a file begins like UTF-16 or UTF-32, which Spark finds out by itself."""
    return head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head[:4]


def _binary(head: bytes) -> str:
    """Return the binary format of a file; "" for any other. Text may begin with the letters of its first bytes.

    >>> _binary(b"PAR1\\x15\\x04"), _binary(b"ORCHID,1\\n"), _binary(b"{}")
    ('parquet', '', '')
    """
    if _is_text(head):
        return ""
    return next((name for name, first in _FIRST.items() if head.startswith(first)), "")


def _kind(head: bytes) -> str:
    """Return what a file begins like. It shows no values of rows.

    >>> _kind(b"PAR1\\x15\\x04"), _kind(b"a,b"), _kind(b" <a/>"), _kind(b"[1]"), _kind(b"\\x7fELF\\x02\\x00")
    ('parquet', 'text', 'xml', 'json', 'binary data')
    """
    if kind := _binary(head):
        return kind
    text = _text(head)
    for name, signs in _SIGNS.items():
        if text.startswith(signs):
            return name
    return "text" if _is_text(head) else "binary data"
