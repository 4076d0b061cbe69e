"""Computes the partition of a key: as Spark's shuffles do, and as Kafka's producers do.

`spark_hash` equals Spark SQL's `hash(k1, k2, ...)` (Murmur3, x86, 32 bits, seed 42; the hash of one column
is the seed of the next; a null leaves it unchanged), on whole columns in numpy. Strings and binaries are
hashed four bytes at a time, then the remaining bytes one by one as *signed* bytes. In this last step Spark
differs from the published Murmur3, so no library can be used. Arrow has several layouts of one value: large strings,
dictionaries, binaries of fixed size. They are hashed as the plain string, binary or number, which is what Spark makes
of them.

`partition_of` equals `pmod(hash(keys), n)`. So all rows with a null key go to one fixed partition, that of the seed.
They are kept, as in Spark, and not dropped, as in Kafka Streams.

`partitions_of` computes the partition that Kafka's producers choose, key by key: it gets a few samples of a batch.

| name | producers | null keys | empty keys |
|---|---|---|---|
| `murmur2` | Java, kafka-python, Spark; librdkafka with `murmur2` or `murmur2_random` | any | hashed |
| `consistent` | librdkafka with this name (CRC32) | any | partition 0 |
| `consistent_random` | librdkafka's default (CRC32) | any | any |
| `fnv1a` | librdkafka with `fnv1a` or `fnv1a_random`; Sarama's hash partitioner | any | hashed |

*Any*: the partition does not follow from the key, so `partitions_of` returns -1. Some of these producers send null keys
to one fixed partition; a row with a null key is never compared. The names `murmur2_random` and `fnv1a_random` are
accepted for the same functions.

Source: `Utils.murmur2` and `BuiltInPartitioner` in Kafka's clients; `rd_kafka_msg_partitioner_*` in librdkafka.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from taskplace.errors import InputError
from taskplace.groups.partitioner import murmur2
from taskplace.spark.casts import converted
from taskplace.spark.state.rows import canonical_floats
from taskplace.spark.types import canonical
from taskplace.validation import nearest

#: Written into manifests: a checkpoint made with another hash must not be continued.
HASH_VERSION = "spark-murmur3-42/1"
SEED = 42

#: The types that tasks can hash, by the name that `hashed_as` gives them.
HASHED_TYPES: Mapping[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date32[day]": pa.date32(),
    "timestamp[us]": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}

Words = npt.NDArray[np.uint32]
#: A numpy round costs about as much as hashing this many rows one by one.
FEW = 32
#: The bytes of one row that are hashed at a time: Python's integers take several times as much. A multiple of 4.
AT_A_TIME = 1 << 20
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)

#: Of a key that decides no partition.
ANY = -1
_ALIASES = {"murmur2_random": "murmur2", "fnv1a_random": "fnv1a"}


def partition_of(
    columns: Sequence[pa.Array | pa.ChunkedArray], partitions: int, paths: Sequence[str] = ()
) -> npt.NDArray[np.int32]:
    """Return the partition (0 .. partitions-1) of each row. O(bytes). `paths`: by column, for errors.

    >>> partition_of([pa.array(["N14228", "N24211", None])], 12).tolist()
    [0, 8, 6]
    """
    return np.mod(spark_hash(columns, paths), np.int32(partitions)).astype(np.int32)


def spark_hash(
    columns: Sequence[pa.Array | pa.ChunkedArray], paths: Sequence[str] = ()
) -> npt.NDArray[np.int32]:
    """Return Spark's `hash(...)` of the rows that `columns` form. O(bytes).

    Errors: `InputError` for a type that is not hashed, with the column's path.

    >>> spark_hash([pa.array([1], pa.int32())]).tolist(), spark_hash([pa.array(["a"])]).tolist()
    ([-559580957], [1485273170])
    """
    hashes = np.full(len(columns[0]), SEED, np.uint32)
    with np.errstate(over="ignore"):
        for column, path in zip(columns, paths or ["key"] * len(columns), strict=True):
            if not (plain := _hashed_type(column.type)).equals(column.type):
                chunks = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
                column = converted(chunks, plain)
            array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            hashed = _hash_column(array, hashes, path)
            if array.null_count:
                hashed = np.where(array.is_valid().to_numpy(zero_copy_only=False), hashed, hashes)
            hashes = hashed
    return hashes.view(np.int32)


def hashed_as(kind: pa.DataType) -> str:
    """Return the type as which a key is hashed; keys with different results may go to different partitions.

    >>> hashed_as(pa.int16()), hashed_as(pa.int64()), hashed_as(pa.timestamp("us", tz="UTC"))
    ('int32', 'int64', 'timestamp[us]')
    >>> hashed_as(pa.large_string()), hashed_as(pa.dictionary(pa.int8(), pa.string()))
    ('string', 'string')
    """
    kind = _hashed_type(kind)
    return "timestamp[us]" if pa.types.is_timestamp(kind) and kind.unit == "us" else str(kind)


def _hashed_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the plain values, by which a column of this type is hashed."""
    kind = canonical(kind)
    return pa.int32() if pa.types.is_int8(kind) or pa.types.is_int16(kind) else kind


