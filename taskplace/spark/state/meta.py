"""The metadata of a copy: one record in its environment, written with every transaction that changes the copy."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import psutil
from msgspec import structs

from taskplace.spark.messages import FORMAT, Meta
from taskplace.spark.state.keys import DamagedEntry, checked, verified

MAX_STORES = 64
#: The database of the metadata and the undo record, and their keys.
META, POSITION, UNDO = b"meta", b"position", b"undo"


@cache
def boot_id() -> str:
    """Return the id of the host's current boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"boot-{int(psutil.boot_time())}"


def encode_meta(meta: Meta) -> bytes:
    """Return the record with the current boot and format, and its checksum."""
    return checked(POSITION, structs.replace(meta, boot=boot_id(), format=FORMAT).encode())


def decode_meta(raw: bytes) -> Meta | None:
    """Return a copy's metadata; None if the record is damaged, or is of another boot or another format."""
    try:
        meta = Meta.decode(verified(POSITION, raw))
    except (DamagedEntry, ValueError):
        return None
    return meta if meta.boot == boot_id() and meta.format == FORMAT else None
