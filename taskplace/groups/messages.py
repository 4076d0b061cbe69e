"""The errors of a group, as codes in messages and as exceptions.

TaskplaceError
└── GroupError
    ├── ProtocolError         bytes that are not a message or metadata of this protocol
    │   └── UnknownVersion    a version that is newer than the newest known one
    ├── GroupFailed           the group refused this member, or its leader could not assign: final for the member
    └── StaleGeneration       work of a generation that is not in force, or of a process that is not a member

Compact binary encoding of numbers, strings and lists, and frames around it.

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

The messages of the protocol, and their bytes.

    member -> coordinator   Join (phase 1)   Sync (phase 2, the leader's)   Heartbeat   Leave
    coordinator -> member   Joined           Ack

`Joined` answers a join with the outcome of the rebalance. In the mode EVERY, it lists all members with their metadata.
In the mode SINGLE there are two roles, as in the proposal: first the leader alone gets all metadata (`LEADER`), and
after its `Sync` all members get their own state (`MEMBER`). The other members wait meanwhile.

Every request has a `sequence`, which grows by one with each message of a member, also with repetitions. Answers have
the highest sequence that the coordinator has received. So a member knows *when* it sent the last message that arrived,
and when its session ends. A repeated join keeps its number `join`.

Source: "JoinGroup Request", "JoinGroup Response", "Single Client Assignor" in the client-side assignment proposal.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar

from taskplace.errors import TaskplaceError


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


_I32 = 2**31 - 1


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

    name: str
    version: int = 0
    metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class Join:
    """Phase 1: a member asks to join, with the protocols that it supports.

    - `member_id`: chosen by the member, new for each start
    - `instance_id`: the same for each start (static membership), or ""
    - `join`: the number of the join; a repetition has the same number
    - `session_ms`, `rebalance_ms`: `session.timeout.ms` and `max.poll.interval.ms`
    - `newest`: the newest metadata version that it knows; members with the newest are preferred as leaders
    - `generation`: the newest generation that it knows; a coordinator with an older one continues from it
    """

    group: str
    member_id: str
    instance_id: str
    sequence: int
    join: int
    session_ms: int
    rebalance_ms: int
    mode: Mode
    protocol_type: str
    newest: int
    generation: int
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True)
class Sync:
    """Phase 2: the leader's result, a state for each name; or the `code` and `detail` of its error."""

    group: str
    member_id: str
    sequence: int
    generation: int
    code: Code
    detail: str
    states: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The member is alive and works in `generation`."""

    group: str
    member_id: str
    sequence: int
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """The member leaves. Its partitions may go to others at once."""

    group: str
    member_id: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The outcome of a rebalance. `name`: the receiver's name in the group; `leader`: the leader's name, or ""."""

    group: str
    member_id: str
    sequence: int
    join: int
    code: Code
    detail: str = ""
    generation: int = 0
    protocol: str = ""
    version: int = 0
    role: Role = Role.MEMBER
    name: str = ""
    leader: str = ""
    members: tuple[tuple[str, bytes], ...] = ()
    state: bytes = b""


@dataclass(frozen=True, slots=True)
class Ack:
    """The answer to any other request, with the request's `generation`."""

    group: str
    member_id: str
    sequence: int
    generation: int
    code: Code
    detail: str = ""


Request: TypeAlias = Join | Sync | Heartbeat | Leave
Response: TypeAlias = Joined | Ack
Message: TypeAlias = Request | Response


def encode(message: Message, *, compress: bool = True) -> bytes:
    """Return the frame of a message.

    >>> frame = encode(Heartbeat("orders", "m1", 5, 3))
    >>> len(frame), decode(frame)
    (21, Heartbeat(group='orders', member_id='m1', sequence=5, generation=3))
    """
    writer = Writer().text(message.group).text(message.member_id).uint(message.sequence)
    _KINDS[_kind(message)][1](writer, message)
    return seal(_kind(message), writer.take(), compress=compress)


def decode(frame: bytes) -> Message:
    """Return the message in a frame. Errors: `ProtocolError` if the frame has no valid message."""
    return decode_body(*unseal(frame))


def decode_body(kind: int, body: bytes) -> Message:
    """Return the message of this kind in `body`, the content of a frame."""
    if kind >= len(_KINDS):
        raise ProtocolError("frame", found=f"kind {kind}", expected=f"one below {len(_KINDS)}")
    message_type, _, read = _KINDS[kind]
    reader = Reader(body, message_type.__name__.lower())
    message = read(reader, reader.text(), reader.text(), reader.uint())
    reader.end()
    return message


