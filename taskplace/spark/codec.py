"""How messages are encoded: as JSON that is checked against their types, and sealed where no other file vouches for it.

A message is a frozen value. `encode` gives its JSON, `decode` takes nothing else: an unknown field, a missing one or
one of another type is an error that names its path. Task ids are text where they are keys (`{"0_3": ...}`), else pairs.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from taskplace.errors import CheckpointError
from topology.ids import TaskId

if TYPE_CHECKING:
    Task = TaskId
else:

    class Task(ABC):  # noqa: B024 - it has nothing but `TaskId` registered
        """The type of a task id that is a key. In JSON, keys are text, and a `TaskId` alone would be a pair."""

    Task.register(TaskId)


class Coded:
    """What messages can do."""

    __slots__ = ()

    def encode(self) -> bytes:
        """Return the message as JSON."""
        return _encoder.encode(self)

    @classmethod
    def decode(cls, data: bytes | str) -> Self:
        """Return the message that `encode` wrote. Errors: `ValueError` saying where (`$.a.b`) what was expected."""
        found: Self = decoded(cls, data)
        return found


class Message(Coded, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What crosses between processes, or lies in a file. Frozen; equal if all fields are.

    `msgspec.structs.replace(message, field=value)` gives another one.
    """


class Tally(Coded, msgspec.Struct, forbid_unknown_fields=True):
    """A message that its sender fills step by step; whoever gets it takes it as it is."""


def _text(value: object) -> str:
    """Return the text of a key; nothing else is left for this to be asked for."""
    if isinstance(value, TaskId):
        return str(value)
    raise NotImplementedError(f"a message cannot have a value of type {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_text)


def decoded(kind: Any, data: bytes | str) -> Any:
    """Return a value of any type that messages may have. Errors: as `Message.decode`.

    >>> decoded(dict[str, int], '{"a": "b"}')
    Traceback (most recent call last):
    ValueError: Expected `int`, got `str` - at `$[...]`
    """
    try:
        return _decoder(kind).decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def encoded(value: object) -> bytes:
    """Return the JSON of a value that has messages in it."""
    return _encoder.encode(value)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_task)


def _task(kind: type, raw: object) -> TaskId:
    """Return the task id that a key names: of all the types in messages, msgspec does not know `Task` alone."""
    return TaskId.parse(str(raw))


# -- files that no other file vouches for


def seal(data: Any) -> str:
    """Return the checksum of bytes: BLAKE2b, 128 bits, as hexadecimal digits."""
    return hashlib.blake2b(memoryview(data), digest_size=16).hexdigest()


class _Sealed(msgspec.Struct, forbid_unknown_fields=True):
    body: msgspec.Raw
    seal: str


def sealed(value: object, indent: int | None = None) -> bytes:
    """Return the JSON of a message, or of plain data, that carries its own checksum.

    >>> bytes(unsealed(sealed({"batch": 3})))
    b'{"batch":3}'
    """
    body = _canonical(encoded(value))
    found = seal(body)
    if indent is None:
        return b'{"body":%b,"seal":"%b"}' % (body, found.encode())
    return json.dumps({"body": json.loads(body), "seal": found}, indent=indent).encode()


def unsealed(data: bytes) -> bytes:
    """Return the JSON that was sealed. Errors: `ValueError` saying what is wrong with it."""
    found = decoded(_Sealed, data)
    body = bytes(found.body)
    # The checksum is that of the canonical form: of a file that is written otherwise it is made first.
    if seal(body) != found.seal and seal(body := _canonical(body)) != found.seal:
        raise ValueError("its checksum does not match")
    return body


def _canonical(body: bytes) -> bytes:
    """Return JSON in the one form that checksums are of: keys in order, no spaces, nothing but ASCII."""
    return json.dumps(decoded(Any, body), sort_keys=True, separators=(",", ":")).encode()


def damaged(path: Path, what: str, error: Exception) -> CheckpointError:
    """Return the error for a file of the checkpoint that cannot be read."""
    return CheckpointError(
        f"{path}: damaged {what} ({error}); restore it from a backup, or start a new checkpoint in another directory"
    )
