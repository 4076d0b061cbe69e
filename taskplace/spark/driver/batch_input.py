"""The input of a stream's batches: one data frame with the rows of all sources.

Every frame is checked against the topology, and against what earlier batches have fixed. The checkpoint is bound to the
key types of its sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from taskplace.errors import InputError
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.compile import programs
from taskplace.spark.compile.partition_columns import partition_columns, row_schemas
from taskplace.spark.compile.sources import Fixed, key_types
from taskplace.spark.driver.definition import StreamDefinition
from taskplace.spark.driver.staging import SinkSchemas
from taskplace.spark.worker.external import PARTITION, TAG


@dataclass(frozen=True, eq=False)
class BatchInput:
    """Unites the sources of one stream. Lifetime: one for each driver."""

    definition: StreamDefinition
    journal: Journal
    schemas: SinkSchemas

    def unite(self, sources: Mapping[str, DataFrame]) -> DataFrame:
        """Return one data frame of all sources, given by topic. Errors: as for `programs.unite`."""
        built = self.definition.built
        united = programs.unite(built, sources, self._fixed())
        self.journal.bind_splits(sources, partition_columns(built))
        schemas = row_schemas(built, {topic: df.schema for topic, df in sources.items()})
        self.journal.bind_keys(key_types(built, schemas))
        return united

    def of_batch(self, df: DataFrame) -> DataFrame:
        """Return the united rows of a batch; `df` has them, or the rows of the single source. Errors: `InputError`."""
        topics = programs.external_topics(self.definition.built)
        columns = list(getattr(df, "columns", ()))  # those of pandas are no list
        if columns[:2] == [TAG, PARTITION] and set(columns[2:]) == set(topics):
            return df
        if not hasattr(df, "schema") or not hasattr(df, "isStreaming"):
            raise InputError("process_batch: df", found=df, expected="the data frame of the batch")
        if len(topics) != 1:
            raise InputError(
                "process_batch",
                found=columns,
                expected=f"the data frame that unite({sorted(topics)}) gives",
            )
        return self.unite(dict.fromkeys(topics, df))

    def _fixed(self) -> Fixed:
        """Return what the checkpoint, or a declaration, has fixed: the schemas of sinks and the types of keys."""
        sinks = [node.name for node in self.definition.built.nodes if node.kind == "sink"]
        identity = self.journal.identity
        return Fixed(self.schemas.of(sinks, identity), identity.get("keys") or {})
