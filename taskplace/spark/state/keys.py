"""Entries as they lie in LMDB: with keys of any length, though its own end at 511 bytes, and with a checksum.

A key of at most `SHORT` bytes is stored as it is. A longer one is stored under its first bytes and a digest,
511 bytes in all, with the whole key in front of its value; only long keys have that length, so the two never
meet.

LMDB itself has no checksums, so each value has one in front, of what it lies under and of itself: a bit that a disk
has flipped is found before it is taken for state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from zlib import crc32

from taskplace.errors import CheckpointError

LMDB_MAX = 511
DIGEST = 32
SHORT = LMDB_MAX - DIGEST
CHECKSUM = 4
#: What Arrow takes as one string or binary value, bytes. A key or a value that is longer could not get into a file.
LARGEST = 2**31 - 2
#: What LMDB takes as one value, bytes.
LARGEST_STORED = 2**32 - 1


class DamagedEntry(CheckpointError):
    """An entry of a copy is not what was written."""


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


def checked(key: bytes, value: bytes) -> bytes:
    """Return `value` with the checksum that tells whether it still is what was stored under `key`."""
    return crc32(value, crc32(key)).to_bytes(CHECKSUM, "little") + value


def verified(key: bytes, raw: bytes) -> bytes:
    """Return the value that `checked` was given. Errors: `DamagedEntry` if key or value have changed since.

    >>> verified(b"k", checked(b"k", b"value"))
    b'value'
    """
    value = raw[CHECKSUM:]
    if crc32(value, crc32(key)).to_bytes(CHECKSUM, "little") != raw[:CHECKSUM]:
        raise DamagedEntry(f"the entry {key[:40]!r} is damaged: its checksum does not fit")
    return value


def store_entry(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the (key, value) to store."""
    stored = physical(key)
    if stored is not key:
        value = len(key).to_bytes(4, "little") + key + value
    return stored, checked(stored, value)


def restore_entry(stored: bytes, raw: bytes) -> tuple[bytes, bytes]:
    """Return the (key, value) that `store_entry` was given. Errors: `DamagedEntry` if they have changed since.

    >>> restore_entry(*store_entry(b"k" * 600, b"v")) == (b"k" * 600, b"v")
    True
    """
    value = verified(stored, raw)
    if len(stored) < LMDB_MAX:
        return stored, value
    length = int.from_bytes(value[:4], "little")
    return value[4 : 4 + length], value[4 + length :]


def restore_all(entries: Iterable[tuple[bytes, bytes]], count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield what `store_entry` was given, of `count` entries in the order of their keys.

    Errors: `DamagedEntry` if some have changed, are lost, or are not where a search would find them.
    """
    number, last = 0, b""
    for stored, raw in entries:
        if stored <= last:
            raise DamagedEntry(f"the entry {stored[:40]!r} is out of order")
        yield restore_entry(stored, raw)
        number, last = number + 1, stored
    if number != count:
        raise DamagedEntry(f"found {number} entries, where {count} were stored")
