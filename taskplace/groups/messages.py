"""The messages of a group, their bytes, and its errors.

    member -> coordinator   Join (phase 1)   Sync (phase 2, the leader's)   Heartbeat   Leave
    coordinator -> member   Joined           Ack

`Joined` answers a join with the outcome of the rebalance. In the mode EVERY, it lists all members with their metadata.
In the mode SINGLE there are two roles, as in the proposal: first the leader alone gets all metadata (`LEADER`), and
after its `Sync` all members get their own state (`MEMBER`). The other members wait meanwhile.

Every request has a `sequence`, which grows by one with each message of a member, also with repetitions. Answers have
the highest sequence that the coordinator has received. So a member knows *when* it sent the last message that arrived,
and when its session ends. A repeated join keeps its number `join`.

Bytes: the type of a field says how it is written. Numbers are unsigned LEB128 (numbers below 128 take one byte).
Strings are UTF-8 with their length before them. Lists have their count before them. A frame is the unit that is sent
over a connection:

    "tg"  version  kind  flags  [length when inflated]  body  crc32
     2       1       1     1          0 or 1-10          n      4     bytes

Properties:
- `Reader` raises only `ProtocolError`, for any bytes. It reads each byte at most once. It allocates at most a small
  multiple of the remaining bytes, because it compares each count and length with these first.
- A value has exactly one encoding, so equal values are equal bytes and vice versa. Superfluous zero bytes in a number,
  a flag that is neither 0 nor 1, and bytes after the end are refused.
- A compressed body is inflated up to its declared length and not further. The declared length is limited by `LIMIT` and
  by the best ratio that deflate can reach.

Errors:

    TaskplaceError
    └── GroupError
        ├── ProtocolError         bytes that are not a message or metadata of this protocol
        │   └── UnknownVersion    a version that is newer than the newest known one
        ├── GroupFailed           the group refused this member, or its leader could not assign: final for the member
        └── StaleGeneration       work of a generation that is not in force, or of a process that is not a member

Source: "JoinGroup Request", "JoinGroup Response", "Single Client Assignor" and "Compression" in the client-side
assignment proposal.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar, get_type_hints

from taskplace.errors import TaskplaceError

T = TypeVar("T")

VERSION = 1  # of the frame and of the messages in it
LIMIT = 64 * 2**20  # bytes of one body, inflated
WORTH_IT = 128  # bytes; shorter bodies are sent uncompressed
GENERATION = 2**53  # the largest generation on the wire, far below the largest number
_MAGIC = b"tg"
_BEST_RATIO = 1032  # the best ratio that deflate can reach
_MOST = 2**64


class Code(IntEnum):
    """The outcome of a request, with Kafka's names and numbers if Kafka has the code.

    >>> Code.REBALANCE_IN_PROGRESS.value
    27
    """

    NONE = 0
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_REQUEST = 42
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    # Kafka has no codes for these.
    ASSIGNMENT_FAILED = 1001
    METADATA_DISAGREEMENT = 1002
    TOPICS_UNAVAILABLE = 1003


class GroupError(TaskplaceError):
    """The base of all errors of a group."""


class ProtocolError(GroupError):
    """Bytes that cannot be read. The message has the path, the value and the expectation.

    >>> raise ProtocolError("join.group", found="3 bytes left", expected="a string of 9 bytes")
    Traceback (most recent call last):
    taskplace.groups.messages.ProtocolError: join.group: found 3 bytes left, expected a string of 9 bytes
    """

    def __init__(self, path: str, *, found: object, expected: str) -> None:
        self.path = path
        self.found = found
        self.expected = expected
        super().__init__(f"{path}: found {found}, expected {expected}")

    def of(self, sender: str) -> ProtocolError:
        """Return the error with the name of the member that sent the bytes, for whoever reads the log."""
        return ProtocolError(f"members[{sender!r}].{self.path}", found=self.found, expected=self.expected)


class UnknownVersion(ProtocolError):
    """A version that is newer than the newest known one. `version` and `known` have the two numbers."""

    def __init__(self, path: str, *, version: int, known: int) -> None:
        self.version = version
        self.known = known
        super().__init__(path, found=f"version {version}", expected=f"one up to {known}")


class GroupFailed(GroupError):
    """The membership has ended, and another join would not help. `code` has the reason.

    >>> raise GroupFailed(Code.FENCED_INSTANCE_ID, "'db-1' has been taken over")
    Traceback (most recent call last):
    taskplace.groups.messages.GroupFailed: FENCED_INSTANCE_ID: 'db-1' has been taken over
    """

    def __init__(self, code: Code, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"{code.name}: {detail}")


class StaleGeneration(GroupError):
    """Work that must not be committed: its generation is not in force, or it does not come from a member."""


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
            raise self._error(f"{value}", f"a number up to {most}, in its shortest form")
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

    def many(self, read: Callable[[], T]) -> list[T]:
        """Read a list of values that take at least a byte each."""
        return [read() for _ in range(self._count())]

    def rising(self, read: Callable[[], T], key: Callable[[T], Any] = lambda value: value) -> list[T]:
        """Read a list as `many` does. Refuse it if it is not sorted by key, or has a key twice."""
        values = self.many(read)
        for a, b in itertools.pairwise(map(key, values)):
            if not a < b:
                raise self._error(
                    f"{str(b)[:40]!r} after {str(a)[:40]!r}", "a sorted list without duplicates"
                )
        return values

    def ascending(self, most: int = 2**31 - 1) -> list[int]:
        """Read distinct numbers up to `most`, in ascending order."""
        numbers, before = [], -1
        for _ in range(self._count()):
            before += self.uint(most) + 1
            if before > most:
                raise self._error(before, f"numbers up to {most}")
            numbers.append(before)
        return numbers

    def rest(self) -> bytes:
        """Return the bytes that are not read yet."""
        return self._data[self._at :]

    def end(self) -> None:
        """Refuse remaining bytes."""
        if self.left:
            raise self._error(f"{self.left} bytes left", "the end")

    def _count(self) -> int:
        count = self.uint()
        if count > self.left:
            raise self._error(f"{self.left} bytes left", f"{count} values")
        return count

    def _error(self, found: object, expected: str) -> ProtocolError:
        return ProtocolError(self.path, found=found, expected=f"{expected} at offset {self._at}")


def pack(body: bytes, *, compress: bool = True) -> tuple[bool, bytes]:
    """Return whether the body is worth compressing, and it then compressed (see `inflate`), else as it is."""
    if compress and len(body) >= WORTH_IT:
        packed = Writer().uint(len(body)).take() + zlib.compress(body, 6)
        if len(packed) < len(body):
            return True, packed
    return False, body


def inflate(data: bytes, path: str, limit: int = LIMIT) -> bytes:
    """Return the body that `pack` compressed. Errors: `ProtocolError` for other bytes, and for more than `limit`.

    >>> inflate(pack(b"a" * 1000)[1], "body") == b"a" * 1000
    True
    """
    reader = Reader(data, path)
    length = reader.uint(limit)
    packed = reader.rest()
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


# ------------------------------------------------------------------------------------------- types of fields


class Wire(NamedTuple):
    """How a field is written and read: the annotation of its type."""

    write: Callable[[Writer, Any], object]
    read: Callable[[Reader], Any]


def _code(reader: Reader) -> Code:
    number = reader.uint(_I32)
    try:
        return Code(number)
    except ValueError:
        raise ProtocolError(reader.path, found=f"code {number}", expected="a known code") from None


_I32 = 2**31 - 1
Text = Annotated[str, Wire(Writer.text, Reader.text)]
Blob = Annotated[bytes, Wire(Writer.blob, Reader.blob)]
Number = Annotated[int, Wire(Writer.uint, Reader.uint)]
Int32 = Annotated[int, Wire(Writer.uint, lambda r: r.uint(_I32))]
Generation = Annotated[int, Wire(Writer.uint, lambda r: r.uint(GENERATION))]
OfCode = Annotated[Code, Wire(Writer.uint, _code)]
Blobs = Annotated[
    tuple[tuple[str, bytes], ...],
    Wire(
        lambda w, pairs: w.many(sorted(pairs), lambda pair: w.text(pair[0]).blob(pair[1])),
        lambda r: tuple(r.rising(lambda: (r.text(), r.blob()), key=lambda pair: pair[0])),
    ),
]


@functools.cache
def wires(kind: type[Any]) -> Mapping[str, Wire]:
    """Return the fields of a dataclass that are sent, in the order in which they are."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        f.name: hints[f.name].__metadata__[0] for f in fields(kind) if hasattr(hints[f.name], "__metadata__")
    }


