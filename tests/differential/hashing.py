"""Spark's `hash` of a key, which determines a row's partition, in plain Python: a second implementation to compare."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from tests.differential.case import canonical

MASK = 0xFFFFFFFF


def partition(values: Sequence[Any], kinds: Sequence[str], partitions: int) -> int:
    """Return `pmod(hash(values), partitions)`: 32-bit Murmur3. The first seed is 42, and the next is the last hash."""
    seed = 42
    for value, kind in zip(values, kinds, strict=True):
        if value is not None:
            seed = hashed(canonical(value), kind, seed)
    return (seed - (1 << 32) if seed >> 31 else seed) % partitions


def hashed(value: Any, kind: str, seed: int) -> int:
    """Return the hash of one value."""
    if kind in ("string", "binary"):
        data = value.encode() if isinstance(value, str) else value
        whole = len(data) - len(data) % 4
        for (word,) in struct.iter_unpack("<I", data[:whole]):
            seed = _mixed(seed, word)
        for byte in data[whole:]:  # one by one as signed bytes, as Spark does
            seed = _mixed(seed, (byte - 256 if byte > 127 else byte) & MASK)
        return _final(seed, len(data))
    if kind == "float32":
        return _final(_mixed(seed, struct.unpack("<I", struct.pack("<f", value))[0]), 4)
    if kind in ("bool", "int8", "int16", "int32", "date"):
        return _final(_mixed(seed, int(value) & MASK), 4)
    if kind == "float64":
        value = struct.unpack("<q", struct.pack("<d", value))[0]
    return _final(_mixed(_mixed(seed, value & MASK), (value >> 32) & MASK), 8)


def _mixed(seed: int, word: int) -> int:
    word = word * 0xCC9E2D51 & MASK
    word = (word << 15 | word >> 17) & MASK
    seed ^= word * 0x1B873593 & MASK
    seed = (seed << 13 | seed >> 19) & MASK
    return (seed * 5 + 0xE6546B64) & MASK


def _final(seed: int, length: int) -> int:
    seed ^= length
    seed = (seed ^ seed >> 16) * 0x85EBCA6B & MASK
    seed = (seed ^ seed >> 13) * 0xC2B2AE35 & MASK
    return seed ^ seed >> 16
