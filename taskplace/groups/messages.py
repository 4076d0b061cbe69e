"""The messages of a group, their bytes, and its errors.

    member -> coordinator   Join (phase 1)   Sync (phase 2, the leader's)   Heartbeat   Leave
    coordinator -> member   Joined           Ack

`Joined` answers a join with the outcome of the rebalance. In the mode EVERY, it lists all members with their metadata.
In the mode SINGLE there are two roles, as in the proposal: first the leader alone gets all metadata (`LEADER`), and
after its `Sync` all members get their own state (`MEMBER`). The other members wait meanwhile.

Every request has a `sequence`, which grows by one with each message of a member, also with repetitions. Answers have
the highest sequence that the coordinator has received. So a member knows *when* it sent the last message that arrived,
and when its session ends. A repeated join keeps its number `join`.

Bytes: a message is an array of MessagePack: its class, then its fields, in their order. New fields are appended, with
a default: an older reader ignores them. A frame is the unit that is sent over a connection:

    "tg"  version  deflated  body  crc32
     2       1        1       n      4     bytes

Properties: reading raises only `ProtocolError`, for any bytes. A body is inflated up to `LIMIT` bytes and not further.

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

import zlib
from enum import IntEnum
from typing import Annotated, TypeAlias, TypeVar

from msgspec import Meta, MsgspecError, Struct, msgpack

from taskplace.errors import TaskplaceError

T = TypeVar("T")

VERSION = 1  # of the frame
LIMIT = 64 * 2**20  # bytes of one body, inflated
WORTH_IT = 128  # bytes; shorter bodies are sent uncompressed
_MAGIC = b"tg"

Number = Annotated[int, Meta(ge=0)]
MOST_32 = 2**31 - 1
Int32 = Annotated[int, Meta(ge=0, le=MOST_32)]
Positive32 = Annotated[int, Meta(ge=1, le=MOST_32)]
Generation = Annotated[int, Meta(ge=0, le=2**53)]


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

    >>> raise ProtocolError("frame", found="3 bytes", expected="a frame that begins with 'tg'")
    Traceback (most recent call last):
    taskplace.groups.messages.ProtocolError: frame: found 3 bytes, expected a frame that begins with 'tg'
    """

    def __init__(self, path: str, *, found: object, expected: str) -> None:
        super().__init__(f"{path}: found {found}, expected {expected}")


class UnknownVersion(ProtocolError):
    """A version that is newer than the newest known one."""

    def __init__(self, path: str, *, version: int, known: int) -> None:
        super().__init__(path, found=f"version {version}", expected=f"one up to {known}")


class GroupFailed(GroupError):
    """The membership has ended, and another join would not help. `code` has the reason.

    >>> raise GroupFailed(Code.FENCED_INSTANCE_ID, "'db-1' has been taken over")
    Traceback (most recent call last):
    taskplace.groups.messages.GroupFailed: FENCED_INSTANCE_ID: 'db-1' has been taken over
    """

    def __init__(self, code: Code, detail: str) -> None:
        self.code = code
        super().__init__(f"{code.name}: {detail}")


class StaleGeneration(GroupError):
    """Work that must not be committed: its generation is not in force, or it does not come from a member."""


# ------------------------------------------------------------------------------------------------- messages


class Mode(IntEnum):
    """Which members assign: EVERY member computes its own part from the full list, or a SINGLE one assigns for all."""

    EVERY = 0
    SINGLE = 1


class Role(IntEnum):
    """What the receiver of a `Joined` shall do: take its assignment, or first assign for the whole group."""

    MEMBER = 0
    LEADER = 1


class Offer(Struct, frozen=True, array_like=True):
    """A protocol that a member supports, with the member's metadata for it. Members list them by preference."""

    name: str
    version: Int32 = 0
    metadata: bytes = b""

    @property
    def pair(self) -> tuple[str, int]:
        """The protocol: its name and version."""
        return self.name, self.version


class _Message(Struct, frozen=True, array_like=True, tag=True):
    group: str
    member_id: str
    sequence: Number


class Join(_Message, frozen=True):
    """Phase 1: a member asks to join, with the protocols that it supports.

    - `member_id`: chosen by the member, new for each start
    - `instance_id`: the same for each start (static membership), or ""
    - `join`: the number of the join; a repetition has the same number
    - `session_ms`, `rebalance_ms`: `session.timeout.ms` and `max.poll.interval.ms`
    - `newest`: the newest metadata version that it knows; members with the newest are preferred as leaders
    - `generation`: the newest generation that it knows; a coordinator with an older one continues from it
    """

    instance_id: str
    join: Number
    session_ms: Int32
    rebalance_ms: Int32
    mode: Mode
    protocol_type: str
    newest: Int32
    generation: Generation
    offers: tuple[Offer, ...]


