"""Properties of Spark that an application is likely to set, to find those that were misspelled.

Spark takes any name, and ignores those that it does not know. So a name is only doubted if it is nearly one of these.
The list is not complete: a test compares it with the names in Spark's own classes, none of which may be doubted.
"""

from __future__ import annotations

import difflib

_BY_PREFIX = {
    "": "app.name master local.dir cores.max default.parallelism serializer jars files pyspark.python eventLog.enabled "
    "eventLog.dir speculation locality.wait submit.deployMode submit.pyFiles network.timeout decommission.enabled "
    "rdd.compress io.compression.codec ui.enabled ui.port cleaner.periodicGC.interval rpc.message.maxSize "
    "api.mode remote",
    "executor.": "cores instances memory memoryOverhead memoryOverheadFactor minMemoryOverhead pyspark.memory "
    "extraJavaOptions extraClassPath extraLibraryPath heartbeatInterval heartbeat.maxFailures maxNumFailures",
    "driver.": "cores memory memoryOverhead memoryOverheadFactor minMemoryOverhead maxResultSize host port bindAddress "
    "extraJavaOptions extraClassPath extraLibraryPath",
    "dynamicAllocation.": "enabled initialExecutors minExecutors maxExecutors executorIdleTimeout "
    "cachedExecutorIdleTimeout schedulerBacklogTimeout shuffleTracking.enabled shuffleTracking.timeout "
    "executorAllocationRatio",
    "speculation.": "interval multiplier quantile minTaskRuntime efficiency.enabled",
    "locality.wait.": "process node rack",
    "task.": "cpus maxFailures maxDirectResultSize reaper.enabled reaper.killTimeout",
    "scheduler.": "mode allocation.file minRegisteredResourcesRatio maxRegisteredResourcesWaitingTime revive.interval",
    "memory.": "fraction storageFraction offHeap.enabled offHeap.size",
    "shuffle.": "compress file.buffer manager reduceLocality.enabled service.enabled service.db.enabled service.port "
    "file.buffer.kb spill.compress sort.bypassMergeThreshold",
    "storage.decommission.": "enabled rddBlocks.enabled shuffleBlocks.enabled fallbackStorage.path",
    "jars.": "packages repositories excludes ivy",
    "python.": "worker.reuse worker.faulthandler.enabled worker.idleTimeoutSeconds",
    "excludeOnFailure.": "enabled timeout",
    "sql.": "shuffle.partitions adaptive.enabled adaptive.coalescePartitions.enabled session.timeZone timestampType "
    "ansi.enabled caseSensitive warehouse.dir extensions autoBroadcastJoinThreshold files.maxPartitionBytes "
    "files.openCostInBytes parquet.compression.codec parquet.mergeSchema sources.partitionOverwriteMode "
    "execution.arrow.maxRecordsPerBatch execution.arrow.pyspark.enabled execution.arrow.sparkr.enabled "
    "catalogImplementation",
    "sql.streaming.": "checkpointLocation metricsEnabled schemaInference stopTimeout pollingDelay minBatchesToRetain "
    "noDataMicroBatches.enabled stateStore.providerClass stateStore.unloadOnCommit stateStore.maintenanceInterval "
    "stateStore.rocksdb.compactOnCommit numRecentProgressUpdates",
    "yarn.": "queue maxAppAttempts am.memory am.cores executor.nodeLabelExpression dist.files dist.pyFiles archive",
    "kubernetes.": "namespace container.image driver.pod.name executor.request.cores executor.limit.cores "
    "driver.podTemplateFile executor.podTemplateFile authenticate.driver.serviceAccountName",
}
KNOWN = frozenset(f"spark.{prefix}{name}" for prefix, names in _BY_PREFIX.items() for name in names.split())
#: Names below these are anybody's: of other systems, of the environment, of catalogs and plugins.
_OPEN = (
    "spark.hadoop.",
    "spark.executorEnv.",
    "spark.yarn.appMasterEnv.",
    "spark.sql.catalog.",
    "spark.metrics.conf.",
)
#: How alike two names are that differ by a letter or two.
_ALIKE = 0.94


def misspelled(name: str) -> str:
    """Return the property that a name is likely to mean, or "" if the name is not doubted.

    >>> misspelled("spark.speculaton"), misspelled("spark.executor.Memory"), misspelled("speculation")
    ('spark.speculation', 'spark.executor.memory', 'spark.speculation')
    >>> misspelled("spark.speculation"), misspelled("spark.shop.level"), misspelled("hive.exec.parallel")
    ('', '', '')
    """
    if name in KNOWN or name.startswith(_OPEN):
        return ""
    if not name.startswith("spark."):
        return f"spark.{name}" if f"spark.{name}" in KNOWN else ""
    by_letters = {known.lower(): known for known in KNOWN}
    near = difflib.get_close_matches(name.lower(), by_letters, n=1, cutoff=_ALIKE)
    return by_letters[near[0]] if near else ""
