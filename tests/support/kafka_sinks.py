"""Sinks that write to a real broker, with staged files of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from taskplace.spark.kafka.sink import KafkaSink
from taskplace.spark.targets import Commit, Output


@dataclass
class Stream:
    """One checkpoint with one sink. Each of its sinks is that of another driver."""

    folder: Path
    servers: str
    topic: str
    markers: str
    checkpoint: str
    options: dict[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)

    def sink(self, **more: Any) -> KafkaSink:
        return KafkaSink(
            self.topic,
            servers=self.servers,
            marker_topic=self.markers,
            **{"key": "k", **self.options, **more},
        )

    def opened(self, repeated: int | None = None, **more: Any) -> KafkaSink:
        """Return a sink after the checks of a start, which goes on from what the last sink has kept."""
        sink = self.sink(**more)
        sink.probe()
        output = Output(checkpoint_id=self.checkpoint, sink="out", kept=self.kept, repeated=repeated)
        sink.check_output(output)
        sink.bind(self.checkpoint)
        sink.open_output(output)
        self.kept = sink.kept_output()
        return sink

    def commit(
        self,
        batch: int,
        rows: pa.Table | None = None,
        *,
        check_epoch: Callable[[], None] = lambda: None,
        checksum: str = "m",
    ) -> Commit:
        """Stage rows, by default one with the number of the batch, and return the commit."""
        file = self.folder / f"{batch}.parquet"
        pq.write_table(rows if rows is not None else pa.table({"k": ["a"], "i": [batch]}), file)
        return Commit(
            spark=None,  # type: ignore[arg-type]
            checkpoint_id=self.checkpoint,
            sink="out",
            batch_id=batch,
            files=[file],
            check_epoch=check_epoch,
            read_checksum=lambda: f"{checksum}{batch}",
        )