class Sync(_Message, frozen=True):
    """Phase 2: the leader's result, a state for each name; or the `code` and `detail` of its error."""

    generation: Generation
    code: Code
    detail: str
    states: dict[str, bytes]


class Heartbeat(_Message, frozen=True):
    """The member is alive and works in `generation`."""

    generation: Generation


class Leave(_Message, frozen=True):
    """The member leaves. Its partitions may go to others at once."""


class Joined(_Message, frozen=True):
    """The outcome of a rebalance for one member.

    - `join`: the number of the join that it answers
    - `protocol`, `version`: the chosen protocol
    - `name`: the member's own name
    - `leader`: the name of the leader (mode SINGLE)
    - `members`: all members' metadata for the chosen protocol, by name; only in the mode EVERY, and for the leader
    - `state`: the leader's result for this member
    """

    join: Number = 0
    code: Code = Code.NONE
    detail: str = ""
    generation: Generation = 0
    protocol: str = ""
    version: Int32 = 0
    role: Role = Role.MEMBER
    name: str = ""
    leader: str = ""
    members: dict[str, bytes] = {}
    state: bytes = b""


class Ack(_Message, frozen=True):
    """The answer to any other request, with the request's `generation`."""

    generation: Generation
    code: Code
    detail: str = ""


Request: TypeAlias = Join | Sync | Heartbeat | Leave
Response: TypeAlias = Joined | Ack
Message: TypeAlias = Request | Response

_MESSAGE: msgpack.Decoder[Message] = msgpack.Decoder(Message)


# ---------------------------------------------------------------------------------------------------- bytes


def encode(message: Message, *, compress: bool = True) -> bytes:
    """Return the frame of a message. It is compressed if that makes it smaller, unless `compress` is false.

    >>> decode(encode(Heartbeat("orders", "m1", 5, 3)))
    Heartbeat(group='orders', member_id='m1', sequence=5, generation=3)
    """
    frame = _MAGIC + bytes((VERSION,)) + pack(msgpack.encode(message), compress=compress)
    return frame + zlib.crc32(frame).to_bytes(4, "big")


def decode(frame: bytes) -> Message:
    """Return the message in a frame. Errors: `ProtocolError` if the frame has no valid message."""
    if len(frame) < 8 or frame[:2] != _MAGIC:
        raise ProtocolError("frame", found=f"{len(frame)} bytes", expected="a frame that begins with 'tg'")
    if frame[2] != VERSION:
        raise UnknownVersion("frame", version=frame[2], known=VERSION)
    if zlib.crc32(frame[:-4]) != int.from_bytes(frame[-4:], "big"):
        raise ProtocolError("frame", found="another checksum", expected="the checksum of its bytes")
    return read(_MESSAGE, unpack(frame[3:-4], "frame"), "message")


def read(decoder: msgpack.Decoder[T], data: bytes, path: str) -> T:
    """Return the value in `data`. Errors: `ProtocolError` for any other bytes."""
    try:
        return decoder.decode(data)
    except (MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(path, found=data[:40], expected=f"bytes of this protocol: {error}") from None


def pack(body: bytes, *, compress: bool = True) -> bytes:
    """Return the body after a byte that tells whether it is deflated: if that makes it smaller, and `compress` is set.

    >>> unpack(pack(b"a" * 1000), "body") == b"a" * 1000
    True
    """
    deflated = zlib.compress(body, 6) if compress and len(body) >= WORTH_IT else body
    return b"\1" + deflated if len(deflated) < len(body) else b"\0" + body


def unpack(packed: bytes, path: str, limit: int = LIMIT) -> bytes:
    """Return the body that `pack` packed. Errors: `ProtocolError` for other bytes, and for more than `limit`."""
    kind, body = packed[:1], packed[1:]
    if kind == b"\1":
        unpacker = zlib.decompressobj()
        try:
            body = unpacker.decompress(body, limit + 1)
        except zlib.error as error:
            raise ProtocolError(path, found=str(error), expected="compressed bytes") from None
        if len(body) <= limit and (not unpacker.eof or unpacker.unused_data):
            raise ProtocolError(path, found="another end", expected="the end of the compressed bytes")
    elif kind != b"\0":
        raise ProtocolError(path, found=f"flags {kind!r}", expected="0 or 1")
    if len(body) > limit:
        raise ProtocolError(path, found="more bytes", expected=f"at most {limit}")
    return body