def _kind(message: Message) -> int:
    return next(k for k, (message_type, _, _) in enumerate(_KINDS) if type(message) is message_type)


def _code(reader: Reader) -> Code:
    number = reader.uint(_I32)
    try:
        return Code(number)
    except ValueError:
        raise ProtocolError(reader.path, found=f"code {number}", expected="a known code") from None


def _pairs(writer: Writer, pairs: tuple[tuple[str, bytes], ...]) -> None:
    writer.many(sorted(pairs), lambda pair: writer.text(pair[0]).blob(pair[1]))


def _read_pairs(reader: Reader) -> tuple[tuple[str, bytes], ...]:
    return tuple(reader.rising(lambda: (reader.text(), reader.blob()), least=2, key=lambda pair: pair[0]))


def _write_join(w: Writer, m: Join) -> None:
    w.text(m.instance_id).uint(m.join).uint(m.session_ms).uint(m.rebalance_ms).uint(m.mode)
    w.text(m.protocol_type).uint(m.newest).uint(m.generation)
    w.many(m.offers, lambda offer: w.text(offer.name).uint(offer.version).blob(offer.metadata))


def _read_join(r: Reader, group: str, member_id: str, sequence: int) -> Join:
    # Python evaluates arguments in the written order, which must be the order on the wire.
    return Join(
        group=group,
        member_id=member_id,
        sequence=sequence,
        instance_id=r.text(),
        join=r.uint(),
        session_ms=r.uint(_I32),
        rebalance_ms=r.uint(_I32),
        mode=Mode(r.uint(1)),
        protocol_type=r.text(),
        newest=r.uint(_I32),
        generation=r.uint(GENERATION),
        offers=tuple(r.many(lambda: Offer(r.text(), r.uint(_I32), r.blob()), least=3)),
    )


def _write_sync(w: Writer, m: Sync) -> None:
    w.uint(m.generation).uint(m.code).text(m.detail)
    _pairs(w, m.states)


def _read_sync(r: Reader, group: str, member_id: str, sequence: int) -> Sync:
    return Sync(
        group=group,
        member_id=member_id,
        sequence=sequence,
        generation=r.uint(GENERATION),
        code=_code(r),
        detail=r.text(),
        states=_read_pairs(r),
    )


def _write_heartbeat(w: Writer, m: Heartbeat) -> None:
    w.uint(m.generation)


def _read_heartbeat(r: Reader, group: str, member_id: str, sequence: int) -> Heartbeat:
    return Heartbeat(group, member_id, sequence, r.uint(GENERATION))


def _write_leave(w: Writer, m: Leave) -> None:
    return None


def _read_leave(r: Reader, group: str, member_id: str, sequence: int) -> Leave:
    return Leave(group, member_id, sequence)


def _write_joined(w: Writer, m: Joined) -> None:
    w.uint(m.join).uint(m.code).text(m.detail).uint(m.generation).text(m.protocol).uint(m.version)
    w.uint(m.role).text(m.name).text(m.leader)
    _pairs(w, m.members)
    w.blob(m.state)


def _read_joined(r: Reader, group: str, member_id: str, sequence: int) -> Joined:
    return Joined(
        group=group,
        member_id=member_id,
        sequence=sequence,
        join=r.uint(),
        code=_code(r),
        detail=r.text(),
        generation=r.uint(GENERATION),
        protocol=r.text(),
        version=r.uint(_I32),
        role=Role(r.uint(1)),
        name=r.text(),
        leader=r.text(),
        members=_read_pairs(r),
        state=r.blob(),
    )


def _write_ack(w: Writer, m: Ack) -> None:
    w.uint(m.generation).uint(m.code).text(m.detail)


def _read_ack(r: Reader, group: str, member_id: str, sequence: int) -> Ack:
    return Ack(
        group=group,
        member_id=member_id,
        sequence=sequence,
        generation=r.uint(GENERATION),
        code=_code(r),
        detail=r.text(),
    )


# The position in this list is the kind on the wire: append entries, never reorder them.
_KINDS: tuple[tuple[type[Message], Callable[..., None], Callable[..., Message]], ...] = (
    (Join, _write_join, _read_join),
    (Sync, _write_sync, _read_sync),
    (Heartbeat, _write_heartbeat, _read_heartbeat),
    (Leave, _write_leave, _read_leave),
    (Joined, _write_joined, _read_joined),
    (Ack, _write_ack, _read_ack),
)
