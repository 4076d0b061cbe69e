"""The form of entries in LMDB: keys of any length, although LMDB allows 511 bytes, and a checksum.

A key of at most `SHORT` bytes is stored unchanged. A longer key is stored as its first bytes and a digest,
511 bytes in all, and the whole key is put before its value. Only long keys have that length, so the two forms never
collide.

LMDB has no checksums. So each value begins with a checksum over its stored key and itself: a bit that a disk has
flipped is detected before the value is used. It is zlib's CRC-32. Long data is left to ISA-L (the package `isal`) if it
is installed: the same values, in a fraction of the time. zlib takes the short data, for which it is faster in the long
run: on a processor with AVX-512, once ISA-L has computed a checksum of 64 bytes or more, its short ones take three
times as long as zlib's (`isal` 1.9.1).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from taskplace.errors import CheckpointError
from taskplace.wording import count as counted

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


LMDB_MAX = 511
DIGEST = 32
SHORT = LMDB_MAX - DIGEST
CHECKSUM = 4
#: The longest value of LMDB, bytes.
LARGEST_STORED = 2**32 - 1

_checksum, _content = itemgetter(slice(CHECKSUM)), itemgetter(slice(CHECKSUM, None))


class DamagedEntry(CheckpointError):
    """An entry of a copy differs from what was written. Keys are values of rows, so the message has only a length."""


def physical(key: bytes) -> bytes:
    """Return the key under which `key` is stored.

    >>> physical(b"N14228"), len(physical(b"x" * 2000))
    (b'N14228', 511)
    """
    if 0 < len(key) <= SHORT:
        return key
    if not key:
        raise ValueError("an encoded key is never empty")
    return key[:SHORT] + hashlib.blake2b(key, digest_size=DIGEST).digest()


def physical_all(keys: Sequence[bytes]) -> Sequence[bytes]:
    """Return the keys under which `keys` are stored, in less time than `physical` for each."""
    return keys if _short(keys) else [physical(key) for key in keys]


def _short(keys: Sequence[bytes]) -> bool:
    """Return whether all keys are stored unchanged."""
    lengths = {*map(len, keys)}
    return not lengths or (min(lengths) > 0 and max(lengths) <= SHORT)


def checked(key: bytes, value: bytes) -> bytes:
    """Return `value` with its checksum in front, computed over `key` and `value`."""
    return crc32(value, crc32(key)).to_bytes(CHECKSUM, "little") + value


def verified(key: bytes, raw: bytes) -> bytes:
    """Return the value without its checksum. Errors: `DamagedEntry` if key or value have changed since `checked`.

    >>> verified(b"k", checked(b"k", b"value"))
    b'value'
    """
    value = raw[CHECKSUM:]
    if crc32(value, crc32(key)).to_bytes(CHECKSUM, "little") != raw[:CHECKSUM]:
        raise DamagedEntry(f"{_named(key)} is damaged: its checksum does not fit")
    return value


def _named(stored: bytes) -> str:
    return f"an entry with a key of {counted(len(stored), 'byte')}"


def store_entry(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the (key, value) to store."""
    stored = physical(key)
    if stored is not key:
        value = len(key).to_bytes(4, "little") + key + value
    return stored, checked(stored, value)


def store_all(keys: Sequence[bytes], values: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the (key, value) to store of each entry, in less time than `store_entry` for each.

    >>> list(store_all([b"k"], [b"v"])) == [store_entry(b"k", b"v")]
    True
    """
    if not _short(keys):
        return map(store_entry, keys, values)
    # All at once: tuples that live on would set off Python's garbage collector again and again.
    checksums = _checksums(keys, values).view(f"V{CHECKSUM}").tolist()
    return zip(keys, list(map(b"".join, zip(checksums, values, strict=True))), strict=True)


def _checksums(keys: Sequence[bytes], values: Sequence[bytes]) -> npt.NDArray[np.uint32]:
    return np.fromiter(crc32_all(keys, values), np.dtype("<u4"), len(keys))


def restore_entry(stored: bytes, raw: bytes) -> tuple[bytes, bytes]:
    """Return the original (key, value) of a stored entry. Errors: `DamagedEntry` if it has changed since.

    >>> restore_entry(*store_entry(b"k" * 600, b"v")) == (b"k" * 600, b"v")
    True
    """
    value = verified(stored, raw)
    if len(stored) < LMDB_MAX:
        return stored, value
    length = int.from_bytes(value[:4], "little")
    return value[4 : 4 + length], value[4 + length :]


def restore_columns(stored: Sequence[bytes], raw: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Return the original keys and values of stored entries, in less time than `restore_entry` for each.

    Errors: as `restore_entry`.

    >>> restore_columns(*zip(*store_all([b"k", b"l"], [b"v", b"w"])))
    ((b'k', b'l'), [b'v', b'w'])
    """
    if _short(stored):
        values = list(map(_content, raw))
        if _checksums(stored, values).tobytes() == b"".join(map(_checksum, raw)):
            return stored, values
    entries = list(map(restore_entry, stored, raw))
    return [key for key, _ in entries], [value for _, value in entries]


def restore_all(
    entries: Iterable[tuple[bytes, bytes]], count: int | None = None
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the original (key, value) of `count` stored entries, in the order of their stored keys.

    `count`: None if it is not known.

    Errors: `DamagedEntry` if an entry has changed, is lost, or is out of order, where a search would not find it.
    """
    number, last = 0, b""
    for stored, raw in entries:
        if stored <= last:
            raise DamagedEntry(f"{_named(stored)} is out of order")
        yield restore_entry(stored, raw)
        number, last = number + 1, stored
    if count is not None and number != count:
        raise DamagedEntry(f"found {number} entries, where {count} were stored")
