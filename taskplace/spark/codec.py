"""Encodes messages as JSON, and checks them against their types when they are read.

A message is a frozen value. `encode` returns its JSON, and `decode` accepts nothing else: an unknown field, a missing
field or a wrong type is an error with the field's path. Task ids are text as keys (`{"0_3": ...}`), and pairs
elsewhere. A file whose checksum no other file records is sealed: it carries its own checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from abc import ABC
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from typing_extensions import Self

from taskplace.errors import CheckpointError
from topology.tasks import TaskId

if TYPE_CHECKING:
    TaskKey = TaskId
else:

    class TaskKey(ABC):  # noqa: B024 - it has nothing but `TaskId` registered
        """The type of a task id used as a key. Keys are text in JSON, but msgspec would encode a `TaskId` as a pair."""

    TaskKey.register(TaskId)


class Coded:
    """Adds `encode` and `decode` to messages."""

    __slots__ = ()

    def encode(self) -> bytes:
        """Return the message as JSON."""
        return _encoder.encode(self)

    @classmethod
    def decode(cls, data: bytes | str) -> Self:
        """Return the message that `encode` wrote. Errors: `ValueError` with the path (`$.a.b`) and expected type."""
        message: Self = decoded(cls, data)
        return message


class Message(Coded, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that is sent between processes or stored in a file. Frozen; equal if all fields are equal.

    `msgspec.structs.replace(message, field=value)` returns a changed copy.
    """


class Tally(Coded, msgspec.Struct, forbid_unknown_fields=True):
    """A message that is mutable while its sender builds it. Receivers must not change it."""


def _text(value: object) -> str:
    """Return the JSON text of a `TaskId` key (msgspec's encoding hook)."""
    if isinstance(value, TaskId):
        return str(value)
    raise NotImplementedError(f"a message cannot have a value of type {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_text)


def decoded(kind: Any, data: bytes | str) -> Any:
    """Return a value of any type that a message field may have. Errors: as for `Message.decode`.

    >>> decoded(dict[str, int], '{"a": "b"}')
    Traceback (most recent call last):
    ValueError: Expected `int`, got `str` - at `$[...]`
    """
    try:
        return _decoder(kind).decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None


def encoded(value: object) -> bytes:
    """Return the JSON of a value that contains messages."""
    return _encoder.encode(value)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_task)


def _task(kind: type, raw: object) -> TaskId:
    """Return the task id of a key. This is msgspec's decoding hook: `TaskKey` is the only field type that it does not
    know.
    """
    return TaskId.parse(str(raw))


# -- sealed files: no other file records their checksum


def checksum_of(data: Any) -> str:
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
    checksum = checksum_of(body)
    if indent is None:
        return b'{"body":%b,"seal":"%b"}' % (body, checksum.encode())
    return json.dumps({"body": json.loads(body), "seal": checksum}, indent=indent).encode()


def unsealed(data: bytes) -> bytes:
    """Return the JSON that was sealed. Errors: `ValueError` with the reason."""
    envelope = decoded(_Sealed, data)
    body = bytes(envelope.body)
    # The checksum is that of the canonical form. Indented files are canonicalised before it is compared.
    if checksum_of(body) != envelope.seal and checksum_of(body := _canonical(body)) != envelope.seal:
        raise ValueError("its checksum does not match")
    return body


def seal(data: bytes) -> str:
    """Return the checksum that sealed JSON carries. Errors: `ValueError`, as for `unsealed`.

    >>> seal(sealed({"batch": 3})) == checksum_of(b'{"batch":3}')
    True
    """
    return checksum_of(_canonical(unsealed(data)))


def _canonical(body: bytes) -> bytes:
    """Return JSON in its canonical form, over which checksums are computed: sorted keys, no spaces, only ASCII."""
    return json.dumps(decoded(Any, body), sort_keys=True, separators=(",", ":")).encode()


def open_regular(path: Path) -> int:
    """Open a file for reading. Errors: `OSError`; `ValueError` for what is no file: a pipe would block its reader."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        if path.is_symlink():  # to nowhere
            raise ValueError("it is not a file") from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ValueError("it is not a file")
    return handle


def read_file(path: Path) -> bytes:
    """Return the bytes of a file. Errors: as for `open_regular`."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read()


def damaged(path: Path, what: str, error: Exception) -> CheckpointError:
    """Return the error for a file of the checkpoint that cannot be read."""
    return CheckpointError(
        f"{path}: damaged {what} ({error}); restore it from a backup, or start a new checkpoint in another directory"
    )
