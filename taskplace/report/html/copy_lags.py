"""Turns the lags of copies, sample by sample, into one series for each copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskplace.record.html.values import CopyLag

#: A copy: its instance and its task.
Copy = tuple[str, str]
#: The copies that lack something at one time: their lag in records, and their role.
LagsNow = Mapping[Copy, tuple[int, str]]

#: The most copies with a series; the largest lags come first.
MOST_COPIES = 100


def copy_lags(
    samples: Sequence[LagsNow], notes: Mapping[Copy, str] | None = None
) -> tuple[tuple[CopyLag, ...], int]:
    """Return the copies with the largest lags, and how many further copies lacked something.

    `notes`: more about a copy, in words. O(lags in the samples).

    >>> copies, more = copy_lags([{("a", "0_0"): (40, "standby")}, {}])
    >>> copies[0].peak, copies[0].last, copies[0].values, more
    (40, 0, (40, 0), 0)
    """
    peaks: dict[Copy, int] = {}
    roles: dict[Copy, str] = {}
    for sample in samples:
        for copy, (lag, role) in sample.items():
            peaks[copy] = max(lag, peaks.get(copy, 0))
            roles[copy] = role
    chosen = sorted(peaks, key=lambda copy: (-peaks[copy], copy))[:MOST_COPIES]
    found = []
    for instance, task in chosen:
        copy = (instance, task)
        values = tuple(sample[copy][0] if copy in sample else 0 for sample in samples)
        note = (notes or {}).get(copy, "")
        found.append(CopyLag(task, instance, roles[copy], values[-1], peaks[copy], values=values, note=note))
    return tuple(found), len(peaks) - len(chosen)
