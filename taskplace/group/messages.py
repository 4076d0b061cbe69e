"""The messages of the protocol, and their bytes.

    member -> coordinator   Join (phase 1)   Sync (phase 2, the leader's)   Heartbeat   Leave
    coordinator -> member   Joined           Ack

`Joined` answers a join, once: it carries the outcome of a rebalance. In the mode EVERY it lists all members
with their metadata. In the mode SINGLE it comes in two roles, as in the text: to the leader alone with all
metadata (`LEADER`), and, when the leader has sent `Sync`, to everybody with the own state. Followers wait for
it in between; there is nothing to ask.

Every request has a `sequence`, one higher with each message that a member sends, repeats included. Answers
carry the highest one that the coordinator had heard: so a member knows *when* the coordinator last heard from
it, and how long its session lasts. A repeated join keeps its number `join`.

Source: "JoinGroup Request", "JoinGroup Response", "Single Client Assignor" in the client-side assignment proposal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from taskplace.group.errors import Code, ProtocolError
from taskplace.group.wire import GENERATION, Reader, Writer, seal, unseal

_I32 = 2**31 - 1


class Mode(IntEnum):
    """Who assigns: every member for itself from the full list, or one member for all."""

    EVERY = 0
    SINGLE = 1


class Role(IntEnum):
    """What a `Joined` asks of its receiver: to take its part, or to assign for the whole group first."""

    MEMBER = 0
    LEADER = 1


@dataclass(frozen=True, slots=True)
class Offer:
    """A protocol that a member supports, with its metadata for it; members list them by preference."""

    name: str
    version: int = 0
    metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class Join:
    """Phase 1: here I am, this is what I support.

    `member_id` is chosen by the member and new with each of its lives; `instance_id`, if any, stays (static
    membership). `newest` is the newest metadata version that it knows: members that know more are preferred as
    leaders. `generation` is the newest one it has heard of: a coordinator that knows less goes on from there.
    Times in ms.
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
    """Phase 2: the leader's result, a state for each name; or `code` and `detail` of why there is none."""

    group: str
    member_id: str
    sequence: int
    generation: int
    code: Code
    detail: str
    states: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Still here, working in `generation`."""

    group: str
    member_id: str
    sequence: int
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Goodbye; what is mine may be given to others at once."""

    group: str
    member_id: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The outcome of a rebalance; `name` is the receiver's name in the group, `leader` that of the leader."""

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
    """The answer to every other request; `generation` repeats the one that the request spoke of."""

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
    """Return the message in a frame; `ProtocolError` if there is none."""
    return decode_body(*unseal(frame))


def decode_body(kind: int, body: bytes) -> Message:
    """Return the message of a kind from its body, the frame already taken off."""
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
    # Arguments are evaluated in the order in which they are written here, which is that on the wire.
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


# The place in this list is the kind on the wire: append, never reorder.
_KINDS: tuple[tuple[type[Message], Callable[..., None], Callable[..., Message]], ...] = (
    (Join, _write_join, _read_join),
    (Sync, _write_sync, _read_sync),
    (Heartbeat, _write_heartbeat, _read_heartbeat),
    (Leave, _write_leave, _read_leave),
    (Joined, _write_joined, _read_joined),
    (Ack, _write_ack, _read_ack),
)
