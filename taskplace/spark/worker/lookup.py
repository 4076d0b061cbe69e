"""Reads a store on the executor that has the copy: some keys, or the whole store into a file. Changes nothing."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import lmdb
import pyarrow as pa
import pyarrow.parquet as pq

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.files import pieces, private_directory
from taskplace.spark.messages import Answer, Question
from taskplace.spark.state.rows import codec_of
from taskplace.spark.state.store import SCAN_BYTES, SCAN_ROWS, StoreSchema
from taskplace.spark.state.transaction import View
from taskplace.spark.worker import identity


def answer_all(schema: StoreSchema, elements: Iterable[bytes]) -> Iterator[bytes]:
    """Answer the questions of one Spark partition."""
    for data in elements:
        yield answer(schema, Question.decode(bytes(data))).encode()


def answer(schema: StoreSchema, question: Question) -> Answer:
    """Read this executor's copy of a task."""
    home = identity.home(Path(question.state_root), question.spark_app)
    try:
        with View(home / str(question.task), schema.database, question.history) as view:
            if question.keys is not None:
                values = _unexpired(schema, question.keys, view.get_many(question.keys), question.watermark)
                return Answer(question.task, view.position, values)
            file = Path(f"{question.file}-{uuid.uuid4().hex}.parquet")  # Spark may run this twice
            _write(schema, view, file, question.watermark)
            return Answer(question.task, view.position, file=str(file))
    except (CheckpointError, lmdb.Error) as error:
        return Answer(question.task, None, error=str(error))


def _unexpired(
    schema: StoreSchema, keys: Sequence[bytes], values: Sequence[bytes | None], watermark: int | None
) -> tuple[bytes | None, ...]:
    entries = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
    stale = schema.expired(
        codec_of(schema.key).decode([key for key, _ in entries]),
        codec_of(schema.value).decode([value for _, value in entries]),
        watermark,
    )
    gone = {key for (key, _), old in zip(entries, stale, strict=True) if old}
    return tuple(None if key in gone else value for key, value in zip(keys, values, strict=True))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write(schema: StoreSchema, view: View, file: Path, watermark: int | None) -> None:
    keys, values = codec_of(schema.key), codec_of(schema.value)
    columns = pa.schema([*schema.key, *schema.value])
    private_directory(file.parent)
    with open(file, "xb", opener=_private) as out, pq.ParquetWriter(out, columns) as writer:
        for chunk in pieces(schema.database, view.scan(), SCAN_ROWS, SCAN_BYTES):
            key_table = keys.decode([key for key, _ in chunk])
            value_table = values.decode([value for _, value in chunk])
            table = pa.table([*key_table.columns, *value_table.columns], schema=columns)
            table = table.filter(pa.array(~schema.expired(key_table, value_table, watermark)))
            writer.write_table(table)
