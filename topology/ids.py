"""The name of a task: partition p of subtopology s, written "s_p"."""

from __future__ import annotations

from typing import NamedTuple


class TaskId(NamedTuple):
    """The unit that is placed: one partition of one subtopology.

    Immutable, hashable, ordered by subtopology and then by partition, as numbers: "0_10" comes after "0_9".

    >>> TaskId(0, 3), str(TaskId(0, 3))
    (TaskId(subtopology=0, partition=3), '0_3')
    >>> sorted([TaskId(1, 0), TaskId(0, 10), TaskId(0, 9)]) == [TaskId(0, 9), TaskId(0, 10), TaskId(1, 0)]
    True
    """

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self[0]}_{self[1]}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Return the id that `text` names. Errors: `ValueError` for any text but "s_p" in decimal digits.

        >>> TaskId.parse("0_3")
        TaskId(subtopology=0, partition=3)
        >>> TaskId.parse("0-3")
        Traceback (most recent call last):
        ValueError: found '0-3', expected a task id like '0_3'
        """
        if isinstance(text, str) and text.isascii():
            left, _, right = text.partition("_")
            if left.isdigit() and right.isdigit():
                task = cls(int(left), int(right))
                if str(task) == text:  # only one spelling is valid: "00_3" is not an id
                    return task
        raise ValueError(f"found {text!r}, expected a task id like '0_3'")
