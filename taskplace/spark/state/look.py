"""Reads where a copy is from outside: without opening it for writing, and without waiting for those who write to it."""

from __future__ import annotations

from pathlib import Path

import lmdb

from taskplace.spark.messages import Meta
from taskplace.spark.state import environment as warm
from taskplace.spark.state.environment import DATA, META, POSITION, Environment, check_length, decode_meta


def look(path: Path) -> Meta | None:
    """Return the metadata of the copy at `path`, None if it is missing, incomplete or unusable. Changes nothing."""
    if not (path / DATA).exists():
        return None
    try:
        with warm.WARM.borrow(path) as opened:
            raw = _meta_of(path) if opened is None else _meta_in(opened)
    except lmdb.Error:
        return None
    meta = None if raw is None else decode_meta(raw)
    return None if meta is None or meta.restoring is not None else meta


def _meta_in(environment: Environment) -> bytes | None:
    with environment.begin() as txn:
        return txn.get(POSITION, db=environment.databases[META])


def _meta_of(path: Path) -> bytes | None:
    with lmdb.open(str(path), readonly=True, max_dbs=1, lock=True) as env:
        check_length(env, path / DATA)
        env.reader_check()
        with env.begin() as txn:
            return txn.get(POSITION, db=env.open_db(META, txn=txn, create=False))
