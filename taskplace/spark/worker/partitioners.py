"""Computes the partition that Kafka's producers choose for a key, on whole columns of serialized keys.

| name | producers | null keys | empty keys |
|---|---|---|---|
| `murmur2` | Java, kafka-python, Spark; librdkafka with `murmur2` or `murmur2_random` | any | hashed |
| `consistent` | librdkafka with this name (CRC32) | any | partition 0 |
| `consistent_random` | librdkafka's default (CRC32) | any | any |
| `fnv1a` | librdkafka with `fnv1a` or `fnv1a_random`; Sarama's hash partitioner | any | hashed |

*Any*: the partition does not follow from the key, so `partitions_of` returns -1. Some of these producers send null keys
to one fixed partition; a row with a null key is never compared.

The names `murmur2_random` and `fnv1a_random` are accepted for the same functions.

Source: `Utils.murmur2` and `BuiltInPartitioner` in Kafka's clients; `rd_kafka_msg_partitioner_*` in librdkafka.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from taskplace.errors import InputError
from taskplace.groups.partitioner import murmur2
from taskplace.validation import nearest

Words = npt.NDArray[np.uint32]
#: Of a key that decides no partition.
ANY = -1
#: A numpy round costs about as much as hashing this many keys one by one.
FEW = 32
_ALIASES = {"murmur2_random": "murmur2", "fnv1a_random": "fnv1a"}
_MULTIPLIER, _SEED = np.uint32(0x5BD1E995), np.uint32(0x9747B28C)
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193


def known_partitioner(name: object, path: str) -> str:
    """Return the name of a partitioner, without aliases. Errors: `InputError` with the nearest name.

    >>> known_partitioner("murmur2_random", "sources.flights.key_partitioner")
    'murmur2'
    """
    known = (*_HASHES, *_ALIASES)
    if not isinstance(name, str) or name not in known:
        raise InputError(path, found=name, expected=f"one of {sorted(known)}", hint=nearest(str(name), known))
    return _ALIASES.get(name, name)


def partitions_of(
    keys: pa.Array | pa.ChunkedArray, partitioner: str, partitions: int
) -> npt.NDArray[np.int64]:
    """Return the partition of each serialized key, `ANY` for a key that decides none. O(bytes).

    >>> partitions_of(pa.array([b"foobar", None, b""]), "murmur2", 12).tolist()
    [6, -1, 9]
    """
    payloads = [key for key in keys.to_pylist() if key is not None]
    hashed = _HASHES[partitioner](payloads).astype(np.int64) % partitions
    if partitioner == "consistent_random":
        hashed[[not payload for payload in payloads]] = ANY
    found = np.full(len(keys), ANY, np.int64)
    found[np.asarray(keys.is_valid())] = hashed
    return found


def _by_length(payloads: Sequence[bytes]) -> Iterator[tuple[npt.NDArray[np.int64], int]]:
    """Yield the places of the payloads of each length, and the length."""
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    order = np.argsort(lengths, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if len(places):
            yield places, int(lengths[places[0]])


def _murmur2(payloads: Sequence[bytes]) -> Words:
    """Return Kafka's murmur2, without its sign bit, as its producers use it."""
    hashes = np.empty(len(payloads), np.uint32)
    for places, length in _by_length(payloads):
        if len(places) <= FEW:
            hashes[places] = [murmur2(payloads[place]) for place in places]
            continue
        joined = np.frombuffer(b"".join(payloads[place] for place in places), np.uint8)
        rows = joined.reshape(len(places), length)
        whole = length & ~3
        hashes[places] = _murmur2_of_rows(
            np.ascontiguousarray(rows[:, :whole]).view("<u4").astype(np.uint32), rows[:, whole:], length
        )
    return hashes & np.uint32(0x7FFFFFFF)


def _murmur2_of_rows(words: Words, tails: npt.NDArray[np.uint8], length: int) -> Words:
    """Return the hashes of keys of one length: one row of words each, and the bytes behind them."""
    hashes = np.full(len(words), _SEED ^ np.uint32(length), np.uint32)
    for word in words.T:
        word = word * _MULTIPLIER
        hashes = hashes * _MULTIPLIER ^ (word ^ word >> np.uint32(24)) * _MULTIPLIER
    if tails.shape[1]:
        for place, byte in enumerate(tails.T):
            hashes ^= byte.astype(np.uint32) << np.uint32(8 * place)
        hashes *= _MULTIPLIER
    hashes = (hashes ^ hashes >> np.uint32(13)) * _MULTIPLIER
    return hashes ^ hashes >> np.uint32(15)


def _crc32(payloads: Sequence[bytes]) -> Words:
    return np.fromiter(map(zlib.crc32, payloads), np.uint32, len(payloads))


def _fnv1a(payloads: Sequence[bytes]) -> Words:
    """Return the 32-bit FNV-1a, as the absolute value of a signed number."""
    hashes = np.empty(len(payloads), np.uint32)
    for places, length in _by_length(payloads):
        if len(places) <= FEW:
            hashes[places] = [_fnv1a_of(payloads[place]) for place in places]
            continue
        joined = np.frombuffer(b"".join(payloads[place] for place in places), np.uint8)
        values = np.full(len(places), _FNV_OFFSET, np.uint32)
        for byte in joined.reshape(len(places), length).T:
            values = (values ^ byte) * np.uint32(_FNV_PRIME)
        hashes[places] = values
    negative = hashes > np.uint32(0x7FFFFFFF)
    return np.where(negative, ~hashes + np.uint32(1), hashes)


def _fnv1a_of(payload: bytes) -> int:
    hashed = _FNV_OFFSET
    for byte in payload:
        hashed = (hashed ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return hashed


_HASHES: Mapping[str, Callable[[Sequence[bytes]], Words]] = {
    "murmur2": _murmur2,
    "consistent": _crc32,
    "consistent_random": _crc32,
    "fnv1a": _fnv1a,
}