def _hash_column(array: pa.Array, seed: Words, path: str) -> Words:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_bytes(array.fill_null("" if pa.types.is_string(kind) else b""), seed)
    if pa.types.is_boolean(kind) or pa.types.is_int32(kind) or pa.types.is_date32(kind):
        numbers = array.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
        return _hash_int(numbers.view(np.uint32), seed)
    if pa.types.is_int64(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us"):
        return _hash_long(array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), seed)
    if pa.types.is_float32(kind):
        return _hash_int(canonical_floats(array).view(np.uint32), seed)
    if pa.types.is_float64(kind):
        return _hash_long(canonical_floats(array).view(np.int64), seed)
    raise InputError(
        path,
        found=str(kind),
        expected="a key of type boolean, integer, float, date, timestamp[us], string or binary",
        hint="cast the column to one of them before it is the key",
    )


def _hash_int(words: Words, seed: Words) -> Words:
    return _finish(_mix(seed, words), np.uint32(4))


def _hash_long(values: npt.NDArray[np.int64], seed: Words) -> Words:
    unsigned = values.view(np.uint64)
    low, high = unsigned.astype(np.uint32), (unsigned >> np.uint64(32)).astype(np.uint32)
    return _finish(_mix(_mix(seed, low), high), np.uint32(8))


def _hash_bytes(array: pa.Array, seed: Words) -> Words:
    """Return the hashes of strings or binaries. O(bytes), for any mix of lengths.

    Each round mixes in one word of all rows that still have one. Rows are sorted by length, so these are the first
    rows. When only a few are left, each is hashed separately.
    """
    if not len(array):
        return seed
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    if not lengths.any():
        return _finish(seed, np.uint32(0))
    data = np.frombuffer(array.buffers()[2], np.uint8)
    counts = lengths // 4
    order = np.argsort(-counts, kind="stable")
    longest = counts[order]
    at, hashes = starts[order], seed[order]
    few = int(longest[FEW]) if len(longest) > FEW else 0  # rounds that more than `FEW` rows have a word for
    left = len(order) - np.searchsorted(longest[::-1], np.arange(few), "right")
    # The word that begins at each byte, little-endian.
    words = np.ndarray((max(0, len(data) - 3),), "<u4", data, strides=(1,))
    for block, rows in enumerate(left.tolist()):
        hashes[:rows] = _mix(hashes[:rows], words[at[:rows] + 4 * block])
    for row in range(min(FEW, len(order))):
        first, end = int(at[row]) + 4 * few, int(at[row]) + 4 * int(longest[row])
        if end > first:
            hashes[row] = _mix_all(int(hashes[row]), data[first:end])
    mixed = np.empty_like(hashes)
    mixed[order] = hashes
    aligned, tails = starts + 4 * counts, lengths % 4
    for tail in range(3):
        rows = np.flatnonzero(tails > tail)
        signed = data[aligned[rows] + tail].view(np.int8).astype(np.int32).view(np.uint32)
        mixed[rows] = _mix(mixed[rows], signed)
    return _finish(mixed, lengths.astype(np.uint32))


def _mix_all(hashed: int, data: npt.NDArray[np.uint8]) -> int:
    """Return a hash with all words of one row mixed in, one after the other."""
    for start in range(0, len(data), AT_A_TIME):
        part = data[start : start + AT_A_TIME]
        for word in _scrambled(np.frombuffer(part.tobytes(), "<u4").astype(np.uint32)).tolist():
            hashed ^= word
            hashed = ((hashed << 13 | hashed >> 19) * 5 + 0xE6546B64) & 0xFFFFFFFF
    return hashed


def _scrambled(words: Words) -> Words:
    words = words * _C1
    words = (words << np.uint32(15)) | (words >> np.uint32(17))
    return words * _C2


def _mix(hashes: Words, words: Words) -> Words:
    hashes = hashes ^ _scrambled(words)
    hashes = (hashes << np.uint32(13)) | (hashes >> np.uint32(19))
    return hashes * np.uint32(5) + np.uint32(0xE6546B64)


def _finish(hashes: Words, lengths: Words | np.uint32) -> Words:
    hashes = hashes ^ lengths
    hashes ^= hashes >> np.uint32(16)
    hashes *= np.uint32(0x85EBCA6B)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(0xC2B2AE35)
    hashes ^= hashes >> np.uint32(16)
    return hashes


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
    """Return the partition of each serialized key, `ANY` for a key that decides none. O(bytes), in Python.

    >>> partitions_of(pa.array([b"foobar", None, b""]), "murmur2", 12).tolist()
    [6, -1, 9]
    """
    hashed = _HASHES[partitioner]
    found = [
        ANY if key is None or (not key and partitioner == "consistent_random") else hashed(key) % partitions
        for key in keys.to_pylist()
    ]
    return np.array(found, np.int64)


def _fnv1a(key: bytes) -> int:
    """Return the 32-bit FNV-1a, as the absolute value of a signed number."""
    hashed = 0x811C9DC5
    for byte in key:
        hashed = (hashed ^ byte) * 0x01000193 & 0xFFFFFFFF
    return hashed if hashed < 1 << 31 else (1 << 32) - hashed


_HASHES: Mapping[str, Callable[[bytes], int]] = {
    "murmur2": lambda key: murmur2(key) & 0x7FFFFFFF,  # without its sign bit, as Kafka's producers use it
    "consistent": zlib.crc32,
    "consistent_random": zlib.crc32,
    "fnv1a": _fnv1a,
}
