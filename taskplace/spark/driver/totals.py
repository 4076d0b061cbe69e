"""What a stream has counted since its checkpoint was created: rows, late rows, and dead letters.

Counters of a driver begin at zero with each start. These continue: each manifest has the totals up to its batch, so
that a batch counts exactly once, whatever fails and however often it is run. Manifests have them beside the schemas of
sinks, in their `identity`; older versions of taskplace ignore and keep them there.

A checkpoint that an older version has made has no totals. They begin with the first batch that is counted, `since`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
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
    - `bad`: by source, records that became dead letters

    >>> Totals(since=0, rows=5, late=1).with_batch([]) == Totals(since=0, rows=5, late=1)
    True
    """

    since: int = 0
    rows: int = 0
    late: int = 0
    bad: Mapping[str, int] = field(default_factory=dict)

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
            bad=kept.get("bad", {}),
        )

    def with_batch(self, reports: Iterable[Report]) -> Totals:
        """Return the totals with one more batch, of which `reports` has all."""
        rows, late, bad = self.rows, self.late, Counter(self.bad)
        for report in reports:
            rows, late = rows + report.rows, late + report.late
            bad.update(report.bad)
        return Totals(self.since, rows, late, dict(bad))

    def to_dict(self) -> dict[str, Any]:
        """Return the totals as JSON data, for a manifest."""
        return asdict(self)
