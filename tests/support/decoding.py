"""The rows and the dead letters of records, as the processors of a topology tell them apart."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from taskplace.spark.kafka.dead_letters import DeadLetters, GoodRecords
from taskplace.spark.kafka.decoding import DEAD_LETTERS, Decoder


class Decoded(NamedTuple):
    """A table of each."""

    rows: pa.Table
    dead_letters: pa.Table


def decode(decoder: Decoder, records: pa.Table) -> Decoded:
    """Return the rows and the dead letters of records, each in their order."""
    frame = decoder.frame(records)
    if decoder.bad_records == "stop":
        return Decoded(frame, DEAD_LETTERS.empty_table())
    return Decoded(GoodRecords().process(None, frame), DeadLetters().process(None, frame))
