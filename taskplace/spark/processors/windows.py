"""Windows of event time: which window a row is in, and when a window closes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskplace.durations import Duration, milliseconds
from taskplace.spark.state.expiry import LAST, micros, slot_starts
from taskplace.spark.types import column_of
from taskplace.validation import named

#: The column with the start of a row's window, which a windowed processor adds to its key.
WINDOW = "window_start"


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Consecutive windows of event time, counted from 1970 (UTC). Each row is in exactly one window.

    - `column`: the rows' event time, a timestamp
    - `size`: the length of a window, a duration with its unit ("1 hour")
    - `grace`: how long after a window's end rows are still accepted, measured by the watermark; then the window closes
      and expires
    - `emit`: "changes" emits every window that a batch touched; "final" emits each window once, when it closes
    - `time`: adds an output column of this name with the window's event time: its end less a microsecond, as Spark's
      `window_time`. A window over these rows uses this column, or `window_start`

    A row without an event time is in no window: it is dropped, and counted as late.

    Errors: `InputError` for what is no duration above 0 (`grace` may be 0), or a column that is no text.

    Source: Kafka Streams' `TimeWindows.ofSizeAndGrace`. Departure: `grace` is measured by the batch's watermark.

    >>> hours = Tumbling("at", "1 hour", grace="10 minutes")
    >>> hours.size_ms, hours.closes_ms
    (3600000, 4200000)
    """

    column: str
    size: Duration
    grace: Duration = 0
    emit: Literal["changes", "final"] = "changes"
    time: str | None = None

    def __post_init__(self) -> None:
        named(self.column, "Tumbling.column", "the name of a timestamp column")
        if self.time is not None:
            named(self.time, f"Tumbling({self.column!r}).time", "a name for a column")
        milliseconds(self.size, f"Tumbling({self.column!r}).size")
        milliseconds(self.grace, f"Tumbling({self.column!r}).grace", zero=True)

    @property
    def size_ms(self) -> int:
        """The length of a window, in milliseconds."""
        return milliseconds(self.size, f"Tumbling({self.column!r}).size")

    @property
    def closes_ms(self) -> int:
        """The time from a window's start until it closes, in milliseconds."""
        return self.size_ms + milliseconds(self.grace, f"Tumbling({self.column!r}).grace", zero=True)

    def starts(self, rows: pa.Table) -> pa.Array:
        """Return the start of each row's window; null for a row without an event time."""
        path = f"Tumbling({self.column!r}).column"
        times, known = micros(column_of(rows, self.column, path), path)
        starts = slot_starts(times, 1000 * self.size_ms)
        return pa.array(starts, pa.int64(), mask=~known).cast(pa.timestamp("us", tz="UTC"))

    def times(self, starts: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the event times of windows with these starts: the last microsecond of each."""
        known, length = starts.is_valid().to_numpy(), 1000 * self.size_ms - 1
        begin = pc.fill_null(starts.cast(pa.int64()), 0).to_numpy()
        ends = np.minimum(begin, LAST - length) + length
        return pa.chunked_array([pa.array(ends, pa.int64(), mask=~known).cast(pa.timestamp("us", tz="UTC"))])
