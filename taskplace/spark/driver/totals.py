"""What a stream has counted since its checkpoint was created: rows, and late rows.

Counters of a driver begin at zero with each start. These continue: each manifest has the totals up to its batch, so
that a batch counts exactly once, whatever fails and however often it is run. Manifests have them beside the schemas of
sinks, in their `identity`; older versions of taskplace ignore and keep them there.

A checkpoint that an older version has made has no totals. They begin with the first batch that is counted, `since`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from taskplace.spark.messages import Manifest, Report

#: The key of the totals in an `identity`.
TOTALS = "totals"


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of a checkpoint.

    - `since`: the first batch that is counted; 0 is all of them
    - `rows`: from all sources
    - `late`: rows that stores dropped because they were late

    >>> Totals(since=0, rows=5, late=1).with_batch([]) == Totals(since=0, rows=5, late=1)
    True
    """

    since: int = 0
    rows: int = 0
    late: int = 0

    @classmethod
    def of(cls, last: Manifest | None) -> Totals:
        """Return the totals of a manifest; zero without one, and without totals in it."""
        if last is None:
            return cls()
        kept: Mapping[str, Any] = last.identity.get(TOTALS) or {}
        return cls(
            since=int(kept.get("since", last.batch + 1)),
            rows=int(kept.get("rows", 0)),
            late=int(kept.get("late", 0)),
        )

    def with_batch(self, reports: Iterable[Report]) -> Totals:
        """Return the totals with one more batch, of which `reports` has all."""
        rows = late = 0
        for report in reports:
            rows, late = rows + report.rows, late + report.late
        return Totals(self.since, self.rows + rows, self.late + late)

    def to_dict(self) -> dict[str, int]:
        """Return the totals as JSON data, for a manifest."""
        return asdict(self)
