"""Keys of any length in LMDB, whose own end at 511 bytes.

A key of at most `SHORT` bytes is stored as it is. A longer one is stored under its first bytes and a digest,
511 bytes in all, with the whole key in front of its value; only long keys have that length, so the two never
meet.
"""

from __future__ import annotations

import hashlib

LMDB_MAX = 511
DIGEST = 32
SHORT = LMDB_MAX - DIGEST


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


def store_entry(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return the (key, value) to store."""
    stored = physical(key)
    return (stored, value) if stored is key else (stored, len(key).to_bytes(4, "little") + key + value)


def restore_entry(stored: bytes, raw: bytes) -> tuple[bytes, bytes]:
    """Return the (key, value) that `store_entry` was given.

    >>> restore_entry(*store_entry(b"k" * 600, b"v")) == (b"k" * 600, b"v")
    True
    """
    if len(stored) < LMDB_MAX:
        return stored, raw
    length = int.from_bytes(raw[:4], "little")
    return raw[4 : 4 + length], raw[4 + length :]
