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
_HOSTS = ("", "localhost")
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
    text = str(given)
    path, hint = text, ""
    if is_uri(text):
        url = urlsplit(text)
        path = unquote(url.path)
        if not isinstance(given, str):
            hint = "give a URI as text: a Path keeps no host"
        elif url.scheme != "file":
            hint = f"{url.scheme!r} is another file system"
        elif url.netloc.lower() not in _HOSTS:
            hint = f"{url.netloc!r} would be another host: file://{url.path or '/...'} is the directory here"
        elif url.query or url.fragment:
            hint = "in a URI, ? and # are written %3F and %23"
        elif not path.startswith("/"):
            hint = "a file: URI has an absolute path"
        if hint:
            raise error(what, found=text, expected=expected, hint=hint)
    if not path.strip() or "\x00" in path:
        raise error(what, found=text, expected=expected)
    try:
        os.fsencode(path)
    except UnicodeEncodeError as problem:
        hint = f"{problem.object[problem.start]!r} in it is not allowed in a file's name"
        raise error(what, found=text, expected=expected, hint=hint) from None
    longest = max(Path(path).parts, key=_size, default="")
    if _size(longest) > MOST_BYTES and not has_wildcards(longest):
        raise error(
            what,
            found=text,
            expected=expected,
            hint=f"a name in it has {_size(longest)} bytes, over {MOST_BYTES}",
        )
    return (Path(path) if is_uri(text) else _of_home(path, what, text, error)).absolute()


def _size(name: str) -> int:
    return len(name.encode("utf-8", "surrogatepass"))


def _of_home(path: str, what: str, text: str, error: type[InputError]) -> Path:
    """Return a path with ~ expanded to the home directory, as in a shell."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise error(what, found=text, expected="~ of an existing user") from None
