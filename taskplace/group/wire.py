"""Compact binary encoding of numbers, strings and lists, and frames around it.

Numbers are unsigned LEB128 (numbers below 128 take one byte). Strings are UTF-8 with their length before them. Lists
have their count before them. A frame is the unit that is sent over a connection:

    "tg"  version  kind  flags  [length when inflated]  body  crc32
     2       1       1     1          0 or 1-10          n      4     bytes

Properties:
- `Reader` raises only `ProtocolError`, for any bytes. It reads each byte at most once. It allocates at most a small
  multiple of the remaining bytes, because it compares each count and length with these first.
- A value has exactly one encoding, so equal values are equal bytes and vice versa. Superfluous zero bytes in a number,
  a flag that is neither 0 nor 1, and bytes after the end are refused.
- A compressed body is inflated up to its declared length and not further. The declared length is limited by `LIMIT` and
  by the best ratio that deflate can reach.

Source: "Compression" in the client-side assignment proposal.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from taskplace.groups.messages import ProtocolError, UnknownVersion

T = TypeVar("T")

VERSION = 1  # of the frame and of the messages in it
LIMIT = 64 * 2**20  # bytes of one body, inflated
WORTH_IT = 128  # bytes; shorter bodies are sent uncompressed
GENERATION = 2**53  # the largest generation on the wire, far below the largest number
_MAGIC = b"tg"
_DEFLATED = 1
_BEST_RATIO = 1032  # the best ratio that deflate can reach
_MOST = 2**64


class Writer:
    """Builds bytes. Every method but `take` appends a value and returns the writer.

    >>> Writer().uint(300).text("abc").take()
    b'\\xac\\x02\\x03abc'
    """

    def __init__(self) -> None:
        self._out = bytearray()

    def uint(self, value: int) -> Writer:
        """Append a number from 0 to 2**64 - 1, in 1 to 10 bytes."""
        if not 0 <= value < _MOST:
            raise ValueError(f"found {value}, expected a number from 0 to 2**64 - 1")
        while value > 0x7F:
            self._out.append(value & 0x7F | 0x80)
            value >>= 7
        self._out.append(value)
        return self

    def flag(self, value: bool) -> Writer:
        """Append true or false, in one byte."""
        self._out.append(bool(value))
        return self

    def blob(self, value: bytes) -> Writer:
        """Append the length of the bytes, then the bytes."""
        self.uint(len(value))
        self._out += value
        return self

    def text(self, value: str) -> Writer:
        """Append a string: the length of its UTF-8 bytes, then the bytes."""
        return self.blob(value.encode("utf-8"))

    def many(self, values: Iterable[T], write: Callable[[T], object]) -> Writer:
        """Append a list: its count, then each value by `write`."""
        listed = list(values)
        self.uint(len(listed))
        for value in listed:
            write(value)
        return self

    def ascending(self, numbers: Iterable[int]) -> Writer:
        """Append distinct numbers in ascending order, as differences. Dense numbers take one byte each."""
        ordered = sorted(numbers)
        self.uint(len(ordered))
        before = -1
        for number in ordered:
            self.uint(number - before - 1)
            before = number
        return self

    def take(self) -> bytes:
        """Return all appended bytes."""
        return bytes(self._out)


class Reader:
    """Reads bytes of a `Writer`. Errors contain `path`, which names the value.

    >>> Reader(b"\\x09abc", "join.group").text()
    Traceback (most recent call last):
    taskplace.groups.messages.ProtocolError: join.group: found 3 bytes left, expected 9 bytes at offset 1
    """

    def __init__(self, data: bytes, path: str) -> None:
        self._data = data
        self._at = 0
        self.path = path

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return len(self._data) - self._at

    def uint(self, most: int = _MOST - 1) -> int:
        """Read a number of at most `most`."""
        data, at, value, shift = self._data, self._at, 0, 0
        while True:
            if at >= len(data) or shift > 63:
                raise self._error("a number without an end", "a whole number")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if value > most or (byte == 0 and shift):
            raise self._error(
                f"{value} in {at - self._at} bytes", f"a number up to {most}, in its shortest form"
            )
        self._at = at
        return value

    def flag(self) -> bool:
        """Read true or false."""
        return bool(self.uint(1))

    def blob(self) -> bytes:
        """Read a length, then as many bytes."""
        length = self.uint()
        if length > self.left:
            raise self._error(f"{self.left} bytes left", f"{length} bytes")
        start = self._at
        self._at += length
        return self._data[start : self._at]

    def text(self) -> str:
        """Read a string."""
        raw = self.blob()
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self._error("bytes that are not UTF-8", "UTF-8 text") from None

    def many(self, read: Callable[[], T], least: int = 1) -> list[T]:
        """Read a list of values that take at least `least` bytes each."""
        return [read() for _ in range(self._count(least))]

    def rising(
        self, read: Callable[[], T], least: int = 1, *, key: Callable[[T], Any] | None = None
    ) -> list[T]:
        """Read a list as `many` does. Refuse it if it is not sorted by key, or has a key twice."""
        values = self.many(read, least)
        for a, b in itertools.pairwise(values if key is None else map(key, values)):
            if not a < b:
                raise self._error(
                    f"{str(b)[:40]!r} after {str(a)[:40]!r}", "a sorted list without duplicates"
                )
        return values

    def ascending(self, most: int = 2**31 - 1) -> list[int]:
        """Read distinct numbers up to `most`, in ascending order."""
        numbers, before = [], -1
        for _ in range(self._count(1)):
            before += self.uint(most) + 1
            if before > most:
                raise self._error(before, f"numbers up to {most}")
            numbers.append(before)
        return numbers

    def end(self) -> None:
        """Refuse remaining bytes."""
        if self.left:
            raise self._error(f"{self.left} bytes left", "the end")

    def _count(self, least: int) -> int:
        count = self.uint()
        if count * least > self.left:
            raise self._error(f"{self.left} bytes left", f"{count} values")
        return count

    def _error(self, found: object, expected: str) -> ProtocolError:
        return ProtocolError(self.path, found=found, expected=f"{expected} at offset {self._at}")


def deflate(body: bytes) -> bytes:
    """Return the length of `body` and its compressed bytes: see `inflate`."""
    return Writer().uint(len(body)).take() + zlib.compress(body, 6)


def inflate(data: bytes, path: str, limit: int = LIMIT) -> bytes:
    """Return the body that `deflate` compressed. Errors: `ProtocolError` for other bytes, and for more than `limit`.

    >>> inflate(deflate(b"a" * 1000), "body") == b"a" * 1000
    True
    """
    reader = Reader(data, path)
    length = reader.uint(limit)
    packed = data[len(data) - reader.left :]
    if length > len(packed) * _BEST_RATIO:
        raise ProtocolError(path, found=f"{len(packed)} bytes", expected=f"{length} bytes, compressed")
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(packed, length + 1)  # one byte more shows that the body is too long
    except zlib.error as error:
        raise ProtocolError(path, found=str(error), expected="compressed bytes") from None
    if len(body) != length or not unpacker.eof or unpacker.unused_data:
        raise ProtocolError(path, found=f"{len(body)} bytes or more", expected=f"{length} bytes, compressed")
    return body


def seal(kind: int, body: bytes, *, compress: bool = True) -> bytes:
    """Return a frame. The body is compressed if that makes it smaller, unless `compress` is false.

    >>> unseal(seal(7, b"body"))
    (7, b'body')
    """
    packed = deflate(body) if compress and len(body) >= WORTH_IT else body
    deflated = len(packed) < len(body)
    head = _MAGIC + bytes((VERSION, kind, _DEFLATED if deflated else 0))
    frame = head + (packed if deflated else body)
    return frame + zlib.crc32(frame).to_bytes(4, "big")


def unseal(frame: bytes, limit: int = LIMIT) -> tuple[int, bytes]:
    """Return the kind and the body of a frame. Errors: `ProtocolError` for a damaged or too large frame."""
    if len(frame) < 9 or frame[:2] != _MAGIC:
        raise ProtocolError("frame", found=f"{len(frame)} bytes", expected="a frame that begins with 'tg'")
    if frame[2] != VERSION:
        raise UnknownVersion("frame", version=frame[2], known=VERSION)
    if zlib.crc32(frame[:-4]) != int.from_bytes(frame[-4:], "big"):
        raise ProtocolError("frame", found="another checksum", expected="the checksum of its bytes")
    kind, flags, body = frame[3], frame[4], frame[5:-4]
    if flags > _DEFLATED:
        raise ProtocolError("frame", found=f"flags {flags}", expected="0 or 1")
    if len(body) > limit:
        raise ProtocolError("frame", found=f"{len(body)} bytes", expected=f"at most {limit}")
    return kind, inflate(body, "frame", limit) if flags else body
