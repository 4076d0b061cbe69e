"""The numbers that name files: batches, epochs, and the logs of Spark.

A checkpoint's directories may have files of others, such as copies that a person has made. So only a name that the
number itself would get counts, and everything else is left alone.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

#: The names of a checkpoint's own files have so many digits, at least.
DIGITS = 10
#: Numbers of batches and drivers fit into 64 bits.
_LONGEST = 19


def number_of(name: str, suffix: str = "", digits: int = 1) -> int | None:
    """Return the number that is a file's name, before `suffix`, and with zeros in front up to `digits`; else None.

    >>> number_of("0000000012.json", ".json", 10)
    12
    >>> number_of("12.json", ".json", 10), number_of("²"), number_of("9" * 30)
    (None, None, None)
    """
    stem = name.removesuffix(suffix)
    if not stem.isascii() or not stem.isdigit() or len(stem) > _LONGEST:
        return None
    number = int(stem)
    return number if f"{number:0{digits}d}{suffix}" == name else None


def numbered(folder: Path, suffix: str = "", digits: int = 1) -> list[int]:
    """Return the numbers that name what is in a folder, in order; none without the folder. See `number_of`."""
    with suppress(FileNotFoundError, NotADirectoryError):
        numbers = (number_of(path.name, suffix, digits) for path in folder.iterdir())
        return sorted(number for number in numbers if number is not None)
    return []