# ------------------------------------------------------------------------------------------------- messages


class Mode(IntEnum):
    """Which members assign: EVERY member computes its own part from the full list, or a SINGLE one assigns for all."""

    EVERY = 0
    SINGLE = 1


class Role(IntEnum):
    """What the receiver of a `Joined` shall do: take its assignment, or first assign for the whole group."""

    MEMBER = 0
    LEADER = 1


@dataclass(frozen=True, slots=True)
class Offer:
    """A protocol that a member supports, with the member's metadata for it. Members list them by preference."""

    name: Text
    version: Int32 = 0
    metadata: Blob = b""

    @property
    def pair(self) -> tuple[str, int]:
        """The protocol: its name and version."""
        return self.name, self.version


# Lambdas in annotations do not see this module, so types of fields have names.
OfMode = Annotated[Mode, Wire(Writer.uint, lambda r: Mode(r.uint(1)))]
OfRole = Annotated[Role, Wire(Writer.uint, lambda r: Role(r.uint(1)))]
Offers = Annotated[
    tuple[Offer, ...],
    Wire(
        lambda w, offers: w.many(offers, lambda offer: _write(w, offer)),
        lambda r: tuple(r.many(lambda: _read(r, Offer))),
    ),
]


@dataclass(frozen=True, slots=True)
class _Message:
    group: Text
    member_id: Text
    sequence: Number


