"""Counts the bad records among a task's rows: those of a source that could not be decoded, and became dead letters.

A row of such a record has a struct in the column `DEAD_LETTER`, which is null for a good record. All other columns with
that name are the user's own, and are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

#: The column with the dead letter of a bad record.
DEAD_LETTER = "dead_letter"
#: The fields of a dead letter: the reason, and the record as it was.
LETTER_FIELDS = ("reason", "key", "value", "topic", "partition", "offset", "timestamp", "headers")


def bad_records(rows: Mapping[str, pa.Table]) -> dict[str, int]:
    """Return the number of bad records of each topic that has any.

    >>> letter = pa.array([None, {"reason": "JSON"}], pa.struct([(name, pa.string()) for name in LETTER_FIELDS]))
    >>> bad_records({"a": pa.table({"dead_letter": letter}), "b": pa.table({"dead_letter": ["a user's own"]})})
    {'a': 1}
    """
    found = {}
    for topic, table in rows.items():
        if DEAD_LETTER not in table.column_names:
            continue
        letters = table[DEAD_LETTER]
        if pa.types.is_struct(letters.type) and tuple(letters.type.names) == LETTER_FIELDS:
            found[topic] = len(letters) - letters.null_count
    return {topic: number for topic, number in found.items() if number}
