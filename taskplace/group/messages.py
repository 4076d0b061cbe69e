"""The messages of the protocol, and their bytes.

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

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from taskplace.groups.messages import GENERATION, Code, ProtocolError, Reader, Writer, seal, unseal

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
