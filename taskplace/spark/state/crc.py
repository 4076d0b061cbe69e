"""CRC-32, as zlib computes it: it guards each entry of a copy, and the slices of boundary files.

Long data is left to ISA-L (the package `isal`) if it is installed: the same values, in a fraction of the time. zlib
takes the short data, for which it is faster in the long run: on a processor with AVX-512, once ISA-L has computed a
checksum of 64 bytes or more, its short ones take three times as long as zlib's (`isal` 1.9.1).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

try:
    from isal.isal_zlib import crc32 as crc32_of_long
except ImportError:  # no wheel for this platform
    from zlib import crc32 as crc32_of_long

#: From so many bytes on, data is long.
LONG = 256


def crc32(data: bytes | memoryview, start: int = 0) -> int:
    """Return the checksum of data; `start`: of the data before it.

    >>> crc32(b"value", crc32(b"k")) == zlib.crc32(b"kvalue")
    True
    """
    return crc32_of_long(data, start) if len(data) >= LONG else zlib.crc32(data, start)


def crc32_all(keys: Sequence[bytes], values: Sequence[bytes]) -> Iterator[int]:
    """Yield the checksum of each key with its value, without running Python code for each.

    >>> list(crc32_all([b"k", b"l"], [b"value", b""])) == [crc32(b"kvalue"), crc32(b"l")]
    True
    """
    of_value = crc32_of_long if sum(map(len, values)) >= LONG * len(values) else zlib.crc32
    return map(of_value, values, map(zlib.crc32, keys))