@dataclass(frozen=True, slots=True)
class Join(_Message):
    """Phase 1: a member asks to join, with the protocols that it supports.

    - `member_id`: chosen by the member, new for each start
    - `instance_id`: the same for each start (static membership), or ""
    - `join`: the number of the join; a repetition has the same number
    - `session_ms`, `rebalance_ms`: `session.timeout.ms` and `max.poll.interval.ms`
    - `newest`: the newest metadata version that it knows; members with the newest are preferred as leaders
    - `generation`: the newest generation that it knows; a coordinator with an older one continues from it
    """

    instance_id: Text
    join: Number
    session_ms: Int32
    rebalance_ms: Int32
    mode: OfMode
    protocol_type: Text
    newest: Int32
    generation: Generation
    offers: Offers


@dataclass(frozen=True, slots=True)
class Sync(_Message):
    """Phase 2: the leader's result, a state for each name; or the `code` and `detail` of its error."""

    generation: Generation
    code: OfCode
    detail: Text
    states: Blobs


@dataclass(frozen=True, slots=True)
class Heartbeat(_Message):
    """The member is alive and works in `generation`."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class Leave(_Message):
    """The member leaves. Its partitions may go to others at once."""


@dataclass(frozen=True, slots=True)
class Joined(_Message):
    """The outcome of a rebalance. `name`: the receiver's name in the group; `leader`: the leader's name, or ""."""

    join: Number
    code: OfCode
    detail: Text = ""
    generation: Generation = 0
    protocol: Text = ""
    version: Int32 = 0
    role: OfRole = Role.MEMBER
    name: Text = ""
    leader: Text = ""
    members: Blobs = ()
    state: Blob = b""


@dataclass(frozen=True, slots=True)
class Ack(_Message):
    """The answer to any other request, with the request's `generation`."""

    generation: Generation
    code: OfCode
    detail: Text = ""


Request: TypeAlias = Join | Sync | Heartbeat | Leave
Response: TypeAlias = Joined | Ack
Message: TypeAlias = Request | Response

# The position in this list is the kind on the wire: append entries, never reorder them.
_KINDS: tuple[type[Message], ...] = (Join, Sync, Heartbeat, Leave, Joined, Ack)


def encode(message: Message, *, compress: bool = True) -> bytes:
    """Return the frame of a message.

    >>> frame = encode(Heartbeat("orders", "m1", 5, 3))
    >>> len(frame), decode(frame)
    (21, Heartbeat(group='orders', member_id='m1', sequence=5, generation=3))
    """
    return seal(_KINDS.index(type(message)), _write(Writer(), message).take(), compress=compress)


def decode(frame: bytes) -> Message:
    """Return the message in a frame. Errors: `ProtocolError` if the frame has no valid message."""
    return decode_body(*unseal(frame))


def decode_body(kind: int, body: bytes) -> Message:
    """Return the message of this kind in `body`, the content of a frame."""
    if kind >= len(_KINDS):
        raise ProtocolError("frame", found=f"kind {kind}", expected=f"one below {len(_KINDS)}")
    reader = Reader(body, _KINDS[kind].__name__.lower())
    message: Message = _read(reader, _KINDS[kind])
    reader.end()
    return message


def _write(writer: Writer, value: Any) -> Writer:
    for name, wire in wires(value.__class__).items():
        wire.write(writer, getattr(value, name))
    return writer


def _read(reader: Reader, kind: type) -> Any:
    return kind(**{name: wire.read(reader) for name, wire in wires(kind).items()})


def seal(kind: int, body: bytes, *, compress: bool = True) -> bytes:
    """Return a frame. The body is compressed if that makes it smaller, unless `compress` is false.

    >>> unseal(seal(7, b"body"))
    (7, b'body')
    """
    deflated, packed = pack(body, compress=compress)
    frame = _MAGIC + bytes((VERSION, kind, deflated)) + packed
    return frame + zlib.crc32(frame).to_bytes(4, "big")


def unseal(frame: bytes, limit: int = LIMIT) -> tuple[int, bytes]:
    """Return the kind and the body of a frame. Errors: `ProtocolError` for a damaged or too large frame."""
    if len(frame) < 9 or frame[:2] != _MAGIC:
        raise ProtocolError("frame", found=f"{len(frame)} bytes", expected="a frame that begins with 'tg'")
    if frame[2] != VERSION:
        raise UnknownVersion("frame", version=frame[2], known=VERSION)
    if zlib.crc32(frame[:-4]) != int.from_bytes(frame[-4:], "big"):
        raise ProtocolError("frame", found="another checksum", expected="the checksum of its bytes")
    kind, deflated, body = frame[3], frame[4], frame[5:-4]
    if deflated > 1:
        raise ProtocolError("frame", found=f"flags {deflated}", expected="0 or 1")
    if len(body) > limit:
        raise ProtocolError("frame", found=f"{len(body)} bytes", expected=f"at most {limit}")
    return kind, inflate(body, "frame", limit) if deflated else body
