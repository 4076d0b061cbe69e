"""Hashes the keys of records as Kafka's producers do, so that a key has the same partition in both.

Source: `Utils.murmur2` and `BuiltInPartitioner.partitionForKey` in Kafka's clients.
"""

from __future__ import annotations

import struct

from taskplace.errors import InputError

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_WORD = struct.Struct("<I")


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key: 32-bit murmur2 with Kafka's seed, as an unsigned number.

    >>> murmur2(b"21") == -973932308 % 2**32
    True
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InputError("key", found=data, expected="bytes: the serialized key")
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for (word,) in _WORD.iter_unpack(data[:whole]):
        word = word * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        h = h * _MULTIPLIER & _MASK ^ word
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's producers choose for a key.

    >>> partition_for_key(b"foobar", 12)
    6
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions
