"""A stream of any topology on a local cluster."""

from __future__ import annotations

import pyarrow.parquet as pq


class Stream:
    """A topology that runs batches of plain rows. Its sinks are directories in `folder`."""

    def __init__(self, spark, folder, topology, schemas) -> None:
        self.spark, self.folder, self.schemas = spark, folder, schemas
        self.batch = 0
        self.open(topology)

    def open(self, topology) -> None:
        from taskplace.spark import Placed

        config = {"num.standby.replicas": 1, "acceptable.recovery.lag": 0}
        where = {"checkpoint": self.folder / "checkpoint", "state_dir": self.folder / "state"}
        self.placed = Placed(self.spark, topology, config=config, **where)

    def reopen(self, topology) -> None:
        """Restart the driver with another topology."""
        self.placed.close()
        self.open(topology)

    def run(self, **rows) -> None:
        frames = {
            topic: self.spark.createDataFrame(rows.get(topic, []), schema).coalesce(1)
            for topic, schema in self.schemas.items()
        }
        self.placed.process_batch(self.placed.unite(frames), self.batch)
        self.batch += 1

    def rows(self, sink: str) -> list[dict]:
        """Return all rows of a sink, batch by batch."""
        folders = sorted((self.folder / sink).glob("batch_id=*"), key=lambda p: int(p.name.split("=")[1]))
        files = [file for folder in folders for file in sorted(folder.glob("*.parquet"))]
        return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]

    def latest(self, sink: str, key: str, value: str) -> dict:
        """Return the newest value of each key in a sink."""
        return {row[key]: row[value] for row in self.rows(sink)}


def parquet(folder):
    from taskplace.spark import ParquetSink

    return ParquetSink(folder)
