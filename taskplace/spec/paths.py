"""Reads the directories of a configuration: a path, or a file: URI, of this host.

`file://host/path` names a directory of another host. If it were read as a local path, a stream would silently start
with empty state. The same holds for a URI of another scheme, which as a path would be a directory named "s3:". Both are
refused.
"""

from __future__ import annotations

import os
import pwd
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from taskplace.errors import InputError

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|file:", re.IGNORECASE)
_WILDCARDS = frozenset("*?[{")
#: The most bytes of a file's name.
MOST_BYTES = 255


def why_not(error: OSError) -> str:
    """Return why the file system refused something, and whose the file is if it is another user's.

    >>> why_not(FileNotFoundError(2, "No such file or directory", "/nowhere"))
    'No such file or directory'
    """
    why = error.strerror or type(error).__name__
    owner = _owner(Path(os.fsdecode(error.filename))) if error.filename is not None else None
    if isinstance(error, PermissionError) and owner is not None and owner[0] != os.geteuid():
        return f"{why}; it belongs to {owner[1]}: run the command as that user"
    return why


def _owner(path: Path) -> tuple[int, str] | None:
    """Return the id and the name of a file's owner, or of the nearest directory above it that this user may see."""
    for one in (path, *path.parents):
        with suppress(OSError):
            uid = one.stat().st_uid
            with suppress(KeyError):
                return uid, f"user {pwd.getpwuid(uid).pw_name!r}"
            return uid, f"the user with id {uid}"
    return None


def has_wildcards(text: str) -> bool:
    """Return whether a text is a pattern that Spark reads the paths of, and so no path itself.

    >>> has_wildcards("/data/day=*"), has_wildcards("/data/day=1")
    (True, False)
    """
    return not _WILDCARDS.isdisjoint(text)


def is_uri(text: str) -> bool:
    """Return whether a text is a URI and not a path.

    >>> [is_uri(text) for text in ("s3://bucket/x", "file:/x", "dbfs:/x", "/data/a:b", "a:b/c", "data")]
    [True, True, True, False, False, False]
    """
    return _URI.match(text) is not None


def local_path(
    given: str | Path,
    what: str,
    *,
    expected: str = "a path, or a file:// URI, of this host",
    error: type[InputError] = InputError,
) -> Path:
    """Return the absolute local path of a path or a file: URI. `what` names the parameter in errors.

    Errors: `InputError`, or the given subclass, for another scheme, another host, and a URI with more than a path; also
    for a value that is not a path, a name too long for a file, and characters that no file's name has.

    >>> local_path("file:///data/my%20state", "state_dir"), local_path("file://localhost/data", "state_dir")
    (PosixPath('/data/my state'), PosixPath('/data'))
    >>> local_path("~/state", "state_dir") == Path.home() / "state"
    True
    >>> local_path("file://nas/data", "checkpoint")
    Traceback (most recent call last):
    taskplace.errors.InputError: checkpoint: found 'file://nas/data', expected a path, or a file:// URI, of this host; \
'nas' would be another host: file:///data is the directory here
    """
    text = path = str(given)

    def refused(hint: str = "") -> InputError:
        return error(what, found=text, expected=expected, hint=hint)

    if is_uri(text):
        url = urlsplit(text)
        path = unquote(url.path)
        if not isinstance(given, str):
            raise refused("give a URI as text: a Path keeps no host")
        if url.scheme != "file":
            raise refused(f"{url.scheme!r} is another file system")
        if url.netloc.lower() not in ("", "localhost"):
            place = f"file://{url.path or '/...'}"
            raise refused(f"{url.netloc!r} would be another host: {place} is the directory here")
        if url.query or url.fragment or not path.startswith("/"):
            raise refused("a file: URI has an absolute path; in it, ? and # are written %3F and %23")
    if not path.strip() or "\x00" in path:
        raise refused()
    try:
        longest = max(Path(path).parts, key=lambda name: len(os.fsencode(name)), default="")
        expanded = Path(path) if is_uri(text) else Path(path).expanduser()
    except UnicodeEncodeError as problem:
        letter = problem.object[problem.start]
        raise refused(f"{letter!r} in it is not allowed in a file's name") from None
    except RuntimeError:
        raise error(what, found=text, expected="~ of an existing user") from None
    size = len(os.fsencode(longest))
    if size > MOST_BYTES and not has_wildcards(longest):
        raise refused(f"a name in it has {size} bytes, over {MOST_BYTES}")
    return expanded.absolute()
